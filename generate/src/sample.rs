//! Choosing one token by its score.

use std::num::NonZeroUsize;

use fastrand::Rng;

use super::top_k::{Row, top_k};

/// How tokens are drawn. Scores are divided by the temperature, all but the `top_k` best are left
/// out, then all but the fewest whose probabilities reach `top_p` together, then those that are much
/// less likely than the best.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Above 0; 1 leaves the probabilities as they are, less makes likely tokens likelier.
    pub temperature: f64,
    /// How many tokens are considered; all where absent.
    pub top_k: Option<NonZeroUsize>,
    /// The probability that the considered tokens reach together, from 0 to 1. The likeliest is
    /// always considered.
    pub top_p: f64,
    /// The probability of the least likely token that is considered, relative to that of the
    /// likeliest, from 0 to 1.
    pub min_p: f64,
}

/// A generator for each of so many continuations of a prompt, so that none depends on what the others draw: the `n`-th, from 0
/// on, draws what it would draw alone with the seed `seed + n`.
pub(super) fn generators(seed: u64, continuations: usize) -> impl Iterator<Item = Rng> {
    (0..).take(continuations).map(move |n| Rng::with_seed(seed.wrapping_add(n)))
}

impl Sampling {
    /// Draws a token, if there is one that is possible.
    pub(super) fn draw(&self, scores: &[f32], generator: &mut Rng) -> Option<usize> {
        let best = self.best(scores, 1);
        self.draw_of(&best, generator)
    }

    /// The `top_k` best tokens and their scores, but not fewer than `fewest`, the best first.
    fn best(&self, scores: &[f32], fewest: usize) -> Vec<(usize, f32)> {
        let count = self.top_k.map_or(scores.len(), |count| count.get().max(fewest));
        let best = top_k(&[Row { offset: 0.0, scores }], count);
        best.iter().map(|candidate| (candidate.index, scores[candidate.index])).collect()
    }

    /// The tokens that are left of scores, the best first, with their scores divided by the temperature: at least `fewest` of them.
    pub(super) fn warped(&self, scores: &[f32], fewest: usize) -> Vec<(usize, f64)> {
        let mut best = self.best(scores, fewest);
        best.truncate(self.choices(&best, fewest).len());
        best.into_iter().map(|(index, score)| (index, f64::from(score) / self.temperature)).collect()
    }

    /// As [`draw`](Self::draw), given the `top_k` best tokens and their scores, the best first.
    pub(super) fn draw_of(&self, best: &[(usize, f32)], generator: &mut Rng) -> Option<usize> {
        let choices = self.choices(best, 1);
        let mut left = generator.f64() * choices.iter().map(|(_, weight)| weight).sum::<f64>();
        let drawn = choices.iter().find(|(_, weight)| {
            left -= weight;
            left < 0.0
        });
        // Rounding may leave a little at the end.
        drawn.or(choices.first()).map(|(index, _)| *index)
    }

    /// The tokens that are considered, the likeliest first, at least `fewest` of them, each with a weight that is proportional to
    /// its probability.
    fn choices(&self, best: &[(usize, f32)], fewest: usize) -> Vec<(usize, f64)> {
        let top = best.first().map(|(_, score)| f64::from(*score)).filter(|score| *score > f64::NEG_INFINITY);
        let Some(top) = top else { return Vec::new() };
        let weight = |score: f64| if score == top { 1.0 } else { ((score - top) / self.temperature).exp() };
        let mut choices: Vec<(usize, f64)> =
            best.iter().map(|(index, score)| (*index, weight(f64::from(*score)))).collect();
        if self.top_p < 1.0 {
            let wanted = self.top_p * choices.iter().map(|(_, weight)| weight).sum::<f64>();
            let mut reached = 0.0;
            let before = |(_, weight): &&(usize, f64)| {
                let more = reached < wanted;
                reached += weight;
                more
            };
            let kept = choices.iter().take_while(before).count();
            choices.truncate(kept.max(fewest));
        }
        // The likeliest weighs 1.
        let kept = choices.iter().take_while(|(_, weight)| *weight >= self.min_p).count();
        choices.truncate(kept.max(fewest));
        choices
    }
}

/// The place of the largest score, the first of equals; none where all are negative infinity.
#[must_use]
pub fn likeliest(scores: &[f32]) -> Option<usize> {
    let better = |best: Option<usize>, at: usize| match scores[at] > best.map_or(f32::NEG_INFINITY, |at| scores[at]) {
        true => Some(at),
        false => best,
    };
    (0..scores.len()).fold(None, better)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCORES: [f32; 4] = [1.0, 3.0, f32::NEG_INFINITY, 2.0];

    fn sampling(temperature: f64, top_k: usize, top_p: f64) -> Sampling {
        Sampling { temperature, top_k: NonZeroUsize::new(top_k), top_p, min_p: 0.0 }
    }

    fn considered(sampling: &Sampling) -> Vec<usize> {
        sampling.choices(&sampling.best(&SCORES, 1), 1).iter().map(|(index, _)| *index).collect()
    }

    #[test]
    fn top_k_and_top_p_leave_out_the_unlikely() {
        assert_eq!(considered(&sampling(1.0, 0, 1.0)), [1, 3, 0, 2]);
        assert_eq!(considered(&sampling(1.0, 2, 1.0)), [1, 3]);
        assert_eq!(considered(&sampling(1.0, 9, 1.0)), [1, 3, 0, 2]);
        // Probabilities 0.665, 0.245 and 0.090.
        assert_eq!(considered(&sampling(1.0, 0, 0.0)), [1]);
        assert_eq!(considered(&sampling(1.0, 0, 0.66)), [1]);
        assert_eq!(considered(&sampling(1.0, 0, 0.67)), [1, 3]);
        assert_eq!(considered(&sampling(1.0, 0, 0.92)), [1, 3, 0]);
        // Of the two best the first has 0.731.
        assert_eq!(considered(&sampling(1.0, 2, 0.72)), [1]);
        // A higher temperature spreads: 0.506, 0.307 and 0.186.
        assert_eq!(considered(&sampling(2.0, 0, 0.67)), [1, 3]);
        assert_eq!(considered(&sampling(2.0, 0, 0.82)), [1, 3, 0]);
    }

    #[test]
    fn min_p_leaves_out_what_is_much_less_likely_than_the_best() {
        // Relative probabilities 1, 0.368 and 0.135.
        let min_p = |min_p| considered(&Sampling { min_p, ..sampling(1.0, 0, 1.0) });
        assert_eq!((min_p(0.1), min_p(0.2), min_p(1.0)), (vec![1, 3, 0], vec![1, 3], vec![1]));
    }

    /// Cases of tools/sampling_choices.py.
    #[test]
    fn choices_are_those_of_the_transformers_library() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/sampling/expected.json");
        let cases: Vec<serde_json::Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert!(cases.iter().filter(|case| case["min_p"] != 0.0).count() > 20);
        for case in cases {
            let numbers =
                |key: &str| case[key].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).collect::<Vec<_>>();
            let number = |key: &str| case[key].as_f64().unwrap();
            let scores: Vec<f32> = numbers("scores").iter().map(|score| *score as f32).collect();
            let top_k = usize::try_from(case["top_k"].as_u64().unwrap()).unwrap();
            let sampling =
                Sampling { min_p: number("min_p"), ..sampling(number("temperature"), top_k, number("top_p")) };
            let fewest = usize::try_from(case["fewest"].as_u64().unwrap()).unwrap();
            let mut choices = sampling.choices(&sampling.best(&scores, fewest), fewest);
            choices.sort_by_key(|(id, _)| *id);
            let ids: Vec<usize> = choices.iter().map(|(id, _)| *id).collect();
            assert_eq!(serde_json::json!(ids), case["ids"], "{case}");
            let sum: f64 = choices.iter().map(|(_, weight)| weight).sum();
            for ((_, weight), probability) in choices.iter().zip(numbers("probabilities")) {
                assert!((weight / sum - probability).abs() < 1e-5, "{case}");
            }
        }
    }

    #[test]
    fn the_probability_that_top_p_names_is_enough() {
        let half = Sampling { top_p: 0.5, ..sampling(1.0, 0, 1.0) };
        let kept = half.choices(&half.best(&[2.0, 2.0], 1), 1);
        assert_eq!(kept, [(0, 1.0)]);
    }

    #[test]
    fn tokens_are_drawn_as_often_as_they_are_likely() {
        let sampling = sampling(1.0, 0, 1.0);
        let mut generator = Rng::with_seed(7);
        let mut counts = [0; 4];
        (0..20_000).for_each(|_| counts[sampling.draw(&SCORES, &mut generator).unwrap()] += 1);
        let shares = counts.map(|count| f64::from(count) / 20_000.0);
        let near = |share: f64, probability: f64| (share - probability).abs() < 0.02;
        assert!(near(shares[1], 0.665) && near(shares[3], 0.245) && near(shares[0], 0.090), "{shares:?}");
        assert_eq!(counts[2], 0);
    }

    #[test]
    fn a_seed_draws_the_same_and_continuations_do_not_meet() {
        let draws = |seed, continuation: usize| {
            let sampling = sampling(1.0, 0, 1.0);
            let generator = &mut generators(seed, 3).nth(continuation).unwrap();
            (0..50).map(|_| sampling.draw(&SCORES, generator)).collect::<Vec<_>>()
        };
        assert_eq!(draws(5, 0), draws(5, 0));
        assert_eq!(draws(5, 2), draws(7, 0));
        assert_ne!(draws(5, 0), draws(5, 1));
    }

    #[test]
    fn extreme_temperatures_stay_numbers() {
        for temperature in [1e-300, 1e300] {
            let sampling = sampling(temperature, 0, 1.0);
            let drawn = sampling.draw(&SCORES, &mut Rng::with_seed(0)).unwrap();
            assert!(SCORES[drawn].is_finite());
            assert!(
                sampling.choices(&sampling.best(&SCORES, 1), 1).iter().all(|(_, weight)| (0.0..=1.0).contains(weight))
            );
        }
        assert_eq!(likeliest(&[1.0, 2.0, 2.0]), Some(1));
    }

    #[test]
    fn of_impossible_tokens_none_is_chosen() {
        const NO: f32 = f32::NEG_INFINITY;
        assert_eq!(likeliest(&[NO; 3]), None);
        assert_eq!(likeliest(&[]), None);
        assert_eq!(likeliest(&[NO, NO, -1.0]), Some(2));
        for top_k in [0, 2] {
            let drawn = |scores: &[f32]| sampling(1.0, top_k, 0.5).draw(scores, &mut Rng::with_seed(0));
            assert_eq!(drawn(&[NO; 3]), None);
            assert_eq!(drawn(&[NO, NO, -1.0]), Some(2));
        }
    }
}
