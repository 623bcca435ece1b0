//! `planish bench`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use planish_artifact::backend::{self, MakeRuntime, RuntimeSettings, Spin};
use planish_artifact::evaluation::Requirements;
use planish_artifact::files;
use planish_artifact::recipe::Precision;
use planish_artifact::tuning::RunSettings;
use planish_data::read_inputs;
use planish_measure::bench::{BenchOptions, Contest, Request, Variant, Workload, divided, generates};
use planish_measure::tune::TuneOptions;

use super::bench_console::{Console, Preparing};
use super::bench_output::{self, Output};
use super::bench_report::Reports;
use super::bench_settings::BenchArguments;
use super::numbers::Numbers;
use super::{RuntimeArguments, Usage, hub, note, overwrites, tune};

/// Measure the latency of artifacts next to each other
///
/// planish first compares the outputs of each cell with the reference interpreter on the source. A cell whose
/// outputs are wrong has no latency, and the exit code is 3. Artifacts of one model are measured in turns, so a
/// change in the speed of the machine affects all of them. Artifacts of different models are measured one model
/// after the other.
///
/// A decoder with a cache has two cells for each length S of --seq: `prompt` reads S tokens with an empty cache,
/// and `step` reads one token with a cache of S tokens. An encoder-decoder has a cell for each part: encoder_model
/// reads S tokens; decoder_model reads the first token of the decoder, for an encoder input of S tokens;
/// decoder_with_past_model reads one token with a cache of S tokens, for an encoder input of S tokens. A cell is
/// left out if it needs more tokens than the model takes.
///
/// The table has 100 columns of characters. What all rows have in common stands above it, and what has no room is in the table of
/// --set wide and in JSON. ±CI is half of the 95% interval of the median. `vs base` is the speed relative to the first artifact; `~`
/// before it means that the interval of this ratio contains 1. `neighbours kept` and `top-1 kept` have the 95% interval of the
/// share in brackets. `cosine, random input` is the cosine between the outputs and the reference on seeded inputs. `load MB` is
/// the resident memory that loading adds. `MFU` is the number of operations of
/// the model's products, by the time, as a share of what a large product of matrices reaches on this machine. `roof` is the
/// least time that such products and copies of memory allow, as a share of the time.
///
/// At the end planish names the contestant to choose, and the command that makes it: the fastest within --max-loss on --data; of
/// those that are as fast within the intervals, the smallest. Without --data, quantized forms are not considered.
///
/// An artifact that was compiled from something else than --reference names is compared with that where it takes the same
/// inputs, such as an artifact of a GPTQ checkpoint with the original. What cannot be compared has a row with the reason.
///
/// Progress and notes go to standard error: on a terminal a bar, elsewhere a line for each cell, and one after 30 s of silence.
/// The first Ctrl-C prints what is finished, and the exit code is 130; the second one ends planish at once.
///
/// Runtimes on a GPU have a second table, with the names and definitions of trtexec: `GPU compute` is the time of the GPU
/// between the first and the last kernel of a run, by CUDA events; `enqueue` the time of the host to start the run; `H2D` and
/// `D2H` the times of copies, with --set transfers; `latency` their sum with GPU compute; `queries/s` the number of
/// runs by the time of the host for all of them. planish starts a run when the one before it is done.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// What to measure: folders of artifacts, .onnx files of any origin, or checkpoints (names of the Hugging Face hub too), which are compiled
    /// into temporary files [default: the current folder if it is an artifact, else the artifacts in folders below it]
    #[arg(value_name = "ARTIFACT|MODEL")]
    named: Vec<PathBuf>,
    /// Compile the usual forms of a checkpoint into temporary files, and compare them: float32 without fused operators,
    /// float32, float16, dynamic INT8, INT8 with --data or --set calibrate=FILE, and weights of 8 and of 4 bits; on ONNX Runtime, and on
    /// a GPU if there is one
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["precision", "runtime"])]
    compare: Option<PathBuf>,
    /// The forms in which checkpoints are compiled: unfused (float32 without fused operators), f32, fp16, bf16,
    /// int8-dynamic, int8, int4 and int8-weights (weights of 4 or 8 bits; on ONNX Runtime, products round their inputs to 8
    /// bits) [default: f32]
    #[arg(long, value_delimiter = ',', value_name = "FORM,..", value_parser = variant)]
    precision: Vec<Variant>,
    /// What checkpoints are compiled with otherwise, as `planish compile --recipe` takes it: a file, or KEY=VALUE such as
    /// weight-scales=reduced. Forms that have no use for it are left out of --compare. Repeatable
    #[arg(long, value_name = "FILE|KEY=VALUE")]
    recipe: Vec<String>,
    /// Compare everything with its model in float32 on this data, of the kinds that `calibrate` takes. The columns are those
    /// of `evaluate`: cosine and neighbours kept, or top-1 agreement and KL divergence, or perplexity
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// The limits on --data that the contestant to choose keeps, as for `evaluate --require`, such as cos=0.999,neighbours=95
    /// [default: cos=0.99,neighbours=90 for embeddings, perplexity=1.02 for text generation, top1=98 for other predictions,
    /// else cos=0.99]
    #[arg(long, value_name = "LIMITS", requires = "data")]
    max_loss: Option<Requirements>,
    /// The batch sizes: numbers, and ranges such as 1-32*2 (1, 2, 4 and so on) or 8-24+8
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "N,..", value_parser = Numbers::parse)]
    batch: Vec<Numbers>,
    /// The sequence lengths in tokens, for models that take sequences: numbers and ranges as for --batch [default: 128, or
    /// the longest sequence that every artifact takes, or max_seq_length of its sentence_bert_config.json or model_max_length of
    /// its tokenizer_config.json, if that is shorter]
    #[arg(long, value_delimiter = ',', value_name = "N,..", value_parser = Numbers::parse)]
    seq: Vec<Numbers>,
    /// Measure on the tensors of this file (.safetensors or .npz), which have the names of the model's inputs, instead of seeded
    /// inputs. A model whose inputs are not rows, such as the nodes and edges of a graph, needs this option
    #[arg(long, value_name = "FILE", conflicts_with_all = ["batch", "seq"])]
    inputs: Option<PathBuf>,
    /// The runtimes: ort, openvino, ort-cuda, trt, cuda, cuda-baseline, cuda-emulator, reference [default: trt for an artifact with engines, else the runtime of its
    /// target]
    #[arg(long, value_delimiter = ',', value_name = "NAME,..", value_parser = runtime)]
    runtime: Vec<MakeRuntime>,
    /// What a run is. encode: the model on rows of one length, or the prompt and one step of a decoder. generate: --set new-tokens tokens
    /// are added to prompts of --seq tokens. lengths: all texts of --data in padded batches
    /// of --batch rows, as they come and by their lengths. load: a fresh process for each run starts and loads the model, with
    /// its files dropped from the cache of the system and with them cached, and runs it for the first time
    #[arg(long, value_enum, default_value = "encode", value_name = "NAME")]
    workload: WorkloadName,
    /// The number of threads of the runtime [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// The checkpoint or .onnx file that the artifacts were compiled from; give the option several times for
    /// artifacts of several models [default: planish looks at the recorded path, in the folder of each artifact,
    /// beside it under the recorded name, and in the current folder]
    #[arg(long, value_name = "MODEL")]
    reference: Vec<PathBuf>,
    /// Write all figures as JSON. With FILE, the file also has the time of each run. Without FILE, planish prints
    /// the JSON instead of the table
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    #[command(flatten)]
    reports: Reports,
    #[command(flatten)]
    set: BenchArguments,
    #[command(flatten)]
    runtimes: RuntimeArguments,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum WorkloadName {
    Encode,
    Generate,
    Lengths,
    Load,
}

/// The value of `--precision`.
fn variant(name: &str) -> Result<Variant, String> {
    let found = Variant::ALL.into_iter().find(|variant| variant.name() == name);
    found.ok_or_else(|| format!("there are {}", Variant::ALL.map(Variant::name).join(", ")))
}

/// What is done with figures that were saved. A folder of that name is written with its path, such as ./diff.
#[derive(clap::Subcommand)]
enum Command {
    Diff(super::bench_diff::Arguments),
    Merge(super::bench_merge::Arguments),
    Report(super::bench_report::Arguments),
}

/// The value of `--runtime`.
fn runtime(name: &str) -> Result<MakeRuntime, String> {
    backend::runtime_named(name).map_err(|unknown| unknown.to_string())
}

impl Arguments {
    /// How many artifacts and models are named.
    pub(super) fn contestants(&self) -> usize {
        self.named.len()
    }

    /// Models, artifacts and data.
    fn files_read(&self) -> impl Iterator<Item = &Path> {
        let data = [&self.compare, &self.data, &self.set.calibrate, &self.inputs].into_iter().flatten();
        self.named.iter().chain(&self.reference).chain(data).map(PathBuf::as_path)
    }

    /// The file that figures are written to.
    fn file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|path| *path != Path::new("-"))
    }
}

pub(super) fn run(mut arguments: Arguments) -> Result<()> {
    match &arguments.command {
        Some(Command::Diff(of)) => return super::bench_diff::run(of),
        Some(Command::Merge(of)) => return super::bench_merge::run(of),
        Some(Command::Report(of)) => return super::bench_report::run(of),
        None => {}
    }
    hub::all_located(arguments.named.iter_mut().chain(&mut arguments.compare).chain(&mut arguments.reference))?;
    let options = options(&arguments)?;
    let outputs = arguments.reports.outputs().into_iter().chain([("--json", arguments.file())]);
    // A word of --recipe may be a file.
    overwrites::check(outputs, arguments.files_read(), arguments.recipe.iter().map(Path::new))?;
    if let Some(path) = arguments.file() {
        files::check_writable(path)?;
    }
    arguments.reports.check()?;
    let settings = arguments.runtimes.sleeping();
    let (samples, field) = (arguments.set.most_samples(), arguments.set.field.clone());
    let compares = match &arguments.compare {
        // Static INT8 of a decoder is for those who name data for it.
        Some(model) => arguments.data.is_none() || !generates(model)?,
        None => false,
    };
    let calibrates = compares || arguments.precision.contains(&Variant::Of(Precision::Int8));
    let [data, calibrate] =
        divided(arguments.data.clone(), arguments.set.calibrate.clone(), calibrates, samples, field);
    if let Some((path, how)) = &data {
        // Before the minutes of compiling and measuring.
        planish_data::check(path, how)?;
    }
    let request = Request {
        named: arguments.named.clone(),
        compare: arguments.compare.clone(),
        variants: arguments.precision.clone(),
        recipe: arguments.recipe.clone(),
        runtimes: arguments.runtime.clone(),
        references: arguments.reference.clone(),
        calibrate,
        settings: settings.clone(),
        tune: tuning(&arguments, &options, &settings)?,
    };
    let mut prepared = request.prepare(&Preparing::new())?;
    let said = RunSettings { threads: arguments.threads, spin: arguments.runtimes.spin };
    for entrant in &mut prepared.entrants {
        let taken = entrant.run_as_tuned(said);
        if !taken.is_default() {
            let others = "--threads and --runtime-option spin give all artifacts the same";
            note(&format!("{} runs with {taken}, as it was tuned; {others}", entrant.label));
        }
    }
    let left_out = prepared.left_out.clone();
    prepared.entrants.iter().for_each(|entrant| tune::warn_elsewhere(&entrant.artifact, &settings));
    let contest = Contest {
        entrants: prepared.entrants,
        references: arguments.reference.clone(),
        runtimes: arguments.runtime.clone(),
        settings,
        inputs: arguments.inputs.as_deref().map(read_inputs).transpose()?,
        data,
        limits: arguments.max_loss.clone(),
    };
    let mut console = Console::new();
    contest.check_lengths(&options, &mut console).map_err(Usage)?;
    contest.check_inputs().map_err(Usage)?;
    let document = contest.bench(&options, &mut console)?;
    console.bar.finish_and_clear();
    let output = Output {
        json: arguments.json.as_deref(),
        reports: &arguments.reports,
        wide: arguments.set.wide,
        widens: "--set wide",
    };
    bench_output::write(&document, &output, left_out)
}

/// The search of --set tune, at the shapes that are measured.
fn tuning(
    arguments: &Arguments,
    options: &BenchOptions,
    settings: &RuntimeSettings,
) -> Result<Option<TuneOptions>, Usage> {
    let Some(time) = arguments.set.tune else { return Ok(None) };
    if arguments.compare.is_none() {
        return Err(Usage(
            "--set tune is for --compare; name a tuned artifact of compile --tune as any other".to_owned(),
        ));
    }
    let tokens: Vec<Option<usize>> = match options.sequence.as_slice() {
        [] => vec![None],
        lengths => lengths.iter().copied().map(Some).collect(),
    };
    let shapes = options.batch.iter().flat_map(|rows| tokens.iter().map(|tokens| (*rows, *tokens))).collect();
    // Contestants have the same polling.
    let spin = arguments.runtimes.spin.unwrap_or(Spin::Microseconds(0));
    let run = RunSettings { threads: arguments.threads, spin: Some(spin) };
    Ok(Some(TuneOptions { shapes, time, settings: settings.clone(), others: Vec::new(), run }))
}

/// The options from the arguments alone. Without --seq they have no sequence lengths.
fn options(arguments: &Arguments) -> Result<BenchOptions> {
    let sizes = |all: &[Numbers]| {
        let mut sizes: Vec<usize> = Vec::new();
        for size in all.iter().flat_map(|numbers| numbers.0.clone()) {
            if !sizes.contains(&size) {
                sizes.push(size);
            }
        }
        sizes
    };
    let options = BenchOptions {
        batch: sizes(&arguments.batch),
        sequence: sizes(&arguments.seq),
        threads: arguments.threads.unwrap_or(0).into(),
        spin: !arguments.runtimes.sleeping().sleeping,
        workload: match arguments.workload {
            WorkloadName::Encode => Workload::Encode,
            WorkloadName::Generate => Workload::Generate,
            WorkloadName::Lengths => Workload::Lengths,
            WorkloadName::Load => Workload::Load,
        },
        ..arguments.set.options.clone()
    };
    arguments.runtimes.check_untimed().map_err(Usage)?;
    let refused = |why: &str| Err(Usage(why.to_owned()).into());
    if options.time.is_zero() && options.iterations == 0 {
        return refused("--set time=0,iterations=0 leaves nothing to measure");
    }
    if options.isolate && options.workload == Workload::Load {
        return refused("--workload load always has processes of its own; leave out --set isolate");
    }
    let others = [(options.operators, "--set operators"), (arguments.inputs.is_some(), "--inputs")];
    if let (false, Some((_, option))) =
        (options.workload == Workload::Encode, others.into_iter().find(|(given, _)| *given))
    {
        return Err(Usage(format!("{option} is for --workload encode; leave one of them out")).into());
    }
    if options.shard.is_some() && options.workload != Workload::Encode {
        return refused(
            "--set shard is for --workload encode; give the other workloads fewer --batch and --seq at a time",
        );
    }
    if options.shard.is_some() && arguments.inputs.is_some() {
        return refused("--inputs is one shape, which shards do not share; leave --set shard out");
    }
    if options.shard.is_some() && arguments.file().is_none() {
        return refused("--set shard needs a file for planish bench merge: add --json FILE");
    }
    if options.shard.is_some() && arguments.set.tune.is_some() {
        return refused("--set tune chooses a form for all shapes, which shards do not share; leave it or shard out");
    }
    if options.uncached && options.workload != Workload::Generate {
        return refused("--set uncached is for --workload generate; leave it out");
    }
    if arguments.data.is_none() && arguments.set.samples.is_some() {
        return refused("--set samples=N is for data: add --data FILE");
    }
    if options.workload == Workload::Lengths && arguments.data.is_none() {
        return refused("--workload lengths needs texts: add --data FILE");
    }
    Ok(options)
}
