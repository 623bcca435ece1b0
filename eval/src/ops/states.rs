//! Layers with a state of a fixed size, in `f64`; each result is rounded once.

use planish_ir::ops::{CausalConv, LinearAttention};
use rayon::prelude::*;

use super::{Call, Kernel};
use crate::Data;
use crate::element::{Element, Float, with_type};

impl Kernel for CausalConv {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let (x, weight) = (call.operand(self.x), call.operand(self.weight));
        let (&[rows, tokens, channels], &[_, _, taps]) = (x.shape(), weight.shape()) else { return Err(RANKS.into()) };
        with_type!(x.dtype(), float T => {
            let optional = |value: Option<_>| value.map(|value| T::of(call.operand(value))).transpose();
            let (x, weight) = (T::of(x)?, T::of(weight)?);
            let (bias, state) = (optional(self.bias)?, optional(self.state)?);
            let before = taps - 1;
            // The element of a channel at a place among the state and the tokens after it.
            let all = |row: usize, place: usize, channel: usize| match place.checked_sub(before) {
                Some(token) => x[(row * tokens + token) * channels + channel],
                None => state.map_or_else(T::default, |state| state[(row * before + place) * channels + channel]),
            };
            let y = (0..rows * tokens * channels).map(|at| {
                let (row, token, channel) = (at / (tokens * channels), at / channels % tokens, at % channels);
                let window = (0..taps).map(|j| weight[channel * taps + j].widen() * all(row, token + j, channel).widen());
                let sum = window.sum::<f64>() + bias.map_or(0.0, |bias| bias[channel].widen());
                T::narrow(if self.silu.0 { sum / (1.0 + libm::exp(-sum)) } else { sum })
            });
            let next = (0..rows * before * channels).map(|at| {
                let (row, place, channel) = (at / (before * channels), at / channels % before, at % channels);
                all(row, tokens + place, channel)
            });
            Ok(vec![T::data(y.collect()), T::data(next.collect())])
        })
    }
}

/// The typing rule has been checked before.
const RANKS: &str = "the operands do not have the dimensions of the operator";

impl Kernel for LinearAttention {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let (q, v) = (call.operand(self.q), call.operand(self.v));
        let (&[rows, tokens, key], &[_, _, value]) = (q.shape(), v.shape()) else { return Err(RANKS.into()) };
        let sizes = Sizes {
            tokens,
            heads: self.heads,
            groups: self.key_heads,
            key: key / self.key_heads,
            value: value / self.heads,
        };
        with_type!(q.dtype(), float T => {
            let of = |value| T::of(call.operand(value));
            let optional = |value: Option<_>| value.map(of).transpose();
            let state = optional(self.state)?;
            let recurrence = Recurrence {
                sizes,
                q: of(self.q)?,
                k: of(self.k)?,
                v: of(self.v)?,
                decay: optional(self.decay)?,
                each: self.decay.map_or(1, |decay| call.operand(decay).shape()[2] / self.heads),
                beta: optional(self.beta)?,
                scale: self.scale.0,
            };
            let each = sizes.key.checked_mul(sizes.value).ok_or("a state has more elements than there are numbers")?;
            let heads: Vec<(Vec<f64>, Vec<f64>)> = (0..rows * self.heads).into_par_iter().map(|at| {
                let first = state.map_or_else(|| vec![0.0; each], |state| state[at * each..][..each].iter().map(|s| s.widen()).collect());
                recurrence.run(at / self.heads, at % self.heads, first)
            }).collect();
            let mut y = vec![T::default(); rows * tokens * value];
            for (at, (results, _)) in heads.iter().enumerate() {
                for (token, result) in results.chunks(sizes.value.max(1)).enumerate() {
                    let to = ((at / self.heads * tokens + token) * self.heads + at % self.heads) * sizes.value;
                    y[to..][..sizes.value].iter_mut().zip(result).for_each(|(to, from)| *to = T::narrow(*from));
                }
            }
            let next = heads.into_iter().flat_map(|(_, state)| state).map(T::narrow).collect();
            Ok(vec![T::data(y), T::data(next)])
        })
    }
}

#[derive(Clone, Copy)]
struct Sizes {
    tokens: usize,
    /// Heads of values.
    heads: usize,
    /// Heads of keys.
    groups: usize,
    /// The size of a key, and that of a value.
    key: usize,
    value: usize,
}

/// The operands, row-major.
struct Recurrence<'a, T> {
    sizes: Sizes,
    q: &'a [T],
    k: &'a [T],
    v: &'a [T],
    decay: Option<&'a [T]>,
    /// The decays of a head.
    each: usize,
    beta: Option<&'a [T]>,
    scale: f64,
}

impl<T: Float> Recurrence<'_, T> {
    /// The results of a head for all tokens of a row, [tokens, size of a value], and the last state.
    fn run(&self, row: usize, head: usize, mut state: Vec<f64>) -> (Vec<f64>, Vec<f64>) {
        let Sizes { tokens, heads, groups, key, value } = self.sizes;
        let group = head / (heads / groups);
        let mut results = Vec::with_capacity(tokens * value);
        for token in (0..tokens).map(|token| row * tokens + token) {
            let part = |all: &[T], of: usize, at: usize, size: usize| -> Vec<f64> {
                all[(token * of + at) * size..][..size].iter().map(|x| x.widen()).collect()
            };
            if let Some(decay) = self.decay {
                let kept: Vec<f64> = part(decay, heads, head, self.each).into_iter().map(libm::exp).collect();
                for (row, kept) in state.chunks_mut(value.max(1)).zip(kept.iter().cycle()) {
                    row.iter_mut().for_each(|s| *s *= kept);
                }
            }
            let (q, k) = (part(self.q, groups, group, key), part(self.k, groups, group, key));
            let mut v = part(self.v, heads, head, value);
            if let Some(beta) = self.beta {
                let beta = beta[token * heads + head].widen();
                let held = weighted(&state, &k, value);
                v.iter_mut().zip(held).for_each(|(v, held)| *v = beta * (*v - held));
            }
            for (row, k) in state.chunks_mut(value.max(1)).zip(&k) {
                row.iter_mut().zip(&v).for_each(|(s, v)| *s += k * v);
            }
            results.extend(weighted(&state, &q, value).into_iter().map(|y| self.scale * y));
        }
        (results, state)
    }
}

/// The sum of the rows of a state, each times a number.
fn weighted(state: &[f64], by: &[f64], value: usize) -> Vec<f64> {
    let mut sum = vec![0.0; value];
    for (row, by) in state.chunks(value.max(1)).zip(by) {
        sum.iter_mut().zip(row).for_each(|(sum, s)| *sum += by * s);
    }
    sum
}
