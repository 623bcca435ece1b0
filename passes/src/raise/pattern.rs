//! What rules ask of values.

use planish_ir::ops::{Binary, BinaryKind, Reshape, Transpose, Unary, UnaryKind};
use planish_ir::{Graph, Op, ValueId};

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

/// Whether a number is what a constant is meant to be, which exporters round to binary32 or shorten.
pub(super) fn is_about(number: f64, meant: f64) -> bool {
    (number - meant).abs() <= 1e-4 * meant.abs()
}
