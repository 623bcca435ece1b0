//! `planish compile`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::ValueEnum;
use planish_artifact::backend::{Backend, LOCAL, lacks, spelled};
use planish_artifact::coverage::Extent;
use planish_artifact::package::RuntimePackage;
use planish_artifact::recipe::Recipe;
use planish_check::evaluate::EvaluateOptions;
use planish_compiler::calibrate::{CalibrateOn, CalibrateOptions, Calibration, Measure};
use planish_compiler::compile::{CompileOptions, LoweredPart, check_output, compile, default_folder, lower};
use planish_compiler::recipe::{CalibrationData, Resolved, resolve};
use planish_compiler::source::SourceModel;
use planish_data::DataOptions;
use planish_ir::DType;
use planish_models::Task;
use planish_onnx::{OPSETS, Placement};
use planish_passes::{CacheForm, Options, PASSES, TARGETS};
use planish_runtimes::Format;

use super::console::Console;
use super::engine::{self, EngineArguments, check_builder, no_engines};
use super::gate::{Gate, GateArguments};
use super::recipe::RecipeArguments;
use super::written::{Shown, finish};
use super::{RuntimeArguments, Usage, backend, import::ImportArguments, note, print, quantization, warn, weights};

/// Compile a checkpoint or an ONNX graph into an artifact folder
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A checkpoint folder, a .safetensors file (or index of shards) beside its config.json, a .gguf or .onnx file, or the folder of an
    /// artifact with ONNX graphs
    model: PathBuf,
    /// The folder to write [default: NAME-TARGET-PRECISION in the current folder]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// onnx (any runtime), ort (ONNX Runtime), ort-cuda (the same on NVIDIA GPUs), trt (TensorRT) or cuda (planish's own runtime)
    /// [default: ort]
    #[arg(long, value_name = "TARGET", value_parser = backend)]
    target: Option<&'static Backend>,
    /// The task of the model, such as text-classification or text-generation [default: the task in config.json]
    #[arg(long, value_name = "TASK")]
    task: Option<Task>,
    /// The ONNX opset, 17 to 28 [default: 20, and more where needed]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(i64::from(*OPSETS.start())..=i64::from(*OPSETS.end())))]
    opset: Option<u32>,
    /// How a decoder of target ort appends to its cache: copy, or in-place, behind the past, where an input of the cache and its output
    /// share a buffer [default: copy; for package genai in-place]
    #[arg(long, value_name = "FORM")]
    cache: Option<Cache>,
    /// Whether weights are copied into the artifact, or linked: the checkpoint's files, on the same filesystem, which ONNX
    /// Runtime loads and the Python package onnx does not
    #[arg(long, default_value = "copy", value_name = "HOW")]
    weights: Weights,
    /// The library or the server whose file names the artifact has
    #[arg(long, default_value = "optimum", value_name = "NAME")]
    runtime_package: RuntimePackage,
    /// Lower every operator to plain arithmetic, as a baseline for comparisons
    #[arg(long)]
    no_fusion: bool,
    /// Turn warnings into errors: ignored configuration keys, unused tensors, weights that cannot be linked
    #[arg(long)]
    strict: bool,
    /// Replace the output folder even if planish did not write it, except the current folder
    #[arg(long)]
    force: bool,
    /// Explain fusion (what was found, where a rule almost matched and why not), or quantization (what became of each weight or input,
    /// and its loss)
    #[arg(long, value_name = "WHAT,..", value_delimiter = ',')]
    explain: Vec<Explain>,
    /// For work on passes: verify (check the graph after each), print=PASS (print the graph after it), stop=N (run N passes, print the
    /// graph, write nothing)
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
    gate: GateArguments,
    #[command(flatten)]
    runtime: RuntimeArguments,
}

/// The data that a model is calibrated on.
#[derive(clap::Args)]
#[command(next_help_heading = "Precision")]
struct CalibrationArguments {
    /// Texts (.txt, .jsonl, .csv, .parquet), tensors (.npz, .safetensors, a folder of them), or a table of `planish calibrate`. With
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

/// A value of `--debug`.
#[derive(Clone)]
enum Debug {
    Verify,
    Print(String),
    Stop(usize),
}

impl FromStr for Debug {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            None if text == "verify" => Ok(Self::Verify),
            Some(("print", pass)) => Ok(Self::Print(pass.to_owned())),
            Some(("stop", count)) => count.parse().map(Self::Stop).map_err(|_| "stop=N takes a number".to_owned()),
            _ => Err("there are verify, print=PASS and stop=N".to_owned()),
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Cache {
    Copy,
    InPlace,
}

#[derive(Clone, Copy, ValueEnum)]
enum Weights {
    Copy,
    Link,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let start = Instant::now();
    let recipe = recipe(&arguments)?;
    let debug = || arguments.debug.iter();
    let print_after = debug().find_map(|debug| if let Debug::Print(pass) = debug { Some(pass.clone()) } else { None });
    let stop_after = debug().find_map(|debug| if let Debug::Stop(count) = debug { Some(*count) } else { None });
    if let Some(option) = arguments.beside_stop().filter(|_| stop_after.is_some()) {
        return Err(Usage(format!("--debug stop=N writes nothing; leave {option} out")).into());
    }
    if let Some(pass) = &print_after
        && !PASSES.iter().any(|p| p.name == pass)
    {
        return Err(Usage(format!("there is no pass `{pass}`; `planish passes` lists them")).into());
    }
    if let Some(threads) = arguments.threads {
        rayon::ThreadPoolBuilder::new().num_threads(threads.into()).build_global()?;
    }
    let backend = match &recipe.target {
        Some(name) => backend(name).map_err(Usage)?,
        None => LOCAL,
    };
    let settings = arguments.runtime.settings();
    let threads = arguments.threads.unwrap_or(0).into();
    let (calibrate_path, field) = (arguments.data.calibrate.as_deref(), arguments.data.field.as_deref());
    let gate = arguments.gate.gate(
        recipe.quantized().is_some(),
        calibrate_path,
        field,
        EvaluateOptions { threads, settings: settings.clone(), ..EvaluateOptions::default() },
    )?;
    if gate.is_some() && recipe.last_logits() {
        let evaluates = arguments.gate.evaluates();
        let reason = format!(
            "logits=last of the recipe leaves out logits that an evaluation compares, and {evaluates} evaluates the artifact; leave \
             one of them out"
        );
        return Err(Usage(reason).into());
    }
    let mut calibrate = calibrate_options(&arguments, &recipe, backend);
    if let Some(gate) = &gate {
        gate.divide(calibrate_path, &mut calibrate.data);
    }
    let data = calibrate_path.map(|path| CalibrationData { path, run: &calibrate });
    let Resolved { half: precision, quantize, quantize_weights, block_inputs, padding } =
        resolve(&recipe, backend.target, data)?;
    let engine = EngineArguments::of(&recipe.engine)?;
    let computes = precision.as_ref().map_or(DType::F32, |precision| precision.half.dtype());
    let computes = if backend.target.computes_in_float32 { DType::F32 } else { computes };
    if arguments.gate.verify || gate.is_some() {
        // Before work that a missing runtime would make useless.
        backend.runtime_for(computes, &settings).check()?;
    } else if backend.engines.is_none() && lacks(backend.runtime(&settings).as_ref(), computes).is_some() {
        let name = backend.runtime(&settings).name();
        note(&format!("`{name}` cannot load the artifact: it has no kernels for {}", spelled(computes)));
    }
    let (import, profiles) = match backend.engines {
        Some(_) => arguments.import.with_profiles()?,
        None => (arguments.import.options()?, Vec::new()),
    };
    if backend.engines.is_none() && !recipe.engine.is_empty() {
        return Err(no_engines("`engine` of the recipe", backend.target.name));
    }
    if arguments.opset.is_some() && backend.emitter.format() == Format::GRAPH {
        return Err(Usage(format!("--opset is for ONNX files, and target {} has none", backend.target)).into());
    }
    if let Some(reason) = arguments.runtime_package.refuses(backend) {
        return Err(Usage(reason).into());
    }
    if backend.engines.is_some() && !SourceModel::is_file_of_graph(&arguments.model) {
        arguments.import.refuse_shapes()?;
    }
    let source = SourceModel::open_with(&arguments.model, &import)?;
    let half = precision.as_ref().map(|precision| precision.half);
    engine.check(&engine::products(quantize.as_ref(), half, &source))?;
    let folders = [Extent::Most, Extent::Part, Extent::Nothing].map(|extent| {
        let (quantize, weights) = (quantize.as_ref(), quantize_weights.as_ref());
        (extent, default_folder(&source, backend, half, quantize, weights, extent, arguments.runtime_package))
    });
    let folder = arguments.output.clone().unwrap_or_else(|| folders[0].1.clone());
    if stop_after.is_none() {
        // Before the model is calibrated and lowered. How much of it becomes codes decides which folder it is.
        let usual = folders.iter().map(|(_, folder)| folder).filter(|_| arguments.output.is_none());
        usual
            .chain([&folder])
            .try_for_each(|folder| check_output(&source, folder, arguments.force))
            .with_context(|| format!("cannot compile {}", arguments.model.display()))?;
        if backend.engines.is_some() {
            check_builder(&engine, &settings, &folder, arguments.force)?;
        }
    }
    let attention_fp32 = recipe.attention_fp32;
    let attention = if attention_fp32 { backend.target.attention_between_casts.opset() } else { 0 };
    let cache = cache(&arguments, backend)?;
    let codes = [quantize_weights.as_ref().map(|_| DType::I4), source.block_codes()];
    let codes = codes.into_iter().flatten().map(|codes| backend.target.blocks_opset(codes));
    let least = codes.chain([attention, backend.target.cache_opset(cache)]).max().unwrap_or(0);
    let opset = arguments.opset.unwrap_or_else(|| source.default_opset_from(least));
    let options = CompileOptions {
        backend,
        task: arguments.task,
        strict: arguments.strict,
        passes: Options {
            fusion: !arguments.no_fusion,
            cache,
            attention_fp32,
            precision: precision.map(Into::into),
            padding,
            last_logits: recipe.last_logits(),
            allow_non_finite: recipe.allow_non_finite,
            ..Options::new(backend.target, opset)
        },
        placement: match arguments.weights {
            Weights::Copy => Placement::Copy,
            Weights::Link => Placement::Link,
        },
        package: arguments.runtime_package,
        explain_fusion: arguments.explain.contains(&Explain::Fusion),
        verify_passes: debug().any(|debug| matches!(debug, Debug::Verify)),
        force: arguments.force,
        profiles,
        calibration: calibration(&recipe, backend, data, &source, gate.as_ref().is_some_and(Gate::holds_out))?,
        quantize,
        quantize_weights,
        requantize: recipe.requantize,
        recipe: Some(recipe.clone()),
        block_inputs,
    };
    let console = Console::new(print_after);
    let context = || format!("cannot compile {}", arguments.model.display());
    if stop_after.is_some() {
        let lowered = lower(&source, &options, stop_after, &console).with_context(context)?;
        console.note_missing_pass();
        let text = |part: &LoweredPart| {
            let passes: String = part.stages.iter().map(|stage| format!("// {}\n", stage.pass)).collect();
            format!("{passes}{}\n", part.graph)
        };
        return print(&lowered.parts.iter().map(text).collect::<String>());
    }
    let mut compiled = compile(&source, &folder, &options, &console).with_context(context)?;
    console.note_missing_pass();
    if let Some(gate) = &gate {
        compiled = gate.pass(compiled, &source, options, arguments.json)?;
    }
    quantization::report(&recipe, arguments.explain.contains(&Explain::Quantization), &compiled.artifact.manifest);
    weights::report(&recipe, &compiled.artifact.manifest);
    if let (Some(coverage), Some(precision)) = (compiled.coverage(), recipe.quantized()) {
        if let Some(warning) = quantization::left(&coverage, precision.option()) {
            warn(&warning);
        }
        let named = folders.iter().find(|(extent, _)| *extent == coverage.extent());
        if let Some((_, folder)) = named.filter(|_| arguments.output.is_none()) {
            compiled.rename(&source, folder)?;
        }
    }
    let written = start.elapsed();
    let padded = compiled.artifact.manifest.parts.iter().any(|part| part.vocabulary.is_some());
    if recipe.pads() && !padded {
        warn("nothing was padded, because planish found no input of token ids and no LM head");
    }
    arguments.gate.verify(&mut compiled, &source, (threads, &settings), gate.is_some(), arguments.json)?;
    if backend.engines.is_some() && (arguments.gate.verify || gate.is_some()) {
        note("the ONNX graph was run, of which the engine is built; `planish verify` runs the engine on a GPU");
    }
    let Some(profiles) = compiled.profiles.take() else {
        return finish(compiled, &[], if arguments.json { Shown::Json } else { Shown::Summary }, written);
    };
    let (force, json) = (arguments.force, arguments.json);
    engine::finish(compiled, &profiles, &engine, &engine::FinishContext { settings: &settings, force, json, start })
}

impl Arguments {
    /// The first given option that is of no use where nothing is written.
    fn beside_stop(&self) -> Option<&'static str> {
        let options = [
            (self.output.is_some(), "--output"),
            (matches!(self.weights, Weights::Link), "--weights"),
            (self.gate.verify, "--verify"),
            (self.gate.data().is_some(), "--evaluate"),
            (self.gate.has_limits(), "--max-loss"),
            (self.force, "--force"),
            (self.json, "--json"),
        ];
        options.into_iter().find_map(|(given, option)| given.then_some(option))
    }
}

/// What the numbers of the artifact are, and for which target: as the arguments say.
fn recipe(arguments: &Arguments) -> Result<Recipe> {
    let mut recipe = arguments.recipe.recipe()?;
    if let Some(backend) = arguments.target {
        recipe.target = Some(backend.target.name.to_owned());
    }
    Ok(recipe)
}

/// How attention appends to the cache.
fn cache(arguments: &Arguments, backend: &Backend) -> Result<CacheForm> {
    let target = backend.target;
    let supported = target.appends_in_place && !arguments.no_fusion;
    match arguments.cache {
        Some(Cache::InPlace) if !target.appends_in_place => {
            let with = TARGETS.iter().filter(|target| target.appends_in_place).map(|target| target.name);
            let with: Vec<&str> = with.collect();
            let with = with.join(", ");
            Err(Usage(format!(
                "target {target} does not append to a cache in place; --cache in-place is for target {with}"
            ))
            .into())
        }
        Some(Cache::InPlace) if arguments.no_fusion => {
            Err(Usage("--cache in-place needs an operator for the whole attention; leave out --no-fusion".to_owned())
                .into())
        }
        None if supported && arguments.runtime_package == RuntimePackage::Genai => Ok(CacheForm::InPlaceIfPossible),
        Some(Cache::InPlace) => Ok(CacheForm::InPlace),
        Some(Cache::Copy) | None => Ok(CacheForm::Copy),
    }
}

/// How the data of `--calibrate` is run.
fn calibrate_options(arguments: &Arguments, recipe: &Recipe, backend: &Backend) -> CalibrateOptions {
    let data = DataOptions { field: arguments.data.field.clone(), ..DataOptions::default() };
    let on = CalibrateOn::Backend(LOCAL, arguments.runtime.settings());
    let (task, threads) = (arguments.task, arguments.threads);
    let halves = recipe.half().is_some() && !backend.target.computes_in_float32;
    let measure = match (halves, recipe.codes().is_some()) {
        (true, true) => Measure::All,
        (_, true) => Measure::Inputs,
        (_, false) => Measure::Ranges,
    };
    CalibrateOptions { task, data, measure, on, threads, ..CalibrateOptions::default() }
}

/// What was measured of the activations, if `--calibrate` is given. `is_evaluated` says that a part of its data evaluates the
/// artifact.
fn calibration(
    recipe: &Recipe,
    backend: &Backend,
    data: Option<CalibrationData<'_>>,
    source: &SourceModel,
    is_evaluated: bool,
) -> Result<Option<Calibration>> {
    let Some(CalibrationData { path, run }) = data else { return Ok(None) };
    let (target, half) = (backend.target, recipe.half());
    if recipe.codes().is_none() && (half.is_none() || target.computes_in_float32) {
        // Weights take no ranges: their method runs the data itself.
        if recipe.weights_take_data() || recipe.blocks().is_some() && is_evaluated {
            return Ok(None);
        }
        let message = match half {
            None => "--calibrate gives data to --int8, --fp8, --weight-method gptq and awq, --fp16 and --bf16; add one of them".to_owned(),
            Some(half) => format!(
                "--calibrate does nothing with --{half} for target {target}, which only stores weights in half precision; choose \
                 --target onnx, or leave it out"
            ),
        };
        return Err(Usage(message).into());
    }
    super::calibrate::ranges(source, path, run).map(Some)
}
