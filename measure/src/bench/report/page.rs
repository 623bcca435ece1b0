//! The page as a whole.

use jiff::Timestamp;
use minijinja::Error;
use minijinja::value::Serde;
use serde::Serialize;

use super::sections::{Section, chip, sections, times};
use super::tables::{Table, cells, summary};
use super::view::{Entry, View, what};
use crate::bench::document::{Document, Status};
use crate::bench::recommend::Recommendation;
use crate::bench::table::significant;
use crate::page::{STYLE, environment};

const PAGE: &str = include_str!("templates/page.html");

/// What the template shows.
#[derive(Serialize)]
struct Page<'a> {
    style: &'static str,
    command: &'static str,
    policy: &'static str,
    title: String,
    facts: Vec<Fact>,
    /// The mark of each contestant that was measured, as SVG, with its name.
    contestants: Vec<(String, &'a str)>,
    /// What to choose: lines for each model.
    advice: Vec<Vec<String>>,
    summary: Option<Table>,
    sections: Vec<Section>,
    tables: Vec<Table>,
    problems: Vec<Problem>,
    /// Each with the cells that have it.
    warnings: Vec<(String, Vec<String>)>,
    machines: Vec<Machine>,
}

/// The page of these documents, each with its name; the name of the only one is not shown.
///
/// # Errors
/// When the template cannot be rendered, which no document is a reason for.
pub fn html(documents: &[(&str, &Document)]) -> Result<String, Error> {
    let view = View::new(documents);
    let measured = view.contestants.iter().enumerate().filter(|(index, _)| view.count(*index, Status::Measured) > 0);
    let contestants = measured.map(|(_, of)| (chip(of), of.label.as_str())).collect();
    let environment = environment(&[("page.html", PAGE)])?;
    environment.get_template("page.html")?.render(Serde(Page {
        style: STYLE,
        command: "planish bench",
        policy: "",
        title: title(&view),
        facts: facts(&view),
        contestants,
        advice: advice(&view),
        summary: summary(&view),
        sections: sections(&view),
        tables: cells(&view),
        problems: problems(&view),
        warnings: warnings(&view),
        machines: machines(&view),
    }))
}

fn title(view: &View<'_>) -> String {
    let mut models: Vec<&str> = Vec::new();
    for of in &view.contestants {
        if !models.contains(&of.model) {
            models.push(of.model);
        }
    }
    match models[..] {
        [] => "No artifacts".to_owned(),
        [one] => one.to_owned(),
        [first, second] => format!("{first} and {second}"),
        [first, ..] => format!("{first} and {} others", models.len() - 1),
    }
}

/// A figure that stands out.
#[derive(Serialize)]
struct Fact {
    name: &'static str,
    value: String,
    /// What it is of.
    of: String,
    /// Whether it is a problem.
    bad: bool,
}

fn facts(view: &View<'_>) -> Vec<Fact> {
    let mut facts = Vec::new();
    let Some(base) = view.contestants.first() else { return facts };
    facts.extend(view.documents.iter().flat_map(|(_, of)| &of.recommendations).map(chosen));
    let speeds = (0..view.contestants.len()).filter_map(|index| Some((index, view.mean_speedup(index)?)));
    let fastest = speeds.max_by(|a, b| a.1.0.value.total_cmp(&b.1.0.value));
    if let Some((index, (speed, shapes))) = fastest.filter(|_| facts.is_empty()) {
        let over = if shapes > 1 { format!(", geometric mean over {shapes} shapes") } else { String::new() };
        let is_certain = index == 0 || speed.significant() == Some(true);
        facts.push(Fact {
            name: "Fastest",
            value: format!("{}{}", if is_certain { "" } else { "~" }, times(speed.value)),
            of: match index {
                0 => format!("{}: no other is faster{over}", base.label),
                _ => format!("{} over {}{over}, whatever its accuracy", view.contestants[index].label, base.label),
            },
            bad: false,
        });
    }
    let measured = |index: &usize| view.count(*index, Status::Measured) > 0;
    let size =
        |index: usize| view.largest(index, |cell| cell.model.file_bytes.or(cell.memory.weights).filter(|b| *b > 0));
    let sizes = (0..view.contestants.len()).filter(measured).filter_map(|index| Some((index, size(index)?)));
    if let Some((index, bytes)) = sizes.min_by_key(|of| of.1) {
        let of_base = size(0)
            .filter(|_| index != 0)
            .map(|base| format!(", {:.0} % of the first", bytes as f64 / base as f64 * 100.0));
        facts.push(Fact {
            name: "Smallest",
            value: format!("{} MB", significant(bytes as f64 / 1e6)),
            of: view.contestants[index].label.clone() + &of_base.unwrap_or_default(),
            bad: false,
        });
    }
    let best = view.entries.iter().filter_map(|entry| Some((entry, entry.cell.throughput?.inf_s)));
    if let Some((entry, speed)) = best.max_by(|a, b| a.1.total_cmp(&b.1)) {
        facts.push(Fact {
            name: "Most throughput",
            value: format!("{}/s", significant(speed)),
            of: format!("{}, {}", view.contestant(entry).label, what(entry.cell)),
            bad: false,
        });
    }
    let without = view.entries.iter().filter(|entry| entry.cell.status != Status::Measured).count();
    facts.push(Fact {
        name: "Measured",
        value: format!("{} of {}", view.entries.len() - without, view.entries.len()),
        of: if without == 0 {
            "cells, all that were asked for".to_owned()
        } else {
            "cells; the reasons are below".to_owned()
        },
        bad: without > 0,
    });
    facts
}

/// The contestant to choose of a model.
fn chosen(of: &Recommendation) -> Fact {
    let Some(choice) = &of.choice else {
        return Fact {
            name: "Choose",
            value: "none".to_owned(),
            of: format!("no contestant is {}", of.among()),
            bad: true,
        };
    };
    let accuracy = choice.accuracy.as_ref().map_or_else(String::new, |accuracy| format!("; {accuracy}"));
    let [chosen, base] = choice.names();
    Fact { name: "Choose", value: choice.times(), of: format!("{chosen} over {base}{accuracy}"), bad: false }
}

/// What to choose, and why: a paragraph for each model.
fn advice(view: &View<'_>) -> Vec<Vec<String>> {
    let all = view.documents.iter().flat_map(|(_, of)| &of.recommendations);
    all.map(|of| of.to_string().lines().map(|line| line.trim().to_owned()).collect()).collect()
}

/// Cells of a contestant that have something in common.
#[derive(Serialize)]
struct Problem {
    chip: String,
    contestant: String,
    status: &'static str,
    text: String,
    shapes: Vec<String>,
}

/// What was not measured: of a contestant, cells with one reason are one problem.
fn problems(view: &View<'_>) -> Vec<Problem> {
    let mut problems: Vec<Problem> = Vec::new();
    for entry in
        view.entries.iter().filter(|entry| entry.cell.status != Status::Measured || entry.cell.failure.is_some())
    {
        let of = view.contestant(entry);
        let (status, text) = (entry.cell.status_text(), entry.cell.failure.clone().unwrap_or_default());
        let alike = |other: &&mut Problem| other.contestant == of.label && other.status == status && other.text == text;
        match problems.iter_mut().find(alike) {
            Some(problem) => problem.shapes.push(what(entry.cell)),
            None => problems.push(Problem {
                chip: chip(of),
                contestant: of.label.clone(),
                status,
                text,
                shapes: vec![what(entry.cell)],
            }),
        }
    }
    problems
}

/// Warnings, each with the cells that have it.
fn warnings(view: &View<'_>) -> Vec<(String, Vec<String>)> {
    let mut warnings: Vec<(String, Vec<String>)> = Vec::new();
    let cell = |entry: &Entry<'_>| format!("{}, {}", view.contestant(entry).label, what(entry.cell));
    for (entry, warning) in view.entries.iter().flat_map(|entry| entry.cell.warnings.iter().map(move |of| (entry, of)))
    {
        match warnings.iter_mut().find(|of| of.0 == *warning) {
            Some(of) => of.1.push(cell(entry)),
            None => warnings.push((warning.clone(), vec![cell(entry)])),
        }
    }
    warnings
}

/// Where and how a document was measured: names and values.
#[derive(Serialize)]
struct Machine {
    name: String,
    facts: Vec<(&'static str, String)>,
}

fn machines(view: &View<'_>) -> Vec<Machine> {
    let several = view.documents.len() > 1;
    let machine = |(index, (name, document)): (usize, &(&str, &Document))| Machine {
        name: if several { (*name).to_owned() } else { String::new() },
        facts: machine(view, index, document),
    };
    view.documents.iter().enumerate().map(machine).collect()
}

fn machine(view: &View<'_>, index: usize, document: &Document) -> Vec<(&'static str, String)> {
    let env = &document.env;
    let cells = || view.entries.iter().filter(move |entry| entry.document == index).map(|entry| entry.cell);
    let date = i64::try_from(env.time).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    let cores = if env.cpu.cores == 1 { "1 core".to_owned() } else { format!("{} cores", env.cpu.cores) };
    let model = if env.cpu.model.is_empty() { "unknown processor" } else { &env.cpu.model };
    let mut options: Vec<String> = Vec::new();
    for of in cells().filter(|cell| cell.status == Status::Measured).map(|cell| cell.options) {
        let threads = if of.threads == 0 {
            "threads chosen by the runtime".to_owned()
        } else {
            format!("{} threads", of.threads)
        };
        let text = format!("{threads}, idle threads {}", if of.spin { "poll" } else { "sleep" });
        if !options.contains(&text) {
            options.push(text);
        }
    }
    let range = |values: Vec<usize>| match (values.iter().min(), values.iter().max()) {
        (Some(low), Some(high)) if low == high => Some(low.to_string()),
        (Some(low), Some(high)) => Some(format!("{low} to {high}")),
        _ => None,
    };
    let timed = range(cells().filter_map(|cell| Some(cell.latency_ms.as_ref()?.n)).collect());
    let warm = range(cells().filter(|cell| cell.latency_ms.is_some()).map(|cell| cell.warmup.n).collect());
    let peaks = document.peaks.map(|of| {
        let [f32, int8, gb_s] = [of.tflops, of.int8_tops, of.gb_s].map(significant);
        let reached = |more: Option<f64>| more.map(|tops| format!("; a cell reached {}", significant(tops)));
        let [f32_more, int8_more] = [of.reached_tflops, of.reached_int8_tops].map(|of| reached(of).unwrap_or_default());
        format!(
            "{f32} TFLOP/s (product in float32{f32_more}), {int8} TOP/s (linear layer in INT8{int8_more}), {gb_s} GB/s (copy), \
             {} threads",
            of.threads
        )
    });
    let runtimes: Vec<String> = env.runtimes.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let some = |text: String| (!text.is_empty()).then_some(text);
    let shards = document.measured.len();
    let facts = [
        ("Shards", (shards > 0).then(|| format!("{shards}, of which the first one's machine is described"))),
        ("Where shards were not measured alike", some(document.unlike().join("; "))),
        ("Measured", date.map(|date| date.strftime("%Y-%m-%d %H:%M UTC").to_string())),
        ("Processor", Some(format!("{model}, {cores}"))),
        ("Instruction sets", some(env.cpu.flags.join(", "))),
        ("Frequency governor", env.cpu.governor.clone()),
        ("System", some(env.os.clone())),
        ("Runtimes", some(runtimes.join(", "))),
        ("Sessions", some(options.join("; "))),
        ("Timed runs of a cell", timed),
        ("Runs before them", warm),
        ("Measured peaks", peaks),
        (
            "Most memory of the process",
            document.peak_rss.map(|bytes| format!("{} MB", significant(bytes as f64 / 1e6))),
        ),
        ("planish", Some(document.tool.version.clone())),
        ("Arguments", some(document.tool.args.join(" "))),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}
