//! Scales of weights, one for each output feature.

use planish_ir::weight::WeightError;
use planish_ir::{DType, Weight};
use serde::{Deserialize, Serialize};

/// How the scales of weights are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightScales {
    /// The largest magnitude becomes the largest code.
    #[default]
    MinMax,
    /// The scale that has the least mean square error, of those between half of that and that.
    Mse,
    /// The largest magnitude becomes a code of 64: two products of such a code and one of u8 add up to 32640, which 16 bits
    /// hold.
    Reduced,
}

impl WeightScales {
    /// The largest code of a type of weights.
    pub(super) fn largest_code(self, codes: DType) -> i16 {
        match codes {
            DType::F8E4M3FN => 448,
            _ if self == Self::Reduced => 64,
            // -128 is left out, so that codes are symmetric.
            _ => 127,
        }
    }
}

/// How many scales are tried for the least error.
const CANDIDATES: usize = 50;

/// The scales of a float32 matrix for its output features, which are indices of `axis`: f32, `[features]`.
///
/// # Errors
/// When the weight cannot be read.
pub(super) fn scales(weight: &Weight, axis: usize, codes: DType, how: WeightScales) -> Result<Weight, WeightError> {
    let features = weight.shape()[axis];
    let mut largest = vec![0f32; features];
    magnitudes(weight, axis, &mut largest)?;
    let code = f32::from(how.largest_code(codes));
    // A feature of zeros has codes of 0, whatever its scale is.
    let scale = |a: &f32| if *a > 0.0 { (a / code).max(f32::MIN_POSITIVE) } else { 1.0 };
    let mut scales: Vec<f32> = largest.iter().map(scale).collect();
    if how == WeightScales::Mse && codes == DType::I8 {
        let matrix = rows(weight, axis)?;
        let columns = matrix.len() / features.max(1);
        for (row, scale) in matrix.chunks(columns.max(1)).zip(&mut scales) {
            *scale = least_error(row, *scale);
        }
    }
    let numbers: Vec<f64> = scales.into_iter().map(f64::from).collect();
    Weight::numbers(DType::F32, vec![features], &numbers).ok_or(WeightError::Memory { bytes: features as u64 })
}

/// A float32 matrix as codes of i8 with a scale for each row; `None` for another weight.
///
/// # Errors
/// When the weight cannot be read.
pub(super) fn quantized_rows(weight: &Weight, how: WeightScales) -> Result<Option<Weight>, WeightError> {
    if weight.shape().len() != 2 || weight.dtype() != DType::F32 {
        return Ok(None);
    }
    let scales = scales(weight, 0, DType::I8, how)?;
    let codes = weight.quantize(DType::I8, 0, &scales, None);
    Ok(codes.and_then(|codes| codes.dequantize(0, &scales, None)))
}

/// The scale with the least mean square error of a row, from half of the largest one on.
fn least_error(row: &[f32], largest: f32) -> f32 {
    let error = |scale: f32| -> f64 {
        row.iter().map(|w| f64::from(w - (w / scale).round_ties_even().clamp(-127.0, 127.0) * scale).powi(2)).sum()
    };
    let candidates = (0..CANDIDATES).map(|i| largest * (1.0 - i as f32 / (2 * CANDIDATES) as f32));
    // The first of equal ones is the largest.
    let best =
        candidates.map(|scale| (error(scale), scale)).reduce(|best, next| if next.0 < best.0 { next } else { best });
    best.map_or(largest, |(_, scale)| scale)
}

/// The largest magnitude for each index of `axis`, 0 or 1, of a matrix.
fn magnitudes(weight: &Weight, axis: usize, largest: &mut [f32]) -> Result<(), WeightError> {
    let columns = weight.shape()[1].max(1);
    let (mut row, mut column) = (0, 0);
    weight.stream(&mut |bytes| {
        let mut left = bytes.as_chunks::<4>().0;
        while !left.is_empty() {
            let (now, later) = left.split_at(left.len().min(columns - column));
            let numbers = now.iter().map(|b| f32::from_le_bytes(*b).abs());
            match axis {
                0 => largest[row] = numbers.fold(largest[row], |a, b| if b > a { b } else { a }),
                _ => largest[column..].iter_mut().zip(numbers).for_each(|(a, b)| *a = if b > *a { b } else { *a }),
            }
            (left, column) = (later, column + now.len());
            if column == columns {
                (row, column) = (row + 1, 0);
            }
        }
        Ok(())
    })
}

/// The elements of a matrix, feature by feature: those of index 0 of `axis` first. All are finite.
pub(super) fn rows(weight: &Weight, axis: usize) -> Result<Vec<f32>, WeightError> {
    let turned = if axis == 0 { None } else { weight.transpose(&[1, 0]) };
    turned.as_ref().unwrap_or(weight).read_finite()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f64], shape: [usize; 2], axis: usize, how: WeightScales) -> Vec<f64> {
        let weight = Weight::numbers(DType::F32, shape.to_vec(), values).unwrap();
        scales(&weight, axis, DType::I8, how).unwrap().read_numbers().unwrap()
    }

    #[test]
    fn the_largest_magnitude_is_the_largest_code() {
        let values = [127.0, -254.0, 0.0, 1.0, 2.0, 0.0];
        assert_eq!(of(&values, [2, 3], 0, WeightScales::MinMax), [2.0, f64::from(2f32 / 127.0)]);
        assert_eq!(of(&values, [2, 3], 1, WeightScales::MinMax), [1.0, 2.0, 1.0]);
        assert_eq!(
            of(&values, [3, 2], 0, WeightScales::MinMax),
            [2.0, f64::from(1f32 / 127.0), f64::from(2f32 / 127.0)]
        );
    }

    #[test]
    fn two_products_of_reduced_codes_fit_16_bits() {
        let values = [64.0, -128.0, 0.0, 1.0, 2.0, 0.0];
        assert_eq!(of(&values, [2, 3], 0, WeightScales::Reduced), [2.0, f64::from(2f32 / 64.0)]);
        assert!(2 * 255 * i32::from(WeightScales::Reduced.largest_code(DType::I8)) <= i32::from(i16::MAX));
    }

    /// Against every scale on a fine grid.
    #[test]
    fn the_error_is_near_the_least_of_all_scales() {
        let weight = Weight::uniform(DType::F32, vec![1, 64], 3).unwrap();
        let mut values = weight.read_numbers().unwrap();
        values[5] = 4.0;
        let row: Vec<f32> = values.iter().map(|v| *v as f32).collect();
        let error = |scale: f64| -> f64 {
            row.iter()
                .map(|w| {
                    (f64::from(*w) - (f64::from(*w) / scale).round_ties_even().clamp(-127.0, 127.0) * scale).powi(2)
                })
                .sum()
        };
        let found = of(&values, [1, 64], 0, WeightScales::Mse)[0];
        let least = (500..=1000).map(|i| error(4.0 / 127.0 * f64::from(i) / 1000.0)).fold(f64::INFINITY, f64::min);
        assert!(error(found) <= error(4.0 / 127.0) && error(found) <= least * 1.1, "{} {least}", error(found));
    }
}
