//! Text generation with a decoder's artifact: prompts of token ids in, continuations out.
//!
//! [`Decoder`] runs the model and holds its cache; what it scores is continued by the likeliest
//! token, by one that is drawn, or by beams ([`Search`]).

mod beams;
mod chat;
mod decoder;
mod sample;
mod single;
mod text;
mod tokens;
mod top_k;

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

pub use beams::Beams;
pub use chat::Chat;
pub use decoder::{Decoder, Scores};
pub use sample::{Sampling, likeliest};
pub use text::Text;
pub use tokens::end_tokens;
pub(crate) use tokens::token;
pub use top_k::{Candidate, Row, top_k};

/// What is generated, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// No continuation gets longer, its end token included.
    pub max_new_tokens: NonZeroUsize,
    /// Each of these ends a continuation, which keeps it; none where it is empty.
    pub end_tokens: Vec<i64>,
    /// How tokens are chosen.
    pub search: Search,
}

/// How tokens are chosen.
#[derive(Clone, Debug)]
pub enum Search {
    /// The likeliest token each time; of equals the one with the lowest id.
    Greedy,
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
}

/// Continues prompts, all in one batch: shorter ones are padded on the left, which changes nothing
/// but rounding. `on_token` gets the place of a prompt and each id of its continuation, in order, as soon as
/// it is certain; with beams nothing is before all is done, and the first token took as long.
///
/// # Errors
/// When a prompt is not one that the model takes, the model fails to run, or `on_token` fails.
pub fn generate(
    decoder: &mut Decoder,
    prompts: &[Vec<i64>],
    options: &Options,
    on_token: &mut dyn FnMut(usize, i64) -> Result<()>,
) -> Result<Generated> {
    if prompts.is_empty() {
        bail!("there is no prompt to continue");
    }
    let limits = prompts.iter().map(|prompt| limit(decoder, prompt, options)).collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    let scores = decoder.start(prompts)?;
    let mut first = None;
    let mut chosen = |prompt, id| {
        first.get_or_insert_with(|| start.elapsed());
        on_token(prompt, id)
    };
    let ends = &options.end_tokens;
    let continuations = match &options.search {
        Search::Greedy => single::search(decoder, scores, &limits, ends, None, &mut chosen)?,
        Search::Sample(sampling) => single::search(decoder, scores, &limits, ends, Some(sampling), &mut chosen)?,
        Search::Beams(beams) => beams.search(decoder, scores, &limits, ends, &mut chosen)?,
    };
    let total = start.elapsed();
    Ok(Generated { continuations, first_token: first.unwrap_or(total), total })
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

fn limit(decoder: &Decoder, prompt: &[i64], options: &Options) -> Result<Limit> {
    let room = decoder.room(prompt)?;
    let wanted = options.max_new_tokens.get();
    Ok(match room < wanted {
        true => Limit { tokens: room, stop: Stop::Context },
        false => Limit { tokens: wanted, stop: Stop::MaxNewTokens },
    })
}
