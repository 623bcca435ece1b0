//! Layers of codes: codes of their inputs, and a product with sums of 32 bits, in whose kernel the sums become numbers. Rows
//! that are no multiples of 16 codes are a product of cublasLt, whose sums a kernel reads.

use planish_ir::ops::{FakeQuantize, Quantize, QuantizedLinear};
use planish_ir::{DType, ValueId};

use super::build::Builder;
use super::elementwise::{grid_of, named};
use super::fused::expression;
use super::{Argument, Style, View};
use crate::cuda::device::{Epilogue, Grid, Matrix, Product};
use crate::cuda::source::{QUANTIZE, QUANTIZED_LINEAR, Source};

/// Codes of `x`, with the scale `y`, as kernels of elements compute them. The cast saturates, and that of NaN is 0.
const CODE: &str = "to<signed char>(rintf(x / y))";
/// The numbers that they stand for.
const NUMBER: &str = "static_cast<float>(to<signed char>(rintf(x / y))) * y";
/// Elements of a thread of the kernel that quantizes.
const CODES: usize = 16;
/// Columns of a block of the kernel that takes sums.
const COLUMNS: usize = 128 * 4;
/// The most blocks for rows: more rows are done by the same blocks, which keep the scales of their columns.
const ROWS: usize = 4096;
/// The most blocks along x.
const BLOCKS: usize = 1 << 20;
/// Codes that the kernel of a whole layer accesses at once, and those that it multiplies at once.
const ACCESS: usize = 16;
const DEPTH: usize = 64;
/// The parts of k that it has in shared memory.
const STAGES: usize = 3;

/// The results of a block of the kernel of a whole layer.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tile {
    rows: usize,
    columns: usize,
}

impl Tile {
    /// The largest that leaves each multiprocessor a block, and has not many rows that do not exist.
    fn of(m: usize, n: usize, multiprocessors: usize) -> Self {
        let all = [(128, 128), (64, 128), (64, 64), (32, 64)].map(|(rows, columns)| Self { rows, columns });
        let enough =
            |own: &&Self| own.rows < m + 32 && m.div_ceil(own.rows) * n.div_ceil(own.columns) >= multiprocessors;
        *all.iter().find(enough).unwrap_or(&all[3])
    }

    fn grid(self, m: usize, n: usize) -> Result<Grid, String> {
        let shared = STAGES * DEPTH * (self.rows + self.columns);
        let shared = u32::try_from(shared).map_err(|e| e.to_string())?;
        Ok(Grid { shared, ..grid_of([n.div_ceil(self.columns), m.div_ceil(self.rows), 1], 256)? })
    }
}

impl Builder<'_> {
    pub(super) fn quantize(&mut self, result: ValueId, op: &Quantize) -> Result<(), String> {
        let x = self.view(op.x)?;
        let codes = self.result(result)?;
        let count = codes.elements();
        if self.target.style == Style::Fused && x.is_contiguous() && count > 0 {
            let source = Source::new(QUANTIZE, "quantize").with("ELEMENT", named(x.dtype)?);
            let [r, x] = [&codes, &x].map(|view| Argument::At(view.place));
            let grid = grid_of([count.div_ceil(256 * CODES).min(BLOCKS), 1, 1], 256)?;
            self.launch(source, grid, vec![r, x, Argument::long(count), Argument::float(op.scale.0)]);
            return Ok(());
        }
        let scale = self.number(op.scale.0);
        self.pointwise(&codes, CODE, &[&x, &scale])
    }

    /// The numbers that codes stand for. Only layers that are no products of codes take them.
    pub(super) fn fake_quantize(&mut self, result: ValueId, op: &FakeQuantize) -> Result<(), String> {
        let plain = op.to == DType::I8 && op.zero_point.unwrap_or(0) == 0 && op.split.0.is_empty();
        let Some(scale) = op.scale.filter(|_| plain) else {
            return Err(
                "the CUDA runtime has codes of i8 with a fixed scale, a zero point of 0 and no split columns only"
                    .to_owned(),
            );
        };
        let x = self.view(op.x)?;
        let numbers = self.result(result)?;
        let scale = self.number(scale.0);
        self.pointwise(&numbers, NUMBER, &[&x, &scale])
    }

    pub(super) fn quantized_linear(&mut self, result: ValueId, op: &QuantizedLinear) -> Result<(), String> {
        let x = self.whole(op.x)?;
        let (weight, scales) = (self.whole(op.weight)?, self.whole(op.scales)?);
        let bias = op.bias.map(|bias| self.whole(bias)).transpose()?;
        let residual = op.residual.map(|residual| self.view(residual)).transpose()?;
        let result = self.result(result)?;
        let (n, k) = (weight.shape[0], weight.shape[1]);
        let m = result.elements().checked_div(n).unwrap_or(0);
        if m == 0 {
            return Ok(());
        }
        let fused = self.target.style == Style::Fused;
        let residual = match residual {
            Some(residual) if fused => Some(self.without_gaps(residual)?),
            residual => residual,
        };
        let place = |view: &Option<View>| Argument::optional(view.as_ref().map(|view| view.place));
        let after = |source: Source| {
            let source = source.with("ELEMENT", named(result.dtype)?).with("ACTIVATION", expression(op.activation));
            Ok::<_, String>(source.with("BIAS", bias.is_some()).with("RESIDUAL", residual.is_some()))
        };
        let aligned = k.is_multiple_of(ACCESS) && [&x, &weight].iter().all(|own| own.place.offset % ACCESS == 0);
        if fused && k > 0 && aligned && m <= self.target.code_rows {
            let tile = Tile::of(m, n, self.target.multiprocessors);
            let source = after(Source::new(QUANTIZED_LINEAR, "quantized_linear"))?;
            let source = source.with("ROWS", tile.rows).with("COLUMNS", tile.columns);
            let mut arguments: Vec<Argument> =
                [&result, &x, &weight, &scales].iter().map(|view| Argument::At(view.place)).collect();
            arguments.extend([place(&bias), place(&residual)]);
            arguments.extend([Argument::int(m)?, Argument::int(n)?, Argument::int(k)?]);
            self.launch(source, tile.grid(m, n)?, arguments);
            return Ok(());
        }
        let sums = self.temporary(DType::I32, result.shape.clone())?;
        match k {
            // The kernel reads none of the operand's elements.
            0 => self.pointwise(&sums, "0 * i", &[])?,
            _ => self.multiply(Product {
                m,
                n,
                k,
                batch: 1,
                a: Matrix { at: x.place, row: k, step: 0, transposed: false },
                b: Matrix { at: weight.place, row: k, step: 0, transposed: true },
                c: None,
                d: Matrix { at: sums.place, row: n, step: 0, transposed: false },
                alpha: 1.0,
                bias: None,
                epilogue: Epilogue::None,
                dtype: DType::I8,
                result: DType::I32,
            }),
        }
        if !fused {
            self.pointwise(&result, "static_cast<float>(x) * y", &[&sums, &scales])?;
            return self.one_by_one(&result, expression(op.activation), bias.as_ref(), residual.as_ref());
        }
        let source = after(Source::new(QUANTIZE, "dequantize_rows"))?;
        let arguments = vec![
            Argument::At(result.place),
            Argument::At(sums.place),
            Argument::At(scales.place),
            place(&bias),
            place(&residual),
            Argument::long(m),
            Argument::int(n)?,
        ];
        self.launch(source, grid_of([n.div_ceil(COLUMNS), m.min(ROWS), 1], 128)?, arguments);
        Ok(())
    }

    /// A float32 among the constants.
    fn number(&mut self, value: f64) -> View {
        #[allow(clippy::cast_possible_truncation, reason = "scales are float32")]
        let place = self.constant(&(value as f32).to_le_bytes());
        View::contiguous(place, DType::F32, Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_leave_each_multiprocessor_a_block() {
        let tile = |m, n| {
            let tile = Tile::of(m, n, 132);
            (tile.rows, tile.columns, m.div_ceil(tile.rows) * n.div_ceil(tile.columns))
        };
        assert_eq!(tile(4096, 3072), (128, 128, 768));
        assert_eq!(tile(1024, 2304), (128, 128, 144));
        assert_eq!(tile(1024, 768), (64, 64, 192));
        assert_eq!(tile(128, 3072), (32, 64, 192));
        assert_eq!(tile(1, 768), (32, 64, 12));
        assert_eq!(Tile { rows: 128, columns: 128 }.grid(130, 129).unwrap().shared, 48 << 10);
    }
}
