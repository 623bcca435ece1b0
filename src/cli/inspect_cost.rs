//! The output of `planish inspect --cost`.

use std::path::Path;

use anyhow::Result;
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use planish_artifact::backend::RuntimeSettings;
use planish_data::inputs::Sizes;
use planish_measure::inspect::{
    Asked, Confirmation, LargestBatch, ModelCost, Need, Opened, PartCost, Share, Training, TrainingOptions, Work,
    confirm,
};
use planish_measure::profile::{Process, ProfileOptions, loaded_apart};
use planish_runtimes::tensorrt::bytes_of;

use super::{RuntimeArguments, Usage, bytes_text, count_text};

/// What is estimated beside the cost of a run.
#[derive(clap::Args)]
#[command(next_help_heading = "Estimates")]
pub(super) struct Estimates {
    /// Estimate the memory of a process that loads the model and runs --batch rows once, and find the largest batch that fits
    /// in a memory, e.g. 16G or 16GiB (both 2^34 bytes), or 16GB. The model is loaded to measure what the runtime keeps.
    /// Needs --cost
    #[arg(long, value_name = "SIZE", requires = "cost", value_parser = memory_size)]
    memory: Option<u64>,
    /// Run the largest batch once on its runtime, ort or reference, and a smaller one where that takes more memory than there
    /// is; a large batch takes minutes
    #[arg(long, requires = "memory")]
    confirm: bool,
    /// Estimate what training takes: floating-point operations (6 for each parameter and token), bytes of weights,
    /// gradients and Adam in mixed precision, bytes of activations for --batch rows of --seq tokens
    #[arg(long, requires = "cost")]
    training: bool,
    /// The tokens to train on, e.g. 300G [default: 20 for each parameter]
    #[arg(long, value_name = "N", requires = "training", value_parser = quantity)]
    tokens: Option<f64>,
    /// The peak of the machine to train on in floating-point operations a second, e.g. 312T, to estimate the days
    #[arg(long, value_name = "N", requires = "training", value_parser = quantity)]
    machine_flops: Option<f64>,
    /// The share of that peak that training reaches, more than 0 and at most 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.4, requires = "machine_flops", value_parser = share)]
    utilization: f64,
    #[command(flatten)]
    runtime: RuntimeArguments,
}

/// The value of `--memory`.
fn memory_size(text: &str) -> Result<u64, String> {
    let size = bytes_of(text).filter(|size| *size > 0);
    size.ok_or_else(|| "expected a size, e.g. 16G, 512M or a number of bytes".to_owned())
}

/// A positive number with a unit: k, M, G, T, P or E, powers of 1000.
fn quantity(text: &str) -> Result<f64, String> {
    const UNITS: [(char, f64); 6] = [('k', 1e3), ('M', 1e6), ('G', 1e9), ('T', 1e12), ('P', 1e15), ('E', 1e18)];
    let unit = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(*unit)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1.0));
    let number = number.parse::<f64>().ok().map(|number| number * factor);
    let number = number.filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number more than 0, e.g. 300G, 312T or 1e12".to_owned())
}

/// The value of `--utilization`.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "expected a number more than 0 and at most 1".to_owned())
}

impl Estimates {
    /// Adds what is asked for.
    pub(super) fn add(
        &self,
        cost: &mut ModelCost,
        opened: &mut Opened,
        path: &Path,
        asked: Asked,
        sizes: Sizes,
    ) -> Result<()> {
        if let Some(memory) = self.memory {
            let past = asked.past.unwrap_or(0);
            let settings = RuntimeSettings { sleeping: true, ..self.runtime.settings() };
            let process = process(opened, path, sizes, past, settings.clone());
            let largest = opened.largest_batch(memory, sizes, past, process).map_err(Usage)?;
            if self.confirm {
                cost.confirmed = Some(confirm(opened, path, &largest, asked, settings));
            }
            cost.largest = Some(largest);
        }
        if self.training {
            let options = TrainingOptions {
                tokens: self.tokens,
                machine_flops: self.machine_flops,
                utilization: self.utilization,
            };
            // Layers are found by their attention.
            opened.raise()?;
            cost.training = Some(opened.training(sizes, options));
        }
        Ok(())
    }
}

/// What a process has resident that loads the model, or why that is not known.
fn process(
    opened: &Opened,
    path: &Path,
    sizes: Sizes,
    past: usize,
    settings: RuntimeSettings,
) -> Result<Process, String> {
    if opened.is_native {
        return Err("its memory is that of a GPU".to_owned());
    }
    let needs = opened.least_need(sizes, past)?;
    let options = ProfileOptions { runs: 1, settings, ..ProfileOptions::default() };
    loaded_apart(path, needs, &options).map_err(|error| format!("{error:#}"))
}

/// What a run of a model costs.
pub(super) fn text(path: &Path, cost: &ModelCost) -> String {
    let sizes = [
        cost.batch.map(|n| format!("{n} rows")),
        cost.sequence.map(|n| format!("{n} tokens a row")),
        cost.past.filter(|n| *n > 0).map(|n| format!("{n} cached tokens")),
    ];
    let sizes: Vec<String> = sizes.into_iter().flatten().collect();
    let sizes = if sizes.is_empty() { "the sizes of the graph".to_owned() } else { sizes.join(", ") };
    let head = format!("{}: {sizes}\n", path.display());
    let mut text = head + &cost.parts.iter().map(part).collect::<String>();
    if let Some(largest) = &cost.largest {
        text += &largest_text(largest, cost.confirmed.as_ref());
    }
    if let Some(training) = &cost.training {
        text += &training_text(training);
    }
    text
}

fn largest_text(largest: &LargestBatch, confirmed: Option<&Confirmation>) -> String {
    let LargestBatch { memory, batch, needs, total, asked, process, unmeasured } = largest;
    let rows = |rows: usize| if rows == 1 { "1 row".to_owned() } else { format!("{rows} rows") };
    let mut text = format!("memory\n  a run of {} needs {}\n", rows(asked.batch), need_text(&asked.needs, asked.total));
    text += &match batch {
        0 => format!("  not one row fits in {}: it needs {}\n", bytes_text(*memory), bytes_text(*total)),
        batch => format!("  {} fit in {}, with {}\n", rows(*batch), bytes_text(*memory), need_text(needs, *total)),
    };
    if let Some(Process { runtime, base, loaded, peak }) = process {
        let [base, loaded, peak] = [base, loaded, peak].map(|bytes| bytes_text(*bytes));
        text += &format!(
            "  measured: a process has {base} resident with the runtime `{runtime}`, {loaded} with the model, and {peak} at most \
             while it loads it\n"
        );
    }
    if let Some(reason) = unmeasured {
        text += &format!("  what a runtime keeps beside that is left out: {reason}\n");
    }
    text += &match confirmed {
        None => "  not confirmed by a run; --confirm makes one\n".to_owned(),
        Some(Confirmation { reason: Some(reason), .. }) => format!("  not confirmed by a run: {reason}\n"),
        Some(Confirmation { batch, fits, resident, .. }) => {
            let took = resident.map_or_else(|| "an unknown amount of".to_owned(), bytes_text);
            let verdict = if *fits { "confirmed" } else { "not confirmed" };
            format!("  {verdict}: a process that ran {} had {took} resident at most\n", rows(*batch))
        }
    };
    text
}

/// The bytes that a run needs, and of what.
fn need_text(needs: &Need, total: u64) -> String {
    let Need { base, weights, inputs, cache, activations, outputs } = *needs;
    let weights_of = if base.is_some() { "the loaded model" } else { "weights" };
    let all = [
        (base.unwrap_or(0), "the runtime"),
        (weights, weights_of),
        (inputs, "inputs"),
        (cache, "caches"),
        (activations, "activations"),
        (outputs.unwrap_or(0), "outputs that are read"),
    ];
    let terms: Vec<String> =
        all.iter().filter(|(bytes, _)| *bytes > 0).map(|(bytes, of)| format!("{} {of}", bytes_text(*bytes))).collect();
    let loading = if total > needs.total() { ", less than to load the model" } else { "" };
    format!("{} ({}{loading})", bytes_text(total), terms.join(" + "))
}

fn training_text(training: &Training) -> String {
    let Training { parameters, tokens, flops, state, activations, days } = training;
    let large = |number: f64| format!("{number:.3e}");
    let mut text = format!(
        "training of {} parameters on {} tokens: {} FLOPs (6 for each parameter and token)\n",
        count_text(*parameters),
        large(*tokens),
        large(*flops)
    );
    let [weights, gradients, master, moments] =
        [state.weights, state.gradients, state.master, state.moments].map(bytes_text);
    text += &format!(
        "  state        {} with Adam in mixed precision: {weights} weights, {gradients} gradients, {master} float32 weights, \
         {moments} moments\n",
        bytes_text(state.total())
    );
    text += &match activations {
        None => "  activations  not known: there is no attention that planish knows\n".to_owned(),
        Some(of) => {
            let [layer, all, recomputed] = [of.layer, of.all, of.recomputed].map(|bytes| bytes_text(bytes as u64));
            format!("  activations  {layer} a layer, {all} in {} layers; {recomputed} with recomputation\n", of.layers)
        }
    };
    if let Some(days) = days {
        text += &format!("  time         {} days\n", number(*days));
    }
    text
}

fn part(part: &PartCost) -> String {
    let mut text = format!("{}\n", part.name);
    let mut line = |label: &str, what: &str| text += &format!("  {label:11}  {what}\n");
    let types: Vec<String> = part.types.iter().map(|(name, share)| format!("{name} {}", percent(*share))).collect();
    let stored = if types.is_empty() { String::new() } else { format!(": {}", types.join(", ")) };
    line("parameters", &format!("{} in {}{stored}", count_text(part.parameters), bytes_text(part.weight_bytes)));
    let Work { flops, product_flops, read, weights, written, intensity } = part.total;
    let products = percent(product_flops as f64 / flops.max(1) as f64);
    line("FLOPs", &format!("{}, {products} of them in products", flops_text(flops)));
    let bytes = [read, weights, written].map(bytes_text);
    let per_byte = intensity.map(|per| format!("; {} FLOPs a byte", number(per))).unwrap_or_default();
    line("bytes", &format!("{} read, {} of them weights; {} written{per_byte}", bytes[0], bytes[1], bytes[2]));
    match part.activations {
        Some(memory) => {
            let [planned, naive] = [memory.planned, memory.naive].map(|bytes| bytes_text(bytes as u64));
            line("activations", &format!("{planned} in one arena; {naive} if each had memory of its own"));
        }
        None => line("activations", "not known: only a run knows a size, or they are too large"),
    }
    if let Some(bytes) = part.cache_bytes_per_token {
        line("cache", &format!("{} for each token of a row", bytes_text(bytes)));
    }
    for missing in &part.uncounted {
        line("not counted", &format!("{} {}: {}", missing.nodes, missing.operator, missing.reason));
    }
    text += &format!("\n{}\n\n{}\n", table("layer", &part.layers), table("operator", &part.operators));
    text
}

/// Rows of work.
fn table(first: &str, rows: &[Share]) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([first, "nodes", "FLOPs", "share", "read", "weights", "written", "FLOPs/byte"]);
    for Share { name, nodes, work, share } in rows {
        table.add_row([
            // A bar would end the cell in Markdown.
            name.replace('|', "\\|"),
            nodes.to_string(),
            flops_text(work.flops),
            percent(*share),
            bytes_text(work.read),
            bytes_text(work.weights),
            bytes_text(work.written),
            work.intensity.map_or_else(|| "-".to_owned(), number),
        ]);
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}

/// A number of floating-point operations as people read it.
pub(super) fn flops_text(flops: u64) -> String {
    const UNITS: [&str; 6] = ["FLOPs", "kFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs"];
    let (mut value, mut unit) = (flops as f64, 0);
    while value >= 1000.0 && unit < UNITS.len() - 1 {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{flops} FLOPs") } else { format!("{} {}", number(value), UNITS[unit]) }
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// Three digits.
fn number(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
