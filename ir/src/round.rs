//! Rounding of numbers to the short floating-point types, once. (`from_f64` of the half crate
//! looks at the upper half of the number only, and so takes what lies just beside a tie for one.)

use half::{bf16, f16};

/// The nearest binary16 number, ties to even.
#[must_use]
pub fn f16_from_f64(value: f64) -> f16 {
    f16::from_f32(round_to_odd(value))
}

/// The nearest bfloat16 number, ties to even.
#[must_use]
pub fn bf16_from_f64(value: f64) -> bf16 {
    bf16::from_f32(round_to_odd(value))
}

/// A number as `f32`, where inexact the neighbour whose last bit is set: rounding that once more,
/// to at most 22 bits, gives what rounding the number itself would (Boldo and Melquiond 2008).
fn round_to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value || value.is_nan() {
        return nearest;
    }
    let away_from_zero = f64::from(nearest).abs() > value.abs();
    f32::from_bits((nearest.to_bits() - u32::from(away_from_zero)) | 1)
}
