//! `planish compile`.

mod beside;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use planish_artifact::backend::{Backend, RuntimeSettings};
use planish_artifact::manifest::HubSource;
use planish_artifact::package::RuntimePackage;
use planish_artifact::recipe::Recipe;
use planish_artifact::tuning::RunSettings;
use planish_artifact::variants::VariantName;
use planish_check::evaluate::EvaluateOptions;
use planish_check::gate::Gate;
use planish_check::verify::VerifyOptions;
use planish_compiler::calibrate::CalibrationObserver;
use planish_compiler::compile::{Compiled, LoweredPart, compile, lower};
use planish_compiler::request::{self, Prepared, Request, RequestObserver, prepare};
use planish_compiler::source::SourceModel;
use planish_data::{DataOptions, OptionNames};
use planish_measure::tune::Tried;
use planish_models::Task;
use planish_onnx::{OPSETS, Placement};
use planish_passes::PASSES;

use super::console::Console;
use super::debug::Debug;
use super::engine::{self, EngineArguments};
use super::gate::{GateArguments, Judging, refuse};
use super::heartbeat::Heartbeat;
use super::recipe::RecipeArguments;
use super::tune::TuneArguments;
use super::variants::{self, Form, forms};
use super::written::{Shown, finish};
use super::{
    LibraryArguments, Usage, backend, calibrate, hub, import::ImportArguments, note, print, quantization, warn,
};

/// Compile a checkpoint or an ONNX graph into an artifact folder
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A checkpoint folder, a .safetensors file (or index of shards) beside its config.json, a .gguf or .onnx file, an artifact with ONNX
    /// graphs, OWNER/NAME[/FILE][@REV] of the Hugging Face hub, or s3://BUCKET/FOLDER
    model: PathBuf,
    /// The model of the hub that it was.
    #[arg(skip)]
    hub: Option<HubSource>,
    /// The folder to write [default: NAME-TARGET-PRECISION in the current folder]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// onnx (any runtime), ort (ONNX Runtime), openvino, ort-cuda (ONNX Runtime on NVIDIA GPUs), trt (TensorRT) or cuda (planish's own)
    /// [default: ort]
    #[arg(long, value_name = "TARGET", value_parser = backend)]
    target: Option<&'static Backend>,
    /// The task, such as fill-mask [default: that of modules.json or config.json]
    #[arg(long, value_name = "TASK")]
    task: Option<Task>,
    /// A LoRA adapter of the peft library, added to the weights; DIR=X: times X
    #[arg(long, value_name = "DIR", value_parser = adapter)]
    adapter: Vec<(PathBuf, f64)>,
    /// The ONNX opset, 17 to 28 [default: 20, and more where needed]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(i64::from(*OPSETS.start())..=i64::from(*OPSETS.end())))]
    opset: Option<u32>,
    /// Cut the model for N GPUs that exchange sums: a graph for each (trt, onnx)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1024))]
    tensor_parallel: Option<u16>,
    /// Whether weights are copied into the artifact, or linked: the checkpoint's files, on the same filesystem, which ONNX
    /// Runtime loads and the Python package onnx does not
    #[arg(long, default_value = "copy", value_name = "HOW")]
    weights: Weights,
    /// The library or server that loads the artifact
    #[arg(long, default_value = "optimum", value_name = "NAME")]
    package: RuntimePackage,
    /// Several forms in one artifact, for package transformers-js: fp32, fp16, q8 (as --int8), q4 (as --int4) and q4f16. Other commands
    /// take the first
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    variants: Vec<VariantName>,
    /// Cut each part into N stages of about the same cost, an ONNX file each
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..))]
    pipeline: Option<u16>,
    /// Lower every operator to plain arithmetic, as a baseline for comparisons
    #[arg(long)]
    no_fusion: bool,
    /// Replace a folder that planish did not write, except the current folder
    #[arg(long)]
    force: bool,
    /// Explain fusion (what was found, where a rule almost matched and why not), or quantization (what became of each weight or input,
    /// and its loss)
    #[arg(long, value_name = "WHAT,..", value_delimiter = ',')]
    explain: Vec<Explain>,
    /// strict (warnings are errors), and for work on passes verify (check the graph after each), print=PASS (print the graph after
    /// it), stop=N (run N passes, print the graph, write nothing)
    #[arg(long, value_name = "WHAT,..", value_delimiter = ',')]
    debug: Vec<Debug>,
    /// The number of threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print JSON: "artifact" (null if nothing was written), "manifest", and where they are there "engines" and "fusion"
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    import: ImportArguments,
    #[command(flatten)]
    recipe: RecipeArguments,
    #[command(flatten)]
    data: CalibrationArguments,
    #[command(flatten)]
    tuning: TuneArguments,
    #[command(flatten)]
    gate: GateArguments,
    #[command(flatten)]
    runtime: LibraryArguments,
}

/// The data that a model is calibrated on.
#[derive(clap::Args)]
#[command(next_help_heading = "Precision")]
struct CalibrationArguments {
    /// Texts (.txt, .jsonl, .csv, .parquet), tensors (.npz, .safetensors, a folder of them), pictures or recordings (a file or a folder), or a table of `planish calibrate`. With
    /// --fp16 or --bf16 it says what stays float32
    #[arg(long, value_name = "DATA_OR_TABLE")]
    calibrate: Option<PathBuf>,
    /// The member or the column of the data of --calibrate and --evaluate that is the text [default: text]
    #[arg(long, value_name = "NAME")]
    field: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Explain {
    Fusion,
    Quantization,
}

#[derive(Clone, Copy, ValueEnum)]
enum Weights {
    Copy,
    Link,
}

pub(super) fn run(mut arguments: Arguments) -> Result<()> {
    let start = Instant::now();
    let recipe = recipe(&arguments)?;
    let debug = || arguments.debug.iter();
    let print_after = debug().find_map(|debug| if let Debug::Print(pass) = debug { Some(pass.clone()) } else { None });
    let stop_after = debug().find_map(|debug| if let Debug::Stop(count) = debug { Some(*count) } else { None });
    let asked = arguments.gate.asked();
    if let Some(option) = arguments.beside_stop(&asked).filter(|_| stop_after.is_some()) {
        return Err(Usage(format!("--debug stop=N writes nothing; leave {option} out")).into());
    }
    if let Some(pass) = &print_after
        && !PASSES.iter().any(|p| p.name == pass)
    {
        return Err(Usage(format!("there is no pass `{pass}`; `planish passes` lists them")).into());
    }
    if let Some(option) = arguments.beside_ranks(&asked).filter(|_| arguments.tensor_parallel.is_some()) {
        return Err(Usage(format!("--tensor-parallel does not go with {option}; leave one out")).into());
    }
    let located = hub::located(&arguments.model)?;
    (arguments.model, arguments.hub) = (located.path, located.hub);
    for (folder, _) in &mut arguments.adapter {
        *folder = hub::located(folder)?.path;
    }
    if let Some(threads) = arguments.threads {
        rayon::ThreadPoolBuilder::new().num_threads(threads.into()).build_global()?;
    }
    let is_linked = matches!(arguments.weights, Weights::Link);
    variants::check(&arguments.variants, arguments.package, is_linked)?;
    arguments.tuning.check(request::backend(&recipe)?, arguments.variants.len())?;
    let settings = arguments.runtime.settings();
    let engine = EngineArguments::of(&recipe.engine)?;
    let computes_halves = !request::backend(&recipe)?.target.computes_in_float32;
    let calibrate = arguments.data.calibrate.clone();
    let mut made: Option<Made> = None;
    for form in forms(&arguments.variants, recipe, calibrate, asked, computes_halves)? {
        let variant = form.variant;
        let new = arguments.make(form, &engine, &settings, (print_after.clone(), stop_after), start);
        let new = match variant {
            Some(variant) => new.with_context(|| format!("variant {variant}"))?,
            None => new?,
        };
        match (&mut made, new) {
            (_, None) => return Ok(()),
            (Some(Made { compiled, written, .. }), Some(new)) => {
                compiled.take_in(new.compiled)?;
                *written = new.written;
            }
            (made, new) => *made = new,
        }
    }
    let Some(Made { mut compiled, written, tried }) = made else { return Ok(()) };
    let Some(profiles) = compiled.profiles.take() else {
        let shown = if arguments.json { Shown::Json(tried) } else { Shown::Summary };
        return finish(compiled, &[], shown, written);
    };
    let (force, json) = (arguments.force, arguments.json);
    engine::finish(compiled, &profiles, &engine, &engine::FinishContext { settings: &settings, force, json, start })
}

/// A model that was compiled and judged.
struct Made {
    compiled: Compiled,
    /// How long it took until all was written, without the search of --tune.
    written: Duration,
    /// What was tried for --tune.
    tried: Option<Vec<Tried>>,
}

impl Arguments {
    /// Makes a form of the model; `None` where passes were to stop, and nothing is made. `passes` says after which one the graph is
    /// printed, and after how many they stop.
    fn make(
        &self,
        form: Form,
        engine: &EngineArguments,
        settings: &RuntimeSettings,
        passes: (Option<String>, Option<usize>),
        start: Instant,
    ) -> Result<Option<Made>> {
        let (print_after, stop_after) = passes;
        let threads = self.threads.unwrap_or(0).into();
        // Not each variant takes the data that the field is of.
        let has_data = form.calibrate.is_some() || form.asked.evaluate.is_some() || self.data.calibrate.is_none();
        let field = self.data.field.as_deref().filter(|_| has_data);
        let options = EvaluateOptions { threads, settings: settings.clone(), ..EvaluateOptions::default() };
        let Form { variant, recipe, calibrate, asked } = form;
        // No data judges ranks.
        let is_unjudged = self.tensor_parallel.is_some() && calibrate.is_none() && field.is_none();
        let gate = match is_unjudged {
            true => None,
            false => asked.gate(&recipe, calibrate.as_deref(), field, options, &Judging)?,
        };
        let request = Request {
            variant,
            ..request(self, recipe, calibrate, engine, settings, gate.as_ref(), stop_after.is_none())?
        };
        let prepared = prepare(&request, &Preparing)?;
        let run = RunSettings { threads: self.threads, spin: self.runtime.spin };
        let search = Instant::now();
        let chosen = self.tuning.chosen(&prepared, &request, gate.as_ref(), run, self.json)?;
        let searched = search.elapsed();
        let options = match &chosen {
            Some(chosen) => chosen.options(&prepared, &request)?,
            None => prepared.options.clone(),
        };
        let tuned = chosen.map(|chosen| chosen.tuned);
        let recipe = tuned.as_ref().map_or(&request.recipe, |tuned| &tuned.recipe);
        let backend = request.backend;
        let Prepared { source, folders, .. } = prepared;
        let console = Console::new(print_after);
        let context = || format!("cannot compile {}", self.model.display());
        if stop_after.is_some() {
            let lowered = lower(&source, &options, stop_after, &console).with_context(context)?;
            console.note_missing_pass();
            let text = |part: &LoweredPart| {
                let passes: String = part.stages.iter().map(|stage| format!("// {}\n", stage.pass)).collect();
                format!("{passes}{}\n", part.graph)
            };
            return print(&lowered.parts.iter().map(text).collect::<String>()).map(|()| None);
        }
        let mut compiled = compile(&source, folders.first(), &options, &console).with_context(context)?;
        console.note_missing_pass();
        if let Some(gate) = &gate {
            let (judged, refused) = gate.pass(compiled, &source, options, &Judging)?;
            refuse(refused, &judged, self.json)?;
            compiled = judged;
        }
        if self.explain.contains(&Explain::Quantization) {
            quantization::explain(&compiled.artifact.manifest);
        }
        if let (Some(coverage), Some(precision)) = (compiled.coverage(), recipe.quantized())
            && let Some(warning) = quantization::left(&coverage, precision.option())
        {
            warn(&warning);
        }
        compiled.artifact.manifest.tuning = tuned.as_ref().map(|tuned| tuned.tuning.clone());
        folders.settle(&mut compiled, &source)?;
        let written = start.elapsed().saturating_sub(searched);
        let is_evaluated = gate.is_some();
        let heartbeat = asked.verify.then(Heartbeat::of_pipe);
        heartbeat.iter().for_each(|heartbeat| heartbeat.step("verifying"));
        let verify = VerifyOptions { threads, settings: settings.clone(), ..VerifyOptions::default() };
        let refused = asked.verify(&mut compiled, &source, &verify, is_evaluated, &mut note);
        drop(heartbeat);
        refuse(refused?, &compiled, self.json)?;
        if backend.engines.is_some() && request.runs {
            note("the ONNX graph was run, of which the engine is built; `planish verify` runs the engine on a GPU");
        }
        let tried = tuned.and_then(|tuned| tuned.found).map(|found| found.tried);
        Ok(Some(Made { compiled, written, tried }))
    }
}

/// What the arguments ask of a compilation.
fn request(
    arguments: &Arguments,
    recipe: Recipe,
    calibrate: Option<PathBuf>,
    engine: &EngineArguments,
    settings: &RuntimeSettings,
    gate: Option<&Gate>,
    writes: bool,
) -> Result<Request> {
    let backend = request::backend(&recipe)?;
    let mut data =
        DataOptions { field: arguments.data.field.clone(), names: OptionNames::FIELD, ..DataOptions::default() };
    if let Some(gate) = gate {
        gate.divide(calibrate.as_deref(), &mut data);
    }
    let (import, profiles) = match backend.engines {
        Some(_) => arguments.import.with_profiles()?,
        None => (arguments.import.options()?, Vec::new()),
    };
    if backend.engines.is_some() && !SourceModel::is_file_of_graph(&arguments.model) {
        arguments.import.refuse_shapes()?;
    }
    Ok(Request {
        model: arguments.model.clone(),
        hub: arguments.hub.clone(),
        output: arguments.output.clone(),
        recipe,
        backend,
        task: arguments.task,
        adapters: arguments.adapter.clone(),
        opset: arguments.opset,
        tensor_parallel: arguments.tensor_parallel.map(usize::from),
        placement: match arguments.weights {
            Weights::Copy => Placement::Copy,
            Weights::Link => Placement::Link,
        },
        package: arguments.package,
        pipeline: arguments.pipeline.map(usize::from),
        variant: None,
        fusion: !arguments.no_fusion,
        strict: arguments.debug.iter().any(|debug| matches!(debug, Debug::Strict)),
        force: arguments.force,
        explain_fusion: arguments.explain.contains(&Explain::Fusion),
        verify_passes: arguments.debug.iter().any(|debug| matches!(debug, Debug::Verify)),
        writes,
        runs: arguments.gate.asked().verify || gate.is_some(),
        import,
        profiles,
        engine: engine.options(settings),
        calibrate,
        data,
        threads: arguments.threads,
        settings: settings.clone(),
    })
}

/// What the numbers of the artifact are, and for which target: as the arguments say.
fn recipe(arguments: &Arguments) -> Result<Recipe> {
    let mut recipe = arguments.recipe.recipe()?;
    if let Some(backend) = arguments.target {
        recipe.target = Some(backend.target.name.to_owned());
    }
    Ok(recipe)
}

/// The value of `--adapter`: a folder, and a number after `=`.
fn adapter(text: &str) -> Result<(PathBuf, f64), String> {
    let (folder, weight) = match text.rsplit_once('=') {
        Some((folder, weight)) if !PathBuf::from(text).is_dir() => (folder, Some(weight)),
        _ => (text, None),
    };
    let number = |text: &str| text.parse::<f64>().ok().filter(|weight| weight.is_finite());
    match weight.map(number) {
        Some(None) => Err("the weight after `=` is not a number".to_owned()),
        weight => Ok((folder.into(), weight.flatten().unwrap_or(1.0))),
    }
}

/// Shows a person what goes on before a model is compiled.
struct Preparing;

impl RequestObserver for Preparing {
    fn warning(&self, text: &str) {
        warn(text);
    }

    fn note(&self, text: &str) {
        note(text);
    }

    fn calibration(&self) -> Box<dyn CalibrationObserver> {
        Box::new(calibrate::Console::new())
    }
}
