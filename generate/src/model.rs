//! A model that scores the next token of rows of tokens.

use std::num::NonZeroUsize;

use anyhow::{Context, Result, anyhow, bail};
use planish_artifact::Artifact;
use planish_artifact::manifest::PartManifest;
use planish_eval::Tensor;
use planish_ir::PartRole;
use planish_models::Task;
use planish_runtimes::{Format, Runtime, RuntimeValue, Session, SessionOptions};

use super::Search;
use super::cache::Cache;
use super::decoder::{self, Decoder};
use super::encoder_decoder::{self, EncoderDecoder, READS_NO_AHEAD};
use super::images::Sight;
use super::lookup::{self, LOOKUP};
pub(super) use super::scores::{Logits, Scores};

/// A model on a runtime that scores which token comes next: rows of tokens, each with the keys and
/// values of those it has read.
pub trait LanguageModel {
    /// Ids are from 0 to below this.
    fn vocabulary(&self) -> i64;

    /// What the text that is generated begins with: the prompt, or what stands for none of it yet.
    fn beginning(&self, prompt: &[i64]) -> Vec<i64>;

    /// How many tokens may follow: at least one.
    ///
    /// # Errors
    /// When the prompt is empty, has an id that is not in the vocabulary, or leaves no room.
    fn room(&self, prompt: &[i64]) -> Result<usize>;

    /// Takes what the prompts of the next [`start`](Self::start) come with besides their tokens, by the names of inputs: of an encoder
    /// that reads something else than tokens a row for each prompt.
    ///
    /// # Errors
    /// When the model reads tokens alone.
    fn show(&mut self, inputs: Vec<(String, Tensor)>) -> Result<()>;

    /// Reads prompts, a row each, in place of what it has read before. Each must be one that
    /// [`room`](Self::room) accepts.
    ///
    /// # Errors
    /// When the model fails to run.
    fn start(&mut self, prompts: &[Vec<i64>]) -> Result<Scores>;

    /// Reads a prompt as the only row. Keys and values of what it begins with may be those of what the model has read before.
    /// Returns of how many tokens they are.
    ///
    /// # Errors
    /// When the model is no decoder, or fails to run.
    fn resume(&mut self, prompt: &[i64]) -> Result<(Scores, usize)>;

    /// Goes on with some of the rows, in this order and each as often as it is named, and reads one
    /// more token in each.
    ///
    /// # Errors
    /// When the model fails to run.
    ///
    /// # Panics
    /// When there is no such row.
    fn step(&mut self, rows: &[usize], ids: &[i64]) -> Result<Scores>;

    /// Reads tokens after the only row, in one run: the first of them, and as many more as give what they would give one
    /// by one. There is a row of scores after each that was read.
    ///
    /// # Errors
    /// When the model does not score several tokens of a run, or fails to run.
    ///
    /// # Panics
    /// When there is no token, or not one row.
    fn read(&mut self, ids: &[i64]) -> Result<Scores>;

    /// Forgets the last tokens of the only row.
    ///
    /// # Errors
    /// When the model's runtime keeps keys and values in a form that has no shorter one.
    fn forget(&mut self, tokens: usize) -> Result<()>;
}

/// How an artifact is loaded to generate.
#[derive(Clone, Copy, Debug)]
pub struct Loading {
    /// Threads of the runtime; 0 leaves the number to it.
    pub threads: usize,
    /// Whether keys and values of tokens are kept; else each step computes all tokens again.
    pub caching: bool,
    /// The most columns of prompts that one run of a decoder with a cache reads; 512 where absent, and all of several prompts
    /// where the cache is appended to in place.
    pub prompt_chunk: Option<NonZeroUsize>,
    /// What the text of an encoder-decoder begins with; what the configuration of the artifact says where absent.
    pub decoder_start_token: Option<i64>,
}

impl Loading {
    /// With so many threads, and a cache or not.
    #[must_use]
    pub fn new(threads: usize, caching: bool) -> Self {
        Self { threads, caching, prompt_chunk: None, decoder_start_token: None }
    }
}

/// What generates text.
#[derive(Clone, Copy)]
enum Kind {
    Decoder,
    EncoderDecoder,
}

/// Loads an artifact.
///
/// # Errors
/// When the artifact does not generate text, or the runtime does not load it.
pub fn load(artifact: &Artifact, runtime: &dyn Runtime, loading: Loading) -> Result<Box<dyn LanguageModel>> {
    let parts = Parts { artifact, runtime, loading };
    match kind(artifact)? {
        Kind::Decoder => Ok(Box::new(Decoder::load(&parts)?)),
        Kind::EncoderDecoder => Ok(Box::new(EncoderDecoder::load(&parts)?)),
    }
}

/// Checks what takes no runtime: that an artifact generates text, that its files are as long as they were, and
/// that it takes these prompts and this search.
///
/// # Errors
/// When one of that is not so.
pub fn check(artifact: &Artifact, runtime: &dyn Runtime, prompts: &[Vec<i64>], search: &Search) -> Result<()> {
    let kind = kind(artifact)?;
    let parts = &artifact.manifest.parts;
    parts.iter().flat_map(|part| part.pieces()).try_for_each(|part| artifact.file_for(&part, runtime).map(drop))?;
    if matches!(search, Search::Lookup(_)) {
        lookup::check(prompts.len())?;
        if matches!(kind, Kind::EncoderDecoder) {
            bail!("{READS_NO_AHEAD}");
        }
        if runtime.formats().contains(&Format::ENGINE) {
            bail!("--set {LOOKUP} shortens the cache, which engines of `{}` cannot; leave it out", runtime.name());
        }
        if parts.iter().any(Cache::has_states) {
            bail!(
                "--set {LOOKUP} shortens the cache, and the model has states of convolutions or recurrences, which cannot be \
                 shortened; leave it out"
            );
        }
        if parts.iter().any(|part| part.last_logits) {
            bail!(
                "--set {LOOKUP} compares the logits of several tokens, and {} gives those of the last token only; compile the \
                 model without --recipe logits=last, or leave {LOOKUP} out",
                artifact.folder.display()
            );
        }
    }
    let sight = Sight::of(artifact)?;
    let beginning = matches!(kind, Kind::EncoderDecoder).then(|| sight.beginning());
    // Loading says where there is none.
    let start = encoder_decoder::start_token(artifact, None).unwrap_or(-1);
    let (vocabulary, longest) = (prompt_vocabulary(artifact)?, longest(artifact));
    prompts.iter().try_for_each(|prompt| match beginning {
        None => decoder::room(prompt, vocabulary, longest).map(drop),
        Some(beginning) => encoder_decoder::room(prompt, vocabulary, longest, beginning, start).map(drop),
    })
}

fn kind(artifact: &Artifact) -> Result<Kind> {
    match artifact.manifest.task {
        Some(Task::TextGeneration | Task::ImageTextToText) => Ok(Kind::Decoder),
        Some(Task::Text2TextGeneration | Task::ImageToText) => Ok(Kind::EncoderDecoder),
        task => bail!(
            "{} is compiled for {}, it cannot generate; compile a decoder for {} or {}, or an encoder-decoder for {} or {}",
            artifact.folder.display(),
            task.map_or("no task that its graph tells", Task::name),
            Task::TextGeneration,
            Task::ImageTextToText,
            Task::Text2TextGeneration,
            Task::ImageToText
        ),
    }
}

/// The first id from 0 on that a prompt cannot have.
///
/// # Errors
/// When the artifact does not say that.
pub fn prompt_vocabulary(artifact: &Artifact) -> Result<i64> {
    // The first part that reads tokens reads the prompt.
    let reads_tokens = |part: &&PartManifest| part.inputs.iter().any(|input| input.role.is_token_ids());
    let part = artifact.manifest.parts.iter().find(reads_tokens);
    let part =
        part.ok_or_else(|| anyhow!("{} has no part that reads tokens; compile it again", artifact.folder.display()))?;
    vocabulary(artifact, part)
}

/// The first id from 0 on that a part does not take.
fn vocabulary(artifact: &Artifact, part: &PartManifest) -> Result<i64> {
    let ids = part.inputs.iter().filter(|input| input.role.is_token_ids()).find_map(|input| input.end);
    ids.ok_or_else(|| anyhow!("{} does not say which ids its {} takes", artifact.folder.display(), part.name))
}

/// The longest text, in tokens.
fn longest(artifact: &Artifact) -> usize {
    artifact.manifest.max_sequence_length.unwrap_or(usize::MAX)
}

/// The parts of an artifact that is being loaded.
pub(super) struct Parts<'a> {
    pub(super) artifact: &'a Artifact,
    pub(super) runtime: &'a dyn Runtime,
    pub(super) loading: Loading,
}

impl Parts<'_> {
    /// The part of this role, if there is one.
    pub(super) fn find(&self, role: PartRole) -> Option<&PartManifest> {
        self.artifact.manifest.parts.iter().find(|part| part.role == role)
    }

    /// The part of this role, which must be there.
    pub(super) fn part(&self, role: PartRole) -> Result<&PartManifest> {
        let missing = || format!("{} has no part that is the {role}; compile it again", self.artifact.folder.display());
        self.find(role).with_context(missing)
    }

    /// Loads a part.
    pub(super) fn session(&self, part: &PartManifest) -> Result<Box<dyn Session>> {
        let options = SessionOptions { threads: self.loading.threads };
        self.artifact.load(part, self.runtime, options)
    }

    /// The first id from 0 on that a part does not take.
    pub(super) fn vocabulary(&self, part: &PartManifest) -> Result<i64> {
        vocabulary(self.artifact, part)
    }

    /// The longest text, in tokens.
    pub(super) fn longest(&self) -> usize {
        longest(self.artifact)
    }
}

/// Whether a prompt has tokens, all of them in the vocabulary.
pub(super) fn check_prompt(prompt: &[i64], vocabulary: i64) -> Result<()> {
    if prompt.is_empty() {
        bail!("a prompt has no tokens; the model needs at least one token to continue");
    }
    match prompt.iter().find(|id| !(0..vocabulary).contains(*id)) {
        Some(id) => bail!("the prompt's id {id} is not in the vocabulary: ids are from 0 to {}", vocabulary - 1),
        None => Ok(()),
    }
}

/// Rows of equal length as a tensor, [rows, columns].
pub(super) fn matrix(rows: usize, elements: Vec<i64>) -> Result<RuntimeValue> {
    let columns = elements.len() / rows.max(1);
    let tensor = Tensor::new(vec![rows, columns], elements).ok_or_else(|| anyhow!("the rows differ in length"))?;
    Ok(tensor.into())
}

/// Takes an output of a run out of all of them.
pub(super) fn output(outputs: &mut Vec<(String, RuntimeValue)>, name: &str) -> Result<RuntimeValue> {
    match outputs.iter().position(|(output, _)| output == name) {
        Some(at) => Ok(outputs.swap_remove(at).1),
        None => Err(anyhow!("the model has no output `{name}`; compile it again")),
    }
}
