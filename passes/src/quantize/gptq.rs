//! GPTQ: weights rounded one column after the other, each error made up for by the columns after (Frantar et al. 2022,
//! arXiv:2210.17323).

use rayon::prelude::*;

use super::triangle::{Product, cholesky, reversed_inverse};

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

/// How many rows, and how many columns, are rounded together.
const ROWS: usize = 64;
const COLUMNS: usize = 128;

/// The order in which the columns of weights are rounded, and how their errors go to the columns after: the same for all layers
/// that take an input.
pub struct Gptq {
    /// Columns with large inputs first.
    order: Vec<usize>,
    /// The upper triangle U with `U' U = H^-1`, [columns, columns], of the damped matrix in this order.
    upper: Vec<f64>,
}

impl Gptq {
    /// How many bytes [`new`](Self::new) takes at most for so many columns, together with the matrix that it is given: three
    /// matrices, of which `self` keeps one.
    #[must_use]
    pub fn bytes(columns: usize) -> usize {
        3 * columns * columns * size_of::<f64>()
    }

    /// For the sum of outer products of inputs, f64 [columns, columns]. It takes the third power of the columns.
    #[must_use]
    pub fn new(products: &[f64], columns: usize) -> Self {
        let mut order: Vec<usize> = (0..columns).collect();
        let diagonal = |column: usize| products[column * columns + column];
        order.sort_by(|a, b| diagonal(*b).total_cmp(&diagonal(*a)).then(a.cmp(b)));
        let upper = inverse_factor(products, &order);
        Self { order, upper }
    }

    /// The codes of `weights`, f32 [rows, columns], finite, for a grid: [rows, columns]. The same arguments give the same codes
    /// on any number of threads.
    #[must_use]
    pub fn round(&self, weights: &[f32], grid: &CodeGrid) -> Vec<i16> {
        let columns = self.order.len().max(1);
        let mut codes = vec![0i16; weights.len()];
        let blocks = columns.div_ceil(grid.block.max(1)).max(1);
        codes.par_chunks_mut(ROWS * columns).enumerate().for_each(|(at, codes)| {
            let rows = at * ROWS..at * ROWS + codes.len() / columns;
            let zeros = grid.zeros.get(rows.start * blocks..rows.end * blocks).unwrap_or_default();
            let scales = &grid.scales[rows.start * blocks..rows.end * blocks];
            let own = Rows { grid, blocks, scales, zeros };
            self.round_rows(&weights[rows.start * columns..rows.end * columns], &own, codes);
        });
        codes
    }

    /// Rounds some rows: the errors of a block of columns go to the columns within it one by one, and to those after it at once.
    fn round_rows(&self, weights: &[f32], rows: &Rows<'_>, codes: &mut [i16]) {
        let columns = self.order.len();
        let mut left: Vec<f64> = Vec::with_capacity(weights.len());
        for row in weights.chunks_exact(columns) {
            left.extend(self.order.iter().map(|column| f64::from(row[*column])));
        }
        let mut errors = vec![0.0; ROWS * COLUMNS];
        for start in (0..columns).step_by(COLUMNS) {
            let end = columns.min(start + COLUMNS);
            let width = end - start;
            for (row, (left, codes)) in left.chunks_exact_mut(columns).zip(codes.chunks_exact_mut(columns)).enumerate()
            {
                let left = &mut left[start..end];
                for at in 0..width {
                    let column = self.order[start + at];
                    let (code, number) = rows.rounded(row, column, left[at]);
                    codes[column] = code;
                    let line = &self.upper[(start + at) * columns + start..][..width];
                    let error = (left[at] - number) / line[at];
                    left[at + 1..].iter_mut().zip(&line[at + 1..]).for_each(|(w, f)| *w -= error * f);
                    errors[row * COLUMNS + at] = error;
                }
            }
            if end < columns {
                let after = Product {
                    m: left.len() / columns,
                    n: columns - end,
                    k: width,
                    a: &errors,
                    a_strides: [COLUMNS, 1],
                    b: &self.upper[start * columns + end..],
                    b_strides: [columns, 1],
                };
                after.add_to(&mut left[end..], columns, -1.0);
            }
        }
    }
}

/// The scales and zero points of some rows.
struct Rows<'a> {
    grid: &'a CodeGrid,
    /// The blocks of a row.
    blocks: usize,
    scales: &'a [f32],
    zeros: &'a [f32],
}

impl Rows<'_> {
    /// The code that is nearest to a number of a row, and what it stands for.
    fn rounded(&self, row: usize, column: usize, number: f64) -> (i16, f64) {
        let block = row * self.blocks + column / self.grid.block;
        let [least, largest] = self.grid.range.map(f64::from);
        let scale = f64::from(self.scales[block]);
        let zero = self.zeros.get(block).copied().map_or(0.0, f64::from);
        let code = (number / scale).round_ties_even().clamp(least - zero, largest - zero);
        ((code + zero) as i16, code * scale)
    }
}

/// The upper triangle U with `U' U = H^-1`, of the damped matrix with rows and columns in an order.
fn inverse_factor(products: &[f64], order: &[usize]) -> Vec<f64> {
    let n = order.len();
    let mean = (0..n).map(|i| products[i * n + i]).sum::<f64>() / n.max(1) as f64;
    // Inputs of zeros say nothing: any positive number rounds each column for itself.
    let damping = if mean > 0.0 { DAMPING * mean } else { 1.0 };
    // Back to front, the lower factor of H is the upper factor R of H = R R', and U is its inverse.
    let back = |i: usize| order[n - 1 - i];
    let mut lower: Vec<f64> = vec![0.0; n * n];
    lower.par_chunks_mut(n.max(1)).enumerate().for_each(|(i, row)| {
        for (j, x) in row.iter_mut().enumerate().take(i + 1) {
            *x = products[back(i) * n + back(j)] + if i == j { damping } else { 0.0 };
        }
    });
    cholesky(&mut lower, n);
    reversed_inverse(lower, n)
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
            let codes = Gptq::new(&h, n).round(&row, &CodeGrid::by_row(&[scale], 127));
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

    /// One column after another over all columns, as the blocks of columns and rows have to give it.
    #[test]
    fn blocks_of_columns_change_no_codes() {
        let (n, rows) = (300, 70);
        let h = products(n);
        let weights: Vec<f32> = uniform(n * rows, 9).iter().map(|w| *w as f32).collect();
        let grid = CodeGrid {
            scales: vec![0.1; rows * n.div_ceil(32)],
            zeros: (0..rows * n.div_ceil(32)).map(|i| (i % 16) as f32).collect(),
            block: 32,
            range: [0, 15],
        };
        let gptq = Gptq::new(&h, n);
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| gptq.round(&weights, &grid))
        };
        let found = on(1);
        assert_eq!(found, on(3));
        let mut differ = 0;
        for (at, (row, codes)) in weights.chunks(n).zip(found.chunks(n)).enumerate() {
            let mut left: Vec<f64> = gptq.order.iter().map(|column| f64::from(row[*column])).collect();
            for (i, column) in gptq.order.iter().enumerate() {
                let zero = f64::from(grid.zeros[at * n.div_ceil(32) + column / 32]);
                let scale = f64::from(0.1f32);
                let code = (left[i] / scale).round_ties_even().clamp(-zero, 15.0 - zero);
                differ += usize::from(codes[*column] != (code + zero) as i16);
                let line = &gptq.upper[i * n..][..n];
                let error = (left[i] - code * scale) / line[i];
                left[i + 1..].iter_mut().zip(&line[i + 1..]).for_each(|(w, f)| *w -= error * f);
            }
        }
        // The order of sums differs: what lies between two codes may go to either.
        assert!(differ <= 2, "{differ}");
    }

    #[test]
    fn independent_columns_are_rounded_to_nearest() {
        let n = 5;
        let identity: Vec<f64> = (0..n * n).map(|i| f64::from(u8::from(i % (n + 1) == 0))).collect();
        let row = [0.3f32, -0.7, 200.0, -1.26, 0.0];
        let codes = |h: &[f64]| Gptq::new(h, n).round(&row, &CodeGrid::by_row(&[0.5], 127));
        assert_eq!(codes(&identity), [1, -1, 127, -3, 0]);
        assert_eq!(codes(&vec![0.0; n * n]), [1, -1, 127, -3, 0]);
    }
}
