//! Scaled dot-product attention, computed in `f64` and rounded once.

use planish_ir::ValueId;
use planish_ir::ops::Attention;
use rayon::prelude::*;

use super::normalize::softmax;
use super::{Call, Kernel};
use crate::element::{Element, Float, with_type};
use crate::product::{Matrix, multiply, widen};
use crate::strided::broadcast;
use crate::{Data, Tensor};

/// Queries whose scores are held at once, by each thread.
const QUERIES: usize = 128;

impl Kernel for Attention {
    /// Of no keys, the result is 0.
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let q = call.operand(self.q);
        let [batch, queries, features] = [q.shape()[0], q.shape()[1], q.shape()[2]];
        let mask = self.mask.map(|mask| bool::of(call.operand(mask))).transpose()?;
        let (size, groups) = (features / self.heads, self.heads / self.kv_heads());
        with_type!(q.dtype(), float T => {
            let key = heads::<T>(call, self.k, self.past_key, self.kv_heads())?;
            let value = heads::<T>(call, self.v, self.past_value, self.kv_heads())?;
            let bias = self.bias.map(|bias| Bias::of(call.operand(bias), [batch, self.heads, queries, key.length]));
            let q = T::of(q)?;
            let mixed: Vec<Vec<T>> = (0..batch * self.heads)
                .into_par_iter()
                .map(|at| {
                    let (row, head) = (at / self.heads, at % self.heads);
                    let query = columns(&q[row * queries * features..][..queries * features], features, head, size);
                    let pair = row * self.kv_heads() + head / groups;
                    let takes_part = mask.map(|mask| &mask[row * key.length..][..key.length]);
                    let scores = Scores { op: self, queries, keys: key.length, takes_part, bias: bias.as_ref(), row, head };
                    scores.mix(&query, key.head(pair), value.head(pair), [size, value.size])
                })
                .collect();
            let mut out = Vec::with_capacity(batch * queries * self.heads * value.size);
            for heads in mixed.chunks(self.heads) {
                for query in 0..queries {
                    heads.iter().for_each(|head| out.extend_from_slice(&head[query * value.size..][..value.size]));
                }
            }
            let mut results = vec![T::data(out)];
            if self.present.0 {
                results.extend([key, value].map(|h| T::data(h.elements)));
            }
            Ok(results)
        })
    }
}

/// Keys or values: [batch, kv heads, length, size].
struct Heads<T> {
    elements: Vec<T>,
    length: usize,
    size: usize,
}

impl<T: Float> Heads<T> {
    /// The matrix [length, size] of one head of one row.
    fn head(&self, at: usize) -> Vec<f64> {
        let elements = self.length * self.size;
        widen(&self.elements[at * elements..][..elements])
    }
}

/// The past followed by what is new, split into heads.
fn heads<T: Float>(call: &Call<'_>, new: ValueId, past: Option<ValueId>, heads: usize) -> Result<Heads<T>, String> {
    let new = call.operand(new);
    let past = past.map(|past| call.operand(past));
    let (elements, [length, size]) = appended(past, new, T::of(new)?, heads)?;
    Ok(Heads { elements, length, size })
}

/// The past followed by what is new, of these elements, as caches hold them; and the length and the size of a head.
pub(super) fn appended<T: Float>(
    past: Option<&Tensor>,
    new: &Tensor,
    elements: &[T],
    heads: usize,
) -> Result<(Vec<T>, [usize; 2]), String> {
    let split = new.shape().len() == 4;
    let (length, size) = match *new.shape() {
        [_, _, length, size] => (length, size),
        _ => (new.shape()[1], new.shape()[2] / heads),
    };
    let before = past.map_or(0, |past| past.shape()[2]);
    let (rows, past) = (new.shape()[0], past.map(T::of).transpose()?.unwrap_or_default());
    let new = elements;
    let mut elements = Vec::with_capacity(past.len() + new.len());
    for at in 0..rows * heads {
        elements.extend_from_slice(&past[at * before * size..][..before * size]);
        if split {
            elements.extend_from_slice(&new[at * length * size..][..length * size]);
            continue;
        }
        let (row, head) = (at / heads, at % heads);
        for token in 0..length {
            elements.extend_from_slice(&new[((row * length + token) * heads + head) * size..][..size]);
        }
    }
    Ok((elements, [before + length, size]))
}

/// What is added to scores, by its strides over [batch, heads, queries, keys].
struct Bias {
    elements: Vec<f64>,
    strides: Vec<usize>,
}

impl Bias {
    fn of(bias: &Tensor, scores: [usize; 4]) -> Self {
        Self { elements: bias.to_f64(), strides: broadcast(bias.shape(), &scores) }
    }
}

/// The scores of one head of one row.
struct Scores<'a> {
    op: &'a Attention,
    queries: usize,
    keys: usize,
    takes_part: Option<&'a [bool]>,
    bias: Option<&'a Bias>,
    row: usize,
    head: usize,
}

impl Scores<'_> {
    /// The values mixed for each query: [queries, value size].
    fn mix<T: Float>(
        &self,
        query: &[f64],
        key: Vec<f64>,
        mut value: Vec<f64>,
        [size, value_size]: [usize; 2],
    ) -> Vec<T> {
        let all = self.takes_part.is_none_or(|t| !t.contains(&true));
        if let (Some(takes_part), false) = (self.takes_part, all || self.op.goes_by_position()) {
            // Not even an infinite value of a key that takes no part reaches the sum.
            let rows = value.chunks_mut(value_size.max(1)).zip(takes_part);
            rows.filter(|(_, takes_part)| !**takes_part).for_each(|(row, _)| row.fill(0.0));
        }
        let key = Matrix::new(&key, self.keys, size).transposed();
        let value = Matrix::new(&value, self.keys, value_size);
        let mut out = Vec::with_capacity(self.queries * value_size);
        for first in (0..self.queries).step_by(QUERIES) {
            let rows = QUERIES.min(self.queries - first);
            let block = Matrix::new(&query[first * size..(first + rows) * size], rows, size);
            let mut scores = multiply(block, key);
            for (i, row) in scores.chunks_mut(self.keys.max(1)).enumerate() {
                self.weigh(first + i, row);
                softmax(row);
            }
            let mixed = multiply(Matrix::new(&scores, rows, self.keys), value);
            out.extend(mixed.into_iter().map(T::narrow));
        }
        out
    }

    /// From products to scores: scaled, capped, biased, and minus infinity where a key takes no
    /// part. A query that would attend to no key attends to all alike.
    fn weigh(&self, query: usize, row: &mut [f64]) {
        let attends = |key: usize| self.takes_part.is_none_or(|t| t[key]) && self.sees(query, key);
        if !(0..row.len()).any(attends) {
            row.fill(0.0);
            return;
        }
        for (key, score) in row.iter_mut().enumerate() {
            if !attends(key) {
                *score = f64::NEG_INFINITY;
                continue;
            }
            *score *= self.op.scale.0;
            if let Some(cap) = self.op.softcap {
                *score = cap.0 * libm::tanh(*score / cap.0);
            }
            if let Some(bias) = self.bias {
                let at = [self.row, self.head, query, key];
                *score += bias.elements[at.iter().zip(&bias.strides).map(|(i, s)| i * s).sum::<usize>()];
            }
        }
    }

    /// Whether causality and window let a query see a key.
    fn sees(&self, query: usize, key: usize) -> bool {
        if !self.op.goes_by_position() {
            return true;
        }
        let position = self.keys - self.queries + query;
        (!self.op.causal.0 || key <= position) && self.op.window.is_none_or(|window| position.abs_diff(key) < window)
    }
}

/// The columns of a head of a row-major matrix.
fn columns<T: Float>(matrix: &[T], width: usize, head: usize, size: usize) -> Vec<f64> {
    if width == 0 {
        return Vec::new();
    }
    matrix.chunks(width).flat_map(|row| widen(&row[head * size..(head + 1) * size])).collect()
}
