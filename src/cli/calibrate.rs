//! `planish calibrate`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use planish_artifact::backend::LOCAL;
use planish_artifact::files;
use planish_compiler::calibrate::{
    CalibrateOn, CalibrateOptions, Calibration, CalibrationObserver, Measure, calibrate, few,
};
use planish_compiler::source::SourceModel;
use planish_data::{DataOptions, OptionNames, SAMPLES, Shard};
use planish_models::{Pooling, Task};
use serde::Serialize;

use super::heartbeat::Heartbeat;
use super::shard::{self, shard};
use super::terminal::bars;
use super::{ProcessorArguments, hub, import::ImportArguments, overwrites, print, print_json, short, warn};

/// Run a model on data and write what its activations are to a table for `planish compile --calibrate`
///
/// The table has two kinds of statistics, and --measure can choose one of them. `ranges` are for half precision: the minimum
/// and the maximum of each floating-point value that the model computes, and of the scaled scores of each attention.
/// Padded positions count there, because the values that the model computes from them must be finite. `inputs` are for
/// INT8: of each value that linear layers take, over real tokens only, the minimum, the maximum and the mean of each
/// column, a histogram, and a sample of the tokens. The table serves all methods that choose a range from these
/// statistics, so the method is chosen by `compile`. The model runs in float32. A value that is NaN is an error that
/// names the value.
///
/// The tokenizer.json beside the model turns texts into token ids. Texts are padded as `generate` pads prompts. The
/// decoder of an encoder-decoder takes the start token and then the tokens of the same text: decoder_model takes
/// the first half, and decoder_with_past_model takes the rest, with the cache of the first half. Of recordings and
/// pictures it takes the start token and then the likeliest tokens, 24 in all or fewer where the text ends.
///
/// Tensors have the names of the model's inputs; for an encoder-decoder they have the names that `run` takes. Where the inputs
/// have their first dimension in common, which is the batch, the first axis of each tensor counts the samples. Where they
/// have not, such as nodes [N, F] and edges [2, E], or an input without dimensions, a file has the tensors of one run, in
/// exactly the shapes of the inputs, and is one sample. A folder of such files has a sample in each, in the order of their
/// names.
///
/// With --shard K/N, planish runs one of N parts of the data. --merge makes one table of the tables of all shards. It
/// is bit for bit the table of one run over all data.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A checkpoint folder, a .safetensors file (or index of shards) with config.json beside it, a .gguf
    /// file, an .onnx file, or a name of the Hugging Face hub as for `compile`
    #[arg(required_unless_present = "merge")]
    model: Option<PathBuf>,
    /// The calibration data: texts in a .txt file (one text per line), a .jsonl file (one object per line), a .csv
    /// file (with a header) or a .parquet file, or tensors in an .npz or a .safetensors file (the first axis counts
    /// the samples, or the file is one sample: see above), or in a folder of these; or a picture, a folder of pictures, or a
    /// folder of such folders, of which each has the same share of --samples;
    /// or recordings in the same way
    #[arg(long, value_name = "PATH", required_unless_present = "merge")]
    data: Option<PathBuf>,
    /// The member of each object of a .jsonl file, or the column of a .csv or .parquet file, that is the text
    /// [default: text]
    #[arg(long, value_name = "NAME")]
    field: Option<String>,
    /// Leave out lines of the data that cannot be read, and print their number; they are errors otherwise
    #[arg(long)]
    skip_bad: bool,
    /// The largest number of samples to run. planish takes the first samples of the data
    #[arg(long, default_value_t = SAMPLES, value_name = "N")]
    samples: NonZeroUsize,
    /// The number of tokens after which a text is cut [default: max_seq_length of sentence_bert_config.json beside the model,
    /// or else model_max_length of tokenizer_config.json, but at most 512 and the longest sequence that the model takes]
    #[arg(long, value_name = "N")]
    max_length: Option<NonZeroUsize>,
    /// The number of samples in one batch [default: 8, or the batch size that the model fixes]
    #[arg(long, value_name = "N")]
    batch: Option<NonZeroUsize>,
    /// What to measure
    #[arg(long, value_enum, default_value_t = MeasureName::All, value_name = "WHAT")]
    measure: MeasureName,
    /// Run shard K of N only: every Nth batch, from batch K on. With auto, variables of Slurm, Kubernetes, AWS Batch or MPI say which
    #[arg(long, value_name = "K/N|auto", value_parser = shard)]
    shard: Option<Shard>,
    /// Write the table of all data from the tables of all shards; nothing is run
    #[arg(long, value_name = "TABLE", num_args = 1.., conflicts_with_all = ["model", "data", "field", "skip_bad",
        "samples", "max_length", "batch", "measure", "shard", "task", "strict", "runtime", "threads"])]
    merge: Vec<PathBuf>,
    /// The table to write [default: NAME-calibration.json, or NAME-calibration-K-of-N.json for a shard, in the current
    /// folder]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The task of the model, as for `compile` [default: the task in config.json]
    #[arg(long, value_name = "TASK")]
    task: Option<Task>,
    /// How tokens become the vector of a text without modules.json, e.g. cls,normalize
    #[arg(long, value_name = "MODE")]
    pooling: Option<Pooling>,
    /// Turn warnings into errors
    #[arg(long)]
    strict: bool,
    /// The runtime
    #[arg(long, default_value = LOCAL.target.name, value_name = "NAME")]
    runtime: RuntimeName,
    /// The number of threads of the runtime [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print JSON: {"table": the path of the table, "calibration": the contents of the table}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    import: ImportArguments,
    #[command(flatten)]
    library: ProcessorArguments,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RuntimeName {
    /// ONNX Runtime's CPU execution provider
    Ort,
    /// The reference interpreter, which is slow
    Reference,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MeasureName {
    /// The ranges of all values, for --fp16 and --bf16
    Ranges,
    /// The statistics of the inputs of linear layers, for --int8
    Inputs,
    /// Both
    All,
}

impl From<MeasureName> for Measure {
    fn from(name: MeasureName) -> Self {
        match name {
            MeasureName::Ranges => Self::Ranges,
            MeasureName::Inputs => Self::Inputs,
            MeasureName::All => Self::All,
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Written<'a> {
    table: &'a Path,
    calibration: &'a Calibration,
}

pub(super) fn run(mut arguments: Arguments) -> Result<()> {
    hub::all_located(arguments.model.iter_mut())?;
    let (json, output) = (arguments.json, arguments.output.clone());
    let data = arguments.data.iter().chain(&arguments.merge).map(PathBuf::as_path);
    overwrites::check([("-o", output.as_deref())], arguments.model.as_deref(), data)?;
    output.as_deref().map_or(Ok(()), files::check_writable)?;
    let calibration = match (&arguments.model, &arguments.data) {
        (Some(model), Some(data)) => {
            let model = SourceModel::open_with(model, &arguments.import.options()?)?;
            measured(&model, data, &options(&arguments))?
        }
        _ => merged(&arguments.merge)?,
    };
    let path = output.unwrap_or_else(|| {
        let of_shard = arguments.shard.map(|shard| format!("-{}-of-{}", shard.index + 1, shard.count));
        format!("{}-calibration{}.json", calibration.source.name, of_shard.unwrap_or_default()).into()
    });
    calibration.write(&path)?;
    if json {
        return print_json(&Written { table: &path, calibration: &calibration });
    }
    print(&summary(&path, &calibration))
}

fn options(arguments: &Arguments) -> CalibrateOptions {
    CalibrateOptions {
        task: arguments.task,
        pooling: arguments.pooling,
        latent_cache: None,
        image_size: None,
        towers: None,
        preprocessing: None,
        strict: arguments.strict,
        data: DataOptions {
            field: arguments.field.clone(),
            skip_bad: arguments.skip_bad,
            samples: arguments.samples,
            batch: arguments.batch,
            max_length: arguments.max_length,
            names: OptionNames { label: None, ..OptionNames::ALL },
            ..DataOptions::default()
        },
        measure: arguments.measure.into(),
        shard: arguments.shard,
        on: match arguments.runtime {
            RuntimeName::Ort => CalibrateOn::Backend(LOCAL, arguments.library.settings()),
            RuntimeName::Reference => CalibrateOn::Interpreter,
        },
        threads: arguments.threads,
    }
}

/// The table of all shards.
fn merged(paths: &[PathBuf]) -> Result<Calibration> {
    let all = shard::merged(paths, Calibration::read, |all, next| all.merge(&next))?;
    all.check_complete().context("shards are missing: the merged table does not have all of the data")?;
    few(all.samples).iter().for_each(|warning| warn(warning));
    Ok(all)
}

fn measured(model: &SourceModel, data: &Path, options: &CalibrateOptions) -> Result<Calibration> {
    let calibration = calibrate(model, data, options, &Console::new());
    calibration.with_context(|| format!("cannot calibrate {}", model.name()))
}

/// The largest finite number of float16, beyond which a value cannot be stored in it.
const FLOAT16_MAX: f64 = 65504.0;

fn summary(path: &Path, calibration: &Calibration) -> String {
    let table = calibration.table();
    let (samples, data) = (calibration.samples, &calibration.data.name);
    let word = if samples == 1 { "sample" } else { "samples" };
    let mut text = format!("{}: {samples} {word} of {data}", short(path).display());
    if let Some(shards) = &calibration.shards {
        text += &format!(", shard {shards}");
    }
    text += "\n";
    if calibration.skipped > 0 {
        text += &format!("  {} bad records were left out\n", calibration.skipped);
    }
    for (part, values) in table.parts() {
        let beyond = values.values().filter(|range| range.magnitude() > FLOAT16_MAX).count();
        let largest = values.iter().max_by(|a, b| a.1.magnitude().total_cmp(&b.1.magnitude()));
        let largest = largest.map_or_else(String::new, |(value, range)| {
            format!(", the largest magnitude {:.4e} in {value}", range.magnitude())
        });
        text += &format!("  {part}: {} values, {beyond} of them beyond float16{largest}\n", values.len());
    }
    for (part, values) in table.inputs() {
        let columns: usize = values.values().map(|input| input.columns.len()).sum();
        let tokens = values.values().map(|input| input.tokens).max().unwrap_or(0);
        text +=
            &format!("  {part}: {} inputs of linear layers with {columns} columns, {tokens} tokens\n", values.len());
    }
    text
}

/// Warnings and progress for a person; of the progress in a pipe one line after each long silence.
pub(super) struct Console {
    bar: ProgressBar,
    heartbeat: Heartbeat,
}

impl Console {
    pub(super) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), bars());
        if let Ok(style) = ProgressStyle::with_template("calibrating {bar:30} {pos}/{len} samples, {eta}") {
            bar.set_style(style);
        }
        let heartbeat = Heartbeat::of_pipe();
        heartbeat.step("loading");
        Self { bar, heartbeat }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl CalibrationObserver for Console {
    fn warning(&self, text: &str) {
        warn(text);
    }

    fn progress(&self, done: usize, total: usize) {
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        self.heartbeat.done("calibrating", &format!("{done} of {total} samples"));
    }
}
