//! Beams of a model that knows only the last token.

use proptest::prelude::*;

use super::*;
use crate::{Limit, Processors, Search};

fn beams(width: usize, length_penalty: f64) -> Beams {
    let early_stopping = EarlyStopping::Heuristic;
    Beams { width: NonZeroUsize::new(width).unwrap(), length_penalty, early_stopping, sampling: None }
}

/// A prompt with so many tokens after it.
fn prompt(tokens: usize) -> Prompt {
    Prompt { ids: vec![0], beginning: vec![0], limit: Limit { tokens, stop: Stop::MaxNewTokens }, seed: 0 }
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
    let prompt = prompt(tokens);
    let options = SearchOptions {
        end_tokens: end_tokens.to_vec(),
        search: Search::Beams(beams.clone()),
        processors,
        ..SearchOptions::default()
    };
    let mut search = PromptSearch::new(&prompt);
    while !search.live.is_empty() {
        let after = |beam: &Beam| beam.ids.last().map_or(0, |id| usize::try_from(*id).unwrap() + 1);
        let logits: Vec<&[f32]> = search.live.iter().map(|beam| &table[after(beam)][..]).collect();
        let candidates = search.candidates(&logits, &options, 1000);
        search.advance(&candidates, &options, beams, |_| Ok(false)).unwrap();
    }
    search.best(1).unwrap().remove(0)
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
    assert_eq!(found(0.0), Continuation { ids: vec![2], ..Continuation::empty(Stop::EndToken) });
    assert_eq!(found(1.0), Continuation { ids: vec![0, 0, 0], ..Continuation::empty(Stop::MaxNewTokens) });
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
    let options = |processors| SearchOptions { processors, ..SearchOptions::default() };
    let prompt = prompt(2);
    let mut search = PromptSearch::new(&prompt);
    let candidates = search.candidates(&[&[0.0; 3][..]], &options(all.clone()), 2);
    assert!(search.advance(&candidates, &options(all), &beams(2, 1.0), |_| Ok(false)).unwrap().is_empty());
    assert!(search.best(1).unwrap_err().to_string().contains("no token may follow"));
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
        let prompt = prompt(2);
        let mut search = PromptSearch::new(&prompt);
        search.live = rows.iter().map(|(sum, _)| Beam { ids: Vec::new(), sum: *sum }).collect();
        let options = SearchOptions::default();
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
