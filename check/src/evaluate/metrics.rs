//! Figures that compare numbers of an artifact with those of the reference: plain functions of slices.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// Sums over pairs of numbers, from which a relative error and a cosine follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sums {
    dot: f64,
    wanted: f64,
    given: f64,
    error: f64,
}

impl Sums {
    /// Adds pairs of the reference's numbers and the artifact's.
    pub(super) fn add(&mut self, wanted: &[f32], given: &[f32]) {
        for (&wanted, &given) in wanted.iter().zip(given) {
            let (wanted, given) = (f64::from(wanted), f64::from(given));
            self.dot += wanted * given;
            self.wanted += wanted * wanted;
            self.given += given * given;
            self.error += (wanted - given) * (wanted - given);
        }
    }

    /// Adds the sums of other pairs.
    pub(super) fn fold(&mut self, other: &Self) {
        self.dot += other.dot;
        self.wanted += other.wanted;
        self.given += other.given;
        self.error += other.error;
    }

    /// The Euclidean norm of the error over that of the reference; the former alone where the reference is a zero vector.
    pub(super) fn relative_error(&self) -> f64 {
        if self.wanted == 0.0 { self.error.sqrt() } else { (self.error / self.wanted).sqrt() }
    }

    /// The cosine of the angle between the two. Two zero vectors agree; one alone does not.
    pub(super) fn cosine(&self) -> f64 {
        if self.wanted == 0.0 && self.given == 0.0 {
            return 1.0;
        }
        self.dot / (self.wanted * self.given).sqrt().max(f64::MIN_POSITIVE)
    }
}

/// The cosine of the angle between two vectors.
pub(super) fn cosine(wanted: &[f32], given: &[f32]) -> f64 {
    let mut sums = Sums::default();
    sums.add(wanted, given);
    sums.cosine()
}

/// The place of the largest number; the first of equals.
pub(crate) fn top(row: &[f32]) -> usize {
    (1..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best })
}

/// The logarithms of the probabilities that logits stand for.
pub(crate) fn log_probabilities(logits: &[f32]) -> Vec<f64> {
    let largest = logits.iter().fold(f64::NEG_INFINITY, |largest, logit| largest.max(f64::from(*logit)));
    let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - largest).exp()).sum();
    logits.iter().map(|logit| f64::from(*logit) - largest - sum.ln()).collect()
}

/// The Kullback-Leibler divergence of the artifact's distribution from the reference's, in nats, of the logarithms of both.
pub(super) fn divergence(wanted: &[f64], given: &[f64]) -> f64 {
    // What has no probability adds nothing, whatever the other says.
    let term = |(wanted, given): (&f64, &f64)| {
        let probability = wanted.exp();
        if probability == 0.0 { 0.0 } else { probability * (wanted - given) }
    };
    // Rounding makes the divergence of equal distributions a little less than 0.
    wanted.iter().zip(given).map(term).sum::<f64>().max(0.0)
}

/// The vector scaled to length 1; a zero vector stays.
pub(crate) fn normalized(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|v| *v = (f64::from(*v) / length) as f32);
    }
    vector
}

/// For each row of length 1 the place of the other row with the largest cosine, the first of equals; `size` is the length of
/// a row. None where there is one row only.
fn nearest(rows: &[f32], size: usize) -> Vec<Option<usize>> {
    let rows: Vec<&[f32]> = rows.chunks_exact(size.max(1)).collect();
    let cosine = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let of_row = |own: usize| {
        let others = (0..rows.len()).filter(|other| *other != own).map(|other| (other, cosine(rows[own], rows[other])));
        let better = |best: Option<(usize, f64)>, other: (usize, f64)| match best {
            Some((_, cosine)) if other.1.total_cmp(&cosine).is_le() => best,
            _ => Some(other),
        };
        others.fold(None, better).map(|(other, _)| other)
    };
    (0..rows.len()).into_par_iter().map(of_row).collect()
}

/// The number of rows whose nearest other row is the same among the reference's embeddings and the artifact's. `None` below 3
/// rows, where there is no choice of another row.
pub(super) fn neighbours_kept(wanted: &[f32], given: &[f32], size: usize) -> Option<usize> {
    let rows = wanted.len() / size.max(1);
    if rows < 3 {
        return None;
    }
    let (wanted, given) = (nearest(wanted, size), nearest(given, size));
    Some(wanted.iter().zip(&given).filter(|(wanted, given)| wanted == given).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, want: f64) {
        assert!((got - want).abs() < 1e-7, "{got} is not {want}");
    }

    #[test]
    fn sums_have_their_textbook_values() {
        let mut sums = Sums::default();
        sums.add(&[3.0], &[4.0]);
        sums.add(&[4.0], &[3.0]);
        near(sums.cosine(), 24.0 / 25.0);
        near(sums.relative_error(), 2f64.sqrt() / 5.0);
        near(cosine(&[0.0; 2], &[0.0; 2]), 1.0);
        near(cosine(&[0.0; 2], &[1.0; 2]), 0.0);
        near(Sums::default().relative_error(), 0.0);
        let mut of_zero = Sums::default();
        of_zero.add(&[0.0; 2], &[3.0, 4.0]);
        near(of_zero.relative_error(), 5.0);
    }

    #[test]
    fn divergence_of_a_worked_example() {
        // Probabilities 1/2, 1/4, 1/4 against 1/4, 1/2, 1/4: 1/2 ln 2 - 1/4 ln 2.
        let [wanted, given] = [[2f32.ln(), 0.0, 0.0], [0.0, 2f32.ln(), 0.0]].map(|row| log_probabilities(&row));
        near(wanted[0].exp(), 0.5);
        near(divergence(&wanted, &given), 0.25 * 2f64.ln());
        near(divergence(&wanted, &wanted), 0.0);
        // Large logits overflow nothing, and tokens that are excluded add nothing.
        let excluded = log_probabilities(&[1000.0, f32::NEG_INFINITY, 1000.0]);
        near(divergence(&excluded, &excluded), 0.0);
        near(divergence(&excluded, &log_probabilities(&[0.0; 3])), 1.5f64.ln());
    }

    #[test]
    fn the_first_of_equals_is_on_top() {
        assert_eq!([top(&[1.0, 3.0, 3.0]), top(&[2.0]), top(&[-1.0, -2.0])], [1, 0, 0]);
    }

    #[test]
    fn neighbours_are_those_of_a_search_over_all_pairs() {
        let (rows, size) = (40, 5);
        let mut random = fastrand::Rng::with_seed(3);
        let mut embeddings = |noise: f32, of: &[f32]| -> Vec<f32> {
            let noisy: Vec<f32> = of.iter().map(|v| v + noise * (random.f32() - 0.5)).collect();
            noisy.chunks(size).flat_map(|row| normalized(row.to_vec())).collect()
        };
        let wanted = embeddings(2.0, &vec![0.0; rows * size]);
        let given = embeddings(0.5, &wanted);
        let brute = |all: &[f32]| -> Vec<usize> {
            let row = |at: usize| &all[at * size..(at + 1) * size];
            let distance = |a: usize, b: usize| row(a).iter().zip(row(b)).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
            let least =
                |a: usize| (0..rows).filter(|b| *b != a).min_by(|b, c| distance(a, *b).total_cmp(&distance(a, *c)));
            (0..rows).map(|a| least(a).unwrap()).collect()
        };
        assert_eq!(nearest(&wanted, size), brute(&wanted).into_iter().map(Some).collect::<Vec<_>>());
        let same = brute(&wanted).iter().zip(brute(&given)).filter(|(a, b)| **a == *b).count();
        assert!(same > 0 && same < rows, "{same} of {rows}");
        assert_eq!(neighbours_kept(&wanted, &given, size), Some(same));
        assert_eq!(neighbours_kept(&wanted, &wanted, size), Some(rows));
    }

    #[test]
    fn two_texts_have_no_choice_of_neighbours() {
        assert_eq!(neighbours_kept(&[1.0, 0.0, 0.0, 1.0], &[1.0, 0.0, 0.0, 1.0], 2), None);
    }

    #[test]
    fn vectors_get_length_one() {
        assert_eq!(normalized(vec![3.0, 4.0]), [0.6, 0.8]);
        assert_eq!(normalized(vec![0.0, 0.0]), [0.0, 0.0]);
    }
}
