//! Text generation with the artifact of a decoder or an encoder-decoder. [`Artifact::generate`] takes prompts and gives
//! what follows them.
//!
//! [`Artifact::generate`]: crate::artifact::Artifact::generate
//!
//! A [`LanguageModel`] runs the artifact and holds its cache. [`Processors`] change its scores of the
//! next token; what they leave is continued by the likeliest token, by one that is drawn, or by beams
//! ([`Search`]). [`GenerationConfig`] says which of all that an artifact asks for.

mod artifact;
mod beams;
mod cache;
mod chat;
mod config;
mod decoder;
mod document;
mod encoder_decoder;
mod guard;
mod lookup;
mod model;
mod processors;
mod sample;
mod single;
mod text;
mod tokens;
mod top_k;

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow, bail};

pub use artifact::{GenerateOptions, OnToken, Prompts};
pub use beams::{Beams, EarlyStopping, MOST_BEAMS};
pub use chat::Chat;
pub use config::GenerationConfig;
pub use lookup::{Lookups, PromptLookup};
pub(crate) use model::prompt_vocabulary;
pub use model::{LanguageModel, Loading, Scores, check, load};
pub use processors::{Processors, Sequence};
pub use sample::{Sampling, likeliest};
pub use text::TextTokenizer;
pub(crate) use text::{TOKENIZER, beginning, growing};
pub use tokens::end_tokens;
pub(crate) use tokens::token;
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
    /// The text of the ids, without special tokens, if the prompt was a text too.
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
}

/// The continuations of all prompts, in their order, and how long they took.
#[derive(Clone, Debug)]
pub struct Generated {
    /// One for each prompt.
    pub continuations: Vec<Continuation>,
    /// From the start until the first token was certain.
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

    /// The new tokens of all prompts in a second.
    #[must_use]
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens() as f64 / self.total.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Continues prompts, all in one batch: shorter ones are padded, which changes nothing but rounding.
/// `on_token` gets the place of a prompt and each id of its continuation, in order, as soon as it is
/// certain; with beams nothing is before all is done, and the first token took as long.
///
/// # Errors
/// When a prompt is not one that the model takes, a setting does not fit the model, the model fails
/// to run, or `on_token` fails.
pub fn search(
    model: &mut dyn LanguageModel,
    prompts: &[Vec<i64>],
    options: &SearchOptions,
    on_token: &mut dyn FnMut(usize, i64) -> Result<()>,
) -> Result<Generated> {
    if prompts.is_empty() {
        bail!("there is no prompt to continue");
    }
    options.processors.check(model.vocabulary())?;
    let known = prompts.iter().map(|prompt| Prompt::new(model, prompt, options)).collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    let scores = model.start(prompts)?;
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
    Ok(Generated { continuations, first_token: first.unwrap_or(total), total, lookups })
}

/// A search whose model has read the prompts.
struct Started<'a> {
    model: &'a mut dyn LanguageModel,
    /// Of the first new token, a row for each prompt.
    scores: Scores,
    prompts: &'a [Prompt],
    options: &'a SearchOptions,
    on_token: &'a mut dyn FnMut(usize, i64) -> Result<()>,
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
