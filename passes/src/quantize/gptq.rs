//! GPTQ: weights rounded one column after the other, each error made up for by the columns behind (Frantar et al. 2022,
//! arXiv:2210.17323).

use rayon::prelude::*;

/// How much of the mean of the diagonal is added to it. Less follows the calibration data too closely: with 0.01 and 1560
/// tokens, MiniLM was further from float32 on other texts.
const DAMPING: f64 = 0.1;

/// The codes that the rows of a matrix round to: element `x` of a block is `(code - zero) * scale`.
#[derive(Clone, Debug)]
pub struct CodeGrid {
    /// [rows, blocks].
    pub scales: Vec<f32>,
    /// [rows, blocks]; empty where all are 0.
    pub zeros: Vec<f32>,
    /// The elements of a block of a row; the last block may have fewer.
    pub block: usize,
    /// The least and the largest code.
    pub range: [i16; 2],
}

impl CodeGrid {
    /// Codes from `-largest` to `largest` with a scale for each row.
    #[must_use]
    pub fn by_row(scales: &[f32], largest: i16) -> Self {
        Self { scales: scales.to_vec(), zeros: Vec::new(), block: usize::MAX, range: [-largest, largest] }
    }
}

/// The codes of `weights`, f32 [rows, columns], for a grid and the sum of outer products of inputs, f64 [columns, columns]:
/// [rows, columns]. Columns are rounded in the order of their diagonal, the largest first. The same arguments give the same
/// codes on any number of threads.
#[must_use]
pub fn gptq(weights: &[f32], grid: &CodeGrid, products: &[f64], columns: usize) -> Vec<i16> {
    let mut order: Vec<usize> = (0..columns).collect();
    let diagonal = |column: usize| products[column * columns + column];
    order.sort_by(|a, b| diagonal(*b).total_cmp(&diagonal(*a)).then(a.cmp(b)));
    let factor = inverse_factor(products, &order);
    let blocks = columns.div_ceil(grid.block.max(1)).max(1);
    let rows: Vec<Vec<i16>> = weights
        .par_chunks(columns.max(1))
        .enumerate()
        .map(|(at, row)| {
            let zeros = grid.zeros.get(at * blocks..(at + 1) * blocks).unwrap_or_default();
            let row_grid = RowGrid { scales: &grid.scales[at * blocks..(at + 1) * blocks], zeros, grid };
            round_row(row, &row_grid, &order, &factor)
        })
        .collect();
    rows.concat()
}

/// The scales and zero points of one row.
struct RowGrid<'a> {
    scales: &'a [f32],
    zeros: &'a [f32],
    grid: &'a CodeGrid,
}

fn round_row(row: &[f32], RowGrid { scales, zeros, grid }: &RowGrid<'_>, order: &[usize], factor: &[f64]) -> Vec<i16> {
    let columns = order.len();
    let [least, largest] = grid.range.map(f64::from);
    let mut left: Vec<f64> = order.iter().map(|column| f64::from(row[*column])).collect();
    let mut codes = vec![0i16; columns];
    for (at, column) in order.iter().enumerate() {
        let block = column / grid.block;
        let scale = f64::from(scales[block]);
        let zero = zeros.get(block).copied().map_or(0.0, f64::from);
        let code = (left[at] / scale).round_ties_even().clamp(least - zero, largest - zero);
        if !left[at].is_finite() {
            // The columns behind cannot make up for it.
            codes[*column] = if left[at].is_nan() { zero } else { code + zero } as i16;
            continue;
        }
        codes[*column] = (code + zero) as i16;
        let line = &factor[at * columns..][..columns];
        let error = (left[at] - code * scale) / line[at];
        left[at + 1..].iter_mut().zip(&line[at + 1..]).for_each(|(w, f)| *w -= error * f);
    }
    codes
}

/// The upper triangle U with `U^T U = H^-1`, of the damped matrix with rows and columns in an order.
fn inverse_factor(products: &[f64], order: &[usize]) -> Vec<f64> {
    let n = order.len();
    let mean = (0..n).map(|i| products[i * n + i]).sum::<f64>() / n.max(1) as f64;
    // Inputs of zeros say nothing: any positive number rounds each column for itself.
    let damping = if mean > 0.0 { DAMPING * mean } else { 1.0 };
    // Back to front, the lower factor of H is the upper factor R of H = R R^T, and U is its inverse.
    let back = |i: usize| order[n - 1 - i];
    let mut lower: Vec<f64> = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..=i {
            lower[i * n + j] = products[back(i) * n + back(j)] + if i == j { damping } else { 0.0 };
        }
    }
    cholesky(&mut lower, n);
    let inverse = invert_lower(&lower, n);
    let mut upper = vec![0.0; n * n];
    for i in 0..n {
        for j in 0..=i {
            upper[(n - 1 - i) * n + n - 1 - j] = inverse[i * n + j];
        }
    }
    upper
}

/// Replaces the lower triangle of a positive definite matrix by its Cholesky factor.
fn cholesky(a: &mut [f64], n: usize) {
    for i in 0..n {
        let (done, rest) = a.split_at_mut(i * n);
        let row = &mut rest[..n];
        for j in 0..i {
            let line = &done[j * n..][..j + 1];
            let sum: f64 = dot(&row[..j], &line[..j]);
            row[j] = (row[j] - sum) / line[j];
        }
        let square = dot(&row[..i], &row[..i]);
        // Damping keeps the matrix positive definite.
        row[i] = (row[i] - square).max(f64::MIN_POSITIVE).sqrt();
    }
}

/// The inverse of a lower triangle.
fn invert_lower(lower: &[f64], n: usize) -> Vec<f64> {
    // Column by column of the inverse, each held as a row so that sums run over neighbours.
    let columns: Vec<Vec<f64>> = (0..n)
        .into_par_iter()
        .map(|j| {
            let mut column = vec![0.0; n];
            column[j] = 1.0 / lower[j * n + j];
            for i in j + 1..n {
                let sum = dot(&lower[i * n + j..i * n + i], &column[j..i]);
                column[i] = -sum / lower[i * n + i];
            }
            column
        })
        .collect();
    let mut inverse = vec![0.0; n * n];
    for (j, column) in columns.iter().enumerate() {
        (j..n).for_each(|i| inverse[i * n + j] = column[i]);
    }
    inverse
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

    fn uniform(count: usize, seed: u64) -> Vec<f64> {
        Weight::uniform(DType::F64, vec![count], seed).unwrap().read_numbers().unwrap()
    }

    /// Sums of outer products of rows whose columns depend on each other.
    fn products(columns: usize) -> Vec<f64> {
        let rows: Vec<Vec<f64>> = (0..40)
            .map(|seed| {
                let base = uniform(columns, seed);
                (0..columns).map(|j| base[j] + 0.9 * base[0] + j as f64 * 0.1).collect()
            })
            .collect();
        let at = |i: usize, j: usize| rows.iter().map(|row| row[i] * row[j]).sum();
        (0..columns * columns).map(|at_| at(at_ / columns, at_ % columns)).collect()
    }

    /// The error of the results: e H e^T.
    fn error(row: &[f32], codes: &[i16], scale: f32, products: &[f64]) -> f64 {
        let n = row.len();
        let e: Vec<f64> =
            row.iter().zip(codes).map(|(w, c)| f64::from(*w) - f64::from(*c) * f64::from(scale)).collect();
        (0..n * n).map(|at| e[at / n] * products[at] * e[at % n]).sum()
    }

    #[test]
    fn the_factor_is_that_of_the_inverse() {
        let n = 7;
        let h = products(n);
        let order = [3, 1, 6, 0, 2, 5, 4];
        let upper = inverse_factor(&h, &order);
        let mean = (0..n).map(|i| h[i * n + i]).sum::<f64>() / n as f64;
        for i in 0..n {
            for j in 0..n {
                // H U^T U is the identity.
                let inverse = |k: usize, j: usize| -> f64 { (0..n).map(|m| upper[m * n + k] * upper[m * n + j]).sum() };
                let damped =
                    |i: usize, k: usize| h[order[i] * n + order[k]] + if i == k { DAMPING * mean } else { 0.0 };
                let one: f64 = (0..n).map(|k| damped(i, k) * inverse(k, j)).sum();
                assert!((one - f64::from(u8::from(i == j))).abs() < 1e-9, "{i} {j}: {one}");
            }
        }
        assert!((0..n).all(|i| (0..i).all(|j| upper[i * n + j] == 0.0)));
    }

    /// Brute force over rounding each of a few columns up or down: GPTQ is between the best and rounding to nearest.
    #[test]
    fn the_error_is_near_the_least() {
        let n = 8;
        let h = products(n);
        let (mut sums, count) = ([0.0; 3], 20);
        for seed in 0..count {
            let row: Vec<f32> = uniform(n, 100 + seed).iter().map(|w| *w as f32).collect();
            let scale = 0.25;
            let codes = gptq(&row, &CodeGrid::by_row(&[scale], 127), &h, n);
            let nearest: Vec<i16> = row.iter().map(|w| (w / scale).round_ties_even() as i16).collect();
            let all = (0..1u32 << n).map(|bits| -> Vec<i16> {
                row.iter().enumerate().map(|(i, w)| (w / scale).floor() as i16 + (bits >> i & 1) as i16).collect()
            });
            let least = all.map(|codes| error(&row, &codes, scale, &h)).fold(f64::INFINITY, f64::min);
            let (found, plain) = (error(&row, &codes, scale, &h), error(&row, &nearest, scale, &h));
            assert!(found >= least * 0.999_999, "{seed}: {found} {least}");
            sums.iter_mut().zip([least, found, plain]).for_each(|(sum, error)| *sum += error);
        }
        let [least, found, plain] = sums;
        assert!(found < plain / 2.0 && found < least * 3.0, "{found} {plain} {least}");
    }

    #[test]
    fn a_number_that_is_not_finite_has_no_effect_on_other_columns() {
        let n = 6;
        let h = products(n);
        let grid = CodeGrid { scales: vec![0.25], zeros: vec![3.0], block: usize::MAX, range: [0, 15] };
        let row: Vec<f32> = uniform(n, 5).iter().map(|w| *w as f32).collect();
        for (bad, code) in [(f32::NAN, 3), (f32::INFINITY, 15), (f32::NEG_INFINITY, 0)] {
            for at in 0..n {
                let mut broken = row.clone();
                broken[at] = bad;
                let codes = gptq(&broken, &grid, &h, n);
                assert_eq!(codes[at], code, "{bad} at {at}");
                let others = codes.iter().enumerate().filter(|(other, _)| *other != at);
                let nearest = |at: usize| (row[at] / 0.25).round() as i16 + 3;
                assert!(
                    others.into_iter().all(|(at, code)| (code - nearest(at)).abs() <= 3),
                    "{bad} at {at}: {codes:?}"
                );
            }
        }
    }

    #[test]
    fn independent_columns_are_rounded_to_nearest() {
        let n = 5;
        let identity: Vec<f64> = (0..n * n).map(|i| f64::from(u8::from(i % (n + 1) == 0))).collect();
        let row = [0.3f32, -0.7, 200.0, -1.26, 0.0];
        assert_eq!(gptq(&row, &CodeGrid::by_row(&[0.5], 127), &identity, n), [1, -1, 127, -3, 0]);
        assert_eq!(gptq(&row, &CodeGrid::by_row(&[0.5], 127), &vec![0.0; n * n], n), [1, -1, 127, -3, 0]);
    }
}
