//! Linear layers of a few rows, as steps of decoding have them: one kernel, which reads the weights once.

use planish_ir::DType;

use super::build::Builder;
use super::elementwise::{grid_of, named};
use super::{Argument, Place};
use crate::cuda::device::Product;
use crate::cuda::source::{GEMV, Source};

/// The most rows.
pub(super) const ROWS: usize = 4;
/// Bytes of an access.
const ACCESS: usize = 16;
/// Warps of a block of `gemv_rows`.
const WARPS: usize = 4;

/// How the work of a layer whose weights are [n, k] is divided: the results of a warp for each row, and the warps that share
/// them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ByRows {
    columns: usize,
    split: usize,
}

impl ByRows {
    /// As many results of a warp as leave each multiprocessor work for 16 warps. Else k is divided, as long as each lane has
    /// an access of it.
    fn of(n: usize, k: usize, each: usize, multiprocessors: usize) -> Self {
        let all = [(4, 1), (2, 1), (2, 2), (1, 2), (2, 4), (1, 4)].map(|(columns, split)| Self { columns, split });
        let possible = all.into_iter().filter(|own| own.split == 1 || k >= own.split * 32 * each);
        let mut last = all[1];
        for own in possible {
            last = own;
            if own.blocks(n) >= 4 * multiprocessors {
                break;
            }
        }
        last
    }

    fn blocks(self, n: usize) -> usize {
        n.div_ceil(self.columns * WARPS / self.split)
    }
}

/// How the work of a layer whose weights are [k, n] is divided: the threads that have a row of a block's weights, and the
/// threads of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ByColumns {
    wide: usize,
    threads: usize,
}

impl ByColumns {
    /// Rows as wide as leave each multiprocessor a block. A sector of memory is as wide as the narrowest ones.
    fn of(n: usize, each: usize, multiprocessors: usize) -> Self {
        let wide = [8, 4].into_iter().find(|wide| n.div_ceil(wide * each) >= multiprocessors);
        wide.map_or(Self { wide: 2, threads: 512 }, |wide| Self { wide, threads: 256 })
    }
}

/// What a kernel of few rows computes after the product.
pub(super) struct Fused {
    pub(super) bias: Option<Place>,
    /// An expression of `x`.
    pub(super) activation: &'static str,
    /// [m, n] without gaps.
    pub(super) residual: Option<Place>,
}

impl Builder<'_> {
    /// Computes a linear layer of up to 4 rows, and says whether it does: others, and those whose rows are no multiples of 16
    /// bytes apart, are products.
    pub(super) fn gemv(&mut self, product: &Product<Place>, fused: &Fused) -> Result<bool, String> {
        let &Product { m, n, k, .. } = product;
        let (x, w) = (&product.a, &product.b);
        if !matches!(product.dtype, DType::F32 | DType::F16 | DType::Bf16)
            || !(1..=self.target.few_rows.min(ROWS)).contains(&m)
            || n * k == 0
        {
            return Ok(false);
        }
        let each = ACCESS / product.dtype.size();
        let by_rows = w.transposed;
        // A single row is as far from the next one as one likes.
        let x_row = if m == 1 { 0 } else { x.row };
        let rows = if by_rows { [k, w.row, x_row] } else { [n, w.row, 0] };
        let aligned = rows.iter().all(|row| row.is_multiple_of(each))
            && [x.at, w.at].iter().all(|place| place.offset.is_multiple_of(ACCESS))
            && w.row == if by_rows { k } else { n };
        if !aligned {
            return Ok(false);
        }
        let source = |kernel| {
            let source = Source::new(GEMV, kernel).with("ELEMENT", named(product.dtype)?).with("M", m);
            let source = source.with("BIAS", fused.bias.is_some()).with("RESIDUAL", fused.residual.is_some());
            Ok::<_, String>(source.with("ACTIVATION", fused.activation))
        };
        let (source, grid) = if by_rows {
            let own = ByRows::of(n, k, each, self.target.multiprocessors);
            let source = source("gemv_rows")?.with("COLUMNS", own.columns).with("SPLIT", own.split);
            (source, grid_of([own.blocks(n), 1, 1], 32 * WARPS)?)
        } else {
            let own = ByColumns::of(n, each, self.target.multiprocessors);
            let source = source("gemv_columns")?.with("WIDE", own.wide).with("BLOCK_THREADS", own.threads);
            (source, grid_of([n.div_ceil(own.wide * each), 1, 1], own.threads)?)
        };
        let arguments = vec![
            Argument::At(product.d.at),
            Argument::At(x.at),
            Argument::At(w.at),
            Argument::optional(fused.bias),
            Argument::optional(fused.residual),
            Argument::int(n)?,
            Argument::int(k)?,
            Argument::long(x_row),
        ];
        self.launch(source, grid, arguments);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_layers_are_divided_among_all_multiprocessors() {
        let rows = |n, k| {
            let own = ByRows::of(n, k, 8, 132);
            (own.columns, own.split, own.blocks(n))
        };
        assert_eq!(rows(28_672, 4096), (4, 1, 1792));
        assert_eq!(rows(6144, 4096), (2, 1, 768));
        assert_eq!(rows(4096, 14_336), (2, 2, 1024));
        assert_eq!(rows(768, 3072), (1, 4, 768));
        // Every lane has an access.
        assert_eq!(rows(768, 768), (1, 2, 384));
        assert_eq!(rows(768, 256), (2, 1, 96));
        let columns = |n| {
            let own = ByColumns::of(n, 8, 132);
            (own.wide, own.threads, n.div_ceil(own.wide * 8))
        };
        assert_eq!(columns(50_257), (8, 256, 786));
        assert_eq!(columns(4800), (4, 256, 150));
        assert_eq!(columns(2304), (2, 512, 144));
        assert_eq!(columns(768), (2, 512, 48));
    }
}
