//! Prompt lookup: greedy search that reads ahead (Saxena 2023). What followed the last tokens where the text had them before
//! is likely to follow again, so the model reads it in the same run, and what it would have chosen itself is kept.

use std::num::NonZeroUsize;

use anyhow::{Result, bail};

use super::{Continuation, Started, single};

/// The setting that asks for it: the most tokens that a run reads ahead.
pub const LOOKUP: &str = "prompt_lookup_num_tokens";

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
            "--set {LOOKUP} takes one prompt, and there are {prompts}: the rows of a batch would grow by different numbers of \
             tokens; run the command for each prompt, or leave it out"
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
    pub(super) fn search(&self, started: Started<'_>) -> Result<(Vec<Continuation>, Lookups)> {
        let Started { model, mut scores, prompts, options, on_token, .. } = started;
        check(prompts.len())?;
        let prompt = &prompts[0];
        let mut continuation = Continuation::empty(prompt.limit.stop);
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
                let stop = prompt.limit.stops(continuation.ids.len(), id, &options.end_tokens);
                if let Some(stop) = stop.or(on_token(0, id)?.break_value()) {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lookup(candidates: usize, ngram: usize) -> PromptLookup {
        let number = |number| NonZeroUsize::new(number).unwrap();
        PromptLookup { candidates: number(candidates), ngram: number(ngram) }
    }

    #[test]
    fn what_followed_the_longest_match_is_found() {
        let text = [1, 2, 3, 9, 2, 3, 8, 7, 1, 2, 3];
        // Three tokens match at the start, two of them once more after it.
        assert_eq!(lookup(4, 3).candidates(&text, 99), [9, 2, 3, 8]);
        assert_eq!(lookup(4, 2).candidates(&text, 99), [8, 7, 1, 2]);
        assert_eq!(lookup(4, 3).candidates(&text, 2), [9, 2]);
        assert_eq!(lookup(4, 3).candidates(&text, 0), [0i64; 0]);
        // Fewer tokens are looked for where more are not found.
        assert_eq!(lookup(2, 9).candidates(&[5, 6, 7, 4, 6], 99), [7, 4]);
        for text in [&[][..], &[1], &[1, 2, 3]] {
            assert_eq!(lookup(2, 3).candidates(text, 99), [0i64; 0], "{text:?}");
        }
    }

    #[test]
    fn what_follows_may_reach_into_itself() {
        assert_eq!(lookup(5, 3).candidates(&[7, 7], 99), [7; 5]);
        assert_eq!(lookup(5, 3).candidates(&[1, 2, 1, 2], 99), [1, 2, 1, 2, 1]);
    }

    proptest! {
        /// The same by a search of each place.
        #[test]
        fn candidates_follow_the_last_of_the_longest_matches(
            text in prop::collection::vec(0i64..4, 0..40),
            candidates in 1usize..6,
            ngram in 1usize..5,
            most in 0usize..8,
        ) {
            let found = lookup(candidates, ngram).candidates(&text, most);
            let matching = |at: usize| (0..ngram.min(at)).take_while(|k| text[at - 1 - k] == text[text.len() - 1 - k]).count();
            let best = (1..text.len()).max_by_key(|at| (matching(*at), *at)).filter(|at| matching(*at) > 0);
            let expected = best.map_or_else(Vec::new, |at| {
                let mut all = text.clone();
                (at..at + candidates.min(most)).for_each(|from| all.push(all[from]));
                all.split_off(text.len())
            });
            prop_assert_eq!(found, expected);
        }
    }
}
