//! Matrices plus products of two narrow ones, as adapters of low rank store what they change (Hu et al. 2021, arXiv:2106.09685).

use super::codes::singles;
use super::read::{Sink, WeightError};
use super::{Weight, WeightExpr, convert};
use crate::DType;

impl Weight {
    /// A matrix `[rows, columns]` plus the product of `up`, `[rows, rank]`, and `down`, `[rank, columns]`, computed in f32 and
    /// rounded to the type of the matrix. `None` where types are none of floats, or shapes do not fit.
    #[must_use]
    pub fn plus_product(&self, up: &Self, down: &Self) -> Option<Self> {
        let (&[rows, columns], &[of_up, rank], &[of_down, wide]) = (self.shape(), up.shape(), down.shape()) else {
            return None;
        };
        let fits =
            (rows, columns, rank) == (of_up, wide, of_down) && [self, up, down].iter().all(|w| w.dtype().is_float());
        fits.then(|| {
            let parts = vec![self.clone(), up.clone(), down.clone()];
            Self::build(self.dtype(), self.shape().to_vec(), WeightExpr::PlusProduct(parts))
        })
    }
}

/// Streams `parts[0]` plus the product of `parts[1]` and `parts[2]`, which are held in memory.
pub(super) fn stream(parts: &[Weight], sink: Sink<'_>) -> Result<(), WeightError> {
    let (of, up, down) = (&parts[0], numbers(&parts[1])?, numbers(&parts[2])?);
    let (rank, columns) = (parts[2].shape()[0], parts[2].shape()[1]);
    let mut at = 0;
    of.stream(&mut |bytes| {
        let mut elements = singles(of.dtype(), bytes, bytes.len() / of.dtype().size());
        let mut rest = elements.as_mut_slice();
        while !rest.is_empty() {
            // The rest of a row, or all of it that there is.
            let (row, column) = (at / columns, at % columns);
            let (piece, after) = rest.split_at_mut(rest.len().min(columns - column));
            for (factor, line) in up[row * rank..][..rank].iter().zip(down.chunks_exact(columns)) {
                piece.iter_mut().zip(&line[column..]).for_each(|(x, y)| *x += factor * y);
            }
            at += piece.len();
            rest = after;
        }
        let bytes: Vec<u8> = elements.iter().flat_map(|x| x.to_le_bytes()).collect();
        match of.dtype() {
            DType::F32 => sink(&bytes),
            dtype => sink(&convert::convert(DType::F32, dtype, &bytes, elements.len())),
        }
    })
}

fn numbers(weight: &Weight) -> Result<Vec<f32>, WeightError> {
    Ok(singles(weight.dtype(), &weight.read()?, weight.elements()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(shape: &[usize], step: f64) -> Weight {
        let count = shape.iter().product::<usize>();
        let numbers: Vec<f64> = (0..count).map(|i| (i % 7) as f64 * step - 1.0).collect();
        Weight::numbers(DType::F32, shape.to_vec(), &numbers).unwrap()
    }

    #[test]
    fn the_product_is_added() {
        // Rows of more bytes than a piece, so that pieces end inside of rows.
        let [rows, columns, rank] = [3, 70_001, 2];
        let (of, up, down) = (ramp(&[rows, columns], 0.5), ramp(&[rows, rank], 0.25), ramp(&[rank, columns], 0.125));
        let sum = of.plus_product(&up, &down).unwrap().read_numbers().unwrap();
        let [of, up, down] = [of, up, down].map(|w| w.read_numbers().unwrap());
        for (i, found) in sum.iter().enumerate() {
            let (row, column) = (i / columns, i % columns);
            let product: f64 = (0..rank).map(|k| up[row * rank + k] * down[k * columns + column]).sum();
            assert!((found - of[i] - product).abs() < 1e-6, "{i}: {found}");
        }
    }

    #[test]
    fn slices_over_their_norms_have_the_norm_1() {
        let of = ramp(&[3, 4, 5], 0.5);
        let numbers = of.read_numbers().unwrap();
        for axis in 0..3 {
            let inverse = of.inverse_norms(axis).unwrap();
            assert_eq!(inverse.shape(), [of.shape()[axis]]);
            let stride: usize = of.shape()[axis + 1..].iter().product();
            for (index, found) in inverse.read_numbers().unwrap().iter().enumerate() {
                let slice = numbers.iter().enumerate().filter(|(i, _)| i / stride % of.shape()[axis] == index);
                let squares: f64 = slice.map(|(_, x)| x * x).sum();
                assert!((found - 1.0 / squares.sqrt()).abs() < 1e-6, "{axis} {index}: {found}");
            }
        }
        assert!(of.inverse_norms(3).is_none());
        assert!(Weight::integers(&[1, 2]).inverse_norms(0).is_none());
    }

    #[test]
    fn other_shapes_and_types_are_refused() {
        let of = ramp(&[2, 3], 0.5);
        let codes = Weight::numbers(DType::I8, vec![2, 1], &[1.0, 2.0]).unwrap();
        assert!(of.plus_product(&ramp(&[2, 1], 0.5), &ramp(&[1, 3], 0.5)).is_some());
        for (up, down) in [([3, 1], [1, 3]), ([2, 2], [1, 3]), ([2, 1], [1, 2])] {
            assert!(of.plus_product(&ramp(&up, 0.5), &ramp(&down, 0.5)).is_none(), "{up:?} {down:?}");
        }
        assert!(of.plus_product(&codes, &ramp(&[1, 3], 0.5)).is_none());
        let empty = Weight::numbers(DType::F32, vec![2, 0], &[]).unwrap();
        let product = empty.plus_product(&ramp(&[2, 1], 0.5), &Weight::numbers(DType::F32, vec![1, 0], &[]).unwrap());
        assert_eq!(product.unwrap().read().unwrap(), [0u8; 0]);
    }
}
