//! The rules of timestamps (`WhisperTimeStampLogitsProcessor` of the transformers library): a text begins with one, they come in
//! pairs, and none is earlier than one before it.

/// Where timestamps are among the ids, and which may come first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timestamps {
    /// The first of them; the token before it asks for none.
    pub(super) first: i64,
    /// Ids below are those of words.
    pub(super) end: i64,
    /// The last that may come first, counted from the first one.
    pub(super) max_initial: Option<i64>,
}

/// Forbids tokens from one id on, up to another one.
fn forbid(scores: &mut [f32], from: i64, to: i64) {
    let at = |id: i64| usize::try_from(id).unwrap_or(0).min(scores.len());
    let (from, to) = (at(from), at(to));
    if let Some(scores) = scores.get_mut(from..to) {
        scores.fill(f32::NEG_INFINITY);
    }
}

/// The logarithm of the sum of powers of e.
pub(super) fn log_sum(scores: &[f32]) -> f64 {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if most == f32::NEG_INFINITY {
        return f64::NEG_INFINITY;
    }
    let most = f64::from(most);
    most + scores.iter().map(|score| (f64::from(*score) - most).exp()).sum::<f64>().ln()
}

impl Timestamps {
    /// Changes the scores of what follows the new tokens of a window.
    pub(super) fn apply(&self, scores: &mut [f32], new: &[i64]) {
        let Self { first, end, max_initial } = *self;
        let all = i64::try_from(scores.len()).unwrap_or(i64::MAX);
        forbid(scores, first - 1, first);
        let is_time = |id: i64| id >= first;
        let last_is = new.last().is_some_and(|id| is_time(*id));
        let one_before_is = new.len() < 2 || is_time(new[new.len() - 2]);
        if last_is {
            match one_before_is {
                true => forbid(scores, first, all),
                false => forbid(scores, 0, end),
            }
        }
        if let Some(last) = new.iter().rev().find(|id| is_time(**id)) {
            // The second of a pair may be the same as the first.
            let least = if last_is && !one_before_is { *last } else { last + 1 };
            forbid(scores, first, least);
        }
        if new.is_empty() {
            forbid(scores, 0, first);
            if let Some(most) = max_initial {
                forbid(scores, first.saturating_add(most).saturating_add(1), all);
            }
        }
        // Where the timestamps together are likelier than each other token, one of them comes.
        let (words, times) = scores.split_at_mut(usize::try_from(first).unwrap_or(0).min(scores.len()));
        let best = words.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if log_sum(times) > f64::from(best) {
            words.fill(f32::NEG_INFINITY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO: f32 = f32::NEG_INFINITY;

    /// Words 0 to 2, the end 3, the token of no timestamps 4, timestamps 5 to 8.
    fn after(scores: [f32; 9], new: &[i64], max_initial: Option<i64>) -> [f32; 9] {
        let mut scores = scores;
        Timestamps { first: 5, end: 3, max_initial }.apply(&mut scores, new);
        scores
    }

    /// Words are likelier than all timestamps together.
    const WORDS: [f32; 9] = [9.0, 8.0, 7.0, 6.0, 5.0, 1.0, 1.0, 1.0, 1.0];

    #[test]
    fn a_timestamp_comes_first_and_is_no_late_one() {
        assert_eq!(after(WORDS, &[], None), [NO, NO, NO, NO, NO, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(after(WORDS, &[], Some(1)), [NO, NO, NO, NO, NO, 1.0, 1.0, NO, NO]);
        assert_eq!(after(WORDS, &[], Some(i64::MAX)), after(WORDS, &[], None));
    }

    #[test]
    fn timestamps_come_in_pairs_that_do_not_decrease() {
        assert_eq!(after(WORDS, &[5], None), [9.0, 8.0, 7.0, 6.0, NO, NO, NO, NO, NO], "a word follows the first");
        assert_eq!(after(WORDS, &[5, 1], None), [9.0, 8.0, 7.0, 6.0, NO, NO, 1.0, 1.0, 1.0], "not the same once more");
        let second = after(WORDS, &[5, 1, 7], None);
        assert_eq!(second, [NO, NO, NO, 6.0, NO, NO, NO, 1.0, 1.0], "the end, or the second of a pair");
        assert_eq!(after(WORDS, &[5, 1, 7, 7], None), [9.0, 8.0, 7.0, 6.0, NO, NO, NO, NO, NO], "a word after a pair");
    }

    #[test]
    fn timestamps_that_are_likelier_together_win() {
        let scores = [2.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0];
        assert_eq!(after(scores, &[5, 1], None), [NO, NO, NO, NO, NO, NO, 1.0, 1.0, 1.0]);
        assert_eq!(log_sum(&[NO, NO]), f64::NEG_INFINITY);
    }
}
