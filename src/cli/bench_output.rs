//! What `planish bench` shows and writes of a document.

use std::path::Path;

use anyhow::{Result, bail};
use planish_artifact::files;
use planish_measure::bench::{Cell, Document, Status, UNCOMPARED, UNEVALUATED, device_table, remarks, table};

use super::bench_report::Reports;
use super::signals::Interrupted;
use super::{VerificationFailed, note, print, print_json};

/// Where a document goes.
pub(super) struct Output<'a> {
    /// The file of JSON; `-` for standard output in place of the table.
    pub(super) json: Option<&'a Path>,
    pub(super) reports: &'a Reports,
    /// Whether the table has all columns.
    pub(super) wide: bool,
    /// The option that shows all columns.
    pub(super) widens: &'static str,
}

/// Shows and writes a document, and ends with what is wrong with its cells, or with what was left out of them.
pub(super) fn write(document: &Document, output: &Output<'_>, left_out: Vec<String>) -> Result<()> {
    output.reports.write(&[("", document)])?;
    let (all, open) = (document.cells.len(), document.cells.iter().filter(|c| c.status == Status::Unfinished).count());
    let failures: Vec<String> = document.cells.iter().filter_map(failure).collect();
    let file = output.json.filter(|path| *path != Path::new("-"));
    if output.json.is_none() || file.is_some() {
        show(document, output)?;
    }
    if output.json.is_some() {
        match file {
            None => print_json(&document.clone().without_samples())?,
            Some(path) => files::write(path, (serde_json::to_string(document)? + "\n").as_bytes())?,
        }
    }
    let unevaluated =
        document.cells.iter().find_map(|c| c.warnings.iter().find(|w| w.starts_with(UNEVALUATED)).cloned());
    let of_cell = |cell: &Cell| {
        let why = cell.failure.as_ref().filter(|why| why.starts_with(UNCOMPARED))?;
        Some(format!("{} is not measured: {why}", cell.model.id))
    };
    let incomplete = document.cells.iter().find_map(of_cell).or(unevaluated).or(left_out.into_iter().next());
    if open > 0 {
        return Err(Interrupted(format!("{open} of {all} cells are not measured")).into());
    }
    if !failures.is_empty() {
        return Err(VerificationFailed(failures).into());
    }
    match incomplete {
        Some(why) => bail!("{why}"),
        None => Ok(()),
    }
}

/// Prints the table, and what stands below it.
fn show(document: &Document, output: &Output<'_>) -> Result<()> {
    if let Some(of) = document.shard.as_ref().filter(|_| document.cells.is_empty()) {
        note(&format!("there are {} shapes, and none is left for shard {}", of.shapes.len(), of.shards));
        return Ok(());
    }
    let shown = table(&document.cells, output.wide);
    print(&shown.text)?;
    if let Some(devices) = device_table(&document.cells) {
        print(&format!("\n{devices}\n"))?;
    }
    for of in &document.recommendations {
        print(&format!("\n{of}\n"))?;
    }
    if let Some(gpu) = &document.env.gpu {
        print(&format!("\n{gpu}\n"))?;
    }
    remarks(&document.cells).iter().for_each(|remark| note(remark));
    if !shown.left_out.is_empty() {
        note(&format!("{} also shows {}", output.widens, shown.left_out.join(", ")));
    }
    Ok(())
}

fn failure(cell: &Cell) -> Option<String> {
    let failure = cell.failure.as_ref().filter(|_| cell.status == Status::Failed)?;
    Some(format!("{}, {}: {failure}", cell.model.id, cell.shape))
}
