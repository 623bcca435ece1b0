//! Prompt lookup: greedy search that reads ahead (Saxena 2023). What followed the last tokens where the text had them before
//! is likely to follow again, so the model reads it in the same run, and what it would have chosen itself is kept.

use std::num::NonZeroUsize;

use anyhow::{Result, bail};

use super::{Continuation, LanguageModel, Prompt, Scores, SearchOptions, single};

/// How a greedy search reads ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptLookup {
    /// The most tokens that a run reads ahead.
    pub candidates: NonZeroUsize,
    /// The most last tokens that are looked for in the text.
    pub ngram: NonZeroUsize,
}

/// What reading ahead came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// How often the model ran, the prompt included.
    pub runs: usize,
    /// How many tokens it read ahead.
    pub candidates: usize,
    /// How many of them were the ones that it chose.
    pub accepted: usize,
}

/// Checks the number of prompts.
///
/// # Errors
/// When it is not 1.
pub(super) fn check(prompts: usize) -> Result<()> {
    if prompts != 1 {
        bail!(
            "--prompt-lookup takes one prompt, and there are {prompts}: the rows of a batch would grow by different numbers of \
             tokens; run the command for each prompt, or leave out --prompt-lookup"
        );
    }
    Ok(())
}

impl PromptLookup {
    /// What is likely to follow a text, at most `most` tokens of it: what followed where its last tokens were before. Of
    /// places with equally many of them the last counts. What follows there may reach into itself, as in a text that
    /// repeats one token.
    fn candidates(&self, text: &[i64], most: usize) -> Vec<i64> {
        let count = most.min(self.candidates.get());
        let place = |ngram: usize| {
            let (earlier, last) = (&text[..text.len() - 1], &text[text.len() - ngram..]);
            earlier.windows(ngram).rposition(|tokens| tokens == last).map(|at| at + ngram)
        };
        let longest = self.ngram.get().min(text.len().saturating_sub(1));
        let Some(from) = (1..=longest).rev().find_map(place) else { return Vec::new() };
        let mut found = Vec::with_capacity(count);
        for at in from..from + count {
            let token = text.get(at).copied().or_else(|| found.get(at - text.len()).copied());
            found.extend(token);
        }
        found
    }

    /// Continues a prompt by the likeliest token each time.
    pub(super) fn search(
        &self,
        model: &mut dyn LanguageModel,
        mut scores: Scores,
        prompts: &[Prompt],
        options: &SearchOptions,
        on_token: &mut dyn FnMut(usize, i64) -> Result<()>,
    ) -> Result<(Vec<Continuation>, Lookups)> {
        check(prompts.len())?;
        let prompt = &prompts[0];
        let mut continuation = Continuation { ids: Vec::new(), stop: prompt.limit.stop, text: None };
        let mut lookups = Lookups { runs: 1, ..Lookups::default() };
        // What the model has read besides the last chosen token, of which only a beginning may be chosen.
        let mut ahead: Vec<i64> = Vec::new();
        let mut text = prompt.beginning.clone();
        loop {
            let mut accepted = 0;
            loop {
                let id = single::greedy(&scores, accepted, prompt, &continuation.ids, options)?;
                continuation.ids.push(id);
                text.push(id);
                on_token(0, id)?;
                if let Some(stop) = prompt.limit.stops(continuation.ids.len(), id, &options.end_tokens) {
                    continuation.stop = stop;
                    lookups.accepted += accepted + usize::from(ahead.get(accepted) == Some(&id));
                    return Ok((vec![continuation], lookups));
                }
                if ahead.get(accepted) != Some(&id) {
                    break;
                }
                accepted += 1;
            }
            lookups.accepted += accepted;
            model.forget(ahead.len() - accepted)?;
            let room = prompt.limit.tokens - continuation.ids.len();
            // The last token that may follow is not read.
            ahead = self.candidates(&text, room - 1);
            let last = text.last().copied().into_iter();
            // Their memory is free before the next ones need some.
            drop(scores);
            scores = model.read(&last.chain(ahead.iter().copied()).collect::<Vec<_>>())?;
            ahead.truncate(scores.rows() - 1);
            lookups.runs += 1;
            lookups.candidates += ahead.len();
        }
    }
}
