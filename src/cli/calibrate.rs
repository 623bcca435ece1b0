//! `planish calibrate`.

use std::io::{self, IsTerminal};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use planish_models::Task;
use serde::Serialize;

use super::{RuntimeArguments, Usage, import::ImportArguments, print, print_json, short, warn};
use crate::backend::ONNX_RUNTIME;
use crate::calibrate::{CalibrateOn, CalibrateOptions, Calibration, CalibrationObserver, calibrate, is_table};
use crate::data::{DataOptions, SAMPLES};
use crate::source::SourceModel;

/// Run a model on data and write the range of each activation to a table for `planish compile --calibrate`
///
/// The table has the minimum and the maximum of each floating-point value that the model computes, and of the
/// scaled scores of each attention, over all samples. Padded positions count too, because the values that the model
/// computes from them must be finite. The model runs in float32. A value that is NaN is an error that names the
/// value.
///
/// The tokenizer.json beside the model turns texts into token ids. Texts are padded as `generate` pads prompts. The
/// decoder of an encoder-decoder takes the start token and then the tokens of the same text: decoder_model takes
/// the first half, and decoder_with_past_model takes the rest, with the cache of the first half. Tensors have the
/// names of the model's inputs; for an encoder-decoder they have the names that `run` takes.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// A checkpoint folder, a .safetensors file (or index of shards) with config.json beside it, or an
    /// .onnx file
    model: PathBuf,
    /// The calibration data: texts in a .txt file (one text per line) or a .jsonl file (one object per line), or
    /// tensors in an .npz or a .safetensors file (the first axis counts the samples)
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The member of each object of a .jsonl file that is the text [default: text]
    #[arg(long, value_name = "NAME")]
    field: Option<String>,
    /// The largest number of samples to run. planish takes the first samples of the data
    #[arg(long, default_value_t = SAMPLES, value_name = "N")]
    samples: NonZeroUsize,
    /// The number of tokens after which a text is cut [default: the longest sequence that the model takes, but at
    /// most 512]
    #[arg(long, value_name = "N")]
    max_length: Option<NonZeroUsize>,
    /// The number of samples in one run [default: 8, or the batch size that the model fixes]
    #[arg(long, value_name = "N")]
    batch: Option<NonZeroUsize>,
    /// The table to write [default: NAME-calibration.json in the current folder]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The task of the model, as for `compile` [default: the task in config.json]
    #[arg(long, value_name = "TASK")]
    task: Option<Task>,
    #[command(flatten)]
    import: ImportArguments,
    /// Turn warnings into errors
    #[arg(long)]
    strict: bool,
    /// The runtime
    #[arg(long, default_value = "ort", value_name = "NAME")]
    runtime: RuntimeName,
    /// The number of threads of the runtime [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print JSON: {"table": the path of the table, "calibration": the contents of the table}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    library: RuntimeArguments,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RuntimeName {
    /// ONNX Runtime's CPU execution provider
    Ort,
    /// The reference interpreter, which is slow
    Reference,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Written<'a> {
    table: &'a Path,
    calibration: &'a Calibration,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let options = CalibrateOptions {
        task: arguments.task,
        strict: arguments.strict,
        data: DataOptions {
            field: arguments.field,
            samples: arguments.samples,
            batch: arguments.batch,
            max_length: arguments.max_length,
        },
        on: match arguments.runtime {
            RuntimeName::Ort => CalibrateOn::Backend(&ONNX_RUNTIME, arguments.library.settings()),
            RuntimeName::Reference => CalibrateOn::Interpreter,
        },
        threads: arguments.threads,
    };
    let model = SourceModel::open_with(&arguments.model, &arguments.import.options()?)?;
    let calibration = measured(&model, &arguments.data, &options)?;
    let path = arguments.output.unwrap_or_else(|| format!("{}-calibration.json", model.name()).into());
    calibration.write(&path)?;
    if arguments.json {
        return print_json(&Written { table: &path, calibration: &calibration });
    }
    print(&summary(&path, &calibration))
}

/// The ranges for compiling a model: from a table, or measured on data.
pub(super) fn ranges(model: &SourceModel, path: &Path, options: &CalibrateOptions) -> Result<Calibration> {
    if is_table(path) {
        if options.data.field.is_some() {
            return Err(Usage(format!("--field is for data; {} is a table", path.display())).into());
        }
        return Calibration::of(model, path, options.task);
    }
    measured(model, path, options)
}

fn measured(model: &SourceModel, data: &Path, options: &CalibrateOptions) -> Result<Calibration> {
    let console = Console::new();
    let calibration = calibrate(model, data, options, &console);
    console.bar.finish_and_clear();
    calibration.with_context(|| format!("cannot calibrate {}", model.name()))
}

/// The largest finite number of float16, beyond which a value cannot be stored in it.
const FLOAT16_MAX: f64 = 65504.0;

fn summary(path: &Path, calibration: &Calibration) -> String {
    let table = calibration.table();
    let (samples, data) = (calibration.samples, &calibration.data.name);
    let mut text = format!("{}: {samples} samples of {data}\n", short(path).display());
    for (part, values) in table.parts() {
        let beyond = values.values().filter(|range| range.magnitude() > FLOAT16_MAX).count();
        let largest = values.iter().max_by(|a, b| a.1.magnitude().total_cmp(&b.1.magnitude()));
        let largest = largest.map_or_else(String::new, |(value, range)| {
            format!(", the largest magnitude {:.4e} in {value}", range.magnitude())
        });
        text += &format!("  {part}: {} values, {beyond} of them beyond float16{largest}\n", values.len());
    }
    text
}

/// Warnings and progress for a person; nothing of the progress in a pipe.
struct Console {
    bar: ProgressBar,
}

impl Console {
    fn new() -> Self {
        let terminal = io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        if let Ok(style) = ProgressStyle::with_template("calibrating {bar:30} {pos}/{len} samples, {eta}") {
            bar.set_style(style);
        }
        Self { bar }
    }
}

impl CalibrationObserver for Console {
    fn warning(&self, text: &str) {
        warn(text);
    }

    fn progress(&self, done: usize, total: usize) {
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
    }
}
