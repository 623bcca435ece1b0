//! Cholesky factors and inverses of triangles, block by block on all cores.

use gemm::{Parallelism, gemm};
use rayon::prelude::*;

/// The rows and columns of a block.
const BLOCK: usize = 128;

/// `dst + factor * a b`: a is [m, k], b is [k, n], dst [m, n]. Strides are those of rows and of columns.
pub(super) struct Product<'a> {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    pub(super) a: &'a [f64],
    pub(super) a_strides: [usize; 2],
    pub(super) b: &'a [f64],
    pub(super) b_strides: [usize; 2],
}

impl Product<'_> {
    /// Adds the product to rows of `dst` that are `stride` apart, on this thread. The same arguments give the same bits.
    pub(super) fn add_to(&self, dst: &mut [f64], stride: usize, factor: f64) {
        let Self { m, n, k, .. } = *self;
        if m == 0 || n == 0 || k == 0 {
            return;
        }
        let end =
            |rows: usize, columns: usize, [row, column]: [usize; 2]| (rows - 1) * row + (columns - 1) * column + 1;
        assert!(self.a.len() >= end(m, k, self.a_strides) && self.b.len() >= end(k, n, self.b_strides));
        assert!(dst.len() >= end(m, n, [stride, 1]));
        let [stride, a_row, a_column, b_row, b_column] =
            [stride, self.a_strides[0], self.a_strides[1], self.b_strides[0], self.b_strides[1]]
                .map(usize::cast_signed);
        // SAFETY: all elements that the strides lead to lie within the slices, whose lengths were checked.
        unsafe {
            gemm(
                m,
                n,
                k,
                dst.as_mut_ptr(),
                1,
                stride,
                true,
                self.a.as_ptr(),
                a_column,
                a_row,
                self.b.as_ptr(),
                b_column,
                b_row,
                1.0,
                factor,
                false,
                false,
                false,
                Parallelism::None,
            );
        }
    }
}

/// Replaces the lower triangle of a positive definite matrix [n, n] by its Cholesky factor. What is above the diagonal has no
/// meaning before and after.
pub(super) fn cholesky(a: &mut [f64], n: usize) {
    for start in (0..n).step_by(BLOCK) {
        let width = BLOCK.min(n - start);
        let end = start + width;
        let (above, below) = a.split_at_mut(end * n);
        // The block on the diagonal.
        let own = &mut above[start * n..];
        for i in 0..width {
            let (done, rest) = own.split_at_mut(i * n);
            let row = &mut rest[start..start + i + 1];
            solve(&mut row[..i], |j| &done[j * n + start..][..j + 1]);
            let square = dot(&row[..i], &row[..i]);
            // Damping keeps the matrix positive definite.
            row[i] = (row[i] - square).max(f64::MIN_POSITIVE).sqrt();
        }
        let own = &*own;
        // The blocks below it, and a copy of them side by side.
        let mut panel = vec![0.0; (n - end) * width];
        below.par_chunks_mut(n).zip(panel.par_chunks_mut(width)).for_each(|(row, copy)| {
            let row = &mut row[start..end];
            solve(row, |j| &own[j * n + start..][..j + 1]);
            copy.copy_from_slice(row);
        });
        // What is left, up to the diagonal.
        below.par_chunks_mut(n * BLOCK).enumerate().for_each(|(at, rows)| {
            let m = rows.len() / n;
            let product = Product {
                m,
                n: at * BLOCK + m,
                k: width,
                a: &panel[at * BLOCK * width..],
                a_strides: [width, 1],
                b: &panel,
                b_strides: [1, width],
            };
            product.add_to(&mut rows[end..], n, -1.0);
        });
    }
}

/// Solves `x L' = row` for a lower triangle, whose rows up to the diagonal `line` gives, and puts x into its place.
fn solve<'a>(row: &mut [f64], line: impl Fn(usize) -> &'a [f64]) {
    for j in 0..row.len() {
        let line = line(j);
        row[j] = (row[j] - dot(&row[..j], &line[..j])) / line[j];
    }
}

/// The inverse of a lower triangle [n, n] with rows and columns in reverse order: an upper triangle.
pub(super) fn reversed_inverse(lower: Vec<f64>, n: usize) -> Vec<f64> {
    // The columns of a block from the diagonal down, [n - start, width].
    let columns: Vec<Vec<f64>> = (0..n.div_ceil(BLOCK))
        .into_par_iter()
        .map(|block| {
            let start = block * BLOCK;
            let width = BLOCK.min(n - start);
            let mut out = vec![0.0; (n - start) * width];
            (0..width).for_each(|i| out[i * width + i] = 1.0);
            for from in (start..n).step_by(BLOCK) {
                let rows = BLOCK.min(n - from);
                let (done, rest) = out.split_at_mut((from - start) * width);
                let own = &mut rest[..rows * width];
                let product = Product {
                    m: rows,
                    n: width,
                    k: from - start,
                    a: &lower[from * n + start..],
                    a_strides: [n, 1],
                    b: done,
                    b_strides: [width, 1],
                };
                product.add_to(own, width, -1.0);
                for i in 0..rows {
                    let line = &lower[(from + i) * n + from..][..i + 1];
                    let (before, row) = own.split_at_mut(i * width);
                    let row = &mut row[..width];
                    for (other, factor) in before.chunks_exact(width).zip(line) {
                        row.iter_mut().zip(other).for_each(|(x, y)| *x -= factor * y);
                    }
                    row.iter_mut().for_each(|x| *x /= line[i]);
                }
            }
            out
        })
        .collect();
    drop(lower);
    let mut upper = vec![0.0; n * n];
    upper.par_chunks_mut(n.max(1)).enumerate().for_each(|(at, row)| {
        let i = n - 1 - at;
        for (block, columns) in columns.iter().enumerate().take(i / BLOCK + 1) {
            let start = block * BLOCK;
            let width = BLOCK.min(n - start);
            for (j, x) in columns[(i - start) * width..][..width].iter().enumerate().take(i - start + 1) {
                row[n - 1 - start - j] = *x;
            }
        }
    });
    upper
}

/// A sum of products in a fixed order, eight sums side by side.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a_chunks, a_rest) = a.as_chunks::<8>();
    let (b_chunks, b_rest) = b.as_chunks::<8>();
    for (a, b) in a_chunks.iter().zip(b_chunks) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use planish_ir::{DType, Weight};

    use super::*;

    /// Sizes below, at and beyond whole blocks.
    #[test]
    fn a_factor_times_its_inverse_is_one() {
        for n in [1, 5, 127, 128, 129, 300] {
            let x: Vec<f64> = Weight::uniform(DType::F64, vec![n * n], n as u64).unwrap().read_numbers().unwrap();
            let product = |i: usize, j: usize| (0..n).map(|k| x[i * n + k] * x[j * n + k]).sum::<f64>();
            let matrix: Vec<f64> =
                (0..n * n).map(|at| product(at / n, at % n) + if at / n == at % n { 1.0 } else { 0.0 }).collect();
            let mut lower = matrix.clone();
            cholesky(&mut lower, n);
            (0..n).for_each(|i| lower[i * n + i + 1..(i + 1) * n].fill(0.0));
            for (i, j) in (0..n).flat_map(|i| (0..=i).map(move |j| (i, j))) {
                let found: f64 = (0..n).map(|k| lower[i * n + k] * lower[j * n + k]).sum();
                assert!((found - matrix[i * n + j]).abs() < 1e-9 * n as f64, "{n}: {i}, {j}");
            }
            let upper = reversed_inverse(lower.clone(), n);
            for (i, j) in (0..n).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let inverse = |i: usize, j: usize| upper[(n - 1 - i) * n + n - 1 - j];
                let found: f64 = (0..n).map(|k| lower[i * n + k] * inverse(k, j)).sum();
                assert!((found - f64::from(u8::from(i == j))).abs() < 1e-9, "{n}: {i}, {j}: {found}");
                assert!(j <= i || inverse(i, j) == 0.0);
            }
        }
    }
}
