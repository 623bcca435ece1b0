//! Products with weights that are read piece by piece instead of being held in memory.

use half::{bf16, f16};
use planish_ir::weight::WeightError;
use planish_ir::{DType, Weight};

/// Sums that run side by side, so that the processor need not finish one addition before it starts
/// the next.
const LANES: usize = 16;

/// `weight * vector` of a floating-point weight [rows, columns] and as many numbers as columns, in
/// `f64`; `None` where the weight is something else. The result is the same on any processor.
///
/// # Errors
/// When the weight cannot be read.
pub fn weight_times_vector(weight: &Weight, vector: &[f64]) -> Result<Option<Vec<f64>>, WeightError> {
    match (weight.shape(), weight.dtype()) {
        (&[rows, columns], dtype) if columns == vector.len() => {
            let mut product = Product { vector, lanes: [0.0; LANES], column: 0, rows: Vec::with_capacity(rows) };
            match dtype {
                _ if columns == 0 => product.rows.resize(rows, 0.0),
                DType::F32 => weight.stream(&mut |bytes| product.add(bytes, |b| f64::from(f32::from_le_bytes(b))))?,
                DType::F16 => weight.stream(&mut |bytes| product.add(bytes, |b| f16::from_le_bytes(b).to_f64()))?,
                DType::Bf16 => weight.stream(&mut |bytes| product.add(bytes, |b| bf16::from_le_bytes(b).to_f64()))?,
                DType::F64 => weight.stream(&mut |bytes| product.add(bytes, f64::from_le_bytes))?,
                _ => return Ok(None),
            }
            Ok(Some(product.rows))
        }
        _ => Ok(None),
    }
}

/// A product whose matrix comes in pieces.
struct Product<'a> {
    vector: &'a [f64],
    /// The row in the making: column `c` adds to sum `c % LANES`, wherever pieces begin.
    lanes: [f64; LANES],
    column: usize,
    rows: Vec<f64>,
}

impl Product<'_> {
    fn add<const N: usize>(&mut self, bytes: &[u8], widen: impl Fn([u8; N]) -> f64) -> std::io::Result<()> {
        let mut rest = bytes.as_chunks::<N>().0;
        while !rest.is_empty() {
            let n = rest.len().min(self.vector.len() - self.column);
            let (piece, vector) = (&rest[..n], &self.vector[self.column..self.column + n]);
            if self.column.is_multiple_of(LANES) {
                let (pieces, tail) = piece.as_chunks::<LANES>();
                let (vectors, vector_tail) = vector.as_chunks::<LANES>();
                for (a, b) in pieces.iter().zip(vectors) {
                    for lane in 0..LANES {
                        self.lanes[lane] += widen(a[lane]) * b[lane];
                    }
                }
                for (lane, (a, b)) in tail.iter().zip(vector_tail).enumerate() {
                    self.lanes[lane] += widen(*a) * b;
                }
            } else {
                for (i, (a, b)) in piece.iter().zip(vector).enumerate() {
                    self.lanes[(self.column + i) % LANES] += widen(*a) * b;
                }
            }
            rest = &rest[n..];
            self.column += n;
            if self.column == self.vector.len() {
                self.rows.push(self.lanes.iter().sum());
                (self.lanes, self.column) = ([0.0; LANES], 0);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_pieces_cut_give_the_same_as_a_plain_sum() {
        // 65000 columns of four bytes: pieces of 256 KiB end within rows, off the lanes.
        for (dtype, columns) in [(DType::F32, 65_003), (DType::F16, 70_001), (DType::F64, 33_000), (DType::Bf16, 7)] {
            let weight = Weight::uniform(dtype, vec![5, columns], 3).unwrap();
            let vector: Vec<f64> = (0..columns).map(|c| (c % 7) as f64 - 2.5).collect();
            let numbers = weight.read_numbers().unwrap();
            let plain: Vec<f64> =
                numbers.chunks(columns).map(|row| row.iter().zip(&vector).map(|(a, b)| a * b).sum()).collect();
            let streamed = weight_times_vector(&weight, &vector).unwrap().unwrap();
            assert_eq!(streamed.len(), 5);
            for (a, b) in streamed.iter().zip(&plain) {
                assert!((a - b).abs() < 1e-9 * columns as f64, "{dtype}: {a} is not {b}");
            }
        }
    }

    #[test]
    fn what_is_no_float_matrix_of_that_width_is_left_alone() {
        let product = |dtype, shape: &[usize]| {
            weight_times_vector(&Weight::uniform(dtype, shape.to_vec(), 1).unwrap(), &[1.0, 2.0]).unwrap()
        };
        assert_eq!(product(DType::I32, &[3, 2]), None);
        assert_eq!(product(DType::F32, &[2, 3]), None);
        assert_eq!(product(DType::F32, &[2]), None);
        assert_eq!(
            weight_times_vector(&Weight::uniform(DType::F32, vec![3, 0], 1).unwrap(), &[]).unwrap(),
            Some(vec![0.0; 3])
        );
    }
}
