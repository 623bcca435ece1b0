//! Every expert computes every token.

use planish_ir::ops::{BinaryKind, Experts, MatMul, Reduce, ReduceKind, Select};
use planish_ir::{BuildError, DType, Dim, ValueId, Weight};

use super::{gated, rows, tokens, unrows};
use crate::build::Builder;

/// Products of all experts with all tokens. Weights stay as they are stored: tokens are the columns. `numbers`, i64, has the
/// index of each expert, which is the place among the weights where absent.
pub(super) fn products(l: &mut Builder<'_, '_>, p: &Experts, numbers: Option<ValueId>) -> Result<ValueId, BuildError> {
    let x = rows(l, p.x)?;
    let x = l.transpose(x, &[1, 0])?;
    let gate = layer(l, p.gate, x, p.gate_bias)?;
    let up = p.up.map(|up| layer(l, up, x, p.up_bias)).transpose()?;
    let inner = gated(l, p, gate, up)?;
    let results = layer(l, p.down, inner, p.down_bias)?;
    let results = l.widened(results)?;
    let scores = scores(l, p, numbers)?;
    let weighted = l.binary(BinaryKind::Mul, results, scores)?;
    // The result of an expert that no score takes may be infinite, and 0 times that is no number.
    let zero = l.scalar(scores, 0.0);
    let is_not_taken = l.binary(BinaryKind::Equal, scores, zero)?;
    let weighted = l.emit(Select { condition: is_not_taken, a: zero, b: weighted })?;
    let sum = l.emit(Reduce { kind: ReduceKind::Sum, x: weighted, axes: vec![0], keep: false })?;
    let sum = l.cast(sum, l.graph.ty(p.x).dtype)?;
    let sum = l.transpose(sum, &[1, 0])?;
    unrows(l, sum)
}

/// [experts, features, tokens] of weights [experts, features, in] and `x` [.., in, tokens].
fn layer(l: &mut Builder<'_, '_>, weight: ValueId, x: ValueId, bias: Option<ValueId>) -> Result<ValueId, BuildError> {
    let y = l.emit(MatMul { a: weight, b: x })?;
    let Some(bias) = bias else { return Ok(y) };
    let dims: Vec<Dim> = l.graph.ty(bias).shape.iter().cloned().chain([Dim::constant(1)]).collect();
    let bias = l.reshape(bias, dims)?;
    l.binary(BinaryKind::Add, y, bias)
}

/// [experts, 1, tokens]: the score of an expert for a token, 0 where the token does not take it.
fn scores(l: &mut Builder<'_, '_>, p: &Experts, numbers: Option<ValueId>) -> Result<ValueId, BuildError> {
    let (indices, scores) = (rows(l, p.indices)?, rows(l, p.scores)?);
    let scores = l.widened(scores)?;
    let experts = l.graph.ty(p.gate).shape[0].clone();
    let column = |l: &mut Builder<'_, '_>, x: ValueId| {
        let dims: Vec<Dim> = l.graph.ty(x).shape.iter().cloned().chain([Dim::constant(1)]).collect();
        l.reshape(x, dims)
    };
    let (indices, scores) = (column(l, indices)?, column(l, scores)?);
    // As 64 bit integers, which every target compares.
    let indices = l.cast(indices, DType::I64)?;
    let all = numbers.unwrap_or_else(|| {
        let numbers: Vec<i64> = (0..experts.as_constant().unwrap_or(0)).collect();
        l.graph.weight_part(Weight::integers(&numbers), l.like)
    });
    let is_taken = l.binary(BinaryKind::Equal, indices, all)?;
    let zero = l.scalar(scores, 0.0);
    let taken = l.emit(Select { condition: is_taken, a: scores, b: zero })?;
    let by_token = l.emit(Reduce { kind: ReduceKind::Sum, x: taken, axes: vec![1], keep: false })?;
    let by_expert = l.transpose(by_token, &[1, 0])?;
    let count = tokens(l, p.indices);
    l.reshape(by_expert, [experts, Dim::constant(1), count])
}
