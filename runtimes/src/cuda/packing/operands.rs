//! Which operators compute each token alone, and which of their operands have something for each token.

use planish_ir::ops::Attention;
use planish_ir::{Graph, Op, ValueId};

/// An operand that has something for each token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    pub(super) value: ValueId,
    /// How many dimensions it has once it is broadcast: those of batch and sequence are the first two.
    pub(super) rank: usize,
    /// Whether it may broadcast over rows or tokens.
    pub(super) broadcasts: bool,
}

/// The operands of an operator that computes each token of its first result alone; `None` for other operators. The
/// operands that are not among them are the same for all tokens.
pub(super) fn of_tokens(graph: &Graph, op: &Op, result: ValueId) -> Option<Vec<Operand>> {
    let rank = graph.ty(result).shape.rank();
    // The last axis is one of features.
    let has_features = rank > 2;
    let whole = |value: ValueId| Operand { value, rank: graph.ty(value).shape.rank(), broadcasts: false };
    let one = |value: ValueId| Some(vec![whole(value)]);
    let broadcast = |values: &[ValueId], rank: usize| {
        Some(values.iter().map(|&value| Operand { value, rank, broadcasts: true }).collect::<Vec<_>>())
    };
    let and =
        |value: ValueId, other: Option<ValueId>| Some([value].into_iter().chain(other).map(whole).collect::<Vec<_>>());
    // Along the features of a token, not along rows or tokens.
    let inside = |axis: usize| axis >= 2;
    match op {
        Op::Unary(p) => one(p.x),
        Op::Cast(p) => one(p.x),
        Op::Gelu(p) => one(p.x),
        Op::Quantize(p) => one(p.x),
        Op::FakeQuantize(p) if p.scale.is_some() => one(p.x),
        Op::Binary(p) => broadcast(&[p.a, p.b], rank),
        Op::Select(p) => broadcast(&[p.condition, p.a, p.b], rank),
        Op::Expand(p) => broadcast(&[p.x], rank),
        Op::Softmax(p) if has_features => one(p.x),
        Op::LayerNorm(p) if has_features => one(p.x),
        Op::RmsNorm(p) if has_features => one(p.x),
        Op::Reduce(p) if p.axes.iter().all(|axis| inside(*axis)) => one(p.x),
        Op::CumSum(p) if inside(p.axis) => one(p.x),
        Op::Reshape(p) => one(p.x),
        Op::Transpose(p) if p.perm.starts_with(&[0, 1]) => one(p.x),
        Op::Slice(p) if inside(p.axis) => one(p.x),
        Op::Split(p) if inside(p.axis) => one(p.x),
        Op::Concat(p) if inside(p.axis) => Some(p.parts.iter().map(|part| whole(*part)).collect()),
        Op::Gather(p) if p.axis == 0 => one(p.indices),
        Op::Gather(p) if inside(p.axis) => one(p.x),
        Op::Embedding(p) => one(p.ids),
        Op::EmbeddingNorm(p) => broadcast(&p.ids, rank.saturating_sub(1)),
        Op::Linear(p) if has_features => one(p.x),
        Op::FusedLinear(p) if has_features => and(p.x, p.residual),
        Op::QuantizedLinear(p) if has_features => and(p.x, p.residual),
        Op::MatMul(p) if has_features => one(p.a),
        Op::Gated(p) => Some(vec![whole(p.gate), whole(p.up)]),
        Op::AddNorm(p) if has_features => Some(vec![whole(p.x), whole(p.residual)]),
        Op::Rotary(p) => {
            let angles = [p.cos, p.sin].map(|value| Operand { value, rank, broadcasts: true });
            Some(std::iter::once(whole(p.x)).chain(angles).collect())
        }
        Op::Attention(p) => Some(vec![whole(p.q), whole(p.k), whole(p.v)]),
        _ => None,
    }
}

/// The operand of which an operator takes the first token of each row.
pub(super) fn of_first_token(graph: &Graph, op: &Op) -> Option<ValueId> {
    let is = |dim: &planish_ir::Dim, number: i64| dim.as_constant() == Some(number);
    match op {
        Op::Gather(p) if p.axis == 1 && graph.number(p.indices) == Some(0.0) => Some(p.x),
        Op::Slice(p) if p.axis == 1 && is(&p.start, 0) && is(&p.end, 1) => Some(p.x),
        _ => None,
    }
}

/// What an attention has that a packed batch cannot have, besides its mask.
pub(super) fn extra(attention: &Attention) -> Option<&'static str> {
    let has_cache = attention.past_key.is_some() || attention.past_value.is_some() || attention.present.0;
    has_cache.then_some("has a cache")
}
