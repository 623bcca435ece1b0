//! `planish predict`, or `planish embed`.

use std::cell::Cell;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use planish_artifact::Artifact;
use planish_artifact::files::check_writable;
use planish_artifact::units::count_text;
use planish_check::predict::{Output, OutputForm, PredictObserver, PredictOptions, Predicted, predict};
use planish_files::Kind;

use super::heartbeat::Heartbeat;
use super::terminal::{bars, print_lines, progress};
use super::threads::ThreadArguments;
use super::{RunOn, Usage, note, overwrites, print_json, warn};

/// Run an artifact on texts, pictures or recordings and write what it predicts: embeddings, labels, texts
///
/// `planish embed` is the same command: an embedding is what a model for embeddings predicts. The tokenizer.json of the
/// artifact turns texts into token ids. Predictions are in the order of the texts, one for each text, also for blank ones.
/// Texts of about the same length are run together, some thousand texts at a time, so that memory does not depend on the size
/// of the data.
///
/// The members of a line of JSON depend on the task. `id` is that of the record, where it has one, and `document` is the place of
/// a document in a record with a list of them.
///
/// Embeddings: `embedding`. If the graph gives vectors of tokens only, planish pools them as the config.json of the module
/// Pooling says, and warns. Files of the sentence-transformers library in the artifact's folder give prompts, the length of
/// texts, lower case and truncate_dim.
///
/// Classification of texts: `label`, `score`, and `scores` of all labels, by a softmax; by a sigmoid if config.json has
/// problem_type multi_label_classification, with `labels` above 0.5. A model with a single label, such as a reranker of
/// pairs: `score`, by a sigmoid. The activation function of a cross-encoder comes first, in
/// config_sentence_transformers.json or config.json; with problem_type regression scores are logits.
///
/// Classification of tokens: `tokens` with label, score, text, start and end, without those of the label O. For a list of words
/// the label is that of the first token of each word. Question answering: `answer`, `score`, `start` and `end` in the
/// context. Masked tokens: `masks`, each with its likeliest tokens. Offsets count characters; of a pair `sequence`, 0 or 1, says in
/// which text.
///
/// Pictures: `label`, `score` and `scores` of image-classification, and the same of the labels that --labels gives for
/// zero-shot-image-classification, by a softmax, or for SigLIP by a sigmoid; `embedding` of feature-extraction: pooler_output if the
/// graph gives it; `objects` of object-detection, each with label, score and box, whose xmin, ymin, xmax and ymax are pixels of the
/// picture; `segments` of semantic-segmentation: the labels that pixels have, with their number; `segments` of
/// image-segmentation: objects with the id, label, score and number of their pixels; `minimum` and
/// `maximum` of depth-estimation: the depths of the picture's pixels. preprocessor_config.json of the artifact says how pictures become inputs. `id` is the path of the picture below the
/// folder.
///
/// Recordings (.wav, .flac, .mp3, .ogg, .m4a, .aac): `label`, `score` and `scores` of audio-classification, and `embedding`.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The artifact's folder
    artifact: PathBuf,
    /// Texts: a text a line of .txt, a member of an object a line of .jsonl, or a column of .csv or .parquet. Or a picture, a
    /// folder of pictures, a folder of folders of pictures, or a list of their paths in a file as of texts; or
    /// recordings in the same way
    #[arg(long, value_name = "PATH")]
    data: PathBuf,
    /// The file to write: .jsonl; for embeddings also .npy (float32 [texts, features]), .safetensors (the same, as `embeddings`)
    /// or .parquet (columns id and embedding). A file that is there is replaced at the end [default: lines of JSON to standard
    /// output, which - names too]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The member or column that is the text; two names with a comma between them for pairs, such as query,document. A list of
    /// words is a text, but for embeddings; a query and a list of documents are a pair for each document [default: text; question,context for
    /// question answering; for other pairs the usual names that the file has]
    #[arg(long, value_name = "NAME[,NAME]")]
    field: Option<String>,
    /// The member or column that names the record [default: id, if the data has it]
    #[arg(long, value_name = "NAME")]
    id: Option<String>,
    /// The prompt that is put in front of each text, or of the first one of each pair: a name in `prompts` of config_sentence_transformers.json [default:
    /// default_prompt_name of that file]
    #[arg(long, value_name = "NAME")]
    prompt_name: Option<String>,
    /// The largest number of records to read [default: all]
    #[arg(long, value_name = "N")]
    samples: Option<NonZeroUsize>,
    /// The number of tokens after which a text is cut [default: max_seq_length of sentence_bert_config.json, or else
    /// model_max_length of tokenizer_config.json, or else the longest sequence that the model takes, or else 512]
    #[arg(long, value_name = "N")]
    max_length: Option<NonZeroUsize>,
    /// The most tokens of a batch, padding included. A longer text is a batch of its own [default: 256 for each thread,
    /// but from 1024 to 4096; 16384 on a GPU]
    #[arg(long, value_name = "N")]
    batch_tokens: Option<NonZeroUsize>,
    /// The number of tokens for each masked one [default: 5]
    #[arg(long, value_name = "N")]
    top: Option<NonZeroUsize>,
    /// The score above which an object in a picture counts [default: 0.5]
    #[arg(long, value_name = "SCORE")]
    threshold: Option<f32>,
    /// A folder for pictures with what is predicted drawn on them, NAME.png for each picture: boxes with labels and scores, or the
    /// colours of segments and, in NAME.classes.png or NAME.objects.png, the number of the class or the object of each pixel. Of depths
    /// gray of 8 bits and, in NAME.depth.png, of 16, from the smallest depth of the picture to the largest
    #[arg(long, value_name = "DIR")]
    draw: Option<PathBuf>,
    /// What pictures or recordings may be, for a model that compares them with texts, such as CLIP or CLAP: labels with commas between
    /// them, or a .txt file with a label a line
    #[arg(long, value_name = "LABELS")]
    labels: Option<String>,
    /// The text that is made of each label, which {} stands for [default: "This is a photo of {}." or "This is a sound of {}."]
    #[arg(long, value_name = "TEXT", requires = "labels")]
    template: Option<String>,
    #[command(flatten)]
    threads: ThreadArguments,
    /// Print JSON about the run: texts, tokens, seconds. Needs -o FILE
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run_on: RunOn,
}

pub(super) fn run(arguments: Arguments) -> Result<()> {
    let file = arguments.output.as_deref().filter(|path| *path != Path::new("-"));
    if arguments.json && file.is_none() {
        let reason = "--json prints a document on standard output, where the predictions are; name a file with -o";
        return Err(Usage(reason.to_owned()).into());
    }
    if let Some(threshold) = arguments.threshold.filter(|score| !(0.0..=1.0).contains(score)) {
        return Err(Usage(format!("--threshold {threshold} is no score, which is a number from 0 to 1")).into());
    }
    overwrites::check([("-o", file)], [arguments.artifact.as_path()], [arguments.data.as_path()])?;
    let form = file.map(|file| Ok::<_, anyhow::Error>((file, OutputForm::of(file)?))).transpose()?;
    if let Some(file) = file {
        check_writable(file)?;
    }
    let artifact = Artifact::open(&arguments.artifact)?;
    let (threads, settings) = arguments.threads.settle(&arguments.run_on, &artifact);
    let options = PredictOptions {
        field: arguments.field,
        id: arguments.id,
        samples: arguments.samples,
        max_length: arguments.max_length,
        batch_tokens: arguments.batch_tokens,
        prompt: arguments.prompt_name,
        top: arguments.top,
        threshold: arguments.threshold,
        draw: arguments.draw,
        labels: arguments.labels.map(|labels| named_labels(&labels)).transpose()?.unwrap_or_default(),
        template: arguments.template,
        threads,
        settings,
    };
    let console = Console::new();
    // A bar and lines of output would be in each other's way.
    let mut show = |lines: &str| console.bar.suspend(|| print_lines(lines));
    let output = match form {
        Some((file, form)) => Output::File(file, form),
        None => Output::Lines(&mut show),
    };
    let predicted = predict(&artifact, &arguments.data, output, &options, &console);
    let predicted = predicted.with_context(|| format!("cannot predict with {}", arguments.artifact.display()))?;
    drop(console);
    if arguments.json {
        return print_json(&predicted);
    }
    progress(&summary(&predicted));
    Ok(())
}

/// The labels of a list with commas, or of the lines of a file.
fn named_labels(given: &str) -> Result<Vec<String>> {
    let path = Path::new(given);
    if !path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("txt")) {
        return Ok(given.split(',').map(|label| label.trim().to_owned()).collect());
    }
    let text = planish_files::read_text(path, &Kind::SETTINGS).with_context(|| format!("--labels {given}"))?;
    let labels: Vec<String> = text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect();
    if labels.is_empty() {
        return Err(Usage(format!("--labels {given}: the file has no label")).into());
    }
    Ok(labels)
}

/// One line about the run.
fn summary(predicted: &Predicted) -> String {
    let Predicted { texts, tokens, seconds, texts_per_second, sample: one, .. } = predicted;
    let plural = if *texts == 1 { "" } else { "s" };
    let tokens = predicted.max_length.map(|_| format!(", {} tokens", count_text(*tokens))).unwrap_or_default();
    format!("{texts} {one}{plural}{tokens} in {seconds:.2} s: {texts_per_second:.1} {one}s/s")
}

/// Messages and progress for a person; of the progress in a pipe one line after each long silence.
struct Console {
    bar: ProgressBar,
    heartbeat: Heartbeat,
    has_style: Cell<bool>,
}

impl Console {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, bars());
        let heartbeat = Heartbeat::of_pipe();
        heartbeat.step("loading");
        Self { bar, heartbeat, has_style: Cell::new(false) }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl PredictObserver for Console {
    fn warning(&self, text: &str) {
        self.bar.suspend(|| warn(text));
    }

    fn note(&self, text: &str) {
        self.bar.suspend(|| note(text));
    }

    fn wants_total(&self) -> bool {
        !self.bar.is_hidden()
    }

    fn progress(&self, done: u64, total: Option<u64>) {
        if !self.has_style.replace(true) {
            let counted = total.is_some();
            let template = if counted { "{bar:30} {pos}/{len}, {per_sec}, {eta}" } else { "{pos} done, {per_sec}" };
            if let Ok(style) = ProgressStyle::with_template(template) {
                self.bar.set_style(style);
            }
        }
        if let Some(total) = total {
            // A record may have several documents.
            self.bar.set_length(total.max(done));
        }
        self.bar.set_position(done);
        self.heartbeat.done("predicting", &format!("{done} samples"));
    }
}
