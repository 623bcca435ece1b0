//! Predictions: texts, pictures or recordings go in, and what the task of an artifact makes of them comes out, in their order.
//!
//! Memory is bounded by a few chunks of texts and what is predicted of one chunk.

mod characters;
mod config;
mod depth;
mod draw;
mod fields;
mod guess;
mod head;
mod labels;
mod objects;
mod outcome;
mod panoptic;
mod read;
mod segments;
mod sink;
mod span;
mod speech;
mod tower;
mod turns;

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use planish_artifact::backend::RuntimeSettings;
use planish_artifact::chain::Chain;
use planish_artifact::{Artifact, named, note_elsewhere, runtime};
use planish_data::chunks::{Chunk, ChunkOptions, SampleBatch};
use planish_data::sentence::{PromptError, SentenceSettings};
use planish_data::tokenizer::TextTokenizer;
use planish_data::{DataOptions, Dataset, IdField, OptionNames, count};
use planish_runtimes::{RuntimeValue, Session, SessionOptions};
use serde::Serialize;

use crate::positions::TextNames;
use draw::{Drawings, refuse_of_pictures};
use head::Head;
use outcome::Outcome;
use read::Batch;
pub use sink::OutputForm;
use sink::Sink;

/// The most tokens of a batch, padding included, unless told otherwise: for each thread of a processor, within bounds, and on a
/// GPU. On a processor what a few hundred tokens need stays in its caches, and smaller batches have less padding.
const THREAD_TOKENS: usize = 256;
const PROCESSOR_TOKENS: RangeInclusive<usize> = 1024..=4096;
const GPU_TOKENS: usize = 1 << 14;

/// The most bytes of the scores of a batch, where each token has a score for each token of the vocabulary.
const SCORES_BYTES: usize = 256 << 20;

/// The most texts of a chunk, and the most bytes of the vectors of one.
const CHUNK_TEXTS: usize = 4096;
const CHUNK_BYTES: usize = 64 << 20;

/// The text that is made of a label in `ZeroShotImageClassificationPipeline` of the transformers library.
pub const TEMPLATE: &str = "This is a photo of {}.";

/// The same in `ZeroShotAudioClassificationPipeline`, for recordings.
pub const OF_SOUNDS: &str = "This is a sound of {}.";

/// How predictions are made.
#[derive(Clone, Debug, Default)]
pub struct PredictOptions {
    /// The member or column with the text, or two with a comma between them; where absent those that are usual for the task.
    pub field: Option<String>,
    /// The member or column with what a record is called; `id` where absent and there.
    pub id: Option<String>,
    /// How many records are read at most.
    pub samples: Option<NonZeroUsize>,
    /// How many tokens a text is cut to, special ones included; where absent as many as the model was made for.
    pub max_length: Option<NonZeroUsize>,
    /// The most tokens of a batch, padding included.
    pub batch_tokens: Option<NonZeroUsize>,
    /// The prompt that is put in front of each text.
    pub prompt: Option<String>,
    /// How many tokens are given for each masked one.
    pub top: Option<NonZeroUsize>,
    /// The score above which an object in a picture counts; where absent 0.5.
    pub threshold: Option<f32>,
    /// The folder that gets pictures with what was predicted drawn on them.
    pub draw: Option<PathBuf>,
    /// What pictures or recordings may be, for a model that compares them with texts.
    pub labels: Vec<String>,
    /// The text that is made of a label, which `{}` stands for in it; [`TEMPLATE`] or [`OF_SOUNDS`] where absent.
    pub template: Option<String>,
    /// Threads of the runtime; 0 leaves the number to it.
    pub threads: usize,
    /// How runtimes are found.
    pub settings: RuntimeSettings,
}

/// Where predictions go.
pub enum Output<'a> {
    /// Lines of JSON to who takes them, some at a time.
    Lines(&'a mut dyn FnMut(&str) -> Result<()>),
    /// A file.
    File(&'a Path, OutputForm),
}

/// What a caller sees while predictions are made.
pub trait PredictObserver {
    /// Something was ignored or assumed.
    fn warning(&self, text: &str);
    /// Information that is not a problem.
    fn note(&self, text: &str);
    /// Whether the number of texts is of use, which takes a look at the whole file.
    fn wants_total(&self) -> bool;
    /// So many of so many texts are done; of how many is absent where that is not known.
    fn progress(&self, done: u64, total: Option<u64>);
}

/// Sees predictions being made and shows nothing of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl PredictObserver for Silent {
    fn warning(&self, _: &str) {}
    fn note(&self, _: &str) {}
    fn wants_total(&self) -> bool {
        false
    }
    fn progress(&self, _: u64, _: Option<u64>) {}
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// The artifact's folder.
    pub artifact: PathBuf,
    /// The data.
    pub data: PathBuf,
    /// The file that was written; absent where lines went elsewhere.
    pub output: Option<PathBuf>,
    /// What a prediction is: `embedding`, `score`, `label`, `tokens`, `answer`, `masks`, `objects`, `segments`, `depth`, `text`
    /// or `frames`.
    pub prediction: &'static str,
    /// The runtime.
    pub runtime: &'static str,
    /// What a sample is, in words.
    #[serde(skip)]
    pub sample: &'static str,
    /// The number of texts, pairs, pictures or recordings.
    pub texts: u64,
    /// The number of their tokens; 0 of pictures and recordings.
    pub tokens: u64,
    /// The same with padding.
    pub padded_tokens: u64,
    /// How many texts were longer than `max_length`, or recordings than the input, and cut.
    pub cut: u64,
    /// The most tokens of a text; absent where the data is pictures or recordings.
    pub max_length: Option<usize>,
    /// The time from the first text that was read to the last prediction that was written; loading the model is before.
    pub seconds: f64,
    /// The texts of a second.
    pub texts_per_second: f64,
}

/// What is asked for does not fit the artifact.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unfit(pub String);

/// Runs an artifact on texts and writes what it predicts, in the order of the texts.
///
/// # Errors
/// [`Unfit`] where the artifact has another task, or the output is not for it; also when the data has no text or a bad record,
/// the artifact has no tokenizer, a runtime is missing, a run fails, or the output cannot be written.
pub fn predict(
    artifact: &Artifact,
    data: &Path,
    output: Output<'_>,
    options: &PredictOptions,
    observer: &dyn PredictObserver,
) -> Result<Predicted> {
    let tower = tower::tower(artifact, data)?;
    let artifact = tower.as_ref().unwrap_or(artifact);
    let settings = SentenceSettings::read(&artifact.folder)?;
    let head = Head::of(artifact, &settings, options, &mut |text| observer.warning(text))?;
    if let Output::File(path, form) = &output {
        head.check_output(*form, path)?;
    }
    let embeds = head.embeds();
    if let Some(field) = options.field.as_ref().filter(|field| embeds && field.contains(',')) {
        bail!(Unfit(format!(
            "--field {field} names the texts of pairs, and an embedding is of one text; name one of them"
        )));
    }
    let chain = Chain::of(&artifact.manifest.parts);
    let other = tower::sample(&chain);
    if let Some(other) = other {
        tower::refuse_of_texts(options, other, artifact)?;
    }
    refuse_of_pictures(&head, options, artifact)?;
    let prompt = match (&options.prompt, head.takes_prompt()) {
        _ if other.is_some() => String::new(),
        (name, true) => settings.prompt(name.as_deref()).map_err(unfit)?.to_owned(),
        (None, false) => String::new(),
        (Some(name), false) => bail!(Unfit(format!(
            "--prompt-name {name} is for embeddings, scores and labels of texts, and {} predicts {}",
            artifact.folder.display(),
            head.name()
        ))),
    };
    let data_options = DataOptions {
        field: head.field(data, options.field.as_deref(), &mut |text| observer.note(text)),
        id: Some(options.id.clone().map_or(IdField::Usual, IdField::Named)),
        keeps_blank: true,
        samples: options.samples.unwrap_or(NonZeroUsize::MAX),
        max_length: options.max_length,
        reads_all: true,
        names: OptionNames::FIELD,
        ..DataOptions::default()
    };
    let dataset = Dataset::open(data, &data_options)?;
    let runs_on = runtime(artifact, &options.settings, &mut |text| observer.note(text));
    let beside = match options.labels.is_empty() {
        true => Vec::new(),
        false => labels::inputs(artifact, &chain, options).context("the labels cannot become texts")?,
    };
    let chunk_options = ChunkOptions {
        beside,
        batch_tokens: head
            .bounded(options.batch_tokens.unwrap_or_else(|| usual_tokens(runs_on.is_on_gpu(), options)), SCORES_BYTES),
        texts: head.bounded(NonZeroUsize::MIN.saturating_add(CHUNK_TEXTS - 1), CHUNK_BYTES),
        prompt,
        is_of_one: embeds,
        keeps_texts: head.needs_texts(),
        one_picture: head.has_maps(),
        threads: threads(options),
    };
    let chunks = dataset.chunks(&chain, (&artifact.manifest).into(), &artifact.folder, &data_options, chunk_options)?;
    let marked = match chunks.tokenizer() {
        Some(tokenizer) => head.marked_token(tokenizer, &artifact.folder)?,
        None => None,
    };
    runs_on.check()?;
    let [part] = chain.parts() else { bail!("{} has several parts", artifact.folder.display()) };
    let session = artifact.load(part, runs_on.as_ref(), SessionOptions { threads: options.threads })?;
    note_elsewhere(session.as_ref(), &mut |text| observer.note(text));
    let file = if let Output::File(path, _) = &output { Some((*path).to_owned()) } else { None };

    let total = if observer.wants_total() { dataset.files().or_else(|| count(data)) } else { None };
    let total = total.map(|total| options.samples.map_or(total, |most| total.min(most.get() as u64)));
    observer.progress(0, total);
    let start = Instant::now();
    let progress = |done| observer.progress(done, total);
    let mut run = Run {
        head: &head,
        session,
        names: TextNames::of(&chain),
        is_left: chunks.is_left(),
        tokenizer: chunks.tokenizer(),
        marked,
        drawings: options.draw.as_ref().map(|folder| Drawings::new(folder, data)).transpose()?,
        sink: Sink::new(output),
        figures: Figures::default(),
        progress: &progress,
    };
    let run_all = if runs_on.is_on_gpu() { turns::ahead } else { turns::in_turn };
    run_all(&chunks, &mut run)?;
    let Run { sink, figures, .. } = run;
    sink.finish()?;
    let seconds = start.elapsed().as_secs_f64();
    if figures.cut > 0 {
        let longest = chunks.longest().map(|longest| format!("texts had more than {longest} tokens"));
        let longer = longest.unwrap_or_else(|| "recordings are longer than the input of the model".to_owned());
        observer.note(&format!("{} of {} {longer}, and were cut", figures.cut, figures.texts));
    }
    Ok(Predicted {
        artifact: artifact.folder.clone(),
        data: data.to_owned(),
        output: file,
        prediction: head.name(),
        runtime: runs_on.name(),
        sample: other.unwrap_or("text"),
        texts: figures.texts,
        tokens: figures.tokens,
        padded_tokens: figures.padded,
        cut: figures.cut,
        max_length: chunks.longest(),
        seconds,
        texts_per_second: figures.texts as f64 / seconds.max(f64::MIN_POSITIVE),
    })
}

/// The most tokens of a batch where nobody says it.
fn usual_tokens(is_on_gpu: bool, options: &PredictOptions) -> NonZeroUsize {
    let of_threads =
        threads(options).get().saturating_mul(THREAD_TOKENS).clamp(*PROCESSOR_TOKENS.start(), *PROCESSOR_TOKENS.end());
    NonZeroUsize::new(if is_on_gpu { GPU_TOKENS } else { of_threads }).unwrap_or(NonZeroUsize::MIN)
}

/// How many threads there are for each kind of work.
fn threads(options: &PredictOptions) -> NonZeroUsize {
    let all = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    NonZeroUsize::new(options.threads).unwrap_or_else(all)
}

fn unfit(error: PromptError) -> Unfit {
    Unfit(error.to_string())
}

/// Sums over texts.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    texts: u64,
    tokens: u64,
    padded: u64,
    cut: u64,
}

/// Predictions while they are made.
struct Run<'a, 'o> {
    head: &'a Head,
    session: Box<dyn Session>,
    names: TextNames,
    /// Whether padding comes before the tokens.
    is_left: bool,
    tokenizer: Option<&'a TextTokenizer>,
    /// The id of the token that predictions look for.
    marked: Option<i64>,
    /// The folder of drawings.
    drawings: Option<Drawings>,
    sink: Sink<'o>,
    figures: Figures,
    progress: &'a dyn Fn(u64),
}

impl Run<'_, '_> {
    /// Runs the batches of a chunk, and writes what is predicted of its texts.
    fn chunk(&mut self, chunk: &Chunk) -> Result<()> {
        let mut outcomes: Vec<Option<Outcome>> = Vec::new();
        outcomes.resize_with(chunk.samples.len(), || None);
        let mut done = chunk.first as u64;
        for batch in &chunk.batches {
            let predicted = self.batch(chunk, batch).with_context(|| {
                let first = batch.rows.iter().min().map_or(0, |row| chunk.first + row + 1);
                format!("cannot run on a batch of {} samples, the first of which is number {first}", batch.rows.len())
            })?;
            for (row, outcome) in batch.rows.iter().zip(predicted) {
                outcomes[*row] = Some(outcome);
            }
            self.figures.padded += batch.padded_tokens as u64;
            done += batch.rows.len() as u64;
            (self.progress)(done);
        }
        for (text, outcome) in chunk.samples.iter().zip(outcomes) {
            self.figures.texts += 1;
            self.figures.tokens += text.tokens as u64;
            self.figures.cut += u64::from(text.is_cut);
            let number = self.figures.texts;
            let outcome = outcome.with_context(|| format!("the model gave nothing for sample {number}"))?;
            if !outcome.is_finite() {
                bail!(
                    "sample {number}: the model gives numbers that are not finite; compile it in a type with a larger range, such \
                     as --bf16, or in float32"
                );
            }
            self.sink.write(text, &outcome)?;
        }
        self.sink.flush()
    }

    fn batch(&mut self, chunk: &Chunk, batch: &SampleBatch) -> Result<Vec<Outcome>> {
        let inputs = named(self.session.as_ref(), &batch.inputs);
        let inputs: Vec<(&str, RuntimeValue)> =
            inputs.into_iter().map(|(name, tensor)| (name, tensor.into())).collect();
        let given: Vec<(&str, &RuntimeValue)> = inputs.iter().map(|(name, value)| (*name, value)).collect();
        let outputs = self.session.run_values(&given)?;
        let tensor = |name: &String| {
            let value = outputs.iter().find(|(other, _)| other == name).map(|(_, value)| value);
            let value = value.with_context(|| format!("the model gave no `{name}`"))?;
            value.to_tensor().with_context(|| format!("the output `{name}` cannot be read from its device"))
        };
        let tensors = self.head.outputs().into_iter().map(tensor).collect::<Result<Vec<_>>>()?;
        let positions = self.head.pools().then(|| self.names.positions(&batch.inputs)).flatten();
        let texts: Vec<_> = batch.rows.iter().map(|row| &chunk.samples[*row]).collect();
        let (is_left, tokenizer, marked) = (self.is_left, self.tokenizer, self.marked);
        let mut outcomes = self.head.read(&tensors, &Batch { texts, positions, is_left, tokenizer, marked })?;
        for (row, outcome) in batch.rows.iter().zip(&mut outcomes) {
            if let Some((drawings, picture)) = self.drawings.as_ref().zip(chunk.samples[*row].picture.as_ref()) {
                drawings.draw(picture, outcome)?;
            }
            outcome.forget_map();
        }
        Ok(outcomes)
    }
}
