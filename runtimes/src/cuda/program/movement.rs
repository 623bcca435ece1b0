//! Operators that move elements, reductions and running sums.

use planish_ir::ops::{Concat, CumSum, Reduce, ReduceKind};
use planish_ir::{Shape, ValueId};

use super::build::Builder;
use super::elementwise::{grid, grid_of, named, strided};
use super::view::coalesce;
use super::{Argument, View};
use crate::cuda::source::{GATHER, REDUCE, SCAN, Source};

/// The most blocks of a launch along x.
const BLOCKS: usize = i32::MAX as usize;
/// The longest rows whose running sums a warp adds up.
const WARP_SCAN: usize = 128;

/// What rows become whose index is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outside {
    /// Bytes that are no numbers.
    NotNumbers,
    Zeros,
}

impl Builder<'_> {
    pub(super) fn reshape(&mut self, result: ValueId, x: ValueId, shape: &Shape) -> Result<(), String> {
        let shape = self.shape(shape)?;
        let view = self.view(x)?;
        let view = match view.reshape(&shape) {
            Some(view) => view,
            None => View::contiguous(self.without_gaps(view)?.place, self.graph.ty(x).dtype, shape),
        };
        self.define(result, view);
        Ok(())
    }

    pub(super) fn concat(&mut self, result: ValueId, op: &Concat) -> Result<(), String> {
        let parts = op.parts.iter().map(|part| self.view(*part)).collect::<Result<Vec<_>, _>>()?;
        let result = self.result(result)?;
        let mut start = 0;
        for part in parts {
            let end = start + part.shape[op.axis];
            self.copy(&result.slice(op.axis, start, end), &part)?;
            start = end;
        }
        Ok(())
    }

    /// Rows of `x` along an axis, picked by indices.
    pub(super) fn gather(&mut self, result: ValueId, x: ValueId, indices: ValueId, axis: usize) -> Result<(), String> {
        let result = self.result(result)?;
        self.gather_into(&result, x, indices, axis)
    }

    pub(super) fn gather_into(
        &mut self,
        result: &View,
        x: ValueId,
        indices: ValueId,
        axis: usize,
    ) -> Result<(), String> {
        let (x, indices) = (self.whole(x)?, self.whole(indices)?);
        self.gather_rows(result, &x, &indices, axis, Outside::NotNumbers)
    }

    /// The same of views without gaps.
    pub(super) fn gather_rows(
        &mut self,
        result: &View,
        x: &View,
        indices: &View,
        axis: usize,
        outside: Outside,
    ) -> Result<(), String> {
        let element = match x.dtype.size() {
            1 => "unsigned char",
            2 => "unsigned short",
            4 => "unsigned",
            8 => "unsigned long long",
            _ => named(x.dtype)?,
        };
        let (outer, inner): (usize, usize) = (x.shape[..axis].iter().product(), x.shape[axis + 1..].iter().product());
        let count = indices.elements();
        if inner == 0 {
            return Ok(());
        }
        let source = Source::new(GATHER, "gather").with("E", element).with("I", named(indices.dtype)?);
        let source = match outside {
            Outside::NotNumbers => source,
            Outside::Zeros => source.with("FILL", 0usize),
        };
        let arguments = vec![
            Argument::At(result.place),
            Argument::At(x.place),
            Argument::At(indices.place),
            Argument::long(outer),
            Argument::long(x.shape[axis]),
            Argument::long(inner),
            Argument::long(count),
        ];
        // A block for each row, but no threads without an element.
        let blocks = (outer * count).min((outer * count * inner).div_ceil(128)).min(BLOCKS);
        self.launch(source, grid_of([blocks, 1, 1], 128)?, arguments);
        Ok(())
    }

    pub(super) fn cumsum(&mut self, result: ValueId, op: &CumSum) -> Result<(), String> {
        let x = self.whole(op.x)?;
        let result = self.result(result)?;
        let outer: usize = x.shape[..op.axis].iter().product();
        let inner: usize = x.shape[op.axis + 1..].iter().product();
        let length = x.shape[op.axis];
        let source = |kernel| Ok::<_, String>(Source::new(SCAN, kernel).with("T2", named(x.dtype)?));
        let mut arguments =
            vec![Argument::At(result.place), Argument::At(x.place), Argument::long(outer), Argument::int(length)?];
        if inner == 1 {
            let by_warp = length <= WARP_SCAN;
            let grid = if by_warp { grid_of([outer.div_ceil(4), 1, 1], 128)? } else { grid_of([outer, 1, 1], 256)? };
            self.launch(source("cumulative_rows")?.with("WARP", by_warp), grid, arguments);
            return Ok(());
        }
        arguments.push(Argument::long(inner));
        self.launch(source("cumulative_lanes")?, grid([(outer * inner).div_ceil(256), 1, 1])?, arguments);
        Ok(())
    }

    pub(super) fn reduce(&mut self, result: ValueId, op: &Reduce) -> Result<(), String> {
        let x = self.view(op.x)?;
        let result = self.result(result)?;
        let axes = |reduced: bool| -> (Vec<usize>, Vec<usize>) {
            let chosen = (0..x.shape.len()).filter(|axis| op.axes.contains(axis) == reduced);
            chosen.map(|axis| (x.shape[axis], x.strides[axis])).unzip()
        };
        // Strides of the operand are the second of the kernel's; the result has none.
        let part = |reduced: bool| {
            let (sizes, strides) = axes(reduced);
            let count: usize = sizes.iter().product();
            let (sizes, strides) = coalesce(&sizes, &[&strides]);
            let none = vec![0; sizes.len()];
            Ok::<_, String>((count, strided(&sizes, &[none, strides[0].clone()])?))
        };
        let ((rows, kept), (columns, reduced)) = (part(false)?, part(true)?);
        let kind = match op.kind {
            ReduceKind::Sum => 0usize,
            ReduceKind::Mean => 1,
            ReduceKind::Max => 2,
            ReduceKind::Min => 3,
        };
        // Rows that are side by side in memory, a block for each long one, or a warp for each.
        let inner = |reduced: bool| {
            let axis = (0..x.shape.len()).rfind(|axis| op.axes.contains(axis) == reduced && x.shape[*axis] > 1);
            axis.map_or(0, |axis| x.strides[axis])
        };
        let by_block: usize = match (inner(false), inner(true)) {
            (1, 2..) => 2,
            _ => usize::from(columns > 1024),
        };
        let source =
            Source::new(REDUCE, "reduce").with("T2", named(x.dtype)?).with("KIND", kind).with("BLOCK_ROWS", by_block);
        let arguments = vec![
            Argument::At(result.place),
            Argument::At(x.place),
            Argument::long(rows),
            Argument::int(columns)?,
            kept,
            reduced,
        ];
        let blocks = match by_block {
            2 => rows.div_ceil(32),
            1 => rows,
            _ => rows.div_ceil(8),
        };
        self.launch(source, grid([blocks, 1, 1])?, arguments);
        Ok(())
    }
}
