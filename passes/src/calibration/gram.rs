//! Sums of the outer products of rows.

use gemm::{Parallelism, gemm};
use rayon::prelude::*;

/// H = sum of x x' over rows x, in float64: what GPTQ takes. The same rows in the same portions give the same bits on
/// any number of threads, because a block of H is computed by one thread, portion after portion.
#[derive(Clone, Debug, PartialEq)]
pub struct Gram {
    columns: usize,
    rows: u64,
    /// The blocks on and below the diagonal, [`BLOCK`] columns wide and high, those of a block row one after the
    /// other; row-major.
    blocks: Vec<Vec<f64>>,
}

/// How many columns a block has.
const BLOCK: usize = 128;

impl Gram {
    /// That of no rows of so many columns.
    #[must_use]
    pub fn new(columns: usize) -> Self {
        let count = columns.div_ceil(BLOCK);
        let blocks = vec![vec![0.0; BLOCK * BLOCK]; count * (count + 1) / 2];
        Self { columns, rows: 0, blocks }
    }

    /// How many bytes that of so many columns takes.
    #[must_use]
    pub fn bytes(columns: usize) -> usize {
        let count = columns.div_ceil(BLOCK);
        count * (count + 1) / 2 * BLOCK * BLOCK * size_of::<f64>()
    }

    /// How many rows were added.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// How many columns a row has.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Adds rows, [rows, columns], row-major; what does not fill a row at the end is left out.
    pub fn add(&mut self, rows: &[f32]) {
        let count = rows.len() / self.columns.max(1);
        self.rows += count as u64;
        // The columns of a block together, [blocks, rows, BLOCK], zeros where there is no column.
        let mut panels = vec![vec![0f64; count * BLOCK]; self.columns.div_ceil(BLOCK)];
        panels.par_iter_mut().enumerate().for_each(|(block, panel)| {
            for (row, out) in rows.chunks_exact(self.columns).zip(panel.chunks_exact_mut(BLOCK)) {
                row[block * BLOCK..].iter().zip(out).for_each(|(x, out)| *out = f64::from(*x));
            }
        });
        let pairs: Vec<(usize, usize)> = (0..panels.len()).flat_map(|i| (0..=i).map(move |j| (i, j))).collect();
        self.blocks
            .par_iter_mut()
            .zip(pairs)
            .for_each(|(block, (i, j))| multiply(block, &panels[i], &panels[j], count));
    }

    /// The whole matrix, [columns, columns], row-major.
    #[must_use]
    pub fn matrix(&self) -> Vec<f64> {
        let n = self.columns;
        let mut all = vec![0.0; n * n];
        let place = |at: usize| (at / BLOCK, at % BLOCK);
        for i in 0..n {
            for j in 0..=i {
                let ((row, y), (column, x)) = (place(i), place(j));
                let h = self.blocks[row * (row + 1) / 2 + column][y * BLOCK + x];
                (all[i * n + j], all[j * n + i]) = (h, h);
            }
        }
        all
    }
}

/// Adds the product A' B of two panels [rows, BLOCK].
fn multiply(block: &mut [f64], a: &[f64], b: &[f64], rows: usize) {
    assert!(block.len() == BLOCK * BLOCK && a.len() == rows * BLOCK && b.len() == rows * BLOCK);
    let (one, size) = (1, BLOCK.cast_signed());
    // SAFETY: all elements that the strides lead to lie within the slices, whose lengths were checked.
    unsafe {
        gemm(
            BLOCK,
            BLOCK,
            rows,
            block.as_mut_ptr(),
            one,
            size,
            true,
            a.as_ptr(),
            size,
            one,
            b.as_ptr(),
            one,
            size,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: usize, columns: usize) -> Vec<f32> {
        (0..count * columns).map(|i| ((i * 2_654_435_761) % 1000) as f32 / 250.0 - 2.0).collect()
    }

    #[test]
    fn products_are_those_of_all_rows() {
        for (count, columns) in [(1, 1), (3, 5), (40, 130), (17, 300)] {
            let rows = rows(count, columns);
            let mut gram = Gram::new(columns);
            gram.add(&rows[..count / 2 * columns]);
            gram.add(&rows[count / 2 * columns..]);
            assert_eq!((gram.rows(), gram.columns()), (count as u64, columns));
            let matrix = gram.matrix();
            for i in 0..columns {
                for j in 0..columns {
                    let expected: f64 = rows.chunks(columns).map(|row| f64::from(row[i]) * f64::from(row[j])).sum();
                    assert!((matrix[i * columns + j] - expected).abs() < 1e-9, "{i}, {j} of {columns}");
                }
            }
        }
    }

    #[test]
    fn threads_do_not_change_bits() {
        let rows = rows(50, 400);
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut gram = Gram::new(400);
                rows.chunks(400 * 16).for_each(|portion| gram.add(portion));
                gram
            })
        };
        assert_eq!(on(1), on(2));
        assert_eq!(on(1), on(5));
    }
}
