//! Rotary embeddings of configurations without parameters, and the kind "proportional".

use super::long::stretched;
use super::parameters::{BETAS, Parameters, Stretch};
use super::{AttentionFactor, Frequencies, Rope, scaling};
use crate::ModelError;
use crate::checkpoint::config::Size;

/// The embedding of a configuration without parameters.
#[derive(Clone, Copy)]
pub(crate) enum Absent {
    /// Plain frequencies.
    Plain,
    /// "yarn" with bounds between pairs.
    Yarn(Stretch),
    /// "yarn" with bounds at pairs, and cosines and sines without a factor.
    WholeYarn(Stretch),
    /// "llama3", with the factors of low and high frequencies.
    Llama3(Stretch, [f64; 2]),
    /// "proportional", with the part of the pairs that turn.
    Proportional(f64),
}

impl Absent {
    /// The embedding; `plain` are the frequencies that are not scaled.
    pub(super) fn embedding(self, plain: &[f64], theta: f64, longest: Size) -> Rope {
        let yarn = |Stretch { factor, original }, truncate| {
            scaling::Yarn { theta, factor, original, betas: BETAS, truncate }.frequencies(plain)
        };
        let (frequencies, attention_factor, stretch) = match self {
            // What is proportional is read before pairs are counted.
            Absent::Plain | Absent::Proportional(_) => (plain.to_vec(), 1.0, None),
            Absent::Yarn(stretch) => {
                (yarn(stretch, false), scaling::yarn_attention_factor(stretch.factor, None), Some(stretch))
            }
            Absent::WholeYarn(stretch) => (yarn(stretch, true), 1.0, Some(stretch)),
            Absent::Llama3(Stretch { factor, original }, bounds) => {
                (plain.iter().map(|f| scaling::llama3(*f, factor, bounds, original)).collect(), 1.0, None)
            }
        };
        let longest = stretch.map_or(longest, |stretch| stretched(longest, stretch.original, stretch.factor));
        let attention_factor = AttentionFactor::Fixed(attention_factor);
        Rope { frequencies: Frequencies::Fixed(frequencies), attention_factor, longest }
    }
}

impl Rope {
    /// The embedding "proportional": a part of the pairs of a head turn, with the frequencies that they have where all turn,
    /// over a factor.
    pub(super) fn proportional(size: Size, (part, factor): (f64, f64), theta: f64, longest: Size) -> Self {
        let turning = (part.min(1.0) * size.value as f64 / 2.0).floor() as usize;
        let frequency = |i: usize| theta.powf(-(2.0 * i as f64) / size.value as f64) / factor;
        let pairs = 0..size.value / 2;
        let frequencies = pairs.map(|i| if i < turning { frequency(i) } else { 0.0 }).collect();
        Self { frequencies: Frequencies::Fixed(frequencies), attention_factor: AttentionFactor::NONE, longest }
    }
}

pub(super) fn proportional(
    parameters: &Parameters<'_>,
    size: Size,
    theta: f64,
    longest: Size,
) -> Result<Rope, ModelError> {
    const PART: &str = "partial_rotary_factor";
    parameters.only(&["factor"])?;
    let part = parameters.number(PART)?.unwrap_or(1.0);
    if part > 1.0 || !size.value.is_multiple_of(2) {
        return Err(parameters.config.error(format!(
            "rotary embedding turns pairs, but {part} of the features of {size} turn (`{}.{PART}`)",
            parameters.key
        )));
    }
    Ok(Rope::proportional(size, (part, parameters.number("factor")?.unwrap_or(1.0)), theta, longest))
}
