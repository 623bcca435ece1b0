//! Softmax and norms.

use planish_ir::ValueId;
use planish_ir::ops::{LayerNorm, RmsNorm};

use super::build::Builder;
use super::elementwise::{grid_of, named};
use super::{Argument, Place};
use crate::cuda::device::Grid;
use crate::cuda::source::{NORM, SOFTMAX, Source};

/// Rows that a block of warps works on.
const ROWS: usize = 4;
/// The most elements of a row that a thread keeps in registers.
const VALUES: usize = 32;

/// A norm and what is computed in front of it.
pub(super) struct Norm {
    pub(super) rms: bool,
    pub(super) x: Place,
    pub(super) residual: Option<Place>,
    pub(super) bias: Option<Place>,
    pub(super) weight: Place,
    pub(super) norm_bias: Option<Place>,
    pub(super) eps: f64,
    /// Where the sum of `x`, the bias and the residual goes, if it is needed.
    pub(super) sum: Option<Place>,
}

impl Norm {
    /// A norm of `x` and nothing in front of it.
    pub(super) fn plain(rms: bool, x: Place, weight: Place, norm_bias: Option<Place>, eps: f64) -> Self {
        Self { rms, x, residual: None, bias: None, weight, norm_bias, eps, sum: None }
    }
}

/// How threads share the rows of a norm: whether a warp has a row, and the elements that a thread keeps. A warp has each
/// row that fits its registers, as it needs no barrier.
pub(super) fn norm_shape(columns: usize) -> (bool, usize) {
    let by_warp = columns <= 32 * VALUES;
    let values = columns.div_ceil(if by_warp { 32 } else { 256 });
    let values = if values <= 8 { values.next_power_of_two() } else { values.next_multiple_of(8) };
    (by_warp, if values <= VALUES { values } else { 0 })
}

/// The grid of a norm. Few rows have a block each, so that more multiprocessors read them.
pub(super) fn norm_grid(rows: usize, by_warp: bool, multiprocessors: usize) -> Result<Grid, String> {
    if !by_warp {
        return grid_of([rows, 1, 1], 256);
    }
    let rows_of_block = if rows <= ROWS * multiprocessors { 1 } else { ROWS };
    grid_of([rows.div_ceil(rows_of_block), 1, 1], 32 * rows_of_block)
}

impl Builder<'_> {
    pub(super) fn softmax(&mut self, result: ValueId, x: ValueId) -> Result<(), String> {
        let x = self.whole(x)?;
        let result = self.result(result)?;
        let columns = x.shape.last().copied().unwrap_or(1);
        self.softmax_rows(
            result.place,
            x.place,
            x.elements().checked_div(columns).unwrap_or(0),
            columns,
            named(x.dtype)?,
        )
    }

    pub(super) fn softmax_rows(
        &mut self,
        to: Place,
        from: Place,
        rows: usize,
        columns: usize,
        dtype: &'static str,
    ) -> Result<(), String> {
        let lane = columns.div_ceil(32).next_power_of_two();
        let lane = if lane <= VALUES { lane } else { 0 };
        let source = Source::new(SOFTMAX, "softmax").with("ELEMENT", dtype).with("COLUMNS_PER_LANE", lane);
        let arguments = vec![Argument::At(to), Argument::At(from), Argument::long(rows), Argument::int(columns)?];
        let grid = if lane > 0 { grid_of([rows.div_ceil(ROWS), 1, 1], 128)? } else { grid_of([rows, 1, 1], 256)? };
        self.launch(source, grid, arguments);
        Ok(())
    }

    pub(super) fn layer_norm(&mut self, result: ValueId, op: &LayerNorm) -> Result<(), String> {
        let norm_bias = op.bias.map(|bias| self.whole(bias)).transpose()?.map(|bias| bias.place);
        self.plain_norm(result, op.x, op.weight, norm_bias, op.eps.0, false)
    }

    pub(super) fn rms_norm(&mut self, result: ValueId, op: &RmsNorm) -> Result<(), String> {
        self.plain_norm(result, op.x, op.weight, None, op.eps.0, true)
    }

    fn plain_norm(
        &mut self,
        result: ValueId,
        x: ValueId,
        weight: ValueId,
        norm_bias: Option<Place>,
        eps: f64,
        rms: bool,
    ) -> Result<(), String> {
        let (x, weight) = (self.whole(x)?, self.whole(weight)?);
        let result = self.result(result)?;
        let columns = weight.elements();
        let norm = Norm::plain(rms, x.place, weight.place, norm_bias, eps);
        let rows = x.elements().checked_div(columns).unwrap_or(0);
        self.norm(result.place, &norm, rows, columns, named(x.dtype)?)
    }

    /// A norm of rows, with what is added in front of it.
    pub(super) fn norm(
        &mut self,
        to: Place,
        norm: &Norm,
        rows: usize,
        columns: usize,
        dtype: &'static str,
    ) -> Result<(), String> {
        let (by_warp, values) = norm_shape(columns);
        let source = Source::new(NORM, "row_norm")
            .with("ELEMENT", dtype)
            .with("RMS", norm.rms)
            .with("RESIDUAL", norm.residual.is_some())
            .with("BIAS", norm.bias.is_some())
            .with("NORM_BIAS", norm.norm_bias.is_some())
            .with("SUM", norm.sum.is_some())
            .with("VALUES", values)
            .with("WARP", by_warp);
        let arguments = vec![
            Argument::At(to),
            Argument::optional(norm.sum),
            Argument::At(norm.x),
            Argument::optional(norm.residual),
            Argument::optional(norm.bias),
            Argument::At(norm.weight),
            Argument::optional(norm.norm_bias),
            Argument::long(rows),
            Argument::int(columns)?,
            Argument::float(norm.eps),
        ];
        let grid = norm_grid(rows, by_warp, self.target.multiprocessors)?;
        self.launch(source, grid, arguments);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warp_has_each_row_that_fits_its_registers() {
        assert_eq!(
            [1, 256, 384, 768, 1024].map(norm_shape),
            [(true, 1), (true, 8), (true, 16), (true, 24), (true, 32)]
        );
        assert_eq!([1025, 4096, 5120, 8192, 8193].map(norm_shape).map(|shape| shape.1), [8, 16, 24, 32, 0]);
        assert!(!norm_shape(1025).0);
        let sizes = |rows| norm_grid(rows, true, 132).map(|grid| (grid.blocks[0], grid.threads));
        assert_eq!([sizes(1), sizes(528), sizes(529)], [Ok((1, 32)), Ok((528, 32)), Ok((133, 128))]);
    }
}
