//! Products of codes on the processor, with sums of 32 bits.

use rayon::prelude::*;

use super::at;
use crate::cuda::device::{Epilogue, Matrix, Product};

/// Sizes and distances of rows are multiples of this.
const MULTIPLE: usize = 4;

/// Multiplies codes, where cublasLt does: rows of `a` with rows of `b`, which is stored as its transpose, and nothing
/// after the product.
pub(super) fn multiply(product: &Product) -> Result<(), String> {
    let Product { m, n, k, .. } = *product;
    let (a, b, d) = (&product.a, &product.b, &product.d);
    let plain = product.bias.is_none() && product.c.is_none() && product.epilogue == Epilogue::None;
    #[allow(clippy::float_cmp, reason = "it is a constant")]
    if !plain || product.alpha != 1.0 || a.transposed || !b.transposed || d.transposed {
        return Err("products of codes are those of rows with rows, and nothing is after them".to_owned());
    }
    let aligned = |matrix: &Matrix<u64>, size: u64| matrix.at.is_multiple_of(size * 4);
    let sizes = [n, k, a.row, b.row, d.row].iter().all(|size| size.is_multiple_of(MULTIPLE));
    if !sizes || !aligned(a, 1) || !aligned(b, 1) || !aligned(d, 4) || a.row < k || b.row < k || d.row < n {
        return Err(format!("codes of [{m}, {k}] and [{n}, {k}]: sizes are no multiples of {MULTIPLE}"));
    }
    for batch in 0..product.batch {
        (0..m).into_par_iter().for_each(|row| {
            // SAFETY: the operands of products are in memory of this device, and each row of the result is one thread's.
            let (x, sums) = unsafe {
                let x = at::<i8>(a.at).add(batch * a.step + row * a.row).cast_const();
                let sums = at::<i32>(d.at).add(batch * d.step + row * d.row);
                (std::slice::from_raw_parts(x, k), std::slice::from_raw_parts_mut(sums, n))
            };
            for (column, sum) in sums.iter_mut().enumerate() {
                // SAFETY: as above.
                let y = unsafe {
                    std::slice::from_raw_parts(at::<i8>(b.at).add(batch * b.step + column * b.row).cast_const(), k)
                };
                *sum = x.iter().zip(y).map(|(x, y)| i32::from(*x) * i32::from(*y)).sum();
            }
        });
    }
    Ok(())
}
