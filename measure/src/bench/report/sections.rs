//! The sections of the page that have plots.

use planish_artifact::evaluation::Figure;
use serde::Serialize;

use super::plots::{Bar, LARGE, Name, Point, Roof, SMALL, Segment, Series, bars, lines, roofline, scatter};
use super::svg::{COLOURS, Svg};
use super::view::{Contestant, Entry, Group, View, what};
use crate::bench::document::{Cell, Workload};
use crate::bench::ratio::Ratio;
use crate::bench::table::significant;

/// The options of `planish bench` that say what a section shows.
const COMPARE: &str = "several artifacts or runtimes, or --compare MODEL";
const OPERATORS: &str = "--set operators";
const PEAKS: &str = "--set peaks=false";
const DATA: &str = "--data FILE";
const ISOLATE: &str = "--set isolate";

/// A section.
#[derive(Serialize)]
pub(super) struct Section {
    /// Its place in a link.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// How to read its plots; why it has none, where it has none.
    pub(super) text: String,
    /// Whether marks have keys instead of names.
    pub(super) keyed: bool,
    /// Names of colours that are not of contestants: their class and text.
    pub(super) legend: Vec<(String, String)>,
    pub(super) plots: Vec<Plot>,
}

/// A plot with what it is of.
#[derive(Serialize)]
pub(super) struct Plot {
    pub(super) caption: String,
    /// As phones show it.
    pub(super) small: String,
    /// As larger screens and paper show it, where that is another drawing.
    pub(super) large: Option<String>,
}

impl Plot {
    fn new(caption: &str, small: String) -> Self {
        Self { caption: caption.to_owned(), small, large: None }
    }
}

/// All sections in their order.
pub(super) fn sections(view: &View<'_>) -> Vec<Section> {
    vec![speedups(view), latencies(view), accuracies(view), memory(view), operators(view), rooflines(view)]
}

/// The mark of a contestant with its key, for legends and tables.
pub(super) fn chip(of: &Contestant<'_>) -> String {
    let r = 8.0 + of.key.len().saturating_sub(2) as f64 * 2.0;
    let mut svg = Svg::new(2.0 * r + 8.0, 22.0);
    svg.mark(of.shape(), of.colour, [r + 4.0, 11.0], &of.key, &of.label);
    svg.decoration()
}

fn section(id: &'static str, title: &'static str, text: &str, plots: Vec<Plot>, missing: &str) -> Section {
    let text = if plots.is_empty() { missing } else { text }.to_owned();
    Section { id, title, text, keyed: false, legend: Vec::new(), plots }
}

fn colour(of: &Contestant<'_>) -> String {
    format!("c{}", of.colour % COLOURS)
}

/// All that is known of the speed of an entry, in words.
fn tip(view: &View<'_>, entry: &Entry<'_>) -> String {
    let cell = entry.cell;
    let mut lines = vec![view.contestant(entry).label.clone(), what(cell)];
    if let Some(latency) = &cell.latency_ms {
        let ends = latency.ci95.map(|[low, high]| format!(" (95% {} to {})", significant(low), significant(high)));
        lines.push(format!("median {} ms{}", significant(latency.p50), ends.unwrap_or_default()));
    }
    if let Some(of) = cell.throughput {
        let tokens = of.tok_s.map_or_else(String::new, |tokens| format!(", {tokens:.0} tokens/s"));
        lines.push(format!("{} inferences/s{tokens}", significant(of.inf_s)));
    }
    lines.join("\n")
}

fn speedups(view: &View<'_>) -> Section {
    let name = view.contestants.first().map_or("", |first| first.label.as_str());
    let plot = |(index, group): (usize, &Group<'_>)| {
        let bar = |entry: &Entry<'_>| {
            let of = view.contestant(entry);
            let ratio = view.speedup(entry);
            let certain =
                |ratio: &crate::bench::ratio::Ratio| entry.contestant == 0 || ratio.significant() == Some(true);
            let text = ratio.map_or_else(
                || entry.cell.status_text().to_owned(),
                |ratio| format!("{}{}", if certain(&ratio) { "" } else { "~" }, times(ratio.value)),
            );
            let ends = ratio.and_then(|of| of.ci95).filter(|_| entry.contestant != 0);
            let interval = ends.map_or_else(String::new, |[low, high]| {
                format!(" (95% {} to {})", significant(low), significant(high))
            });
            let segment = |ratio: Ratio| Segment {
                class: colour(of),
                value: ratio.value,
                text: String::new(),
                tip: format!("{}\n{text} as fast as {name}{interval}", tip(view, entry)),
            };
            let segments = ratio.map(segment).into_iter().collect();
            Bar { label: of.label.clone(), text: text.clone(), segments, ci95: ends }
        };
        let rows: Vec<Bar> = group.entries.iter().map(bar).collect();
        let compared = rows.iter().filter(|bar| !bar.segments.is_empty()).count() > 1;
        let title = format!("Speed-up over {name}: {}", group.title);
        let id = format!("speedup-{index}");
        let drawn = compared.then(|| bars(&Name { id: &id, title: &title }, "times as fast", Some(1.0), &rows))?;
        Some(Plot::new(&group.title, drawn?))
    };
    let plots: Vec<Plot> = view.groups.iter().enumerate().filter_map(plot).collect();
    let text = format!(
        "How many times as fast as {name}: ratios of median latencies. Lines at the ends of bars are 95% intervals; \
         ~ is before a ratio whose interval has 1 in it."
    );
    let missing = match view.contestants.len() {
        0 | 1 => format!("There is nothing to compare: give bench {COMPARE}."),
        _ => format!("No shape was measured of {name} and of another: there is nothing to compare with the first."),
    };
    section("speedup", "Speed-up", &text, plots, &missing)
}

/// Throughput and latency of a cell, and what they count.
fn latency(cell: &Cell) -> Option<([f64; 2], [&'static str; 2])> {
    let median = cell.latency_ms.as_ref()?.p50;
    match (cell.workload, cell.generation) {
        (Workload::Generate, Some(of)) => {
            Some(([of.tok_s, of.tpot_ms], ["new tokens/s, log scale", "ms for each token, log scale"]))
        }
        (Workload::Encode, _) => {
            Some(([cell.throughput?.inf_s, median], ["inferences/s, log scale", "median ms, log scale"]))
        }
        _ => None,
    }
}

fn latencies(view: &View<'_>) -> Section {
    // What a facet has in common: all but the batch size.
    let facet = |entry: &Entry<'_>| {
        let mut cell = entry.cell.clone();
        cell.shape.batch = 0;
        let title = what(&cell).replace("batch 0 × ", "").replace("batch 0", "batches");
        latency(entry.cell).map(|(_, units)| (title, units))
    };
    let mut facets: Vec<(String, [&str; 2])> = Vec::new();
    for found in view.groups.iter().flat_map(|of| &of.entries).filter_map(facet) {
        if !facets.contains(&found) {
            facets.push(found);
        }
    }
    let plot = |(index, wanted): (usize, &(String, [&str; 2]))| {
        let series = |contestant: usize| {
            let of = &view.contestants[contestant];
            let point = |entry: &Entry<'_>| {
                let ([x, y], _) = latency(entry.cell)?;
                let usable = [x, y].iter().all(|v| v.is_finite() && *v > 0.0);
                usable.then(|| Point {
                    text: entry.cell.shape.batch.to_string(),
                    ..base_point(of, [x, y], tip(view, entry))
                })
            };
            let in_facet = |entry: &&Entry<'_>| entry.contestant == contestant && facet(entry).as_ref() == Some(wanted);
            let points = view.groups.iter().flat_map(|of| &of.entries).filter(in_facet).filter_map(point).collect();
            Series { key: of.key.clone(), dash: of.runtime_index, points }
        };
        let all: Vec<Series> = (0..view.contestants.len()).map(series).collect();
        let (title, [x, y]) = wanted;
        let (id, name) = (format!("latency-{index}"), format!("Latency and throughput: {title}"));
        Some(Plot::new(title, lines(&Name { id: &id, title: &name }, x, y, &all)?))
    };
    let plots: Vec<Plot> = facets.iter().enumerate().filter_map(plot).collect();
    let text = "Median latency by throughput. The number in a mark is the batch size, the letter at the end of a line the \
                contestant. Down is faster for one caller, right is more work in a second.";
    let missing = "No cell has a latency; the reasons are below.";
    Section { keyed: true, ..section("latency", "Latency and throughput", text, plots, missing) }
}

/// A point of a contestant, with its key as mark.
fn base_point(of: &Contestant<'_>, [x, y]: [f64; 2], tip: String) -> Point {
    Point { x, y, colour: of.colour, shape: of.shape(), text: of.key.clone(), tip }
}

/// How close outputs are to others, by a figure.
struct Closeness {
    id: &'static str,
    caption: &'static str,
    /// What the axis counts.
    axis: &'static str,
    /// The value of outputs that are equal, and one that the axis goes to at least.
    equal: f64,
    near: f64,
}

fn accuracies(view: &View<'_>) -> Section {
    let evaluated = |contestant, figure| view.of(contestant).find_map(|e| e.cell.evaluation.as_ref()?.figure(figure));
    let gate = |contestant| view.of(contestant).filter_map(|e| Some(e.cell.accuracy?.cos)).reduce(f64::min);
    let plot = |of: &Closeness, figure: &dyn Fn(usize) -> Option<f64>| {
        let point = |contestant: usize| {
            let (own, (speed, shapes)) = (&view.contestants[contestant], view.mean_speedup(contestant)?);
            let speed = speed.value;
            let value = figure(contestant).filter(|v| v.is_finite())?;
            let mean = if shapes > 1 { format!(", geometric mean over {shapes} shapes") } else { String::new() };
            let (speed_text, text) = (significant(speed), exact(value));
            let tip = format!("{}\n{speed_text} times as fast as the first{mean}\n{} {text}", own.label, of.axis);
            // A cosine may be above 1 by rounding.
            let shown = if of.near < of.equal { value.min(of.equal) } else { value };
            Some(base_point(own, [speed, shown], tip))
        };
        let points: Vec<Point> = (0..view.contestants.len()).filter_map(point).collect();
        let name = Name { id: of.id, title: &format!("Accuracy and speed: {}", of.caption) };
        let axes = ("speed-up over the first contestant", of.axis);
        Some(Plot::new(of.caption, scatter(&name, axes, of.near > of.equal, [of.equal, of.near], &points)?))
    };
    let closeness = |id, caption, axis, equal, near| Closeness { id, caption, axis, equal, near };
    let figures = [
        (closeness("accuracy-cos", "Mean cosine", "cosine with float32", 1.0, 0.999), Figure::Cosine),
        (closeness("accuracy-near", "Nearest neighbours kept", "% of samples", 100.0, 99.0), Figure::Neighbours),
        (closeness("accuracy-top1", "Top-1 agreement", "% of predictions", 100.0, 99.0), Figure::Top1),
        (closeness("accuracy-ppl", "Perplexity", "ratio to float32 (1 is equal)", 1.0, 1.01), Figure::Perplexity),
    ];
    let on_data = figures.iter().filter_map(|(of, figure)| plot(of, &|contestant| evaluated(contestant, *figure)));
    let mut plots: Vec<Plot> = on_data.collect();
    let mut text =
        "Accuracy on data by speed. The dashed line joins contestants that no other beats in both.".to_owned();
    if plots.is_empty() {
        let of = closeness("accuracy-gate", "Worst cosine of an output", "cosine with the reference", 1.0, 0.999);
        plots.extend(plot(&of, &gate));
        text = format!(
            "Cosine of the outputs with the reference on made-up inputs, by speed. {DATA} measures accuracy on data."
        );
    }
    let missing = format!("No contestant has accuracy and speed; {DATA} measures accuracy on data.");
    Section { keyed: true, ..section("accuracy", "Accuracy and speed", &text, plots, &missing) }
}

/// A ratio of speeds.
pub(super) fn times(ratio: f64) -> String {
    if ratio < 0.1 { format!("{}×", significant(ratio)) } else { format!("{ratio:.2}×") }
}

/// A number with the digits that tell it from 1.
pub(super) fn exact(value: f64) -> String {
    if (0.0..2.0).contains(&value) { format!("{value:.5}") } else { significant(value) }
}

fn memory(view: &View<'_>) -> Section {
    let size = |of: &Cell| of.model.file_bytes.or(of.memory.weights).filter(|bytes| *bytes > 0);
    type Measure<'a> = (&'a str, &'a str, &'a dyn Fn(&Cell) -> Option<u64>);
    let measures: [Measure<'_>; 4] = [
        ("memory-files", "Files", &size),
        ("memory-load", "Resident after loading", &|of| of.memory.load_rss),
        ("memory-peak", "Peak of a process that runs once", &|of| of.memory.peak_rss),
        ("memory-repeated", "Peak of a process that goes on to run", &|of| of.memory.repeated_rss),
    ];
    let plot = |(id, caption, figure): &Measure<'_>| {
        let bar = |(index, of): (usize, &Contestant<'_>)| {
            let bytes = view.largest(index, figure)?;
            let text = format!("{} MB", significant(bytes as f64 / 1e6));
            let tip = format!("{}\n{caption}: {text}", of.label);
            let segment = Segment { class: colour(of), value: bytes as f64 / 1e6, text: String::new(), tip };
            Some(Bar { label: of.label.clone(), text, segments: vec![segment], ci95: None })
        };
        let rows: Vec<Bar> = view.contestants.iter().enumerate().filter_map(bar).collect();
        Some(Plot::new(caption, bars(&Name { id, title: &format!("Memory: {caption}") }, "MB", None, &rows)?))
    };
    let plots: Vec<Plot> = measures.iter().filter_map(plot).collect();
    let mut text = "Bytes in units of 10⁶, the most of a contestant's cells.".to_owned();
    if view.entries.iter().all(|entry| entry.cell.memory.peak_rss.is_none()) {
        text += &format!(" {ISOLATE} measures the peak of each contestant in a process of its own.");
    }
    let missing = format!("No sizes are known; {ISOLATE} measures each contestant in a process of its own.");
    section("memory", "Memory and size", &text, plots, &missing)
}

fn operators(view: &View<'_>) -> Section {
    let mut totals: Vec<(&str, f64)> = Vec::new();
    for (name, ms) in view.entries.iter().flat_map(|entry| &entry.cell.operators).filter(|(_, ms)| ms.is_finite()) {
        match totals.iter_mut().find(|of| of.0 == name) {
            Some(of) => of.1 += ms,
            None => totals.push((name, *ms)),
        }
    }
    totals.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(b.0)));
    // The last colour is of all others.
    let named: Vec<&str> = totals.iter().map(|of| of.0).take(COLOURS - 1).collect();
    let plot = |(index, group): (usize, &Group<'_>)| {
        let bar = |entry: &Entry<'_>| {
            let of = view.contestant(entry);
            let times = &entry.cell.operators;
            let sum: f64 = times.iter().map(|of| of.1).filter(|ms| ms.is_finite()).sum();
            let share = |ms: f64| format!("{} ms, {:.1} %", significant(ms), ms / sum * 100.0);
            let segment = |class: usize, name: &str, ms: f64| Segment {
                class: format!("o{class}"),
                value: ms,
                text: name.to_owned(),
                tip: format!("{}\n{}\n{name}: {}", of.label, group.title, share(ms)),
            };
            let time = |wanted: &str| times.iter().find(|of| of.0 == wanted && of.1.is_finite() && of.1 > 0.0);
            let known = named.iter().enumerate().filter_map(|(class, name)| Some(segment(class, name, time(name)?.1)));
            let mut segments: Vec<Segment> = known.collect();
            let others = times.iter().filter(|of| !named.contains(&of.0.as_str()) && of.1.is_finite());
            let rest: f64 = others.map(|of| of.1).sum();
            if rest > 0.0 {
                segments.push(segment(COLOURS - 1, "others", rest));
            }
            Bar { label: of.label.clone(), text: format!("{} ms", significant(sum)), segments, ci95: None }
        };
        let rows: Vec<Bar> = group.entries.iter().filter(|entry| !entry.cell.operators.is_empty()).map(bar).collect();
        let (id, title) = (format!("operators-{index}"), format!("Time by operator: {}", group.title));
        Some(Plot::new(&group.title, bars(&Name { id: &id, title: &title }, "ms", None, &rows)?))
    };
    let plots: Vec<Plot> = view.groups.iter().enumerate().filter_map(plot).collect();
    let mut legend: Vec<(String, String)> =
        named.iter().enumerate().map(|(class, name)| (format!("o{class}"), (*name).to_owned())).collect();
    if totals.len() > named.len() {
        legend.push((format!("o{}", COLOURS - 1), format!("{} others", totals.len() - named.len())));
    }
    let text = "The time of one run, by operator, as the runtime's profile has it. Profiled runs are a little slower.";
    let missing = format!("No run was profiled; {OPERATORS} measures it on the runtimes that tell the times of nodes.");
    Section { legend, ..section("operators", "Time by operator", text, plots, &missing) }
}

fn rooflines(view: &View<'_>) -> Section {
    let mut roofs: Vec<Roof> = Vec::new();
    for (name, document) in view.documents {
        let known = |peaks| roofs.iter().any(|roof: &Roof| roof.peaks == peaks);
        if let Some(peaks) = document.peaks.filter(|peaks| !known(*peaks)) {
            let label = if view.documents.len() > 1 { (*name).to_owned() } else { String::new() };
            roofs.push(Roof { label, peaks });
        }
    }
    let point = |entry: &Entry<'_>| {
        let (of, roofline) = (view.contestant(entry), entry.cell.roofline?);
        let usable = [roofline.intensity, roofline.tflops].iter().all(|v| v.is_finite() && *v > 0.0);
        let tip = format!(
            "{}\n{} TFLOP/s, {:.1} % of the peak; {:.1} % of the roofline",
            tip(view, entry),
            significant(roofline.tflops),
            roofline.mfu * 100.0,
            roofline.share * 100.0
        );
        usable.then(|| base_point(of, [roofline.intensity, roofline.tflops], tip))
    };
    let points: Vec<Point> = view.entries.iter().filter_map(point).collect();
    let title = "Roofline: operations a second by operations for each byte";
    let draw = |id, size| roofline(&Name { id, title }, size, &roofs, &points);
    let plots = draw("roofline-small", [SMALL[0], 330.0]).map(|small| Plot {
        caption: "All cells".to_owned(),
        small,
        large: draw("roofline-large", LARGE),
    });
    let text = "Operations a second of each cell below what this machine can do, as measured: the slope is a copy in memory, the \
                flat lines are products of matrices in float32 and in INT8. The distance below the line is what a better \
                program could gain. Bytes are the least that a run moves, so a model that stays in the cache can be above the \
                slope.";
    let missing =
        format!("The operations of the models or the peaks of the machine are not known: {PEAKS} leaves them out.");
    Section { keyed: true, ..section("roofline", "Roofline", text, plots.into_iter().collect(), &missing) }
}
