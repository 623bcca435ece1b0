//! The conditions of rules on values.

use planish_ir::ops::{Binary, BinaryKind, Cast, Reshape, Transpose, Unary, UnaryKind};
use planish_ir::{BuildError, DType, Graph, Op, Rewriter, ValueId};

/// The operator that computes a value.
pub(super) fn op(graph: &Graph, value: ValueId) -> Option<&Op> {
    graph.producer(value).map(|node| &node.op)
}

/// The operands, where a value is `kind(a, b)`.
pub(super) fn binary(graph: &Graph, value: ValueId, kind: BinaryKind) -> Option<[ValueId; 2]> {
    match op(graph, value)? {
        Op::Binary(Binary { kind: found, a, b }) if *found == kind => Some([*a, *b]),
        _ => None,
    }
}

/// The operands, the one that is a constant second, where a value is `kind(x, constant)`; of operators
/// whose operands may be exchanged, either way round.
pub(super) fn with_weight(graph: &Graph, value: ValueId, kind: BinaryKind) -> Option<[ValueId; 2]> {
    let [a, b] = binary(graph, value, kind)?;
    match (graph.weight(a), graph.weight(b)) {
        (_, Some(_)) => Some([a, b]),
        (Some(_), None) if kind.is_commutative() => Some([b, a]),
        _ => None,
    }
}

/// The operand and the number, where a value is `kind(x, number)`.
pub(super) fn with_scalar(graph: &Graph, value: ValueId, kind: BinaryKind) -> Option<(ValueId, f64)> {
    let [x, constant] = with_weight(graph, value, kind)?;
    Some((x, graph.number(constant)?))
}

/// The operand, where a value is `kind(x)`.
pub(super) fn unary(graph: &Graph, value: ValueId, kind: UnaryKind) -> Option<ValueId> {
    match op(graph, value)? {
        Op::Unary(Unary { kind: found, x }) if *found == kind => Some(*x),
        _ => None,
    }
}

/// The operand, where a value is a transpose by `perm`.
pub(super) fn transposed(graph: &Graph, value: ValueId, perm: &[usize]) -> Option<ValueId> {
    match op(graph, value)? {
        Op::Transpose(Transpose { x, perm: found }) if found == perm => Some(*x),
        _ => None,
    }
}

/// The operand, where a value is a reshape.
pub(super) fn reshaped(graph: &Graph, value: ValueId) -> Option<ValueId> {
    match op(graph, value)? {
        Op::Reshape(Reshape { x, .. }) => Some(*x),
        _ => None,
    }
}

/// Whether a number of this type is what a constant is meant to be, which exporters round or shorten.
pub(super) fn is_about(number: f64, meant: f64, dtype: DType) -> bool {
    (number - meant).abs() <= rounding(dtype).max(1e-4) * meant.abs()
}

/// Whether a number is exactly what a constant is meant to be, but for the rounding to float32 of those it is
/// computed from.
pub(super) fn is_exactly(number: f64, meant: f64) -> bool {
    (number - meant).abs() <= f64::from(f32::EPSILON) * meant.abs()
}

/// The largest relative error of a number that a few steps in this type gave.
pub(super) fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2e-3,
        DType::Bf16 => 1.6e-2,
        _ => 1e-6,
    }
}

/// The operand, where a value is a cast to a wider type.
pub(super) fn widened(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let (x, [from, to]) = cast(graph, value)?;
    (from != to && from.widens_to(to)).then_some(x)
}

/// The operand, where a value is a cast from a wider type.
pub(super) fn narrowed(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let (x, [from, to]) = cast(graph, value)?;
    (from != to && to.widens_to(from)).then_some(x)
}

/// The operand and the types, where a value is a cast.
fn cast(graph: &Graph, value: ValueId) -> Option<(ValueId, [DType; 2])> {
    match op(graph, value)? {
        Op::Cast(Cast { x, to }) => Some((*x, [graph.ty(*x).dtype, *to])),
        _ => None,
    }
}

/// How many operators scaling is looked for after.
const DEPTH: usize = 8;

/// The value without what it is multiplied with, and that number: scaling is found after transposes
/// and reshapes too, which are then done without it.
pub(super) fn unscaled(graph: &mut Rewriter<'_>, value: ValueId) -> Result<(ValueId, f64), BuildError> {
    unscaled_within(graph, value, DEPTH)
}

fn unscaled_within(graph: &mut Rewriter<'_>, value: ValueId, depth: usize) -> Result<(ValueId, f64), BuildError> {
    if depth == 0 {
        return Ok((value, 1.0));
    }
    if let Some((x, factor)) = scaled(graph, value).filter(|(x, _)| graph.ty(*x) == graph.ty(value)) {
        let (x, inner) = unscaled_within(graph, x, depth - 1)?;
        return Ok((x, inner * factor));
    }
    let x = match op(graph, value) {
        Some(Op::Transpose(p)) => p.x,
        Some(Op::Reshape(p)) => p.x,
        _ => return Ok((value, 1.0)),
    };
    let (inner, factor) = unscaled_within(graph, x, depth - 1)?;
    if inner == x {
        return Ok((value, 1.0));
    }
    let Some(mut again) = op(graph, value).cloned() else { return Ok((value, 1.0)) };
    again.visit_operands_mut(&mut |v| *v = inner);
    Ok((graph.part(again, value)?, factor))
}

/// x and the factor, where a value is `x * factor` or `x / (1 / factor)`.
pub(super) fn scaled(graph: &Graph, value: ValueId) -> Option<(ValueId, f64)> {
    let divided = || with_scalar(graph, value, BinaryKind::Div).map(|(x, number)| (x, 1.0 / number));
    with_scalar(graph, value, BinaryKind::Mul).or_else(divided)
}
