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
    let shape = vec![positions.value, features.value];
    if positions.value.saturating_mul(features.value) > MAX_NUMBERS {
        return Err(config.error(format!("{positions} and {features} make a table of more than {MAX_NUMBERS} numbers")));
    }
    let size = features.value as f64;
    let frequency = |i: usize| 10_000f64.powf(-(2.0 * i as f64) / size);
    let sines: Vec<f64> = (0..features.value.div_ceil(2)).map(frequency).collect();
    let cosines = &sines[..features.value / 2];
    let row = |position: usize| {
        let position = position as f64;
        let sines = sines.iter().map(move |f| (position * f).sin());
        sines.chain(cosines.iter().map(move |f| (position * f).cos()))
    };
    let numbers: Vec<f64> = (0..positions.value).flat_map(row).collect();
    let weight = Weight::numbers(DType::F32, shape, &numbers);
    Ok(weight.unwrap_or_else(|| unreachable!("a row of each position has as many numbers as there are features")))
}
