//! A softmax whose mask is added only where it leaves something out, as target `ort` writes it.

use planish_ir::ops::{
    Binary, BinaryKind, Cast, Expand, Reduce, ReduceKind, Reshape, Select, Softmax, Unary, UnaryKind,
};
use planish_ir::{Graph, Op, ValueId};

use super::super::super::is_default;
use super::super::super::scope::Scope;
use super::super::Node;
use crate::proto::{AttributeType, GraphProto, NodeProto};

/// Emits the softmax of the sum for `If(masked, Softmax(x + addend), Softmax(x))` where the addend is 0 unless the
/// condition holds, and says whether it did.
pub(super) fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let branch = |name| node.attribute(name, AttributeType::Graph).map(|a| a.and_then(|a| a.g.as_ref()));
    let (Some(added), Some(plain)) = (branch("then_branch")?, branch("else_branch")?) else { return Ok(false) };
    let (Some([x, addend]), Some([scores])) = (sum(added), alone(plain)) else { return Ok(false) };
    let same_type = scope.ty(x).is_ok_and(|ty| scope.ty(addend).is_ok_and(|a| a.dtype == ty.dtype));
    if x != scores || !same_type {
        return Ok(false);
    }
    let condition = scope.value(node.input(0)?)?;
    let [x, addend] = [scope.value(x)?, scope.value(addend)?];
    if !is_zero_unless(&scope.graph, addend, condition) {
        return Ok(false);
    }
    let name = node.proto.output.first().ok_or("it has no result")?.clone();
    let sum = scope.emit(Binary { kind: BinaryKind::Add, a: x, b: addend }, &format!("{name}/add"))?;
    if scope.graph.ty(sum) != scope.graph.ty(x) {
        return Ok(false);
    }
    let result = scope.emit(Softmax { x: sum }, &name)?;
    scope.set(&name, result);
    Ok(true)
}

/// What is added, where a graph is the softmax of a sum.
fn sum(graph: &GraphProto) -> Option<[&str; 2]> {
    let [add, softmax] = &graph.node[..] else { return None };
    let [a, b] = &add.input[..] else { return None };
    let fits = add.op_type == "Add" && is_default(&add.domain) && is_softmax_of(graph, softmax, add.output.first()?);
    fits.then_some([a, b])
}

/// The operand, where a graph is a softmax.
fn alone(graph: &GraphProto) -> Option<[&str; 1]> {
    let [softmax] = &graph.node[..] else { return None };
    let x = softmax.input.first()?;
    is_softmax_of(graph, softmax, x).then_some([x])
}

/// Whether a node is the softmax of a value along the last axis and gives the result of its graph.
fn is_softmax_of(graph: &GraphProto, node: &NodeProto, x: &str) -> bool {
    let [axis] = &node.attribute[..] else { return false };
    let [result] = &graph.output[..] else { return false };
    node.op_type == "Softmax"
        && is_default(&node.domain)
        && (axis.name.as_str(), axis.i) == ("axis", -1)
        && node.input == [x]
        && node.output == [result.name.as_str()]
}

/// Whether an addend is a selection between 0 and another number by a mask, and the condition is whether the mask has an
/// element that does not hold.
fn is_zero_unless(graph: &Graph, addend: ValueId, condition: ValueId) -> bool {
    let op = |value: ValueId| graph.producer(value).map(|node| &node.op);
    let Some(Op::Select(Select { condition: mask, a, .. })) = op(addend) else { return false };
    let mut mask = *mask;
    while let Some(Op::Reshape(Reshape { x, .. }) | Op::Expand(Expand { x, .. })) = op(mask) {
        mask = *x;
    }
    let counted = match op(condition) {
        Some(Op::Cast(Cast { x, .. })) => op(*x),
        _ => None,
    };
    let Some(Op::Reduce(Reduce { kind: ReduceKind::Sum, x, .. })) = counted else { return false };
    let Some(Op::Cast(Cast { x, .. })) = op(*x) else { return false };
    let negated = matches!(op(*x), Some(Op::Unary(Unary { kind: UnaryKind::Not, x })) if *x == mask);
    negated && graph.ty(condition).shape.rank() == 0 && graph.number(*a) == Some(0.0)
}
