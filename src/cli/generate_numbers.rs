//! Numbers that `planish generate` takes, each within its range.

use std::num::NonZeroUsize;
use std::str::FromStr;

use super::numbers::whole;

/// The largest number of tokens that an argument may give: more than any model takes or knows.
pub(super) const MOST_TOKENS: usize = 1 << 30;

/// A whole number from 1 on.
pub(super) fn positive(text: &str, most: usize) -> Result<NonZeroUsize, String> {
    whole(text, NonZeroUsize::MIN, NonZeroUsize::MIN.saturating_add(most - 1))
}

/// The value of `--max-new-tokens`.
pub(super) fn tokens(text: &str) -> Result<NonZeroUsize, String> {
    positive(text, MOST_TOKENS)
}

/// The value of `--top-k`.
pub(super) fn count(text: &str) -> Result<usize, String> {
    whole(text, 0, MOST_TOKENS)
}

/// The value of `--seed`.
pub(super) fn seed(text: &str) -> Result<u64, String> {
    whole(text, 0, u64::MAX)
}

pub(super) fn finite(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| "not a number".to_owned())
}

/// The value of `--temperature`.
pub(super) fn temperature(text: &str) -> Result<f64, String> {
    finite(text).ok().filter(|number| *number >= 0.0).ok_or_else(|| "not a number from 0 on".to_owned())
}

/// The value of `--stop`.
pub(super) fn nonempty(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("an empty string is in any text".to_owned()) } else { Ok(text.to_owned()) }
}

/// Scores are of this type, in which other numbers may be 0 or infinite.
pub(super) fn penalty(text: &str) -> Result<f32, String> {
    let number = f32::from_str(text).ok().filter(|number| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "not a number above 0 that float32 has".to_owned())
}

/// A penalty that is subtracted.
pub(super) fn subtracted(text: &str) -> Result<f64, String> {
    let number = finite(text).ok().filter(|number| (-2.0..=2.0).contains(number));
    number.ok_or_else(|| "not a number from -2 to 2".to_owned())
}

/// The value of `--top-p`.
pub(super) fn probability(text: &str) -> Result<f64, String> {
    let number = finite(text).ok().filter(|number| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "not a number from 0 to 1".to_owned())
}
