//! `planish evaluate`.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use planish_artifact::Artifact;
use planish_artifact::evaluation::{Evaluation, Requirements, Unit};
use planish_artifact::files;
use planish_artifact::split::Split;
use planish_check::VerificationFailed;
use planish_check::evaluate::{
    EvaluateOptions, Evaluated, EvaluationObserver, EvaluationShard, evaluate_artifact, evaluate_shard,
};
use planish_data::{DataOptions, SAMPLES, Shard};
use serde_json::json;

use super::evaluate_speech::texts;
use super::heartbeat::Heartbeat;
use super::shard::{self, shard};
use super::terminal::bars;
use super::{RunOn, note, overwrites, print, print_json, short, warn};

/// Measure on data how close an artifact is to its source in float32
///
/// The artifact runs on its runtime, as for `verify`. The source runs in float32 on ONNX Runtime, compiled into temporary
/// files. Both take the same batches. Padding has no part in any figure. The report depends on the task.
///
/// Embeddings: the cosine of a text's two embeddings, mean and least, and the share of texts whose nearest other
/// text stays the same. The embedding is sentence_embedding of a sentence model, else the mean of last_hidden_state over
/// the tokens, or what 1_Pooling/config.json beside the source says, scaled to length 1.
///
/// Classification of texts, tokens or images, masked tokens, answers: the share of predictions that have the same label on
/// top, the mean divergence (Kullback-Leibler, of the artifact from the source, in nats), and the cosine of the logits.
///
/// Text generation: the perplexity of both on the texts, and the same figures for each token that is predicted. A .txt file is
/// one text, and a record of another file is one. Each text stands alone, and is read from its beginning to its end in windows
/// that overlap; each token but the first is predicted once. `bench --data` has the same figure.
///
/// The report says how many texts and characters were read, and which were left out for which reason.
///
/// Encoder-decoders: the same figures without perplexity. Each side takes what its own parts gave before. decoder_model
/// takes the first half of the decoder's tokens, and decoder_with_past_model the rest. Of recordings and pictures, both sides
/// read the text that the source's decoder writes, as `calibrate` has it; with --label the report of those that write down what
/// recordings say (Whisper, Moonshine) has the errors of the texts that `transcribe` writes with both, and nothing else.
///
/// Pictures and recordings in folders that are named after classes (in id2label of config.json) have these as labels.
///
/// With --label the figures of accuracy are there too: accuracy and the mean F1 of the classes; for words the F1 of
/// entities, as seqeval counts them; for scores and for pairs of embedded texts the rank correlation by Spearman; where a query
/// has several documents, NDCG and the mean reciprocal rank of the first 10; for models that write down what recordings say the word
/// error rate and the character error rate, as jiwer counts them. A share has its 95 % interval, by Wilson. A model with a
/// single logit is compared by the values and the ranks of its scores.
///
/// For every model whose outputs are compared, the report has the relative error (Euclidean norm of the error over the norm of
/// the source's output) and the cosine of each output.
///
/// The memory is that of both models and of one batch. The embeddings of all samples stay in memory too.
///
/// With --shard K/N, planish runs one of N parts of the data, and writes what it saw to a file. --merge makes the report of the
/// files of all shards. It is bit for bit the report of one run over all data.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The artifact's folder
    #[arg(required_unless_present = "merge")]
    artifact: Option<PathBuf>,
    /// The data, of the kinds that `calibrate` takes. Take other data than the artifact was calibrated on
    #[arg(long, value_name = "PATH", required_unless_present = "merge")]
    data: Option<PathBuf>,
    /// The checkpoint or .onnx file that the artifact was compiled from [default: planish looks for it as `verify` does]
    #[arg(long, value_name = "MODEL")]
    reference: Option<PathBuf>,
    /// Exit with 3 if a figure misses its limit. NAME=VALUE, with commas between several: at least cos, least-cos,
    /// neighbours (in %), top1 (in %), ranks (Spearman of the single scores of both sides); at most kl (in nats), perplexity
    /// (the ratio to the source), error (the largest relative error of an output); with --label, of the artifact at least
    /// accuracy (in %), f1 (in %), spearman, ndcg, mrr, and at most wer, cer (errors in words and characters, in %). Say: cos=0.998,neighbours=93
    #[arg(long, value_name = "LIMITS")]
    require: Option<Requirements>,
    /// The member of each object of a .jsonl file, or the column of a .csv or .parquet file, that is the text; two names with a
    /// comma between them for pairs, such as premise,hypothesis. A list of words is a text for token classification; a query and
    /// a list of documents are a pair for each document [default: text]
    #[arg(long, value_name = "NAME[,NAME]")]
    field: Option<String>,
    /// The member or column with the label of each text, or the tensor of labels beside the inputs: the name or number of a
    /// class, a list of these for each word, the score of a pair, or the relevance of each document. The report has accuracy and
    /// F1, or Spearman, or NDCG@10 and MRR@10, of the artifact and the source
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    /// Leave out records of the data that cannot be read, and report their number; they are errors otherwise
    #[arg(long)]
    skip_bad: bool,
    /// Take each line of a .txt file as a text [default, but for text generation]
    #[arg(long, conflicts_with = "documents")]
    lines: bool,
    /// Read each text from its beginning to its end, and take a .txt file as one text [default for text generation]. Models of
    /// other tasks run on a text in parts, a sample each
    #[arg(long, conflicts_with_all = ["held_out", "label"])]
    documents: bool,
    /// Take every fifth sample only: those that `compile` and `bench` hold out of data that also calibrates. A .txt file is read
    /// by lines
    #[arg(long)]
    held_out: bool,
    /// The largest number of samples to run. planish takes the first samples of the data
    #[arg(long, default_value_t = SAMPLES, value_name = "N")]
    samples: NonZeroUsize,
    /// The largest number of tokens to run, of all texts together [default: 32768 for text generation, else all]
    #[arg(long, value_name = "N")]
    tokens: Option<NonZeroUsize>,
    /// The number of tokens after which a text is cut [default: as for `calibrate`; for text generation --tokens]
    #[arg(long, value_name = "N")]
    max_length: Option<NonZeroUsize>,
    /// The number of samples in one run [default: 8, or the batch size that the model fixes; for text generation less if
    /// the logits have more than 64 MiB; 1 recording where `transcribe` writes texts]
    #[arg(long, value_name = "N")]
    batch: Option<NonZeroUsize>,
    /// The most tokens in one run, for text generation [default: the longest sequence that the model takes, but at most
    /// 512]
    #[arg(long, value_name = "N")]
    window: Option<NonZeroUsize>,
    /// The number of tokens between the beginnings of two windows [default: half a window]
    #[arg(long, value_name = "N")]
    stride: Option<NonZeroUsize>,
    /// Run shard K of N only: every Nth batch, from batch K on. With auto, variables of Slurm, Kubernetes, AWS Batch or MPI say which
    #[arg(long, value_name = "K/N|auto", value_parser = shard, conflicts_with = "require")]
    shard: Option<Shard>,
    /// Print the report of the files of all shards; nothing is run
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["artifact", "data", "reference", "field", "label",
        "skip_bad", "lines", "documents", "held_out", "samples", "tokens", "max_length", "batch", "window", "stride", "shard",
        "threads", "name"])]
    merge: Vec<PathBuf>,
    /// The file of the shard [default: NAME-evaluation-K-of-N.json in the current folder]
    #[arg(short, long, value_name = "FILE", requires = "shard")]
    output: Option<PathBuf>,
    /// The number of threads of the runtimes [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run_on: RunOn,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let (Some(artifact), Some(data)) = (&arguments.artifact, &arguments.data) else {
        let (source, evaluation) = merged(&arguments.merge)?;
        return report(&arguments, &source, &evaluation);
    };
    let opened = Artifact::open(artifact)?;
    let output = output(&arguments, &opened);
    overwrites::check([("-o", output.as_deref())], [artifact.as_path()], [data.as_path()])?;
    output.as_deref().map_or(Ok(()), files::check_writable)?;
    let (options, named) = (options(&arguments), arguments.reference.as_slice());
    let console = Console::new(false);
    let context = || format!("cannot evaluate {}", artifact.display());
    if let Some((shard, path)) = arguments.shard.zip(output) {
        let made = evaluate_shard(&opened, named, data, (&options, shard), &console).with_context(context)?;
        drop(console);
        return write(&path, arguments.json, &made);
    }
    let evaluated = evaluate_artifact(&opened, named, data, &options, &console);
    drop(console);
    let Evaluated { source, evaluation } = evaluated.with_context(context)?;
    report(&arguments, &source.display().to_string(), &evaluation)
}

fn options(arguments: &Arguments) -> EvaluateOptions {
    let split = if arguments.held_out { Split::HeldOut } else { Split::All };
    EvaluateOptions {
        data: DataOptions {
            field: arguments.field.clone(),
            label: arguments.label.clone(),
            skip_bad: arguments.skip_bad,
            unit: match (arguments.lines, arguments.documents) {
                (true, _) => Some(Unit::Lines),
                (_, true) => Some(Unit::Documents),
                _ => None,
            },
            tokens: arguments.tokens,
            split,
            samples: split.samples(arguments.samples.get()),
            batch: arguments.batch,
            max_length: arguments.max_length,
            ..DataOptions::default()
        },
        window: arguments.window,
        stride: arguments.stride,
        require: arguments.require.clone().unwrap_or_default(),
        threads: arguments.threads.unwrap_or(0).into(),
        settings: arguments.run_on.settings(),
        transcribe: Some(texts),
    }
}

/// Prints a report, and holds it against the limits.
fn report(arguments: &Arguments, source: &str, evaluation: &Evaluation) -> Result<()> {
    if arguments.json {
        print_json(evaluation)?;
    } else {
        print(&format!("{evaluation}\n"))?;
    }
    let Some(limits) = &arguments.require else { return Ok(()) };
    VerificationFailed::of(limits.misses(evaluation)?)?;
    if !arguments.json {
        print(&format!("evaluated against {source}: {limits} reached\n"))?;
    }
    Ok(())
}

/// The file of a shard; `None` where there is none.
fn output(arguments: &Arguments, artifact: &Artifact) -> Option<PathBuf> {
    let shard = arguments.shard?;
    let usual = || {
        let folder = artifact.folder.canonicalize().unwrap_or_else(|_| artifact.folder.clone());
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        format!("{name}-evaluation-{}-of-{}.json", shard.index + 1, shard.count).into()
    };
    Some(arguments.output.clone().unwrap_or_else(usual))
}

/// Writes what was seen of a shard.
fn write(path: &Path, json: bool, made: &EvaluationShard) -> Result<()> {
    made.write(path)?;
    if json {
        return print_json(&json!({"file": path, "shards": made.shards(), "batches": made.batches()}));
    }
    let word = if made.batches() == 1 { "batch" } else { "batches" };
    let (path, shards) = (short(path).display().to_string(), made.shards());
    print(&format!("{path}: {} {word} of {}, shard {shards}\n", made.batches(), made.data()))
}

/// The evaluation of all shards, and the model that the artifact was compared with.
fn merged(paths: &[PathBuf]) -> Result<(String, Evaluation)> {
    let all = shard::merged(paths, EvaluationShard::read, EvaluationShard::merge)?;
    Ok((all.source().to_owned(), all.evaluation()?))
}

/// Messages and progress for a person; of the progress in a pipe one line after each long silence.
pub(super) struct Console {
    bar: ProgressBar,
    heartbeat: Heartbeat,
    /// Whether the messages were printed before.
    is_quiet: bool,
}

impl Console {
    /// `is_quiet` leaves out messages that were printed before.
    pub(super) fn new(is_quiet: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), bars());
        if let Ok(style) = ProgressStyle::with_template("evaluating {bar:30} {pos}/{len} samples, {eta}") {
            bar.set_style(style);
        }
        let heartbeat = Heartbeat::of_pipe();
        heartbeat.step("loading");
        Self { bar, heartbeat, is_quiet }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl EvaluationObserver for Console {
    fn warning(&self, text: &str) {
        if !self.is_quiet {
            warn(text);
        }
    }

    fn note(&self, text: &str) {
        if !self.is_quiet {
            note(text);
        }
    }

    fn progress(&self, done: usize, total: usize) {
        self.bar.set_length(total as u64);
        self.bar.set_position(done as u64);
        self.heartbeat.done("evaluating", &format!("{done} of {total} samples"));
    }
}
