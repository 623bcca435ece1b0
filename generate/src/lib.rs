//! Text generation with the artifact of a decoder or an encoder-decoder. [`generate`] takes prompts and gives
//! what follows them.
//!
//! A [`LanguageModel`] runs the artifact and holds its cache. [`Processors`] change its scores of the
//! next token; what they leave is continued by the likeliest token, by one that is drawn, or by beams
//! ([`Search`]). [`GenerationConfig`] says which of all that an artifact asks for.

#![cfg_attr(not(test), warn(clippy::print_stdout, clippy::print_stderr))]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests read what they wrote"))]

mod artifact;
mod beams;
mod cache;
mod chat;
mod config;
mod conversation;
mod decoder;
mod encoder_decoder;
mod eyes;
mod generated;
mod images;
mod lines;
mod lookup;
mod model;
mod places;
mod processors;
mod prompt_file;
mod reader;
mod sample;
mod scores;
mod single;
mod speech;
mod stream;
#[cfg(test)]
mod tests;
mod top_k;

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::{Error, Result, anyhow, bail};

pub(crate) use artifact::ready;
pub use artifact::{GenerateOptions, OnPiece, Piece, Prompts, generate};
pub use beams::{Beams, EarlyStopping, MOST_BEAMS};
pub use chat::{Call, Chat, Message, Tools};
pub use config::GenerationConfig;
pub use conversation::{Answer, Conversation};
pub use generated::{Continuation, Generated, Stop};
pub use images::reads_prompts;
pub use lines::{BatchBound, Content, Done, Line, generate_lines};
pub use lookup::{LOOKUP, Lookups, PromptLookup};
pub use model::{LanguageModel, Loading, check, load, prompt_vocabulary};
pub use processors::{Processors, Sequence};
pub use prompt_file::{FileLine, read_lines};
pub use sample::{Sampling, likeliest};
pub use scores::Scores;
pub use speech::{
    Segment, SpeechTask, SpokenWord, Thresholds, TranscribeObserver, TranscribeOptions, Transcribed, TranscriptFormat,
    transcribe,
};
pub use top_k::{Candidate, Row, top_k};

/// What is searched for, and how.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// No continuation gets longer, its end token included.
    pub length: Length,
    /// Each of these ends a continuation, which keeps it; none where it is empty.
    pub end_tokens: Vec<i64>,
    /// How tokens are chosen.
    pub search: Search,
    /// What changes scores before that.
    pub processors: Processors,
    /// How many continuations each prompt gets: more than one are drawn, or are the best of as many beams at least.
    pub continuations: NonZeroUsize,
    /// The seed of draws: continuation number n of all prompts, from 0 on, draws what it would draw alone with the seed plus n.
    pub seed: u64,
}

impl Default for SearchOptions {
    /// A greedy search for one token.
    fn default() -> Self {
        Self {
            length: Length::New(NonZeroUsize::MIN),
            end_tokens: Vec::new(),
            search: Search::Greedy,
            processors: Processors::default(),
            continuations: NonZeroUsize::MIN,
            seed: 0,
        }
    }
}

impl SearchOptions {
    /// How many rows a prompt becomes.
    fn rows(&self) -> usize {
        match &self.search {
            Search::Beams(beams) => beams.width.get(),
            _ => self.continuations.get(),
        }
    }

    /// Of how many tokens a beam goes on with one at least, as the others may be those that end it.
    fn fewest(&self) -> usize {
        self.end_tokens.len().max(1) + 1
    }

    /// A prompt of the length of all, with this seed.
    fn request(&self, ids: &[i64], seed: u64) -> Request {
        Request { ids: ids.to_vec(), length: self.length, seed }
    }
}

/// A prompt, and what it has of its own in a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its token ids.
    pub ids: Vec<i64>,
    /// The length of its continuations, in place of that of all.
    pub length: Length,
    /// The seed of its first continuation. Its n-th one draws with this plus n, whatever other prompts there are.
    pub seed: u64,
}

/// How long a text may get, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// So many new ones.
    New(NonZeroUsize),
    /// So many with those that the text begins with: the prompt, or an encoder-decoder's start token.
    Total(usize),
}

/// How tokens are chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Search {
    /// The likeliest token each time; of equals the one with the lowest id.
    Greedy,
    /// The same tokens, read ahead.
    Lookup(PromptLookup),
    /// A token drawn by its probability.
    Sample(Sampling),
    /// The likeliest of several continuations that grow side by side.
    Beams(Beams),
}

/// Is told of each token of a continuation: the place of the continuation among all, and the id. It says whether the
/// continuation goes on, or why it ends with this token.
pub type OnToken<'a> = &'a mut dyn FnMut(usize, i64) -> Result<ControlFlow<Stop>>;

/// Continues prompts, all in one batch: shorter ones are padded, which changes nothing but rounding. Each prompt is read once,
/// however many continuations it gets. `on_token` gets the place of a continuation and each of its ids, in order, as soon as it is
/// certain, and may end that continuation with it; with beams nothing is certain before all is done, and the first token took
/// as long.
///
/// # Errors
/// When a prompt is not one that the model takes, a setting does not fit the model, the model fails
/// to run, or `on_token` fails.
pub fn search(
    model: &mut dyn LanguageModel,
    prompts: &[Vec<i64>],
    options: &SearchOptions,
    on_token: OnToken<'_>,
) -> Result<Generated> {
    let seeds = (0u64..).map(|n| options.seed.wrapping_add(n.wrapping_mul(options.continuations.get() as u64)));
    let requests: Vec<Request> = prompts.iter().zip(seeds).map(|(ids, seed)| options.request(ids, seed)).collect();
    search_each(model, &requests, options, on_token, None)
}

/// Says of the place of a prompt and the new ids of a beam whether a string in their text ends it.
pub type Ends<'a> = &'a dyn Fn(usize, &[i64]) -> Result<bool>;

/// Continues prompts as [`search`] does, each with a length and a seed of its own. `ends` ends beams; what is not a beam ends where
/// `on_token` says so.
///
/// # Errors
/// As that.
pub fn search_each(
    model: &mut dyn LanguageModel,
    requests: &[Request],
    options: &SearchOptions,
    on_token: OnToken<'_>,
    ends: Option<Ends<'_>>,
) -> Result<Generated> {
    let prompts: Vec<Vec<i64>> = requests.iter().map(|request| request.ids.clone()).collect();
    search_from(model, requests, options, (on_token, ends), |model| Ok((model.start(&prompts)?, 0)))
}

/// Continues one prompt as [`search`] does. What it shares with the text that the model has read before is not read again.
///
/// # Errors
/// As that.
pub fn resume(
    model: &mut dyn LanguageModel,
    prompt: &[i64],
    options: &SearchOptions,
    on_token: OnToken<'_>,
) -> Result<Generated> {
    search_from(model, &[options.request(prompt, options.seed)], options, (on_token, None), |model| {
        model.resume(prompt)
    })
}

/// The search of prompts that `read` reads; it returns how many tokens it found read.
fn search_from(
    model: &mut dyn LanguageModel,
    requests: &[Request],
    options: &SearchOptions,
    (on_token, ends): (OnToken<'_>, Option<Ends<'_>>),
    read: impl FnOnce(&mut dyn LanguageModel) -> Result<(Scores, usize)>,
) -> Result<Generated> {
    if requests.is_empty() {
        bail!("there is no prompt to continue");
    }
    options.processors.check(model.vocabulary())?;
    let known = requests.iter().map(|request| Prompt::new(model, request)).collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    let (scores, cached_tokens) = read(model)?;
    let prompt = start.elapsed();
    let mut first = None;
    let mut chosen = |continuation, id| {
        first.get_or_insert_with(|| start.elapsed());
        on_token(continuation, id)
    };
    let started = Started { model, scores, prompts: &known, options, on_token: &mut chosen, ends };
    let mut lookups = None;
    let continuations = match &options.search {
        Search::Greedy => single::search(started, None)?,
        Search::Lookup(lookup) => {
            let (continuations, found) = lookup.search(started)?;
            lookups = Some(found);
            continuations
        }
        Search::Sample(sampling) => single::search(started, Some(sampling))?,
        Search::Beams(beams) => beams.search(started)?,
    };
    let total = start.elapsed();
    let prompt_tokens = requests.iter().map(|request| request.ids.len()).sum();
    let first_token = first.unwrap_or(total);
    Ok(Generated { continuations, prompt_tokens, cached_tokens, loading: None, prompt, first_token, total, lookups })
}

/// A search whose model has read the prompts.
struct Started<'a> {
    model: &'a mut dyn LanguageModel,
    /// Of the first new token, a row for each prompt.
    scores: Scores,
    prompts: &'a [Prompt],
    options: &'a SearchOptions,
    on_token: OnToken<'a>,
    ends: Option<Ends<'a>>,
}

/// The error where no token is possible.
fn nothing_follows() -> Error {
    anyhow!("no token may follow, because the settings of generation_config.json forbid all tokens")
}

/// What is known of a prompt's text before it is generated.
struct Prompt {
    /// The prompt's own ids.
    ids: Vec<i64>,
    /// What the text begins with.
    beginning: Vec<i64>,
    limit: Limit,
    /// Of its first continuation.
    seed: u64,
}

impl Prompt {
    fn new(model: &dyn LanguageModel, request: &Request) -> Result<Self> {
        let Request { ids, length, seed } = request;
        let room = model.room(ids)?;
        let beginning = model.beginning(ids);
        let wanted = match *length {
            Length::New(tokens) => tokens.get(),
            Length::Total(length) if length > beginning.len() => length - beginning.len(),
            Length::Total(length) => bail!(
                "`max_length` is {length} and the text begins with {} tokens, so none may follow; say how many with \
                 --max-new-tokens",
                beginning.len()
            ),
        };
        let limit = match room < wanted {
            true => Limit { tokens: room, stop: Stop::Context },
            false => Limit { tokens: wanted, stop: Stop::MaxNewTokens },
        };
        Ok(Self { ids: ids.clone(), beginning, limit, seed: *seed })
    }

    /// The text with these new tokens.
    fn sequence<'a>(&'a self, new: &'a [i64], options: &'a SearchOptions) -> Sequence<'a> {
        let Self { ids, beginning, limit, .. } = self;
        Sequence { prompt: ids, beginning, new, limit: limit.tokens, end_tokens: &options.end_tokens }
    }
}

/// How long a continuation may get, and why no longer.
#[derive(Clone, Copy)]
struct Limit {
    tokens: usize,
    stop: Stop,
}

impl Limit {
    /// Why a continuation of so many tokens ends with the last of them, if it does.
    fn stops(self, tokens: usize, last: i64, end_tokens: &[i64]) -> Option<Stop> {
        match end_tokens.contains(&last) {
            true => Some(Stop::EndToken),
            false => (tokens >= self.tokens).then_some(self.stop),
        }
    }
}
