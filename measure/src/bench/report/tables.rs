//! The tables of the page.

use planish_artifact::evaluation::{Evaluation, Figure};
use serde::Serialize;

use super::sections::{chip, exact, times};
use super::view::{self, Contestant, Entry, View};
use crate::bench::document::{Cell, Status};
use crate::bench::figures::Bound;
use crate::bench::table::significant;

/// A table: a row begins with a contestant.
#[derive(Serialize)]
pub(super) struct Table {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// What it shows.
    pub(super) text: &'static str,
    pub(super) columns: Vec<Head>,
    pub(super) groups: Vec<Rows>,
}

/// Rows below a heading, which is empty where the table has only one group.
#[derive(Serialize)]
pub(super) struct Rows {
    pub(super) title: String,
    pub(super) rows: Vec<Row>,
}

/// The head of a column.
#[derive(Clone, Serialize)]
pub(super) struct Head {
    pub(super) name: &'static str,
    /// What it is, in a sentence.
    pub(super) what: &'static str,
    /// Whether it has words, not numbers.
    pub(super) words: bool,
}

/// A row of a contestant.
#[derive(Serialize)]
pub(super) struct Row {
    /// Its mark as SVG.
    pub(super) chip: String,
    pub(super) contestant: String,
    pub(super) cells: Vec<String>,
}

/// What stands where there is nothing.
const NOTHING: &str = "–";

/// A column of a table of `T`: its name, what it counts, empty for words, and its text, absent where there is nothing.
type Column<T> = (&'static str, &'static str, fn(&View<'_>, &T) -> Option<String>);

/// The rows of a group before their texts: each with the place of its contestant.
type Group<T> = (String, Vec<(usize, T)>);

impl Table {
    /// A table of these rows with the columns that have something; `None` without a row.
    fn of<T>(
        (id, title, text): (&'static str, &'static str, &'static str),
        view: &View<'_>,
        name: for<'a> fn(&'a Contestant<'a>) -> &'a str,
        groups: &[Group<T>],
        columns: &[Column<T>],
    ) -> Option<Self> {
        let all = || groups.iter().flat_map(|(_, rows)| rows);
        let filled = |(_, _, text): &&Column<T>| all().any(|(_, of)| text(view, of).is_some());
        let columns: Vec<&Column<T>> = columns.iter().filter(filled).collect();
        let row = |(contestant, of): &(usize, T)| {
            let text = |(_, _, text): &&Column<T>| text(view, of).unwrap_or_else(|| NOTHING.to_owned());
            let contestant = &view.contestants[*contestant];
            let cells = columns.iter().map(text).collect();
            Row { chip: chip(contestant), contestant: name(contestant).to_owned(), cells }
        };
        let rows = |(title, rows): &Group<T>| Rows { title: title.clone(), rows: rows.iter().map(row).collect() };
        let groups: Vec<Rows> = groups.iter().map(rows).collect();
        let head = |(name, what, _): &&Column<T>| Head { name, what, words: what.is_empty() };
        let columns = columns.iter().map(head).collect();
        all().next().map(|_| Self { id, title, text, columns, groups })
    }
}

/// The contestants, a row each.
pub(super) fn summary(view: &View<'_>) -> Option<Table> {
    let rows = (0..view.contestants.len()).map(|index| (index, index)).collect();
    let columns: &[Column<usize>] = &[
        ("runtime", "", |view, of| Some(view.contestants[*of].runtime.to_owned())),
        ("precision", "", |view, of| Some(view.contestants[*of].precision.to_owned())),
        (
            "speed-up",
            "Times as fast as the first contestant: geometric mean over the shapes of both; ~ where its 95% interval has 1 in it",
            |view, of| {
                let (mean, _) = view.mean_speedup(*of)?;
                let is_certain = *of == 0 || mean.significant() == Some(true);
                Some(format!("{}{}", if is_certain { "" } else { "~" }, times(mean.value)))
            },
        ),
        ("size MB", "Bytes of the files that the runtime reads, or of the weights in them", |view, of| {
            view.largest(*of, |cell| cell.model.file_bytes.or(cell.memory.weights).filter(|b| *b > 0)).map(megabytes)
        }),
        ("resident MB", "Memory that loading adds", |view, of| {
            view.largest(*of, |cell| cell.memory.load_rss).map(megabytes)
        }),
        ("peak MB", "The most memory of a process that runs once", |view, of| {
            view.largest(*of, |cell| cell.memory.peak_rss).map(megabytes)
        }),
        ("peak MB, repeated", "The most memory of a process that goes on to run", |view, of| {
            view.largest(*of, |cell| cell.memory.repeated_rss).map(megabytes)
        }),
        ("load ms", "Time to load it, the shortest of its cells", |view, of| {
            let loads = view.of(*of).map(|entry| entry.cell.load.ms).filter(|ms| *ms > 0.0);
            loads.reduce(f64::min).map(significant)
        }),
        (
            "cosine",
            "On data the mean cosine with the model in float32, else the worst of an output with the reference",
            |view, of| {
                let gate = view.of(*of).filter_map(|entry| Some(entry.cell.accuracy?.cos)).reduce(f64::min);
                figure(view, *of, Figure::Cosine).or(gate).map(exact)
            },
        ),
        ("neighbours %", "Samples whose nearest other sample stays the same, with the 95% interval", |view, of| {
            figure(view, *of, Figure::Neighbours).map(|v| format!("{v:.1}{}", ends(view, *of, Figure::Neighbours, 1)))
        }),
        ("top-1 %", "Predictions with the same label or token on top, with the 95% interval", |view, of| {
            figure(view, *of, Figure::Top1).map(|v| format!("{v:.2}{}", ends(view, *of, Figure::Top1, 2)))
        }),
        ("KL nats", "Mean divergence of the predictions from those in float32", |view, of| {
            figure(view, *of, Figure::Divergence).map(|v| format!("{v:.2e}"))
        }),
        ("perplexity ratio", "Perplexity over that in float32, with the 95% interval", |view, of| {
            let of_data = |v: f64| format!("{}{}", exact(v), ends(view, *of, Figure::Perplexity, 4));
            figure(view, *of, Figure::Perplexity).map(of_data)
        }),
        ("compared on", "Samples, predictions or tokens that the accuracy on data is of", |view, of| {
            let figures = [Figure::Perplexity, Figure::Neighbours, Figure::Top1, Figure::Cosine];
            let (_, count) = figures.into_iter().find_map(|figure| certainty(view, *of, figure))?;
            Some(count.to_string())
        }),
        ("measured", "Cells with a speed, of all", |view, of| {
            Some(format!("{} of {}", view.count(*of, Status::Measured), view.of(*of).count()))
        }),
    ];
    Table::of(("summary", "Contestants", ""), view, |of| &of.name, &[(String::new(), rows)], columns)
}

fn figure(view: &View<'_>, contestant: usize, figure: Figure) -> Option<f64> {
    let of = |evaluation: &Evaluation| evaluation.figure(figure).filter(|v| v.is_finite());
    view.of(contestant).find_map(|entry| of(entry.cell.evaluation.as_ref()?))
}

fn certainty(view: &View<'_>, contestant: usize, figure: Figure) -> Option<([f64; 2], u64)> {
    view.of(contestant).find_map(|entry| entry.cell.evaluation.as_ref()?.certainty(figure))
}

/// The 95% interval of a figure after it.
fn ends(view: &View<'_>, contestant: usize, figure: Figure, digits: usize) -> String {
    let ends = certainty(view, contestant, figure);
    ends.map_or_else(String::new, |([low, high], _)| format!(" ({low:.digits$} to {high:.digits$})"))
}

fn megabytes(bytes: u64) -> String {
    significant(bytes as f64 / 1e6)
}

/// A number of milliseconds, if there is one.
fn ms(value: Option<f64>) -> Option<String> {
    value.map(significant)
}

/// The tables of cells: all of them, and those with figures that others do not have.
pub(super) fn cells<'a>(view: &View<'a>) -> Vec<Table> {
    let table = |words, wanted: fn(&Cell) -> bool, columns: Vec<Column<Entry<'a>>>| {
        let group = |of: &view::Group<'a>| {
            let entries = of.entries.iter().filter(|entry| wanted(entry.cell));
            let rows: Vec<(usize, Entry<'a>)> = entries.map(|entry| (entry.contestant, *entry)).collect();
            (!rows.is_empty()).then(|| (of.title.clone(), rows))
        };
        let groups: Vec<Group<Entry<'a>>> = view.groups.iter().filter_map(group).collect();
        Table::of(words, view, |of| &of.label, &groups, &columns)
    };
    let all =
        "A cell is a contestant with a shape. Times are of the host, in milliseconds, unless a column says otherwise.";
    let tables = [
        table(("cells", "All cells", all), |_| true, cells_columns()),
        table(("generation", "Generation", "Times are medians."), |of| of.generation.is_some(), generation_columns()),
        table(
            ("padding", "Texts of different lengths", "Each batch is padded to its longest text."),
            |of| of.padding.is_some(),
            padding_columns(),
        ),
        table(
            ("device", "Times of the device", "By trtexec's definitions: CUDA events, medians, in milliseconds."),
            |of| of.device.is_some(),
            device_columns(),
        ),
    ];
    tables.into_iter().flatten().collect()
}

fn cells_columns<'a>() -> Vec<Column<Entry<'a>>> {
    vec![
        ("median", "Median latency", |_, of| {
            let median = of.cell.latency_ms.as_ref().map(|l| significant(l.p50));
            Some(median.unwrap_or_else(|| of.cell.status_text().to_owned()))
        }),
        ("±CI", "Half of the 95% interval of the median", |_, of| {
            ms(of.cell.latency_ms.as_ref()?.ci95.map(|[low, high]| (high - low) / 2.0))
        }),
        ("min", "Least latency", |_, of| ms(Some(of.cell.latency_ms.as_ref()?.min))),
        ("mean", "Mean latency", |_, of| ms(Some(of.cell.latency_ms.as_ref()?.mean))),
        ("p90", "90th percentile, where ten samples are beyond it", |_, of| ms(of.cell.latency_ms.as_ref()?.p90)),
        ("p95", "95th percentile, where ten samples are beyond it", |_, of| ms(of.cell.latency_ms.as_ref()?.p95)),
        ("p99", "99th percentile, where ten samples are beyond it", |_, of| ms(of.cell.latency_ms.as_ref()?.p99)),
        ("runs", "Timed runs", |_, of| Some(of.cell.latency_ms.as_ref()?.n.to_string())),
        ("inf/s", "Rows a second, from the median", |_, of| ms(of.cell.throughput.map(|t| t.inf_s))),
        ("tok/s", "Tokens a second without padding, from the median", |_, of| {
            Some(format!("{:.0}", of.cell.throughput?.tok_s?))
        }),
        ("speed-up", "Times as fast as the first contestant", |view, of| {
            let ratio = view.speedup(of)?;
            let certain = of.contestant == 0 || ratio.significant() == Some(true);
            Some(format!("{}{}", if certain { "" } else { "~" }, times(ratio.value)))
        }),
        ("TFLOP/s", "Operations a second, in units of 10¹²", |_, of| ms(of.cell.roofline.map(|r| r.tflops))),
        ("MFU %", "Model FLOPs utilization: operations a second as a share of the measured peak", |_, of| {
            Some(format!("{:.1}", of.cell.roofline?.mfu * 100.0))
        }),
        ("roofline %", "The least time that the measured peaks allow, as a share of the median", |_, of| {
            Some(format!("{:.1}", of.cell.roofline?.share * 100.0))
        }),
        ("bound", "", |_, of| {
            Some(match of.cell.roofline?.bound {
                Bound::Compute => "compute".to_owned(),
                Bound::Memory => "memory".to_owned(),
            })
        }),
        ("joules", "Energy of a run", |_, of| Some(significant(of.cell.energy?.joules))),
        ("cosine", "The least cosine of an output with the reference", |_, of| Some(exact(of.cell.accuracy?.cos))),
        ("max error", "The largest relative error of an output", |_, of| {
            Some(format!("{:.1e}", of.cell.accuracy?.max_rel))
        }),
        ("nodes", "", |_, of| {
            let each = of
                .cell
                .providers
                .as_ref()?
                .iter()
                .map(|(name, count)| format!("{count} {}", name.strip_suffix("ExecutionProvider").unwrap_or(name)));
            Some(each.collect::<Vec<_>>().join(", "))
        }),
    ]
}

fn generation_columns<'a>() -> Vec<Column<Entry<'a>>> {
    vec![
        ("first token ms", "Time to the first new token", |_, of| ms(Some(of.cell.generation?.ttft_ms))),
        ("ms for each", "Time for each token after the first", |_, of| ms(Some(of.cell.generation?.tpot_ms))),
        ("new tokens/s", "Of all rows and the whole run", |_, of| ms(Some(of.cell.generation?.tok_s))),
    ]
}

fn padding_columns<'a>() -> Vec<Column<Entry<'a>>> {
    vec![
        ("batches", "How many the texts make", |_, of| Some(of.cell.padding?.count.to_string())),
        ("tokens", "Tokens of texts", |_, of| Some(of.cell.padding?.real.to_string())),
        ("with padding", "Tokens of batches", |_, of| Some(of.cell.padding?.padded.to_string())),
        ("padding %", "The share of a batch's tokens that are padding", |_, of| {
            let padding = of.cell.padding?;
            let share = 1.0 - padding.real as f64 / padding.padded.max(1) as f64;
            Some(format!("{:.1}", share * 100.0))
        }),
        ("tok/s", "Tokens of texts a second", |_, of| Some(format!("{:.0}", of.cell.throughput?.tok_s?))),
    ]
}

fn device_columns<'a>() -> Vec<Column<Entry<'a>>> {
    vec![
        ("GPU compute", "Between the first and the last kernel", |_, of| {
            ms(Some(of.cell.device.as_ref()?.gpu_compute.median))
        }),
        ("enqueue", "Time of the host to start a run", |_, of| ms(Some(of.cell.device.as_ref()?.enqueue.median))),
        ("H2D", "Copies of inputs to the device", |_, of| ms(Some(of.cell.device.as_ref()?.h2d?.median))),
        ("D2H", "Copies of outputs to the host", |_, of| ms(Some(of.cell.device.as_ref()?.d2h?.median))),
        ("latency", "H2D, GPU compute and D2H", |_, of| ms(Some(of.cell.device.as_ref()?.latency.median))),
        ("queries/s", "Runs by the time of the host for all of them", |_, of| {
            ms(Some(of.cell.device.as_ref()?.throughput))
        }),
    ]
}
