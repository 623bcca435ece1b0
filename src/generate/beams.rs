//! Beam search.

use std::cmp::Ordering;
use std::num::NonZeroUsize;

use anyhow::{Result, anyhow};

use super::top_k::{Row, top_k};
use super::{Continuation, Decoder, Limit, Scores, Stop};

/// Beam search as the transformers library does it, with `early_stopping` off.
#[derive(Clone, Debug, PartialEq)]
pub struct Beams {
    /// How many continuations of a prompt grow side by side.
    pub width: NonZeroUsize,
    /// A finished continuation scores its sum of log probabilities, divided by its number of tokens
    /// to this power: above 0 favours long ones, below 0 short ones.
    pub length_penalty: f64,
}

impl Beams {
    /// The best continuation of each prompt. `on_token` gets their ids when all is done.
    pub(super) fn search(
        &self,
        decoder: &mut Decoder,
        mut scores: Scores,
        limits: &[Limit],
        end_tokens: &[i64],
        on_token: &mut dyn FnMut(usize, i64) -> Result<()>,
    ) -> Result<Vec<Continuation>> {
        let mut searches: Vec<PromptSearch> = limits.iter().map(|limit| PromptSearch::new(*limit)).collect();
        loop {
            let (mut rows, mut ids, mut first) = (Vec::new(), Vec::new(), 0);
            for search in &mut searches {
                let of_prompt = first..first + search.live.len();
                first = of_prompt.end;
                let logits: Vec<&[f32]> = of_prompt.clone().map(|row| scores.row(row)).collect();
                for row in search.advance(&logits, end_tokens, self) {
                    rows.push(of_prompt.start + row);
                }
                ids.extend(search.live.iter().filter_map(|beam| beam.ids.last()));
            }
            if rows.is_empty() {
                break;
            }
            scores = decoder.step(&rows, &ids)?;
        }
        let found = searches.into_iter().map(PromptSearch::best).collect::<Result<Vec<_>>>()?;
        for (prompt, continuation) in found.iter().enumerate() {
            continuation.ids.iter().try_for_each(|&id| on_token(prompt, id))?;
        }
        Ok(found)
    }

    fn score(&self, sum: f64, tokens: usize) -> f64 {
        sum / (tokens as f64).powf(self.length_penalty)
    }
}

/// The beams of one prompt.
struct PromptSearch {
    limit: Limit,
    /// Those that grow, the best first, all of the same length. Before the first token there is
    /// one, after the last none.
    live: Vec<Beam>,
    /// Those that ended, the best first, as many as the width at most.
    finished: Vec<Finished>,
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

impl PromptSearch {
    fn new(limit: Limit) -> Self {
        Self { limit, live: vec![Beam { ids: Vec::new(), sum: 0.0 }], finished: Vec::new() }
    }

    /// Grows all beams by a token, given the scores of the next one for each. Returns which of them
    /// each beam that lives on has grown from; none when the search is over.
    fn advance(&mut self, logits: &[&[f32]], end_tokens: &[i64], beams: &Beams) -> Vec<usize> {
        let width = beams.width.get();
        let offsets = self.live.iter().zip(logits).map(|(beam, scores)| beam.sum - log_sum_exp(scores));
        let rows: Vec<Row<'_>> = offsets.zip(logits).map(|(offset, scores)| Row { offset, scores }).collect();
        // So many that `width` of them live on even if every beam ends in every way.
        let candidates = top_k(&rows, width.saturating_mul(1 + end_tokens.len()));

        let (mut parents, mut live) = (Vec::new(), Vec::new());
        for (rank, candidate) in candidates.iter().enumerate() {
            let Ok(id) = i64::try_from(candidate.index) else { continue };
            let mut ids = self.live[candidate.row].ids.clone();
            ids.push(id);
            match self.limit.stops(ids.len(), id, end_tokens) {
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
        parents
    }

    fn finish(&mut self, ids: Vec<i64>, stop: Stop, sum: f64, beams: &Beams) {
        let score = beams.score(sum, ids.len());
        self.finished.push(Finished { continuation: Continuation { ids, stop }, score });
        self.finished.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal));
        self.finished.truncate(beams.width.get());
    }

    /// Whether no beam that grows, as good as it is now, is better than the worst finished one.
    fn is_over(&self, beams: &Beams) -> bool {
        let Some(best) = self.live.first() else { return true };
        let full = self.finished.len() >= beams.width.get();
        full && self.finished.last().is_some_and(|worst| beams.score(best.sum, best.ids.len()) <= worst.score)
    }

    fn best(self) -> Result<Continuation> {
        let best = self.finished.into_iter().next();
        best.map(|finished| finished.continuation).ok_or_else(|| anyhow!("the model has no vocabulary to choose from"))
    }
}

/// The logarithm of the sum of the exponentials.
fn log_sum_exp(scores: &[f32]) -> f64 {
    let most = f64::from(scores.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    most + scores.iter().map(|score| (f64::from(*score) - most).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beams(width: usize, length_penalty: f64) -> Beams {
        Beams { width: NonZeroUsize::new(width).unwrap(), length_penalty }
    }

    /// Searches with a model that knows only the last token: the probabilities of tokens 0, 1 and 2
    /// at first and after each of them.
    fn search(table: [[f32; 3]; 4], tokens: usize, end_tokens: &[i64], beams: &Beams) -> Continuation {
        let table = table.map(|row| row.map(f32::ln));
        let mut search = PromptSearch::new(Limit { tokens, stop: Stop::MaxNewTokens });
        while !search.live.is_empty() {
            let after = |beam: &Beam| beam.ids.last().map_or(0, |id| usize::try_from(*id).unwrap() + 1);
            let logits: Vec<&[f32]> = search.live.iter().map(|beam| &table[after(beam)][..]).collect();
            search.advance(&logits, end_tokens, beams);
        }
        search.best().unwrap()
    }

    /// The likeliest first token leads nowhere.
    const GARDEN_PATH: [[f32; 3]; 4] = [[0.5, 0.4, 0.1], [0.4, 0.3, 0.3], [0.05, 0.9, 0.05], [0.3, 0.3, 0.4]];

    #[test]
    fn two_beams_find_what_one_misses() {
        let ids = |width| search(GARDEN_PATH, 2, &[], &beams(width, 1.0)).ids;
        // 0.5 * 0.4 against 0.4 * 0.9.
        assert_eq!((ids(1), ids(2)), (vec![0, 0], vec![1, 1]));
    }

    #[test]
    fn the_length_penalty_chooses_between_short_and_long() {
        // 2 ends. At once it has 0.4; 0 goes on with certainty, and [0, 0, 0] has 0.35.
        let table = [[0.35, 0.25, 0.4], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]];
        let found = |length_penalty| search(table, 3, &[2], &beams(3, length_penalty));
        assert_eq!(found(0.0), Continuation { ids: vec![2], stop: Stop::EndToken });
        assert_eq!(found(1.0), Continuation { ids: vec![0, 0, 0], stop: Stop::MaxNewTokens });
        assert_eq!(found(-1.0).ids, [2]);
    }

    #[test]
    fn beams_wider_than_the_vocabulary_grow_into_it() {
        assert_eq!(search(GARDEN_PATH, 3, &[], &beams(50, 1.0)).ids, [1, 1, 1]);
    }

    #[test]
    fn the_logarithm_of_a_sum_does_not_overflow() {
        assert!((log_sum_exp(&[1000.0, 1000.0]) - (1000.0 + 2f64.ln())).abs() < 1e-9);
        assert_eq!(log_sum_exp(&[3.0, f32::NEG_INFINITY]), 3.0);
    }
}
