//! Beam search.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::num::NonZeroUsize;

use anyhow::Result;

use planish_runtimes::BestScores;

use super::top_k::{Candidate, Row, top_k};
use super::{Continuation, Prompt, SearchOptions, Started, Stop, nothing_follows};

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
    /// The best continuation of each prompt. `on_token` gets their ids when all is done.
    pub(super) fn search(&self, started: Started<'_>) -> Result<Vec<Continuation>> {
        let Started { model, mut scores, prompts, options, on_token } = started;
        let mut searches: Vec<PromptSearch<'_>> = prompts.iter().map(PromptSearch::new).collect();
        // So many that `width` of them live on even if every beam ends in every way.
        let count = self.width.get().saturating_mul(1 + options.end_tokens.len());
        loop {
            let (mut rows, mut ids, mut first) = (Vec::new(), Vec::new(), 0);
            // Processors may make any token the best.
            let best = if options.processors.is_empty() { scores.best(count)? } else { None };
            for search in &mut searches {
                let of_prompt = first..first + search.live.len();
                first = of_prompt.end;
                let candidates = match &best {
                    Some(best) => search.best_of(&best[of_prompt.clone()], count),
                    None => {
                        let logits = of_prompt.clone().map(|row| scores.row(row)).collect::<Result<Vec<_>>>()?;
                        search.candidates(&logits, options, count)
                    }
                };
                for row in search.advance(&candidates, options, self) {
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
        let found = searches.into_iter().map(PromptSearch::best).collect::<Result<Vec<_>>>()?;
        for (prompt, continuation) in found.iter().enumerate() {
            for &id in &continuation.ids {
                if on_token(prompt, id)?.is_break() {
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
        Self { prompt, live: vec![Beam { ids: Vec::new(), sum: 0.0 }], finished: Vec::new() }
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
    /// each beam that lives on has grown from; none when the search is over.
    fn advance(&mut self, candidates: &[Candidate], options: &SearchOptions, beams: &Beams) -> Vec<usize> {
        let (width, limit) = (beams.width.get(), self.prompt.limit);
        let (mut parents, mut live) = (Vec::new(), Vec::new());
        let possible = candidates.iter().take_while(|candidate| candidate.score > f64::NEG_INFINITY);
        for (rank, candidate) in possible.enumerate() {
            let Ok(id) = i64::try_from(candidate.index) else { continue };
            let mut ids = self.live[candidate.row].ids.clone();
            ids.push(id);
            match limit.stops(ids.len(), id, &options.end_tokens) {
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

    /// What the next token adds to a beam's sum: for each id its score, all with an offset.
    fn scored<'s>(&self, beam: &Beam, logits: &'s [f32], options: &SearchOptions) -> (f64, Cow<'s, [f32]>) {
        let normalizer = log_sum_exp(logits);
        if options.processors.is_empty() {
            return (beam.sum - normalizer, Cow::Borrowed(logits));
        }
        let probabilities: Vec<f32> = logits.iter().map(|score| (f64::from(*score) - normalizer) as f32).collect();
        let sequence = self.prompt.sequence(&beam.ids, options);
        let scores = options.processors.processed(&probabilities, sequence).into_owned();
        let again = if options.processors.renormalize { log_sum_exp(&scores) } else { 0.0 };
        (beam.sum - again, Cow::Owned(scores))
    }

    fn finish(&mut self, ids: Vec<i64>, stop: Stop, sum: f64, beams: &Beams) {
        let score = beams.score(sum, ids.len());
        self.finished.push(Finished { continuation: Continuation { ids, stop, text: None }, score });
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

    fn best(self) -> Result<Continuation> {
        let best = self.finished.into_iter().next();
        best.map(|finished| finished.continuation).ok_or_else(nothing_follows)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Length, Limit, Processors, Search};

    fn beams(width: usize, length_penalty: f64) -> Beams {
        let early_stopping = EarlyStopping::Heuristic;
        Beams { width: NonZeroUsize::new(width).unwrap(), length_penalty, early_stopping }
    }

    /// Searches with a model that knows only the last token: the probabilities of tokens 0, 1 and 2
    /// at first and after each of them.
    fn search(table: [[f32; 3]; 4], tokens: usize, end_tokens: &[i64], beams: &Beams) -> Continuation {
        process(table, tokens, end_tokens, beams, Processors::default())
    }

    fn process(
        table: [[f32; 3]; 4],
        tokens: usize,
        end_tokens: &[i64],
        beams: &Beams,
        processors: Processors,
    ) -> Continuation {
        let table = table.map(|row| row.map(f32::ln));
        let prompt = Prompt { beginning: vec![0], limit: Limit { tokens, stop: Stop::MaxNewTokens } };
        let options = SearchOptions {
            length: Length::Total(tokens + 1),
            end_tokens: end_tokens.to_vec(),
            search: Search::Beams(beams.clone()),
            processors,
        };
        let mut search = PromptSearch::new(&prompt);
        while !search.live.is_empty() {
            let after = |beam: &Beam| beam.ids.last().map_or(0, |id| usize::try_from(*id).unwrap() + 1);
            let logits: Vec<&[f32]> = search.live.iter().map(|beam| &table[after(beam)][..]).collect();
            let candidates = search.candidates(&logits, &options, 1000);
            search.advance(&candidates, &options, beams);
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
        assert_eq!(found(0.0), Continuation { ids: vec![2], stop: Stop::EndToken, text: None });
        assert_eq!(found(1.0), Continuation { ids: vec![0, 0, 0], stop: Stop::MaxNewTokens, text: None });
        assert_eq!(found(-1.0).ids, [2]);
    }

    #[test]
    fn early_stopping_takes_what_is_found_first() {
        // 2 ends. At once it has 0.5; each further token is likelier than that, and its mean grows.
        let table = [[0.44, 0.06, 0.5], [0.6, 0.1, 0.3], [0.1, 0.1, 0.8], [1.0, 0.0, 0.0]];
        let ids = |early_stopping, length_penalty| {
            search(table, 6, &[2], &Beams { early_stopping, ..beams(2, length_penalty) }).ids
        };
        assert_eq!(ids(EarlyStopping::WhenFull, 1.0), [2]);
        assert_eq!(ids(EarlyStopping::Heuristic, 1.0).len(), 6);
        assert_eq!(ids(EarlyStopping::Never, 1.0).len(), 6);
    }

    #[test]
    fn processors_work_on_log_probabilities() {
        let found = |processors| process(GARDEN_PATH, 2, &[], &beams(2, 1.0), processors);
        let forced = Processors { forced_bos: Some(2), forced_eos: vec![1], ..Processors::default() };
        assert_eq!(found(forced).ids, [2, 1]);
        // 0.5 * 0.4 is what is left of the tokens that may follow.
        let suppressing = |renormalize| Processors { suppress: vec![1], renormalize, ..Processors::default() };
        assert_eq!(found(suppressing(false)).ids, [0, 0]);
        assert_eq!(found(suppressing(true)).ids, [0, 0]);
        let all = Processors { suppress: vec![0, 1, 2], ..Processors::default() };
        let options = |processors| SearchOptions {
            length: Length::Total(1),
            end_tokens: Vec::new(),
            search: Search::Greedy,
            processors,
        };
        let prompt = Prompt { beginning: vec![0], limit: Limit { tokens: 2, stop: Stop::MaxNewTokens } };
        let mut search = PromptSearch::new(&prompt);
        let candidates = search.candidates(&[&[0.0; 3][..]], &options(all.clone()), 2);
        assert!(search.advance(&candidates, &options(all), &beams(2, 1.0)).is_empty());
        assert!(search.best().unwrap_err().to_string().contains("no token may follow"));
    }

    fn score() -> impl Strategy<Value = f32> {
        prop_oneof![4 => (-3i8..3).prop_map(f32::from), 2 => -10.0f32..10.0, 1 => Just(f32::NEG_INFINITY), 1 => Just(-0.0)]
    }

    proptest! {
        /// Scores that are equal, of one beam and of several, keep their order.
        #[test]
        fn the_best_of_each_beam_are_enough(
            rows in prop::collection::vec((prop_oneof![Just(0.0), -3.0..0.0], prop::collection::vec(score(), 30)), 1..5),
            count in 1usize..40,
        ) {
            let prompt = Prompt { beginning: vec![0], limit: Limit { tokens: 2, stop: Stop::MaxNewTokens } };
            let mut search = PromptSearch::new(&prompt);
            search.live = rows.iter().map(|(sum, _)| Beam { ids: Vec::new(), sum: *sum }).collect();
            let options = SearchOptions {
                length: Length::Total(2),
                end_tokens: Vec::new(),
                search: Search::Greedy,
                processors: Processors::default(),
            };
            let logits: Vec<&[f32]> = rows.iter().map(|(_, row)| row.as_slice()).collect();
            let of_row = |row: &&[f32]| {
                let best = top_k(&[Row { offset: 0.0, scores: row }], count);
                let best = best.iter().map(|candidate| (candidate.index, row[candidate.index])).collect();
                BestScores { best, log_sum: log_sum_exp(row) }
            };
            let best: Vec<BestScores> = logits.iter().map(of_row).collect();
            prop_assert_eq!(search.best_of(&best, count), search.candidates(&logits, &options, count));
        }
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
