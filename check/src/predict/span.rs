//! The answer to a question: the best span of a text.

use super::outcome::softmax;

/// The most tokens of an answer, as in the transformers library (`max_answer_len` of its pipeline).
const MOST_TOKENS: usize = 15;

/// A span of tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Best {
    /// The first token.
    pub(super) first: usize,
    /// The last token.
    pub(super) last: usize,
    /// The product of the probabilities that the answer begins and ends there.
    pub(super) score: f64,
}

/// The span with the greatest product of both probabilities, of [`MOST_TOKENS`] tokens at most. `is_text` says which tokens are
/// of the text that has the answer; the others have no probability. `None` where none is.
pub(super) fn best(starts: &[f32], ends: &[f32], is_text: impl Fn(usize) -> bool) -> Option<Best> {
    let count = starts.len().min(ends.len());
    let tokens: Vec<usize> = (0..count).filter(|at| is_text(*at)).collect();
    let of = |logits: &[f32]| softmax(&tokens.iter().map(|at| logits[*at]).collect::<Vec<f32>>());
    let (starts, ends) = (of(starts), of(ends));
    let mut found: Option<Best> = None;
    for (first, start) in starts.iter().enumerate() {
        for (last, end) in ends.iter().enumerate().skip(first).take(MOST_TOKENS) {
            let score = start * end;
            // Of equals the first one counts; a score that is no number is told later.
            if found.is_none_or(|best| score > best.score) {
                found = Some(Best { first: tokens[first], last: tokens[last], score });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(starts: &[f32], ends: &[f32], from: usize) -> Option<(usize, usize)> {
        best(starts, ends, |at| at >= from).map(|best| (best.first, best.last))
    }

    #[test]
    fn an_answer_ends_after_it_begins() {
        assert_eq!(found(&[0.0, 5.0, 0.0, 1.0], &[4.0, 0.0, 0.0, 3.0], 0), Some((1, 3)));
        assert_eq!(found(&[9.0, 0.0, 1.0], &[9.0, 1.0, 0.0], 1), Some((1, 1)), "tokens of the question do not count");
        assert_eq!(found(&[1.0], &[1.0], 1), None);
        assert_eq!(found(&[], &[], 0), None);
    }

    #[test]
    fn an_answer_is_short() {
        let (mut starts, mut ends) = (vec![0.0; 40], vec![0.0; 40]);
        (starts[0], ends[39]) = (9.0, 9.0);
        let Best { first, last, .. } = best(&starts, &ends, |_| true).unwrap();
        assert!(last - first < MOST_TOKENS, "{first} to {last}");
        ends[14] = 5.0;
        assert_eq!(found(&starts, &ends, 0), Some((0, 14)));
    }

    #[test]
    fn the_score_is_a_product_of_probabilities_of_the_text() {
        let best = best(&[50.0, 0.0, 0.0], &[50.0, f32::ln(3.0), 0.0], |at| at > 0).unwrap();
        assert_eq!((best.first, best.last), (1, 1));
        assert!((best.score - 0.5 * 0.75).abs() < 1e-6, "{}", best.score);
    }
}
