//! Beam search.

mod sampled;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::num::NonZeroUsize;

use anyhow::{Result, bail};
use fastrand::Rng;
use planish_runtimes::BestScores;

use super::sample::generators;
use super::top_k::{Candidate, Row, top_k};
use super::{Continuation, Prompt, Sampling, SearchOptions, Started, Stop, nothing_follows};

/// The most beams of a search: each has a row of scores and a cache of its own.
pub const MOST_BEAMS: usize = 1024;

/// Beam search as the transformers library does it.
#[derive(Clone, Debug, PartialEq)]
pub struct Beams {
    /// How many continuations of a prompt grow side by side.
    pub width: NonZeroUsize,
    /// A finished continuation scores its sum of log probabilities, divided by its number of tokens
    /// to this power: above 0 favours long ones, below 0 short ones.
    pub length_penalty: f64,
    /// When a search is over before all beams have ended.
    pub early_stopping: EarlyStopping,
    /// How the tokens that beams grow by are drawn; the best are taken where this is absent.
    pub sampling: Option<Sampling>,
}

/// When a search is over that has found as many continuations as there are beams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyStopping {
    /// At once.
    WhenFull,
    /// When the best beam would not be better than all of them if it ended here.
    Heuristic,
    /// When the best beam could not become better at any length, were all that comes certain.
    Never,
}

impl Beams {
    /// The best continuations of each prompt. `on_token` gets their ids when all is done.
    pub(super) fn search(&self, started: Started<'_>) -> Result<Vec<Continuation>> {
        let Started { model, mut scores, prompts, options, on_token, ends } = started;
        let mut searches: Vec<PromptSearch<'_>> = prompts.iter().map(PromptSearch::new).collect();
        // So many that `width` of them live on even if every beam ends in every way.
        let count = self.width.get().saturating_mul(options.fewest());
        loop {
            let (mut rows, mut ids, mut first) = (Vec::new(), Vec::new(), 0);
            // Processors and draws may make any token the best.
            let takes_best = options.processors.is_empty() && self.sampling.is_none();
            let best = if takes_best { scores.best(count)? } else { None };
            for (prompt, search) in searches.iter_mut().enumerate() {
                let of_prompt = first..first + search.live.len();
                first = of_prompt.end;
                let candidates = match &best {
                    Some(best) => search.best_of(&best[of_prompt.clone()], count),
                    None => {
                        let logits = of_prompt.clone().map(|row| scores.row(row)).collect::<Result<Vec<_>>>()?;
                        match &self.sampling {
                            Some(sampling) => search.drawn(&logits, options, sampling, count),
                            None => search.candidates(&logits, options, count),
                        }
                    }
                };
                let is_ended = |ids: &[i64]| ends.map_or(Ok(false), |ends| ends(prompt, ids));
                for row in search.advance(&candidates, options, self, is_ended)? {
                    rows.push(of_prompt.start + row);
                }
                ids.extend(search.live.iter().filter_map(|beam| beam.ids.last()));
            }
            if rows.is_empty() {
                break;
            }
            // Their memory is free before the next ones need some.
            drop(scores);
            scores = model.step(&rows, &ids)?;
        }
        let found = searches.into_iter().map(|search| search.best(options.continuations.get()));
        let found = found.collect::<Result<Vec<_>>>()?.concat();
        for (number, continuation) in found.iter().enumerate() {
            for &id in &continuation.ids {
                if on_token(number, id)?.is_break() {
                    break;
                }
            }
        }
        Ok(found)
    }

    fn score(&self, sum: f64, tokens: usize) -> f64 {
        sum / (tokens as f64).powf(self.length_penalty)
    }
}

/// The beams of one prompt.
struct PromptSearch<'a> {
    prompt: &'a Prompt,
    /// Those that grow, the best first, all of the same length. Before the first token there is
    /// one, after the last none.
    live: Vec<Beam>,
    /// Those that ended, the best first, as many as the width at most.
    finished: Vec<Finished>,
    /// What draws come from.
    generator: Rng,
}

#[derive(Clone)]
struct Beam {
    ids: Vec<i64>,
    /// Of the log probabilities.
    sum: f64,
}

struct Finished {
    continuation: Continuation,
    score: f64,
}

impl<'a> PromptSearch<'a> {
    fn new(prompt: &'a Prompt) -> Self {
        let generator = generators(prompt.seed, 1).next().unwrap_or_default();
        Self { prompt, live: vec![Beam { ids: Vec::new(), sum: 0.0 }], finished: Vec::new(), generator }
    }

    /// The best `count` of what all beams may grow by, given the scores of the next token for each.
    fn candidates(&self, logits: &[&[f32]], options: &SearchOptions, count: usize) -> Vec<Candidate> {
        let scored: Vec<_> = self.live.iter().zip(logits).map(|(beam, row)| self.scored(beam, row, options)).collect();
        let rows: Vec<Row<'_>> = scored.iter().map(|(offset, scores)| Row { offset: *offset, scores }).collect();
        top_k(&rows, count)
    }

    /// The same without processors, given the best `count` scores of each.
    fn best_of(&self, best: &[BestScores], count: usize) -> Vec<Candidate> {
        let of_beam = |(row, (beam, best)): (usize, (&Beam, &BestScores))| {
            let offset = beam.sum - best.log_sum;
            let candidate = move |(index, score): &(usize, f32)| Candidate {
                score: offset + f64::from(*score),
                row,
                index: *index,
            };
            best.best.iter().map(candidate).collect::<Vec<_>>()
        };
        let mut all: Vec<Candidate> = self.live.iter().zip(best).enumerate().flat_map(of_beam).collect();
        all.sort_unstable_by(Candidate::rank);
        all.truncate(count);
        all
    }

    /// Grows all beams by a token, given the best candidates. Returns which of them
    /// each beam that lives on has grown from; none when the search is over. `is_ended` says whether a string ends the text of
    /// some ids.
    fn advance(
        &mut self,
        candidates: &[Candidate],
        options: &SearchOptions,
        beams: &Beams,
        is_ended: impl Fn(&[i64]) -> Result<bool>,
    ) -> Result<Vec<usize>> {
        let (width, limit) = (beams.width.get(), self.prompt.limit);
        let (mut parents, mut live) = (Vec::new(), Vec::new());
        let possible = candidates.iter().take_while(|candidate| candidate.score > f64::NEG_INFINITY);
        for (rank, candidate) in possible.enumerate() {
            let Ok(id) = i64::try_from(candidate.index) else { continue };
            let mut ids = self.live[candidate.row].ids.clone();
            ids.push(id);
            let stop = match limit.stops(ids.len(), id, &options.end_tokens) {
                Some(stop) if stop == Stop::EndToken => Some(stop),
                stop => {
                    if is_ended(&ids)? {
                        Some(Stop::StopString)
                    } else {
                        stop
                    }
                }
            };
            match stop {
                // Worse than a whole width of others, it could not be the best of all later.
                Some(stop) if rank < width => self.finish(ids, stop, candidate.score, beams),
                Some(_) => {}
                None if live.len() < width => {
                    live.push(Beam { ids, sum: candidate.score });
                    parents.push(candidate.row);
                }
                None => {}
            }
        }
        self.live = live;
        if self.is_over(beams) {
            self.live.clear();
            parents.clear();
        }
        Ok(parents)
    }

    /// What the next token adds to a beam's sum: for each id its score, all with an offset.
    fn scored<'s>(&self, beam: &Beam, logits: &'s [f32], options: &SearchOptions) -> (f64, Cow<'s, [f32]>) {
        if options.processors.is_empty() {
            return (beam.sum - log_sum_exp(logits), Cow::Borrowed(logits));
        }
        let scores = self.log_probabilities(beam, logits, options);
        let again = if options.processors.renormalize { log_sum_exp(&scores) } else { 0.0 };
        (beam.sum - again, Cow::Owned(scores))
    }

    /// The log probabilities of a beam's next token, processed.
    fn log_probabilities(&self, beam: &Beam, logits: &[f32], options: &SearchOptions) -> Vec<f32> {
        let normalizer = log_sum_exp(logits);
        let probabilities: Vec<f32> = logits.iter().map(|score| (f64::from(*score) - normalizer) as f32).collect();
        options.processors.processed(&probabilities, self.prompt.sequence(&beam.ids, options)).into_owned()
    }

    fn finish(&mut self, ids: Vec<i64>, stop: Stop, sum: f64, beams: &Beams) {
        let score = beams.score(sum, ids.len());
        self.finished.push(Finished { continuation: Continuation { ids, ..Continuation::empty(stop) }, score });
        self.finished.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal));
        self.finished.truncate(beams.width.get());
    }

    /// Whether no beam that grows counts as better than the worst finished one.
    fn is_over(&self, beams: &Beams) -> bool {
        let Some(best) = self.live.first() else { return true };
        let Some(worst) = self.finished.last().filter(|_| self.finished.len() >= beams.width.get()) else {
            return false;
        };
        let length = match beams.early_stopping {
            EarlyStopping::WhenFull => return true,
            EarlyStopping::Never if beams.length_penalty > 0.0 => self.prompt.limit.tokens,
            EarlyStopping::Never | EarlyStopping::Heuristic => best.ids.len(),
        };
        beams.score(best.sum, length) <= worst.score
    }

    /// The best so many.
    fn best(self, count: usize) -> Result<Vec<Continuation>> {
        match self.finished.len() {
            0 => Err(nothing_follows()),
            found if found < count => bail!(
                "the search found {found} continuations and {count} are asked for, because the settings forbid others; ask for \
                 fewer with --set num_return_sequences={found}"
            ),
            _ => Ok(self.finished.into_iter().take(count).map(|finished| finished.continuation).collect()),
        }
    }
}

/// The logarithm of the sum of the exponentials; 0 where all of them are 0, as no number normalizes them.
fn log_sum_exp(scores: &[f32]) -> f64 {
    let most = f64::from(scores.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    if most == f64::NEG_INFINITY {
        return 0.0;
    }
    most + scores.iter().map(|score| (f64::from(*score) - most).exp()).sum::<f64>().ln()
}
