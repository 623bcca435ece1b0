//! The output of `planish inspect --devices`.

use std::path::Path;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use planish_measure::inspect::{DevicePlan, PlannedStage, RESERVE};

use super::{bytes_text, terminal};

/// A table with a row for each device.
pub(super) fn text(path: &Path, plan: &DevicePlan) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header([
        "device",
        "layers",
        "weights",
        "cache a token",
        "activations",
        "sent",
        "sent a step",
        "rows",
        "prompt ms",
        "step ms",
    ]);
    let time = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.3}"));
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), bytes_text);
    for (at, stage) in plan.stages.iter().enumerate() {
        let PlannedStage {
            layers,
            weights,
            cache_per_token,
            activations,
            sent,
            sent_by_step,
            batch,
            prompt_ms,
            step_ms,
        } = stage;
        table.add_row([
            at.to_string(),
            layers.as_ref().map_or_else(
                || "-".to_owned(),
                |[first, last]| if first == last { first.clone() } else { format!("{first} to {last}") },
            ),
            bytes_text(*weights),
            bytes_text(*cache_per_token),
            size(*activations),
            size(*sent),
            size(*sent_by_step),
            batch.to_string(),
            time(*prompt_ms),
            time(*step_ms),
        ]);
    }
    table.column_iter_mut().skip(2).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    let DevicePlan { devices, sequence, batch, prompt_ms, step_ms, .. } = plan;
    let mut text = format!(
        "{}: {devices}, a stage on each; {sequence} tokens of a row; {:.0} % of the memory of each device are left to its driver and runtime\n\n{table}\n\n",
        terminal::name(&path.to_string_lossy()),
        RESERVE * 100.0
    );
    text += &match batch {
        0 => "One row does not fit: take more devices, or more memory.\n".to_owned(),
        rows => format!("The largest batch that fits on all devices: {rows} rows of {sequence} tokens.\n"),
    };
    if let Some(ms) = prompt_ms {
        text += &format!("The least time of a prompt of one row by the data sheet: {ms:.3} ms");
        text += &step_ms.map_or_else(|| ".\n".to_owned(), |ms| format!(", and of a step after it {ms:.3} ms.\n"));
    }
    text
}
