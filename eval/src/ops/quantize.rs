//! Quantization of activations, and layers of codes.

use planish_ir::ops::{FakeQuantize, Quantize, QuantizedLinear};
use planish_ir::weight::code_range;

use super::unary::activated;
use super::{Call, Kernel};
use crate::Data;
use crate::element::{Element, Float, with_type};
use crate::product::{Stored, multiply_finished};

impl Kernel for FakeQuantize {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let x = call.operand(self.x);
        let columns = x.shape().last().copied().unwrap_or(1);
        let codes = Codes::new(self, columns);
        with_type!(x.dtype(), float T => {
            let mut values: Vec<f32> = T::of(x)?.iter().map(|v| v.widen() as f32).collect();
            codes.round(&mut values)?;
            Ok(vec![T::data(values.into_iter().map(|v| T::narrow(f64::from(v))).collect())])
        })
    }
}

impl Kernel for Quantize {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let x = call.operand(self.x);
        let scale = self.scale.0 as f32;
        with_type!(x.dtype(), float T => {
            // Casts saturate, and that of NaN is 0.
            let codes = T::of(x)?.iter().map(|x| (x.widen() as f32 / scale).round_ties_even() as i8);
            Ok(vec![codes.collect::<Vec<i8>>().into()])
        })
    }
}

impl Kernel for QuantizedLinear {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let (x, weight) = (call.operand(self.x), call.operand(self.weight));
        let (n, k) = (weight.shape()[0], weight.shape()[1]);
        let scales = f32::of(call.operand(self.scales))?;
        let elements = call.shape().iter().product::<usize>();
        with_type!(self.to, float T => {
            let [bias, residual] = [self.bias, self.residual].map(|v| v.map(|v| T::of(call.operand(v))).transpose());
            let (bias, residual) = (bias?, residual?);
            // Every floating-point type has every code.
            let codes = |codes: &[i8]| codes.iter().map(|code| T::narrow(f64::from(*code))).collect::<Vec<T>>();
            let (x, weight) = (codes(i8::of(x)?), codes(i8::of(weight)?));
            let mut out = vec![T::default(); elements];
            multiply_finished([n, k], &x, (&weight, Stored::Transposed), &mut out, |row, column, sums| {
                for (i, sum) in sums.iter_mut().enumerate() {
                    let scaled = *sum * f64::from(scales[column + i]);
                    let biased = scaled + bias.map_or(0.0, |bias| bias[column + i].widen());
                    let residual = residual.map_or(0.0, |residual| residual[row * n + column + i].widen());
                    *sum = activated(self.activation, biased) + residual;
                }
            });
            Ok(vec![T::data(out)])
        })
    }
}

/// What a [`FakeQuantize`] does to rows of so many columns.
pub struct Codes<'a> {
    op: &'a FakeQuantize,
    columns: usize,
    /// By column, how many columns of codes it has.
    copies: Vec<f32>,
}

impl<'a> Codes<'a> {
    /// For rows of so many columns.
    #[must_use]
    pub fn new(op: &'a FakeQuantize, columns: usize) -> Self {
        let mut copies = vec![1.0; columns];
        op.split.0.iter().for_each(|column| copies[*column] += 1.0);
        Self { op, columns, copies }
    }

    /// Rounds the elements of rows to what their codes stand for.
    ///
    /// # Errors
    /// When the codes have a floating-point type that no conversion is there for.
    pub fn round(&self, values: &mut [f32]) -> Result<(), String> {
        let Some(range) = code_range(self.op.to) else { return self.float(values) };
        match self.op.scale {
            Some(scale) => self.fixed(values, scale.0 as f32, range),
            None => self.dynamic(values),
        }
        Ok(())
    }

    fn fixed(&self, values: &mut [f32], scale: f32, (least, largest): (i64, i64)) {
        let zero = self.op.zero_point.unwrap_or(0);
        let (low, high) = ((least - zero) as f32, (largest - zero) as f32);
        for row in values.chunks_mut(self.columns.max(1)) {
            for (x, copies) in row.iter_mut().zip(&self.copies) {
                let code = (*x / scale).round_ties_even().clamp(low * copies, high * copies);
                *x = if code.is_nan() { 0.0 } else { code * scale };
            }
        }
    }

    /// The parts of an element, each within the limit but the last.
    fn parts(&self, x: f32, copies: f32) -> impl Iterator<Item = f32> {
        let limit = self.op.limit.map_or(f32::INFINITY, |limit| limit.0 as f32);
        let mut left = x;
        (0..copies as usize).map(move |part| {
            let last = part + 1 == copies as usize;
            let now = if last { left } else { left.clamp(-limit, limit) };
            left -= now;
            now
        })
    }

    fn dynamic(&self, values: &mut [f32]) {
        let (mut least, mut largest) = (0f32, 0f32);
        for row in values.chunks(self.columns.max(1)) {
            for part in row.iter().zip(&self.copies).flat_map(|(x, copies)| self.parts(*x, *copies)) {
                (least, largest) = (least.min(part), largest.max(part));
            }
        }
        // As ONNX's DynamicQuantizeLinear.
        let scale = if largest == least { 1.0 } else { (largest - least) / 255.0 };
        let zero = (-least / scale).round_ties_even().clamp(0.0, 255.0);
        let round = |x: f32| {
            let code = (x / scale).round_ties_even();
            if code.is_nan() { 0.0 } else { (code + zero).clamp(0.0, 255.0) - zero }
        };
        for row in values.chunks_mut(self.columns.max(1)) {
            for (x, copies) in row.iter_mut().zip(&self.copies) {
                *x = self.parts(*x, *copies).map(round).sum::<f32>() * scale;
            }
        }
    }

    /// Floating-point codes.
    fn float(&self, values: &mut [f32]) -> Result<(), String> {
        let scale = self.op.scale.map_or(1.0, |scale| scale.0 as f32);
        let scaled: Vec<f64> = values.iter().map(|x| f64::from(*x / scale)).collect();
        let codes =
            planish_ir::Weight::numbers(self.op.to, vec![values.len()], &scaled).ok_or("has too many elements")?;
        let codes = codes.read_numbers().map_err(|error| error.to_string())?;
        values.iter_mut().zip(codes).for_each(|(x, code)| *x = code as f32 * scale);
        Ok(())
    }
}
