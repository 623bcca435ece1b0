//! Layers of codes: codes of their inputs, a product with sums of 32 bits, and what the sums stand for.

use planish_ir::ops::{FakeQuantize, Quantize, QuantizedLinear};
use planish_ir::{DType, ValueId};

use super::build::Builder;
use super::elementwise::{grid_of, named};
use super::fused::expression;
use super::{Argument, Style, View};
use crate::cuda::device::{Epilogue, Matrix, Product};
use crate::cuda::source::{QUANTIZE, Source};

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
        if self.target.style == Style::Unfused {
            self.pointwise(&result, "static_cast<float>(x) * y", &[&sums, &scales])?;
            return self.one_by_one(&result, expression(op.activation), bias.as_ref(), residual.as_ref());
        }
        let residual = residual.map(|residual| self.without_gaps(residual)).transpose()?;
        let source = Source::new(QUANTIZE, "dequantize_rows")
            .with("ELEMENT", named(result.dtype)?)
            .with("ACTIVATION", expression(op.activation))
            .with("BIAS", bias.is_some())
            .with("RESIDUAL", residual.is_some());
        let place = |view: Option<View>| Argument::optional(view.map(|view| view.place));
        let arguments = vec![
            Argument::At(result.place),
            Argument::At(sums.place),
            Argument::At(scales.place),
            place(bias),
            place(residual),
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
