//! Mixtures of experts, computed in `f64`; each result is rounded once.

use planish_ir::ops::Experts;
use rayon::prelude::*;

use super::unary::activated;
use super::{Call, Kernel};
use crate::element::{Element, Float, with_type};
use crate::product::{Matrix, multiply, widen};
use crate::{Data, Tensor};

impl Kernel for Experts {
    /// Each expert computes the tokens that take it.
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let experts = call.operand(self.gate).shape()[0];
        let taken = routes(call.operand(self.indices), experts)?;
        let x = call.operand(self.x);
        with_type!(x.dtype(), float T => {
            let of = |value| T::of(call.operand(value));
            let optional = |value: Option<_>| value.map(of).transpose();
            let network = Network {
                op: self,
                sizes: [call.operand(self.gate), call.operand(self.down)].map(|w| [w.shape()[1], w.shape()[2]]),
                gate: of(self.gate)?,
                up: optional(self.up)?,
                down: of(self.down)?,
                gate_bias: optional(self.gate_bias)?,
                up_bias: optional(self.up_bias)?,
                down_bias: optional(self.down_bias)?,
            };
            let (x, scores) = (T::of(x)?, T::of(call.operand(self.scores))?);
            let per_token = call.operand(self.indices).shape().last().copied().unwrap_or(1);
            let out = network.sizes[1][0];
            let mut sums = vec![0.0; call.shape().iter().product()];
            // Experts one after another add up in the same order whatever the number of threads.
            let results: Vec<Vec<f64>> = taken.par_iter().enumerate().map(|(e, slots)| {
                let tokens: Vec<usize> = slots.iter().map(|slot| slot / per_token).collect();
                network.run(e, x, &tokens)
            }).collect();
            for (slots, results) in taken.iter().zip(results) {
                for (slot, row) in slots.iter().zip(results.chunks(out.max(1))) {
                    let to = &mut sums[slot / per_token * out..][..out];
                    to.iter_mut().zip(row).for_each(|(sum, value)| *sum += scores[*slot].widen() * value);
                }
            }
            Ok(vec![T::data(sums.into_iter().map(T::narrow).collect())])
        })
    }
}

/// The positions among `indices` at which each expert is.
fn routes(indices: &Tensor, experts: usize) -> Result<Vec<Vec<usize>>, String> {
    let mut taken = vec![Vec::new(); experts];
    for (slot, index) in indices.to_f64().into_iter().enumerate() {
        let expert = (index >= 0.0).then_some(index as usize).and_then(|index| taken.get_mut(index));
        expert.ok_or_else(|| format!("there is no expert {index} of {experts}"))?.push(slot);
    }
    Ok(taken)
}

/// The weights of all experts.
struct Network<'a, T> {
    op: &'a Experts,
    /// Rows and columns of a gate, and of what takes its result.
    sizes: [[usize; 2]; 2],
    gate: &'a [T],
    up: Option<&'a [T]>,
    down: &'a [T],
    gate_bias: Option<&'a [T]>,
    up_bias: Option<&'a [T]>,
    down_bias: Option<&'a [T]>,
}

impl<T: Float> Network<'_, T> {
    /// The results of an expert for some tokens, row-major.
    fn run(&self, expert: usize, x: &[T], tokens: &[usize]) -> Vec<f64> {
        if tokens.is_empty() {
            return Vec::new();
        }
        let [first, last] = self.sizes;
        let rows: Vec<f64> = tokens.iter().flat_map(|token| widen(&x[token * first[1]..][..first[1]])).collect();
        let layer = |x: &[f64], [rows, columns]: [usize; 2], weight: &[T], bias: Option<&[T]>| {
            let weight = widen(&weight[expert * rows * columns..][..rows * columns]);
            let x = Matrix::new(x, tokens.len(), columns);
            let mut y = multiply(x, Matrix::new(&weight, rows, columns).transposed());
            if let Some(bias) = bias {
                let bias = &bias[expert * rows..][..rows];
                y.chunks_mut(rows.max(1)).for_each(|row| row.iter_mut().zip(bias).for_each(|(y, b)| *y += b.widen()));
            }
            y
        };
        let limit = self.op.limit.map_or(f64::INFINITY, |limit| limit.0);
        let mut inner = layer(&rows, first, self.gate, self.gate_bias);
        inner.iter_mut().for_each(|gate| *gate = self.activated(gate.min(limit)));
        if let Some(up) = self.up {
            let up = layer(&rows, first, up, self.up_bias);
            let shift = self.op.shift.map_or(0.0, |shift| shift.0);
            inner.iter_mut().zip(up).for_each(|(gate, up)| *gate *= up.clamp(-limit, limit) + shift);
        }
        layer(&inner, last, self.down, self.down_bias)
    }

    fn activated(&self, gate: f64) -> f64 {
        match self.op.alpha {
            Some(alpha) => gate / (1.0 + libm::exp(-alpha.0 * gate)),
            None => activated(self.op.activation, gate),
        }
    }
}
