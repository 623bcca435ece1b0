//! The output of `planish inspect --show cost`.

use std::path::Path;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use planish_artifact::units::{flops_text, three_digits};
use planish_measure::inspect::{Confirmation, LargestBatch, ModelCost, Need, PartCost, Share, Training, Work};
use planish_measure::profile::Process;

use super::{bytes_text, count_text};

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
        None => "  not confirmed by a run; --estimate confirm makes one\n".to_owned(),
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
        text += &format!("  time         {} days\n", three_digits(*days));
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
    let per_byte = intensity.map(|per| format!("; {} FLOPs a byte", three_digits(per))).unwrap_or_default();
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
            work.intensity.map_or_else(|| "-".to_owned(), three_digits),
        ]);
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table.to_string()
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}
