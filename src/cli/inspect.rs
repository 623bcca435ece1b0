//! `planish inspect`.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use planish_artifact::files;
use planish_artifact::value::ValueInfo;
use planish_data::inputs::Sizes;
use planish_measure::inspect::{
    Asked, Gpu, IMAGE_SIDE, Inspection, Memory, Opened, PartInspection, Picture, dot, engines, svg,
};

use super::explain::Explained;
use super::import::ImportArguments;
use super::terminal::progress;
use super::{
    Usage, bytes_text, count_text, inspect_cost, inspect_engine, inspect_kernels, overwrites, print, print_json,
    terminal,
};

/// Show the inputs, outputs, weights and operators of a model or an artifact, and draw its graph
///
/// For an engine of TensorRT, or an artifact that has engines: the version and the GPUs that it was built for, its
/// profiles, and its layers with the nodes of the ONNX graph that each computes. --raised, --dot and --svg show the ONNX
/// graphs of such an artifact, if --keep-onnx kept them.
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("plans").args(["memory_plan", "explain_attention", "kernels", "cost"]).multiple(true))]
pub(super) struct Arguments {
    /// The folder of an artifact, a checkpoint, an .onnx file, or an .engine file
    model: PathBuf,
    /// Find high-level operators, such as attention, in the graph before it is shown
    #[arg(long)]
    raised: bool,
    /// Write the graph, without constants, to a file for Graphviz
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
    /// Draw the graph, without constants, in an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Plan the memory of a run beside inputs and weights: one arena, in which buffers share memory
    #[arg(long, conflicts_with_all = ["dot", "svg"])]
    memory_plan: bool,
    /// Say how the runtime cuda computes each attention of an artifact for target cuda, whether
    /// one program serves steps of all lengths of a cache, and what becomes of padding, and why
    #[arg(long, conflicts_with_all = ["dot", "svg"])]
    explain_attention: bool,
    /// List the kernels of a run of an artifact for target cuda with their launches, floating-point operations and bytes,
    /// and predict their times on a GPU
    #[arg(long, conflicts_with_all = ["dot", "svg", "memory_plan", "explain_attention"])]
    kernels: bool,
    /// The GPU that --kernels predicts times for: a100, h100 or h200, with the figures of its datasheet [default: h100]
    #[arg(long, value_name = "NAME", requires = "kernels", value_parser = inspect_kernels::gpu)]
    gpu: Option<Gpu>,
    /// Compile the kernels of --kernels for an architecture, e.g. sm_90, into the folder of caches, so that the first run on
    /// such a GPU need not compile them. This needs NVRTC, and no GPU
    #[arg(long, value_name = "ARCHITECTURE", requires = "kernels", value_parser = super::runtimes::architecture)]
    compile: Option<String>,
    /// Count the floating-point operations and the bytes of a run by layer and by operator, from the sizes of the graph;
    /// a multiply-add counts 2
    #[arg(long, conflicts_with_all = ["dot", "svg", "memory_plan", "explain_attention", "kernels"])]
    cost: bool,
    /// Say which high-level operators, such as attention, raising finds in the graph, and where a rule almost matched
    #[arg(long, conflicts_with_all = ["dot", "svg", "memory_plan", "explain_attention", "kernels", "cost"])]
    explain_fusion: bool,
    /// Rows, for --cost, --kernels, --memory-plan and --explain-attention [default: 1]
    #[arg(long, value_name = "N", requires = "plans")]
    batch: Option<usize>,
    /// Tokens of a row, for --cost, --kernels, --memory-plan and --explain-attention [default: 128; for --cost and
    /// --kernels as many as the model takes if that is less]
    #[arg(long, value_name = "N", requires = "plans")]
    seq: Option<usize>,
    /// Cached tokens in front of them, for --cost, --kernels, --memory-plan and --explain-attention [default: 0]
    #[arg(long, value_name = "N", requires = "plans")]
    past: Option<usize>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    import: ImportArguments,
    #[command(flatten)]
    estimates: inspect_cost::Estimates,
}

impl Arguments {
    /// The sizes of inputs.
    fn sizes(&self) -> Sizes {
        let (batch, sequence) = (self.batch.unwrap_or(1), self.seq.unwrap_or(128));
        Sizes { batch, sequence, side: Some(IMAGE_SIDE) }
    }
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let pictures = [("--dot", arguments.dot.as_deref()), ("--svg", arguments.svg.as_deref())];
    overwrites::check(pictures, [arguments.model.as_path()], [])?;
    let options = arguments.import.options()?;
    let plans = arguments.memory_plan || arguments.explain_attention;
    let graphs = plans
        || arguments.cost
        || arguments.kernels
        || arguments.explain_fusion
        || arguments.raised
        || arguments.dot.is_some()
        || arguments.svg.is_some()
        || !options.is_empty();
    let engines = if graphs { Vec::new() } else { engines(&arguments.model)? };
    if !engines.is_empty() {
        return inspect_engine::show(&arguments.model, &engines, arguments.json);
    }
    let mut opened = Opened::open(&arguments.model, &options)?;
    if arguments.explain_fusion {
        let found = opened.explain()?;
        let parts: Vec<Explained<'_>> = found.iter().map(|(part, found)| Explained::new(part, found)).collect();
        let text = || parts.iter().map(ToString::to_string).collect::<String>();
        return if arguments.json { print_json(&parts) } else { print(&text()) };
    }
    if arguments.raised {
        opened.raise()?;
    }
    if arguments.explain_attention && !opened.is_native {
        bail!(
            "--explain-attention takes an artifact for target cuda; for targets ort and ort-cuda, compile --explain fusion says what \
             becomes of attention of fixed sizes"
        );
    }
    let asked = Asked { batch: arguments.batch, sequence: arguments.seq, past: arguments.past };
    if arguments.kernels {
        if !opened.is_native {
            bail!("--kernels takes an artifact for target cuda: planish compile MODEL --target cuda writes one");
        }
        opened.check_sizes(asked).map_err(Usage)?;
        if let Some(architecture) = &arguments.compile {
            let count = opened.precompile(asked, architecture)?;
            progress(&format!("{count} kernels for {architecture} are in the folder of caches"));
        }
        let kernels = opened.kernels(arguments.gpu.unwrap_or(Gpu::H100), asked)?;
        let text = || inspect_kernels::text(&arguments.model, &kernels);
        return if arguments.json { print_json(&kernels) } else { print(&text()) };
    }
    if arguments.cost {
        opened.check_sizes(asked).map_err(Usage)?;
        let sizes = opened.sizes(asked);
        let mut cost = opened.cost(sizes, arguments.past.unwrap_or(0));
        cost.check().map_err(Usage)?;
        arguments.estimates.add(&mut cost, &mut opened, &arguments.model, asked, sizes)?;
        return if arguments.json { print_json(&cost) } else { print(&inspect_cost::text(&arguments.model, &cost)) };
    }
    if plans {
        asked.check_positive().map_err(Usage)?;
        let memory = opened.memory(arguments.sizes(), arguments.past.unwrap_or(0))?;
        return if arguments.json { print_json(&memory) } else { print(&memory_text(&memory, &arguments)) };
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
    let head = format!("{}: {}{task}{opset}\n", terminal::name(&path.to_string_lossy()), inspection.architecture);
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
    format!("{} {}", terminal::name(&value.name), value.ty)
}

/// The largest buffers that a plan names.
const LARGEST: usize = 8;

fn memory_text(memory: &Memory, arguments: &Arguments) -> String {
    let Memory { batch, sequence, past, .. } = memory;
    let behind = if *past > 0 { format!(" behind {past} cached ones") } else { String::new() };
    let mut text = format!("{}: {batch} x {sequence} tokens{behind}\n", arguments.model.display());
    for part in &memory.parts {
        text += &format!("{}\n", part.name);
        if arguments.memory_plan {
            let bytes = |n: usize| bytes_text(n as u64);
            let times = part.sum as f64 / part.peak.max(1) as f64;
            text += &format!(
                "  arena      {} for {} buffers of {} ({times:.1} times as much) in {} steps; one step needs {} at most\n",
                bytes(part.peak),
                part.buffers.len(),
                bytes(part.sum),
                part.steps,
                bytes(part.floor),
            );
            let mut largest: Vec<_> = part.buffers.iter().collect();
            largest.sort_by_key(|buffer| (Reverse(buffer.bytes), buffer.first));
            for buffer in largest.into_iter().take(LARGEST) {
                text += &format!(
                    "  {:9}  {} at {}, steps {} to {}, shares memory with {} others\n",
                    bytes(buffer.bytes),
                    buffer.name,
                    buffer.offset,
                    buffer.first,
                    buffer.last,
                    buffer.shared_with,
                );
            }
        }
        if arguments.explain_attention {
            text += &part.attentions.iter().map(|line| format!("  attention  {line}\n")).collect::<String>();
            text += &part.lengths.iter().map(|line| format!("  lengths    {line}\n")).collect::<String>();
            text += &part.padding.iter().map(|line| format!("  padding    {line}\n")).collect::<String>();
        }
    }
    text
}
