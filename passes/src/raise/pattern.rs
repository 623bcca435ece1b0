//! What rules ask of values.

use planish_ir::ops::{Binary, BinaryKind, Cast, Reshape, Transpose, Unary, UnaryKind};
use planish_ir::{BuildError, DType, Dim, Graph, Op, Rewriter, Shape, ValueId};

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
    Some((x, scalar(graph, constant)?))
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

/// The number, where a value is a constant of one element.
pub(super) fn scalar(graph: &Graph, value: ValueId) -> Option<f64> {
    let weight = graph.weight(value).filter(|w| w.elements() == 1)?;
    weight.read_numbers().ok()?.first().copied()
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

/// A value of another type, unless it has it.
pub(super) fn cast_to(graph: &mut Rewriter<'_>, x: ValueId, to: DType) -> Result<ValueId, BuildError> {
    if graph.ty(x).dtype == to { Ok(x) } else { part(graph, Cast { x, to }, x) }
}

/// How many operators scaling is looked for behind.
const DEPTH: usize = 8;

/// The value without what it is multiplied with, and that number: scaling is found behind transposes
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
    Ok((part(graph, again, value)?, factor))
}

/// x and the factor, where a value is `x * factor` or `x / (1 / factor)`.
pub(super) fn scaled(graph: &Graph, value: ValueId) -> Option<(ValueId, f64)> {
    let divided = || with_scalar(graph, value, BinaryKind::Div).map(|(x, number)| (x, 1.0 / number));
    with_scalar(graph, value, BinaryKind::Mul).or_else(divided)
}

/// Emits a part of what stands for a value; returns its one result.
pub(super) fn part(graph: &mut Rewriter<'_>, op: impl Into<Op>, like: ValueId) -> Result<ValueId, BuildError> {
    Ok(graph.emit_part(op, like)?[0])
}

/// Transposes a value; what it is a transpose of is transposed once.
pub(super) fn transpose(graph: &mut Rewriter<'_>, x: ValueId, perm: &[usize]) -> Result<ValueId, BuildError> {
    let (of, perm) = match op(graph, x) {
        Some(Op::Transpose(inner)) => (inner.x, perm.iter().map(|&p| inner.perm[p]).collect()),
        _ => (x, perm.to_vec()),
    };
    if perm.is_sorted() { Ok(of) } else { part(graph, Transpose { x: of, perm }, x) }
}

/// Reshapes a value; what it is a reshape of is reshaped once.
pub(super) fn reshape(
    graph: &mut Rewriter<'_>,
    x: ValueId,
    dims: impl IntoIterator<Item = Dim>,
) -> Result<ValueId, BuildError> {
    let shape = Shape::new(dims);
    let of = reshaped(graph, x).unwrap_or(x);
    if graph.ty(of).shape == shape { Ok(of) } else { part(graph, Reshape { x: of, shape }, x) }
}
