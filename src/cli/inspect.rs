//! `planish inspect`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::import::ImportArguments;
use super::{bytes_text, count_text, inspect_engine, print, print_json};
use crate::artifact::value::ValueInfo;
use crate::files;
use crate::inspect::{Inspection, Opened, PartInspection, Picture, dot, engines, svg};

/// Show the inputs, outputs, weights and operators of a model or an artifact, and draw its graph
///
/// For an engine of TensorRT, or an artifact that has engines: the version and the GPUs that it was built for, its
/// profiles, and its layers with the nodes of the ONNX graph that each computes. --raised, --dot and --svg show the ONNX
/// graphs of such an artifact, if --keep-onnx kept them.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The folder of an artifact, a checkpoint, an .onnx file, or an .engine file
    model: PathBuf,
    #[command(flatten)]
    import: ImportArguments,
    /// Find high-level operators, such as attention, in the graph before it is shown
    #[arg(long)]
    raised: bool,
    /// Write the graph, without constants, to a file for Graphviz
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
    /// Draw the graph, without constants, in an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let options = arguments.import.options()?;
    let graphs = arguments.raised || arguments.dot.is_some() || arguments.svg.is_some() || !options.is_empty();
    let engines = if graphs { Vec::new() } else { engines(&arguments.model)? };
    if !engines.is_empty() {
        return inspect_engine::show(&arguments.model, &engines, arguments.json);
    }
    let mut opened = Opened::open(&arguments.model, &options)?;
    if arguments.raised {
        opened.raise()?;
    }
    let picture = Picture::of(&opened.graphs);
    if let Some(path) = &arguments.dot {
        files::write(path, dot(&picture).as_bytes())?;
    }
    if let Some(path) = &arguments.svg {
        files::write(path, svg(&picture).as_bytes())?;
    }
    let inspection = opened.inspect();
    if arguments.json { print_json(&inspection) } else { print(&text(&arguments.model, &inspection)) }
}

fn text(path: &Path, inspection: &Inspection) -> String {
    let task = inspection.task.as_ref().map(|task| format!(" for {task}")).unwrap_or_default();
    let opset = inspection.opset.map(|opset| format!(", opset {opset}")).unwrap_or_default();
    let head = format!("{}: {}{task}{opset}\n", path.display(), inspection.architecture);
    head + &inspection.parts.iter().map(part).collect::<String>()
}

fn part(part: &PartInspection) -> String {
    let mut text = format!("{}\n", part.name);
    let mut line = |label: &str, what: &str| text += &format!("  {label:9}  {what}\n");
    for port in &part.inputs {
        line("input", &typed(port));
    }
    for port in &part.outputs {
        line("output", &typed(port));
    }
    for (dtype, amount) in &part.weights {
        let elements = count_text(amount.elements);
        line("weights", &format!("{dtype}: {elements} in {} tensors, {}", amount.tensors, bytes_text(amount.bytes)));
    }
    for weight in &part.largest {
        line("large", &format!("{} {}", typed(&weight.value), bytes_text(weight.bytes)));
    }
    let mut operators: Vec<(&String, &usize)> = part.operators.iter().collect();
    operators.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let operators: Vec<String> = operators.iter().map(|(name, count)| format!("{count} {name}")).collect();
    line("operators", &operators.join(", "));
    text
}

fn typed(value: &ValueInfo) -> String {
    format!("{} {}", value.name, value.ty)
}
