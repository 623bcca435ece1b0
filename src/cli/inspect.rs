//! `planish inspect`.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use planish_artifact::backend::RuntimeSettings;
use planish_artifact::files;
use planish_artifact::value::ValueInfo;
use planish_data::inputs::Sizes;
use planish_measure::inspect::{
    Asked, Devices, Gpu, IMAGE_SIDE, Inspection, Kernels, Memory, ModelCost, Opened, PageOptions, PartInspection,
    Picture, dot, engines, html, svg,
};
use planish_onnx::ImportOptions;
use serde::Serialize;

use super::explain::Explained;
use super::import::ImportArguments;
use super::inspect_estimate::EstimateArguments;
use super::terminal::progress;
use super::{
    LibraryArguments, Usage, bytes_text, count_text, hub, inspect_cost, inspect_devices, inspect_engine,
    inspect_kernels, overwrites, print, print_json, terminal,
};

/// Show the inputs, outputs, weights and operators of a model or an artifact, and draw its graph
///
/// For an engine of TensorRT, or an artifact that has engines: the version and the GPUs that it was built for, its
/// profiles, and its layers with the nodes of the ONNX graph that each computes. --raised, --dot and --svg show the ONNX
/// graphs of such an artifact, if --keep-onnx kept them.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The folder of an artifact, a checkpoint, an .onnx file, an .engine file, or a name of the Hugging Face hub as for `compile`
    model: PathBuf,
    /// What to show in place of the inputs, outputs, weights and operators. Several views make one JSON object with a member for
    /// each, by its name; attention is in the member memory
    #[arg(long, value_enum, value_name = "VIEW,..", value_delimiter = ',', conflicts_with_all = ["dot", "svg", "html"])]
    show: Vec<View>,
    /// Find high-level operators, such as attention, in the graph before it is shown
    #[arg(long)]
    raised: bool,
    /// Write the graph, without constants, to a file for Graphviz
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
    /// Draw the graph, without constants, in an SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a page of HTML with the graph by layer, its nodes and weights, sizes, verification and fusion; it needs no other files
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The GPU that --show kernels predicts times for: a100, h100 or h200, with the figures of its datasheet [default: h100]
    #[arg(long, value_name = "NAME", value_parser = inspect_kernels::gpu)]
    gpu: Option<Gpu>,
    /// Compile the kernels of --show kernels for an architecture, e.g. sm_90, into the folder of caches, so that the first run on
    /// such a GPU need not compile them. This needs NVRTC, and no GPU
    #[arg(long, value_name = "ARCHITECTURE", value_parser = super::runtimes::architecture)]
    compile: Option<String>,
    /// Divide the model among devices, such as 8xH100 or 4x48GB: the memory of each, what goes between them, the largest batch, and
    /// the least time of a run. All devices share all layers, or each has a stage where they cannot; 32xH200:tp=8,pp=4 makes 4
    /// stages of 8 devices
    #[arg(long, value_name = "NxDEVICE", conflicts_with_all = ["show", "dot", "svg", "html"])]
    devices: Option<Devices>,
    /// Rows of a run, for --html and all views but fusion [default: 1]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Tokens of a row [default: 128; for cost and kernels as many as the model takes if that is less]
    #[arg(long, value_name = "N")]
    seq: Option<usize>,
    /// Cached tokens in front of them [default: 0]
    #[arg(long, value_name = "N")]
    past: Option<usize>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    import: ImportArguments,
    #[command(flatten)]
    estimate: EstimateArguments,
    #[command(flatten)]
    runtime: LibraryArguments,
    /// The model, where only the hub has it.
    #[arg(skip)]
    afar: Option<Box<hub::Afar>>,
}

/// A value of `--show`, in the order in which views are shown.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum View {
    /// The plan of the memory of a run beside inputs and weights: one arena, in which buffers share memory. --estimate
    /// memory=SIZE finds the largest batch that fits
    Memory,
    /// How the runtime cuda computes each attention of an artifact for target cuda, whether one program serves steps of all lengths
    /// of a cache, and what becomes of padding, and why
    Attention,
    /// The kernels of a run of an artifact for target cuda with their launches, floating-point operations and bytes, and their times
    /// as predicted for --gpu
    Kernels,
    /// The floating-point operations and the bytes of a run by layer and by operator; a multiply-add counts 2
    Cost,
    /// Which high-level operators, such as attention, raising finds in the graph, and where a rule almost matched
    Fusion,
}

/// The documents of views.
#[derive(Default, Serialize)]
struct Views<'a> {
    /// Of the views `memory` and `attention`.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernels: Option<Kernels>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<ModelCost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fusion: Option<Vec<Explained<'a>>>,
}

impl Arguments {
    /// The sizes of inputs.
    fn sizes(&self) -> Sizes {
        let (batch, sequence) = (self.batch.unwrap_or(1), self.seq.unwrap_or(128));
        Sizes { batch, sequence, side: Some(IMAGE_SIDE) }
    }

    fn open(&self, options: &ImportOptions) -> Result<Opened> {
        match &self.afar {
            Some(afar) => Opened::of_source(&afar.source),
            None => Opened::open(&self.model, options),
        }
    }

    fn shows(&self, view: View) -> bool {
        self.show.contains(&view)
    }

    /// The sizes that the user asks for.
    fn asked(&self) -> Asked {
        Asked { batch: self.batch, sequence: self.seq, past: self.past }
    }

    /// Refuses options whose view is not shown.
    fn check(&self) -> Result<(), Usage> {
        let of_kernels = [("--gpu", self.gpu.is_some()), ("--compile", self.compile.is_some())];
        let sizes = [("--batch", self.batch), ("--seq", self.seq), ("--past", self.past)];
        let has_sizes = self.html.is_some() || self.show.iter().any(|view| *view != View::Fusion);
        let given = of_kernels.into_iter().find(|(_, given)| *given && !self.shows(View::Kernels));
        if let Some((option, _)) = given {
            return Err(Usage(format!("{option} is for --show kernels; add that")));
        }
        let pictures = [("--dot", &self.dot), ("--svg", &self.svg), ("--html", &self.html)];
        if let Some((option, _)) = pictures.iter().find(|(_, path)| path.is_some() && self.estimate.is_given()) {
            let why = format!(
                "{option} draws the graph, and --estimate adds to --show cost; leave out {option}, or --estimate"
            );
            return Err(Usage(why));
        }
        if self.devices.is_some() && self.estimate.is_given() {
            return Err(Usage(
                "--estimate adds to --show cost, and --devices has a plan of its own; leave out one".to_owned(),
            ));
        }
        if self.devices.is_some() {
            let given = sizes.into_iter().find(|(option, size)| size.is_some() && *option != "--seq");
            return given.map_or(Ok(()), |(option, _)| {
                Err(Usage(format!(
                    "{option} has no effect with --devices, which finds the largest batch; leave it out"
                )))
            });
        }
        match sizes.into_iter().find(|(_, size)| size.is_some() && !has_sizes) {
            Some((option, _)) => Err(Usage(format!(
                "{option} is for --html and --show memory, attention, kernels and cost; add one of them"
            ))),
            None => Ok(()),
        }
    }
}

pub(super) fn run(mut arguments: Arguments) -> Result<()> {
    let pictures = [
        ("--dot", arguments.dot.as_deref()),
        ("--svg", arguments.svg.as_deref()),
        ("--html", arguments.html.as_deref()),
    ];
    overwrites::check(pictures, [arguments.model.as_path()], [])?;
    if arguments.estimate.is_given()
        && arguments.devices.is_none()
        && arguments.show.is_empty()
        && pictures.iter().all(|(_, path)| path.is_none())
    {
        arguments.show.push(View::Cost);
    }
    arguments.check()?;
    arguments.estimate.check(arguments.shows(View::Cost)).map_err(Usage)?;
    let options = arguments.import.options()?;
    if options.is_empty() && !arguments.estimate.is_given() {
        arguments.afar = hub::afar(&arguments.model)?.map(Box::new);
    }
    if arguments.afar.is_none() {
        arguments.model = hub::located(&arguments.model)?.path;
    }
    let graphs = !arguments.show.is_empty()
        || arguments.raised
        || arguments.devices.is_some()
        || arguments.dot.is_some()
        || arguments.svg.is_some()
        || arguments.html.is_some()
        || !options.is_empty();
    let engines = if graphs { Vec::new() } else { engines(&arguments.model)? };
    if !engines.is_empty() {
        return inspect_engine::show(&arguments.model, &engines, arguments.json);
    }
    if !arguments.show.is_empty() {
        return show(&arguments, &options);
    }
    let mut opened = arguments.open(&options)?;
    if arguments.raised || arguments.devices.is_some() {
        opened.raise()?;
    }
    if let Some(devices) = &arguments.devices {
        opened.check_sizes(arguments.asked()).map_err(Usage)?;
        let plan = opened.devices(devices, arguments.asked()).map_err(Usage)?;
        return if arguments.json { print_json(&plan) } else { print(&inspect_devices::text(&arguments.model, &plan)) };
    }
    let picture = Picture::of(&opened.graphs);
    if let Some(path) = &arguments.dot {
        files::write(path, dot(&picture).as_bytes())?;
    }
    if let Some(path) = &arguments.svg {
        files::write(path, svg(&picture).as_bytes())?;
    }
    if let Some(path) = &arguments.html {
        files::write(path, page(&arguments, &options, &opened)?.as_bytes())?;
    }
    let inspection = opened.inspect();
    if arguments.json { print_json(&inspection) } else { print(&text(&arguments.model, &inspection)) }
}

/// The page of `--html`.
fn page(arguments: &Arguments, options: &ImportOptions, opened: &Opened) -> Result<String> {
    let asked = arguments.asked();
    opened.check_sizes(asked).map_err(Usage)?;
    let resolved = arguments.model.canonicalize().unwrap_or_else(|_| arguments.model.clone());
    let title = resolved.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let page = PageOptions { title, sizes: opened.sizes(asked), past: arguments.past.unwrap_or(0) };
    // What explains raises the graph, which the page shows as it is.
    Ok(html(opened, &arguments.open(options)?.explain()?, &page)?)
}

/// Shows the views of `--show`.
fn show(arguments: &Arguments, options: &ImportOptions) -> Result<()> {
    let path = &arguments.model;
    // What explains raises the graph, which other views show as it is.
    let found = match arguments.shows(View::Fusion) {
        true => Some(arguments.open(options)?.explain()?),
        false => None,
    };
    let fusion = found.as_ref().map(|found| found.iter().map(|(part, found)| Explained::new(part, found)).collect());
    let mut views = Views { fusion, ..Views::default() };
    if arguments.show.iter().any(|view| *view != View::Fusion) {
        add_plans(arguments, arguments.open(options)?, &mut views)?;
    }
    if !arguments.json {
        let texts = [
            views.memory.as_ref().map(|memory| memory_text(memory, arguments)),
            views.kernels.as_ref().map(|kernels| inspect_kernels::text(path, kernels)),
            views.cost.as_ref().map(|cost| inspect_cost::text(path, cost)),
            views.fusion.as_ref().map(|parts| parts.iter().map(ToString::to_string).collect()),
        ];
        return print(&texts.into_iter().flatten().collect::<Vec<String>>().join("\n"));
    }
    match views {
        Views { memory: Some(memory), kernels: None, cost: None, fusion: None } => print_json(&memory),
        Views { memory: None, kernels: Some(kernels), cost: None, fusion: None } => print_json(&kernels),
        Views { memory: None, kernels: None, cost: Some(cost), fusion: None } => print_json(&cost),
        Views { memory: None, kernels: None, cost: None, fusion: Some(parts) } => print_json(&parts),
        several => print_json(&several),
    }
}

/// Adds the views of a run.
fn add_plans(arguments: &Arguments, mut opened: Opened, views: &mut Views<'_>) -> Result<()> {
    let asked = arguments.asked();
    if arguments.raised {
        opened.raise()?;
    }
    if arguments.shows(View::Attention) && !opened.is_native {
        bail!(
            "--show attention takes an artifact for target cuda; for targets ort and ort-cuda, compile --explain fusion says what \
             becomes of attention of fixed sizes"
        );
    }
    if arguments.shows(View::Kernels) && !opened.is_native {
        bail!("--show kernels takes an artifact for target cuda: planish compile MODEL --target cuda writes one");
    }
    if arguments.shows(View::Memory) || arguments.shows(View::Attention) {
        asked.check_positive().map_err(Usage)?;
        views.memory = Some(opened.memory(arguments.sizes(), arguments.past.unwrap_or(0))?);
    }
    if arguments.shows(View::Kernels) {
        opened.check_sizes(asked).map_err(Usage)?;
        if let Some(architecture) = &arguments.compile {
            let count = opened.precompile(asked, architecture)?;
            progress(&format!("{count} kernels for {architecture} are in the folder of caches"));
        }
        views.kernels = Some(opened.kernels(arguments.gpu.unwrap_or(Gpu::H100), asked)?);
    }
    if arguments.shows(View::Cost) {
        opened.check_sizes(asked).map_err(Usage)?;
        let sizes = opened.sizes(asked);
        let mut cost = opened.cost(sizes, arguments.past.unwrap_or(0));
        cost.check().map_err(Usage)?;
        let settings = RuntimeSettings { sleeping: true, ..arguments.runtime.settings() };
        arguments.estimate.add(&mut cost, &mut opened, &arguments.model, (asked, sizes), settings)?;
        views.cost = Some(cost);
    }
    Ok(())
}

fn text(path: &Path, inspection: &Inspection) -> String {
    let task = inspection.task.as_ref().map(|task| format!(" for {task}")).unwrap_or_default();
    let opset = inspection.opset.map(|opset| format!(", opset {opset}")).unwrap_or_default();
    let head = format!("{}: {}{task}{opset}\n", terminal::name(&path.to_string_lossy()), inspection.architecture);
    let tuned = inspection.tuning.as_ref().map(|tuning| format!("  tuned: {tuning}\n")).unwrap_or_default();
    head + &tuned + &inspection.parts.iter().map(part).collect::<String>()
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
    let after = if *past > 0 { format!(" after {past} cached ones") } else { String::new() };
    let mut text = format!("{}: {batch} x {sequence} tokens{after}\n", arguments.model.display());
    for part in &memory.parts {
        text += &format!("{}\n", part.name);
        if arguments.shows(View::Memory) {
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
        if arguments.shows(View::Attention) {
            text += &part.attentions.iter().map(|line| format!("  attention  {line}\n")).collect::<String>();
            text += &part.lengths.iter().map(|line| format!("  lengths    {line}\n")).collect::<String>();
            text += &part.padding.iter().map(|line| format!("  padding    {line}\n")).collect::<String>();
        }
    }
    text
}
