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
mod lookup;
mod model;
mod processors;
mod sample;
mod single;
mod stream;
mod top_k;

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow, bail};

pub(crate) use artifact::ready;
pub use artifact::{GenerateOptions, OnPiece, Piece, Prompts, generate};
pub use beams::{Beams, EarlyStopping, MOST_BEAMS};
pub use chat::{Chat, Message};
pub use config::GenerationConfig;
pub use conversation::{Answer, Conversation};
pub use lookup::{LOOKUP, Lookups, PromptLookup};
pub use model::prompt_vocabulary;
pub use model::{LanguageModel, Loading, Scores, check, load};
pub use processors::{Processors, Sequence};
pub use sample::{Sampling, likeliest};
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

/// What follows a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The new ids.
    pub ids: Vec<i64>,
    /// Why there are no more.
    pub stop: Stop,
    /// The text of the ids, without special tokens, if the prompt was a text too. It ends before a string that stops it.
    pub text: Option<String>,
}

/// Why a continuation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// With an end token.
    EndToken,
    /// It is as long as was asked for.
    MaxNewTokens,
    /// Prompt and continuation are as long as the model takes.
    Context,
    /// Its text has a string that stops it.
    StopString,
    /// Who was told of its tokens asked for no more.
    Interrupted,
}

/// The continuations of all prompts, in their order, and how long they took.
#[derive(Clone, Debug)]
pub struct Generated {
    /// One for each prompt.
    pub continuations: Vec<Continuation>,
    /// The tokens of all prompts, without padding.
    pub prompt_tokens: usize,
    /// Those of them whose keys and values were there from an earlier turn of a conversation.
    pub cached_tokens: usize,
    /// How long it took to load the model, where it was loaded for these prompts.
    pub loading: Option<Duration>,
    /// From the start until the prompts were read.
    pub prompt: Duration,
    /// From the start until the first token was certain: for beams as long as all of it.
    pub first_token: Duration,
    /// From the start to the end.
    pub total: Duration,
    /// What reading ahead came to, where tokens were.
    pub lookups: Option<Lookups>,
}

impl Generated {
    /// The number of new tokens of all prompts.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.continuations.iter().map(|continuation| continuation.ids.len()).sum()
    }

    /// The new tokens of all prompts in a second of decoding. The first token of each prompt does not count, because reading
    /// the prompt gives it; absent where there are no others.
    #[must_use]
    pub fn tokens_per_second(&self) -> Option<f64> {
        let first = self.continuations.iter().filter(|continuation| !continuation.ids.is_empty()).count();
        per_second(self.tokens() - first, self.total.saturating_sub(self.prompt))
    }

    /// The tokens of all prompts that were read in a second.
    #[must_use]
    pub fn prompt_tokens_per_second(&self) -> Option<f64> {
        per_second(self.prompt_tokens - self.cached_tokens, self.prompt)
    }
}

fn per_second(tokens: usize, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| tokens as f64 / time.as_secs_f64())
}

/// Is told of each token of a continuation: the place of its prompt, and its id. It says whether the continuation goes on, or
/// why it ends with this token.
pub type OnToken<'a> = &'a mut dyn FnMut(usize, i64) -> Result<ControlFlow<Stop>>;

/// Continues prompts, all in one batch: shorter ones are padded, which changes nothing but rounding.
/// `on_token` gets the place of a prompt and each id of its continuation, in order, as soon as it is
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
    search_from(model, prompts, options, on_token, |model| Ok((model.start(prompts)?, 0)))
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
    search_from(model, &[prompt.to_vec()], options, on_token, |model| model.resume(prompt))
}

/// The search of prompts that `read` reads; it returns how many tokens it found read.
fn search_from(
    model: &mut dyn LanguageModel,
    prompts: &[Vec<i64>],
    options: &SearchOptions,
    on_token: OnToken<'_>,
    read: impl FnOnce(&mut dyn LanguageModel) -> Result<(Scores, usize)>,
) -> Result<Generated> {
    if prompts.is_empty() {
        bail!("there is no prompt to continue");
    }
    options.processors.check(model.vocabulary())?;
    let known = prompts.iter().map(|prompt| Prompt::new(model, prompt, options)).collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    let (scores, cached_tokens) = read(model)?;
    let prompt = start.elapsed();
    let mut first = None;
    let mut chosen = |prompt, id| {
        first.get_or_insert_with(|| start.elapsed());
        on_token(prompt, id)
    };
    let started = Started { model, scores, prompts: &known, options, on_token: &mut chosen };
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
    let prompt_tokens = prompts.iter().map(Vec::len).sum();
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
}

/// The error where no token is possible.
fn nothing_follows() -> Error {
    anyhow!("no token may follow, because the settings of generation_config.json forbid all tokens")
}

/// What is known of a prompt's text before it is generated.
struct Prompt {
    /// What it begins with.
    beginning: Vec<i64>,
    limit: Limit,
}

impl Prompt {
    fn new(model: &dyn LanguageModel, prompt: &[i64], options: &SearchOptions) -> Result<Self> {
        let room = model.room(prompt)?;
        let beginning = model.beginning(prompt);
        let wanted = match options.length {
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
        Ok(Self { beginning, limit })
    }

    /// The text with these new tokens.
    fn sequence<'a>(&'a self, new: &'a [i64], options: &'a SearchOptions) -> Sequence<'a> {
        Sequence { beginning: &self.beginning, new, limit: self.limit.tokens, end_tokens: &options.end_tokens }
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
