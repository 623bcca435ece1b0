//! Matrix products with `f64` accumulation.
//!
//! Work is cut into blocks of a fixed size, each computed by one thread: results do not depend on
//! the number of threads. They can depend on the processor in the last bit of an `f64` sum.

use rayon::prelude::*;

use crate::element::Float;

/// Rows of the left matrix that are converted to `f64` at once.
const ROWS: usize = 256;
/// Columns of the right matrix that are converted to `f64` at once, by each thread.
const COLUMNS: usize = 64;

/// A matrix whose element (row, column) is at `row * row_step + column * column_step`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) elements: &'a [f64],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) row_step: usize,
    pub(crate) column_step: usize,
}

impl<'a> Matrix<'a> {
    /// A row-major matrix.
    pub(crate) fn new(elements: &'a [f64], rows: usize, columns: usize) -> Self {
        Self { elements, rows, columns, row_step: columns, column_step: 1 }
    }

    /// Rows and columns exchanged.
    pub(crate) fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, row_step: self.column_step, column_step: self.row_step, ..self }
    }

    /// Whether there is an element, and every one is one of `elements`.
    fn in_bounds(&self) -> bool {
        let last = |n: usize, step: usize| n.checked_sub(1)?.checked_mul(step);
        match (last(self.rows, self.row_step), last(self.columns, self.column_step)) {
            (Some(r), Some(c)) => r.checked_add(c).is_some_and(|at| at < self.elements.len()),
            _ => false,
        }
    }
}

/// `a * b`, row-major, computed by the calling thread alone.
pub(crate) fn multiply(a: Matrix<'_>, b: Matrix<'_>) -> Vec<f64> {
    let mut out = vec![0.0; a.rows * b.columns];
    if out.is_empty() || a.columns == 0 {
        return out;
    }
    let step = |n: usize| isize::try_from(n).unwrap_or(isize::MAX);
    assert!(a.columns == b.rows && a.in_bounds() && b.in_bounds(), "matrices fit each other and their elements");
    // SAFETY: by the assertion, every element of `a` and `b` that the product reads is in its
    // slice; `out` holds rows * columns elements, row-major, and is not aliased.
    unsafe {
        gemm::gemm(
            a.rows,
            b.columns,
            a.columns,
            out.as_mut_ptr(),
            1,
            step(b.columns),
            false,
            a.elements.as_ptr(),
            step(a.column_step),
            step(a.row_step),
            b.elements.as_ptr(),
            step(b.column_step),
            step(b.row_step),
            0.0,
            1.0,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
    out
}

/// How the right matrix, of `k` rows and `n` columns, is stored.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Stored {
    /// [k, n].
    RowMajor,
    /// [n, k]: a weight.
    Transposed,
}

/// `a * b + bias`, row-major [m, n], of `a` [m, k], `b` [k, n] stored as said, and `bias` [n];
/// each element is rounded once.
pub(crate) fn multiply_rounded<T: Float>(
    [n, k]: [usize; 2],
    a: &[T],
    b: (&[T], Stored),
    bias: Option<&[T]>,
    out: &mut [T],
) {
    multiply_finished([n, k], a, b, out, |_, column, sums| {
        if let Some(bias) = bias {
            sums.iter_mut().zip(&bias[column..]).for_each(|(sum, b)| *sum += b.widen());
        }
    });
}

/// `finish(a * b)`, row-major [m, n]. `finish` changes sums of a row, given the row and the first column; after it, each
/// element is rounded once.
pub(crate) fn multiply_finished<T: Float>(
    [n, k]: [usize; 2],
    a: &[T],
    (b, stored): (&[T], Stored),
    out: &mut [T],
    finish: impl Fn(usize, usize, &mut [f64]) + Sync,
) {
    if out.is_empty() {
        return;
    }
    if k == 0 {
        for (row, out) in out.chunks_mut(n).enumerate() {
            let mut sums = vec![0.0; n];
            finish(row, 0, &mut sums);
            out.iter_mut().zip(sums).for_each(|(out, sum)| *out = T::narrow(sum));
        }
        return;
    }
    for (block, (a, out)) in a.chunks(ROWS * k).zip(out.chunks_mut(ROWS * n)).enumerate() {
        let rows = widen(a);
        let panels: Vec<Vec<T>> = (0..n.div_ceil(COLUMNS))
            .into_par_iter()
            .map(|panel| {
                let first = panel * COLUMNS;
                let width = COLUMNS.min(n - first);
                let columns: Vec<f64> = match stored {
                    Stored::Transposed => widen(&b[first * k..(first + width) * k]),
                    Stored::RowMajor => {
                        b.chunks(n).flat_map(|row| row[first..first + width].iter().map(|e| e.widen())).collect()
                    }
                };
                let right = match stored {
                    Stored::Transposed => Matrix::new(&columns, width, k).transposed(),
                    Stored::RowMajor => Matrix::new(&columns, k, width),
                };
                let mut product = multiply(Matrix::new(&rows, a.len() / k, k), right);
                for (row, sums) in product.chunks_mut(width).enumerate() {
                    finish(block * ROWS + row, first, sums);
                }
                product.into_iter().map(T::narrow).collect()
            })
            .collect();
        for (row, out) in out.chunks_mut(n).enumerate() {
            for (panel, out) in panels.iter().zip(out.chunks_mut(COLUMNS)) {
                out.copy_from_slice(&panel[row * out.len()..][..out.len()]);
            }
        }
    }
}

/// Elements as `f64`.
pub(crate) fn widen<T: Float>(elements: &[T]) -> Vec<f64> {
    elements.iter().map(|e| e.widen()).collect()
}
