//! `planish profile`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use planish_artifact::backend::RuntimeSettings;
use planish_artifact::files;
use planish_data::read_inputs;
use planish_measure::inspect::Asked;
use planish_measure::profile::{PartProfile, Profile, ProfileOptions, TimeShare, flame, profile, trace};

use super::{RunOn, note, overwrites, print, print_json};

/// Show where the time of a run goes, by layer and by operator
///
/// The runtime records the time of each node in several runs; the tables have the means over the middle half of the runs
/// by their times, so they add up. Layers are the modules of
/// the checkpoint, such as encoder.layer.0; for graphs of other exporters, planish takes them from the names of nodes and
/// weights. `total` of a layer is the time of all its nodes, `self` the time of those that are in no module below it. `total` of
/// an operator is its time with the nodes inside it, such as those of an `If`.
///
/// planish runs the model without recording in turns with the recorded runs, and says how much of that latency the nodes
/// account for.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The folder of an artifact, or an .onnx file
    model: PathBuf,
    /// Rows [default: 1]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Tokens of a row [default: 128, or as many as the model takes if that is less]
    #[arg(long, value_name = "N")]
    seq: Option<usize>,
    /// Cached tokens in front of them, for a decoder [default: 0]
    #[arg(long, value_name = "N")]
    past: Option<usize>,
    /// The part of an encoder-decoder that is profiled [default: each part]
    #[arg(long, value_name = "NAME")]
    part: Option<String>,
    /// A file with values of inputs (.safetensors or .npz), by their names; planish makes up the others from a seed
    #[arg(long, value_name = "FILE")]
    inputs: Option<PathBuf>,
    /// The number of recorded runs
    #[arg(long, default_value_t = 20, value_name = "N")]
    runs: usize,
    /// The number of threads of the runtime [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Draw a flame graph of the modules in an SVG file
    #[arg(long, value_name = "FILE")]
    flame: Option<PathBuf>,
    /// Write the recorded run of the median time as a trace for chrome://tracing and ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print JSON instead of text, with the time of each node
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run_on: RunOn,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let outputs = [("--flame", arguments.flame.as_deref()), ("--trace", arguments.trace.as_deref())];
    overwrites::check(outputs, [arguments.model.as_path()], arguments.inputs.as_deref())?;
    for path in [&arguments.flame, &arguments.trace].into_iter().flatten() {
        files::check_writable(path)?;
    }
    let options = ProfileOptions {
        asked: Asked { batch: arguments.batch, sequence: arguments.seq, past: arguments.past },
        part: arguments.part.clone(),
        runs: arguments.runs,
        threads: arguments.threads.unwrap_or(0).into(),
        settings: RuntimeSettings { runtime: arguments.run_on.name, ..arguments.run_on.options.sleeping() },
        inputs: arguments.inputs.as_deref().map(read_inputs).transpose()?.unwrap_or_default(),
        seed: 0,
    };
    let found = profile(&arguments.model, &options, &mut note)?;
    if let Some(path) = &arguments.flame {
        files::write(path, flame(&found).as_bytes())?;
    }
    if let Some(path) = &arguments.trace {
        files::write(path, trace(&found).context("the trace cannot be written")?.as_bytes())?;
    }
    if arguments.json { print_json(&found) } else { print(&text(&found)) }
}

fn text(profile: &Profile) -> String {
    let sizes = [
        profile.batch.map(|n| format!("{n} rows")),
        profile.sequence.map(|n| format!("{n} tokens a row")),
        profile.past.filter(|n| *n > 0).map(|n| format!("{n} cached tokens")),
        (profile.threads > 0).then(|| format!("{} threads", profile.threads)),
    ];
    let sizes: String = sizes.into_iter().flatten().map(|size| format!(", {size}")).collect();
    let head = format!("{} on {}{sizes}\n", profile.model, profile.runtime);
    head + &profile.parts.iter().map(part).collect::<String>()
}

/// How far the sum of the nodes may be from the latency without a remark.
const CLOSE: f64 = 0.05;

fn part(part: &PartProfile) -> String {
    let PartProfile { name, latency_ms, recorded_ms, nodes_ms, runs, .. } = part;
    let accounted = part.accounted();
    let mut text = format!(
        "\n{name}: {latency_ms:.3} ms without recording, {recorded_ms:.3} ms with it (the middle half of {runs} runs); its {} nodes \
         take {nodes_ms:.3} ms, {:.1}% of the latency\n",
        part.nodes.len(),
        accounted * 100.0
    );
    let rest = latency_ms - nodes_ms;
    if accounted < 1.0 - CLOSE {
        text += &format!(
            "{rest:.3} ms, {:.1}% of the latency, are in no node: the runtime spends them between nodes\n",
            (1.0 - accounted) * 100.0
        );
    } else if accounted > 1.0 + CLOSE {
        text += &format!(
            "recorded nodes take {:.3} ms more than runs without recording: recording adds some microseconds to each node, \
             which matters for small models\n",
            -rest
        );
    }
    let providers: Vec<String> =
        part.providers.iter().map(|(name, count)| format!("{count} nodes on {name}")).collect();
    text += &format!("{}\n\n", providers.join(", "));
    text += &table("layer", &part.layers, &[("GFLOP/s", |share| share.flops)]);
    let rates: [Rate; 2] = [("GFLOP/s", |share| share.flops), ("GB/s", |share| share.bytes)];
    text += &format!("\n\n{}\n", table("operator", &part.operators, &rates));
    text
}

/// The unit of a rate, and what is divided by the time.
type Rate = (&'static str, fn(&TimeShare) -> Option<u64>);

/// Thousands of millions a second; `-` where the amount is not known.
fn rate(amount: Option<u64>, ms: f64) -> String {
    let rate = amount.filter(|_| ms > 0.0).map(|amount| amount as f64 / ms / 1e6);
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"))
}

/// Rows of times.
fn table(first: &str, rows: &[TimeShare], rates: &[Rate]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    let names = [first, "nodes", "self ms", "total ms", "share"];
    table.set_header(names.into_iter().chain(rates.iter().map(|(unit, _)| *unit)));
    for row in rows {
        let cells = [
            // A bar would end the cell in Markdown.
            row.name.replace('|', "\\|"),
            row.nodes.to_string(),
            format!("{:.3}", row.self_ms),
            format!("{:.3}", row.total_ms),
            format!("{:.1}%", row.share * 100.0),
        ];
        table.add_row(cells.into_iter().chain(rates.iter().map(|(_, amount)| rate(amount(row), row.total_ms))));
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}
