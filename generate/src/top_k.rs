//! The best of many scores without sorting them all.

use std::cmp::Ordering;

/// Scores that share an offset, such as the next tokens of one beam.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Added to each score.
    pub offset: f64,
    /// The scores, none of them NaN.
    pub scores: &'a [f32],
}

/// One of the best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The score with its row's offset.
    pub score: f64,
    /// Its row.
    pub row: usize,
    /// Its place in the row.
    pub index: usize,
}

impl Candidate {
    /// The better first; of equals that of the lower row, then of the lower index.
    pub(super) fn rank(&self, other: &Self) -> Ordering {
        let by_score = other.score.partial_cmp(&self.score).unwrap_or(Ordering::Equal);
        by_score.then((self.row, self.index).cmp(&(other.row, other.index)))
    }
}

/// Scores of a group: few enough that scanning one group again costs little.
const GROUP: usize = 64;

/// The `k` best scores of all rows, the best first, fewer where there are fewer; of equals the one
/// of the lower row, then of the lower index.
///
/// The hierarchical search of LightSeq (Wang et al. 2021): each row is cut into
/// groups, and the `k`-th best of the groups' maxima is a threshold that at least `k` scores
/// reach. Only groups whose maximum reaches it are looked at again, and only what reaches it is
/// sorted.
///
/// ```
/// use planish_generate::{Row, top_k};
///
/// let rows = [Row { offset: 0.0, scores: &[1.0, 3.0, 2.0] }, Row { offset: 0.5, scores: &[2.0, 0.0, 3.0] }];
/// let best = top_k(&rows, 2);
/// assert_eq!((best[0].row, best[0].index, best[0].score), (1, 2, 3.5));
/// assert_eq!((best[1].row, best[1].index, best[1].score), (0, 1, 3.0));
/// ```
#[must_use]
pub fn top_k(rows: &[Row<'_>], k: usize) -> Vec<Candidate> {
    let total: usize = rows.iter().map(|row| row.scores.len()).sum();
    if k == 0 || total == 0 {
        return Vec::new();
    }
    // At least `k` groups, where there are as many scores.
    let width = (total / k).clamp(1, GROUP);
    let maximum = |group: &[f32]| group.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let maxima: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| row.scores.chunks(width).map(|group| row.offset + f64::from(maximum(group))).collect())
        .collect();
    let threshold = kth_best(maxima.concat(), k);

    let mut candidates = Vec::new();
    for (number, (row, maxima)) in rows.iter().zip(&maxima).enumerate() {
        for (group, _) in maxima.iter().enumerate().filter(|(_, maximum)| **maximum >= threshold) {
            let first = group * width;
            let scores = row.scores.iter().enumerate().skip(first).take(width);
            let scored = scores.map(|(index, score)| (index, row.offset + f64::from(*score)));
            let kept = scored.filter(|(_, score)| *score >= threshold);
            candidates.extend(kept.map(|(index, score)| Candidate { score, row: number, index }));
        }
    }
    candidates.sort_unstable_by(Candidate::rank);
    candidates.truncate(k);
    candidates
}

/// The `k`-th largest number; the smallest where there are fewer.
fn kth_best(mut numbers: Vec<f64>, k: usize) -> f64 {
    let at = k.min(numbers.len()).saturating_sub(1);
    *numbers.select_nth_unstable_by(at, |a, b| b.partial_cmp(a).unwrap_or(Ordering::Equal)).1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sorts everything.
    fn by_sorting(rows: &[Row<'_>], k: usize) -> Vec<Candidate> {
        let of_row = |(row, scores): (usize, &Row<'_>)| {
            let offset = scores.offset;
            let score =
                move |(index, score): (usize, &f32)| Candidate { score: offset + f64::from(*score), row, index };
            scores.scores.iter().enumerate().map(score).collect::<Vec<_>>()
        };
        let mut all: Vec<Candidate> = rows.iter().enumerate().flat_map(of_row).collect();
        all.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap().then((a.row, a.index).cmp(&(b.row, b.index))));
        all.truncate(k);
        all
    }

    /// Scores of which many are equal, some the least there is, or zeros of either sign.
    fn score() -> impl Strategy<Value = f32> {
        prop_oneof![
            4 => (-3i8..3).prop_map(f32::from),
            2 => -10.0f32..10.0,
            1 => Just(f32::NEG_INFINITY),
            1 => Just(-0.0),
        ]
    }

    proptest! {
        #[test]
        fn groups_find_what_sorting_finds(
            rows in prop::collection::vec((prop_oneof![Just(0.0), -5.0..0.0], prop::collection::vec(score(), 0..400)), 0..5),
            k in 0usize..40,
        ) {
            let rows: Vec<Row<'_>> = rows.iter().map(|(offset, scores)| Row { offset: *offset, scores }).collect();
            prop_assert_eq!(top_k(&rows, k), by_sorting(&rows, k));
        }
    }

    #[test]
    fn all_of_them_are_sorted() {
        let row = Row { offset: 1.0, scores: &[1.0, 1.0, 2.0] };
        let indices = |k| top_k(&[row], k).iter().map(|c| c.index).collect::<Vec<_>>();
        assert_eq!((indices(3), indices(9)), (vec![2, 0, 1], vec![2, 0, 1]));
    }
}
