//! Operators along the last axis, computed in `f64` and rounded once.

use planish_ir::ops::{Binary, BinaryKind, LayerNorm, MaskedSoftmax, RmsNorm, Softmax};
use rayon::prelude::*;

use super::{Call, Kernel};
use crate::element::{Element, Float, with_type};
use crate::product::widen;
use crate::{Data, Tensor};

impl Kernel for Softmax {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let x = call.operand(self.x);
        with_type!(x.dtype(), float T => rows::<T>(x, softmax))
    }
}

impl Kernel for MaskedSoftmax {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        if call.operand(self.masked).as_bool() == Some(&[false]) {
            return Softmax { x: self.x }.run(call);
        }
        let sums = Binary { kind: BinaryKind::Add, a: self.x, b: self.addend }.run(call)?;
        let sums = sums.into_iter().next().and_then(|sums| Tensor::new(call.results[0].clone(), sums));
        let sums = sums.ok_or("has too few sums")?;
        with_type!(sums.dtype(), float T => rows::<T>(&sums, softmax))
    }
}

/// `e^(x - max) / sum(e^(x - max))`, in place.
pub(super) fn softmax(row: &mut [f64]) {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, |max, v| if v > max { v } else { max });
    row.iter_mut().for_each(|v| *v = libm::exp(*v - max));
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|v| *v /= sum);
}

impl Kernel for LayerNorm {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let x = call.operand(self.x);
        let eps = self.eps.0;
        with_type!(x.dtype(), float T => {
            let weight = widen(T::of(call.operand(self.weight))?);
            let bias = self.bias.map(|bias| T::of(call.operand(bias)).map(widen)).transpose()?;
            let bias = bias.unwrap_or_else(|| vec![0.0; weight.len()]);
            rows::<T>(x, |row| layer_norm(row, &weight, &bias, eps))
        })
    }
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias`, in place.
pub(super) fn layer_norm(row: &mut [f64], weight: &[f64], bias: &[f64], eps: f64) {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    row.iter_mut().for_each(|v| *v -= mean);
    let variance = row.iter().map(|v| v * v).sum::<f64>() / n;
    let deviation = (variance + eps).sqrt();
    for ((v, w), b) in row.iter_mut().zip(weight).zip(bias) {
        *v = *v / deviation * w + b;
    }
}

impl Kernel for RmsNorm {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let x = call.operand(self.x);
        let eps = self.eps.0;
        with_type!(x.dtype(), float T => {
            let weight = widen(T::of(call.operand(self.weight))?);
            rows::<T>(x, |row| rms_norm(row, &weight, eps))
        })
    }
}

/// `x / sqrt(mean(x^2) + eps) * weight`, in place.
pub(super) fn rms_norm(row: &mut [f64], weight: &[f64], eps: f64) {
    let mean = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
    let root = (mean + eps).sqrt();
    row.iter_mut().zip(weight).for_each(|(v, w)| *v = *v / root * w);
}

/// A function of each row along the last axis.
fn rows<T: Float>(x: &Tensor, f: impl Fn(&mut [f64]) + Sync) -> Result<Vec<Data>, String> {
    let elements = T::of(x)?;
    let mut out = vec![T::default(); elements.len()];
    let length = x.shape().last().copied().unwrap_or(1);
    if !out.is_empty() {
        out.par_chunks_mut(length).zip(elements.par_chunks(length)).for_each(|(out, row)| {
            let mut row = widen(row);
            f(&mut row);
            out.iter_mut().zip(row).for_each(|(out, v)| *out = T::narrow(v));
        });
    }
    Ok(vec![T::data(out)])
}
