//! Means of samples with their 95% intervals, which take samples as independent. Tokens of one text are not quite: their intervals
//! are a little too narrow.

use planish_artifact::evaluation::Z;
use serde::{Deserialize, Serialize};

/// A mean, the least value, and how values vary, without keeping them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mean {
    sum: f64,
    pub(super) count: u64,
    pub(super) least: Option<f64>,
    /// The mean so far, and the sum of squares of the distances from it (Welford).
    center: f64,
    squares: f64,
}

impl Mean {
    pub(super) fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
        self.least = Some(self.least.map_or(value, |least| least.min(value)));
        let distance = value - self.center;
        self.center += distance / self.count as f64;
        self.squares += distance * (value - self.center);
    }

    /// Adds the values of another one behind its own. Source: T. F. Chan, G. H. Golub and R. J. LeVeque, Updating formulae and a
    /// pairwise algorithm for computing sample variances (1979).
    pub(super) fn fold(&mut self, other: &Self) {
        let (own, its) = (self.count as f64, other.count as f64);
        if other.count == 0 {
            return;
        }
        let distance = other.center - self.center;
        self.sum += other.sum;
        self.count += other.count;
        self.least = self.least.into_iter().chain(other.least).reduce(f64::min);
        self.center += distance * its / (own + its);
        self.squares += other.squares + distance * distance * own * its / (own + its);
    }

    pub(super) fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    /// The interval of the mean, by the normal distribution; `None` below 2 values.
    pub(super) fn ci95(&self) -> Option<[f64; 2]> {
        let n = self.count as f64;
        let half = Z * (self.squares / (n - 1.0) / n).sqrt();
        (self.count > 1 && half.is_finite()).then(|| [self.mean() - half, self.mean() + half])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_mean_is_that_of_its_standard_error() {
        let mut mean = Mean::default();
        assert_eq!(mean.ci95(), None);
        [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].into_iter().for_each(|value| mean.add(value));
        let half = Z * (32.0f64 / 7.0 / 8.0).sqrt();
        let [low, high] = mean.ci95().unwrap();
        assert!((low - (5.0 - half)).abs() < 1e-12 && (high - (5.0 + half)).abs() < 1e-12, "{low} {high}");
        assert_eq!((mean.mean(), mean.least), (5.0, Some(2.0)));
    }

    #[test]
    fn means_are_folded_as_if_all_values_were_added() {
        let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
        let of = |values: &[f64]| {
            let mut mean = Mean::default();
            values.iter().for_each(|value| mean.add(*value));
            mean
        };
        let mut folded = Mean::default();
        [&values[..3], &[], &values[3..4], &values[4..]].into_iter().for_each(|some| folded.fold(&of(some)));
        let all = of(&values);
        assert_eq!((folded.sum, folded.count, folded.least), (all.sum, all.count, all.least));
        assert!((folded.center - 5.0).abs() < 1e-12 && (folded.squares - 32.0).abs() < 1e-12, "{folded:?}");
    }
}
