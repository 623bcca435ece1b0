//! Sinusoidal positions (Vaswani et al. 2017, arXiv:1706.03762, section 3.5), as Marian orders their
//! features: all sines, then all cosines.

use planish_ir::{DType, Weight};

use crate::ModelError;
use crate::checkpoint::config::{Config, Size};

/// The most numbers of a table: 256 MiB.
const MAX_NUMBERS: usize = 1 << 26;

/// The vectors of positions from 0 on: f32[positions, features]. Sine and cosine number `i` have the
/// angle `position / 10000^(2i / features)`.
pub(crate) fn table(config: &Config<'_>, positions: Size, features: Size) -> Result<Weight, ModelError> {
    let size = features.value as f64;
    let frequency = |i: usize| 10_000f64.powf(-(2.0 * i as f64) / size);
    let sines: Vec<f64> = (0..features.value.div_ceil(2)).map(frequency).collect();
    numbers(config, positions, features, &sines, None)
}

/// The same with angles from `position` to `position / 10000`, as `XGLMSinusoidalPositionalEmbedding` of the transformers
/// library has them: a last odd feature is 0, and so is one row.
pub(crate) fn table_between(
    config: &Config<'_>,
    positions: Size,
    features: Size,
    zero: Option<usize>,
) -> Result<Weight, ModelError> {
    let half = features.value / 2;
    if half < 2 {
        return Err(config.error(format!("{features}, expected 4 at least, for sines and cosines of two angles")));
    }
    let frequency = |i: usize| 10_000f64.powf(-(i as f64) / (half - 1) as f64);
    let frequencies: Vec<f64> = (0..half).map(frequency).collect();
    numbers(config, positions, features, &frequencies, zero)
}

/// Sines of all angles and cosines of as many as there is place for, then zeros.
fn numbers(
    config: &Config<'_>,
    positions: Size,
    features: Size,
    frequencies: &[f64],
    zero: Option<usize>,
) -> Result<Weight, ModelError> {
    let shape = vec![positions.value, features.value];
    if positions.value.saturating_mul(features.value) > MAX_NUMBERS {
        return Err(config.error(format!("{positions} and {features} make a table of more than {MAX_NUMBERS} numbers")));
    }
    let row = |position: usize| {
        let factor = if zero == Some(position) { 0.0 } else { 1.0 };
        let position = position as f64;
        let sines = frequencies.iter().map(move |f| (position * f).sin());
        let cosines = frequencies.iter().map(move |f| (position * f).cos());
        sines.chain(cosines).chain([0.0]).take(features.value).map(move |number| number * factor)
    };
    let numbers: Vec<f64> = (0..positions.value).flat_map(row).collect();
    let weight = Weight::numbers(DType::F32, shape, &numbers);
    Ok(weight.unwrap_or_else(|| unreachable!("a row of each position has as many numbers as there are features")))
}
