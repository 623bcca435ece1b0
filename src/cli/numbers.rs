//! Values of arguments: numbers, lists of sizes, and shares.

use std::fmt::Display;
use std::ops::RangeBounds;
use std::str::FromStr;

/// One number or a range of them.
#[derive(Clone)]
pub(super) struct Numbers(pub(super) Vec<usize>);

/// The largest size of a batch or a sequence.
const LARGEST: usize = 1 << 20;

impl Numbers {
    /// A number, or a range `a-b*f` or `a-b+d`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let number = text.parse::<usize>().ok().filter(|number| (1..=LARGEST).contains(number));
            number.ok_or_else(|| format!("expected a number from 1 to {LARGEST}, or a range such as 1-32*2 or 8-24+8"))
        };
        let Some((first, rest)) = text.split_once('-') else { return Ok(Self(vec![number(text)?])) };
        let (first, (last, step, is_factor)) = match (rest.split_once('*'), rest.split_once('+')) {
            (Some((last, factor)), _) => (number(first)?, (number(last)?, number(factor)?, true)),
            (None, Some((last, step))) => (number(first)?, (number(last)?, number(step)?, false)),
            (None, None) => (number(first)?, (number(rest)?, 1, false)),
        };
        if last < first || is_factor && step < 2 {
            return Err("a range goes up: 1-32*2 has 1, 2, 4, 8, 16, 32".to_owned());
        }
        let next = |at: &usize| Some(if is_factor { at * step } else { at + step }).filter(|next| *next <= last);
        Ok(Self(std::iter::successors(Some(first), next).collect()))
    }
}

/// A whole number from `least` to `most`.
pub(super) fn whole<T: FromStr + PartialOrd + Display>(text: &str, least: T, most: T) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| *number >= least && *number <= most);
    number.ok_or_else(|| format!("expected a whole number from {least} to {most}"))
}

/// A share: a number, or a number of percent. `words` say what the range is.
pub(super) fn share(text: &str, range: impl RangeBounds<f64>, words: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
    let share = number.trim().parse::<f64>().ok().map(|share| share * unit).filter(|share| range.contains(share));
    share.ok_or_else(|| format!("expected a share {words}, such as 1% or 0.01"))
}
