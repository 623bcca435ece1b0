//! The output of `planish inspect --devices`.

use std::path::Path;

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use planish_measure::inspect::{DevicePlan, LeastTime, PlannedStage, RESERVE, Split};

use super::{bytes_text, terminal};

/// A column of a table: its heading, and what it says of a stage; nothing where that does not apply.
type Column<'a> = (&'a str, &'a dyn Fn(&PlannedStage) -> Option<String>);

/// Tables with a row for each stage.
pub(super) fn text(path: &Path, plan: &DevicePlan) -> String {
    let DevicePlan { devices, split, refused, sequence, batch, prompt_ms, step_ms, .. } = plan;
    let mut text = format!(
        "{}: {devices}, {}; {sequence} tokens of a row; {:.0} % of the memory of each device are left to its driver and runtime\n\n",
        terminal::name(&path.to_string_lossy()),
        described(*split),
        RESERVE * 100.0
    );
    if let Some(refused) = refused {
        text += &format!("Stages, because {} devices cannot share the layers: {refused}.\n\n", devices.count);
    }
    text += &format!("{}\n\n", memory(plan));
    if prompt_ms.is_some() {
        text += &format!("{}\n\n", times(plan));
    }
    text += &match batch {
        None => "The memory of a row is not known, because sizes follow from the data.\n".to_owned(),
        Some(0) => "One row does not fit: take more devices, or more memory.\n".to_owned(),
        Some(rows) => format!("The largest batch that fits on all devices: {rows} rows of {sequence} tokens.\n"),
    };
    if let Some(ms) = prompt_ms {
        text += &format!("The least time of a prompt of one row by the data sheet: {ms:.3} ms");
        text += &step_ms.map_or_else(|| ".\n".to_owned(), |ms| format!(", and of a step after it {ms:.3} ms.\n"));
    }
    text
}

fn described(split: Split) -> String {
    match split {
        Split { tensor_parallel: 1, pipeline: 1 } => "the whole model".to_owned(),
        Split { tensor_parallel: 1, .. } => "a stage on each".to_owned(),
        Split { tensor_parallel, pipeline: 1 } => format!("{tensor_parallel} ranks that share all layers"),
        Split { tensor_parallel, pipeline } => format!("{pipeline} stages of {tensor_parallel} ranks"),
    }
}

fn memory(plan: &DevicePlan) -> Table {
    let size = |bytes: Option<u64>| bytes.map(bytes_text);
    table(
        plan,
        &[
            ("weights", &|stage| size(Some(stage.weights))),
            ("of them whole", &|stage| size(stage.replicated_weights)),
            ("cache a token", &|stage| size(Some(stage.cache_per_token))),
            ("activations", &|stage| size(stage.activations)),
            ("exchanged", &|stage| size(stage.exchanged)),
            ("exchanged a step", &|stage| size(stage.exchanged_by_step)),
            ("sent", &|stage| size(stage.sent)),
            ("sent a step", &|stage| size(stage.sent_by_step)),
            ("rows", &|stage| stage.batch.map(|rows| rows.to_string())),
        ],
    )
}

fn times(plan: &DevicePlan) -> Table {
    let ms = |time: Option<LeastTime>, of: fn(LeastTime) -> f64| time.map(|time| format!("{:.3}", of(time)));
    table(
        plan,
        &[
            ("prompt ms", &|stage| ms(stage.prompt, |time| time.ms)),
            ("memory", &|stage| ms(stage.prompt, |time| time.memory_ms)),
            ("products", &|stage| ms(stage.prompt, |time| time.products_ms)),
            ("link", &|stage| ms(stage.prompt, |time| time.link_ms)),
            ("step ms", &|stage| ms(stage.step, |time| time.ms)),
            ("memory", &|stage| ms(stage.step, |time| time.memory_ms)),
            ("products", &|stage| ms(stage.step, |time| time.products_ms)),
            ("link", &|stage| ms(stage.step, |time| time.link_ms)),
        ],
    )
}

/// A row for each stage, of the columns that apply to one.
fn table(plan: &DevicePlan, columns: &[Column<'_>]) -> Table {
    let columns: Vec<&Column<'_>> =
        columns.iter().filter(|(_, cell)| plan.stages.iter().any(|stage| cell(stage).is_some())).collect();
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(["device", "layers"].into_iter().chain(columns.iter().map(|(heading, _)| *heading)));
    let ranks = plan.split.tensor_parallel;
    for (at, stage) in plan.stages.iter().enumerate() {
        let first = at * ranks;
        let device = if ranks == 1 { first.to_string() } else { format!("{first} to {}", first + ranks - 1) };
        let cells = columns.iter().map(|(_, cell)| cell(stage).unwrap_or_else(|| "-".to_owned()));
        table.add_row([device, layers(stage)].into_iter().chain(cells));
    }
    table.column_iter_mut().skip(2).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

fn layers(stage: &PlannedStage) -> String {
    match &stage.layers {
        None => "-".to_owned(),
        Some([first, last]) if first == last => first.clone(),
        Some([first, last]) => format!("{first} to {last}"),
    }
}
