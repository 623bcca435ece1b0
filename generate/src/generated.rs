//! What is generated, and how long that took.

use std::time::Duration;

use crate::{Call, Lookups};

/// What follows a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continuation {
    /// The new ids.
    pub ids: Vec<i64>,
    /// Why there are no more.
    pub stop: Stop,
    /// The text of the ids, without special tokens, if the prompt was a text too. It ends before a string that stops it.
    pub text: Option<String>,
    /// The calls of tools that the text has, which are left out of it.
    pub calls: Vec<Call>,
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

impl Continuation {
    /// One of no tokens yet.
    pub(crate) fn empty(stop: Stop) -> Self {
        Self { ids: Vec::new(), stop, text: None, calls: Vec::new() }
    }
}

impl Stop {
    /// As JSON has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EndToken => "end_token",
            Self::MaxNewTokens => "max_new_tokens",
            Self::Context => "context",
            Self::StopString => "stop_string",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The continuations of all prompts, in their order, and how long they took.
#[derive(Clone, Debug)]
pub struct Generated {
    /// As many as are asked for of the first prompt, then of the next one; of beams the best comes first.
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

    /// The new tokens of all prompts in a second of decoding. The first token of each continuation does not count, because
    /// reading the prompt gives it; absent where there are no others.
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
