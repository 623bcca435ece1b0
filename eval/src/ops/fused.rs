//! Several operators in one, computed in `f64`; each result is rounded once.

use planish_ir::ValueId;
use planish_ir::ops::{AddNorm, EmbeddingNorm, FusedLinear, Gated, NormKind, RotaryAppend};

use super::attention::appended;
use super::gather::embedding;
use super::normalize::{layer_norm, rms_norm};
use super::rotary::rotated;
use super::unary::activated;
use super::{Call, Kernel};
use crate::element::{Element, Float, with_type};
use crate::product::{Stored, multiply_finished, widen};
use crate::strided::{broadcast, walk};
use crate::{Data, Tensor};

impl Kernel for FusedLinear {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let (x, weight) = (call.operand(self.x), call.operand(self.weight));
        let (n, k, stored) = match self.transposed.0 {
            false => (weight.shape()[0], weight.shape()[1], Stored::Transposed),
            true => (weight.shape()[1], weight.shape()[0], Stored::RowMajor),
        };
        let elements = call.shape().iter().product::<usize>();
        with_type!(x.dtype(), float T => {
            let [bias, residual] = [self.bias, self.residual].map(|v| v.map(|v| T::of(call.operand(v))).transpose());
            let (bias, residual) = (bias?, residual?);
            let mut out = vec![T::default(); elements];
            multiply_finished([n, k], T::of(x)?, (T::of(weight)?, stored), &mut out, |row, column, sums| {
                for (i, sum) in sums.iter_mut().enumerate() {
                    let sum_of_row = *sum + bias.map_or(0.0, |bias| bias[column + i].widen());
                    let residual = residual.map_or(0.0, |residual| residual[row * n + column + i].widen());
                    *sum = activated(self.activation, sum_of_row) + residual;
                }
            });
            Ok(vec![T::data(out)])
        })
    }
}

impl Kernel for Gated {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let (gate, up) = (call.operand(self.gate), call.operand(self.up));
        with_type!(gate.dtype(), float T => {
            let pairs = T::of(gate)?.iter().zip(T::of(up)?);
            let products = pairs.map(|(gate, up)| T::narrow(activated(self.activation, gate.widen()) * up.widen()));
            Ok(vec![T::data(products.collect())])
        })
    }
}

/// The norm of each row of a sum, and the sum.
struct Norm<'a> {
    kind: NormKind,
    eps: f64,
    weight: &'a Tensor,
    bias: Option<&'a Tensor>,
}

impl<'a> Norm<'a> {
    fn new(call: &Call<'a>, kind: NormKind, eps: f64, weight: ValueId, bias: Option<ValueId>) -> Self {
        Self { kind, eps, weight: call.operand(weight), bias: bias.map(|bias| call.operand(bias)) }
    }

    fn of<T: Float>(&self, sum: Vec<T>) -> Result<Vec<Data>, String> {
        let weight = widen(T::of(self.weight)?);
        let bias = self.bias.map(|bias| T::of(bias).map(widen)).transpose()?;
        let bias = bias.unwrap_or_else(|| vec![0.0; weight.len()]);
        let mut out = Vec::with_capacity(sum.len());
        for row in sum.chunks(weight.len().max(1)) {
            let mut row = widen(row);
            match self.kind {
                NormKind::Layer => layer_norm(&mut row, &weight, &bias, self.eps),
                NormKind::Rms => rms_norm(&mut row, &weight, self.eps),
            }
            out.extend(row.into_iter().map(T::narrow));
        }
        Ok(vec![T::data(out), T::data(sum)])
    }
}

impl Kernel for AddNorm {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let (x, residual) = (call.operand(self.x), call.operand(self.residual));
        let norm = Norm::new(call, self.norm, self.eps.0, self.weight, self.norm_bias);
        with_type!(x.dtype(), float T => {
            let bias = self.bias.map(|bias| T::of(call.operand(bias)).map(widen)).transpose()?;
            let features = x.shape().last().copied().unwrap_or(1).max(1);
            let bias = bias.unwrap_or_else(|| vec![0.0; features]);
            let pairs = T::of(x)?.iter().zip(T::of(residual)?).zip(bias.iter().cycle());
            norm.of::<T>(pairs.map(|((x, residual), bias)| T::narrow(x.widen() + bias + residual.widen())).collect())
        })
    }
}

impl Kernel for EmbeddingNorm {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let norm = Norm::new(call, self.norm, self.eps.0, self.weight, self.norm_bias);
        let dtype = call.operand(self.weight).dtype();
        let shape = call.shape();
        with_type!(dtype, float T => {
            let mut sum: Option<Vec<T>> = None;
            for (table, ids) in self.tables.iter().zip(&self.ids) {
                let (table, ids) = (call.operand(*table), call.operand(*ids));
                let rows = embedding(table, ids)?;
                let rows_shape = [ids.shape(), &table.shape()[1..]].concat();
                let rows = Tensor::new(rows_shape, rows).ok_or("has too few rows")?;
                let strides = broadcast(rows.shape(), shape);
                let elements = T::of(&rows)?;
                let mut spread = Vec::with_capacity(shape.iter().product());
                walk(shape, [&strides], |run| {
                    spread.extend(run.positions().map(|[at]| elements[at]));
                    Ok::<_, String>(())
                })?;
                sum = Some(match sum {
                    None => spread,
                    Some(sum) => sum.iter().zip(spread).map(|(a, b)| T::narrow(a.widen() + b.widen())).collect(),
                });
            }
            norm.of(sum.unwrap_or_default())
        })
    }
}

impl Kernel for RotaryAppend {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let [q, k, v, cos, sin] = [self.q, self.k, self.v, self.cos, self.sin].map(|value| call.operand(value));
        let [past_key, past_value] = [self.past_key, self.past_value].map(|v| v.map(|v| call.operand(v)));
        with_type!(q.dtype(), float T => {
            let queries = rotated::<T>(q, [cos, sin], self.heads, self.interleaved.0)?;
            let keys = rotated::<T>(k, [cos, sin], self.kv_heads, self.interleaved.0)?;
            let (keys, _) = appended(past_key, k, &keys, self.kv_heads)?;
            let (values, _) = appended(past_value, v, T::of(v)?, self.kv_heads)?;
            Ok([queries, keys, values].map(T::data).into())
        })
    }
}
