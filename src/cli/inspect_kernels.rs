//! The output of `planish inspect --show kernels`.

use std::path::Path;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use planish_measure::inspect::{Gpu, KernelWork, Kernels, LAUNCH_US, PartKernels, REACHED};

use super::{bytes_text, count_text};

/// The value of `--gpu`.
pub(super) fn gpu(name: &str) -> Result<Gpu, String> {
    let found = Gpu::ALL.into_iter().find(|gpu| gpu.name == name);
    found.ok_or_else(|| format!("`{name}` is not among the known GPUs: {}", Gpu::ALL.map(|gpu| gpu.name).join(", ")))
}

/// The steps of a run and their predicted times.
pub(super) fn text(path: &Path, kernels: &Kernels) -> String {
    let Kernels { gpu, batch, sequence, past, parts } = kernels;
    let after = if *past > 0 { format!(" after {past} cached ones") } else { String::new() };
    let mut text = format!(
        "{}: {batch} x {sequence} tokens{after}\npredicted for {}: {:.0} % of the datasheet's peaks, and at least {LAUNCH_US} us for each launch\n",
        path.display(),
        gpu.name,
        REACHED * 100.0
    );
    text += &parts.iter().map(part).collect::<String>();
    text
}

fn part(part: &PartKernels) -> String {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["operator", "kernels", "nodes", "launches", "FLOPs", "bytes", "least us", "predicted us"]);
    let row = |operator: &str, kernels: String, nodes: String, work: &KernelWork| {
        [
            operator.to_owned(),
            kernels,
            nodes,
            work.launches.to_string(),
            count_text(work.flops),
            bytes_text(work.bytes),
            format!("{:.1}", work.least_us),
            format!("{:.1}", work.predicted_us),
        ]
    };
    for one in &part.rows {
        table.add_row(row(&one.operator, one.kernels.join(", "), one.nodes.to_string(), &one.work));
    }
    table.add_row(row("all", String::new(), String::new(), &part.total));
    table.column_iter_mut().skip(2).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    format!("\n{}\n\n{table}\n", part.name)
}
