//! Products of batches of matrices whose leading dimensions, such as batch and heads, were reshaped on the way.

use planish_ir::ops::{Binary, Expand, MatMul, Reshape, Select, Softmax};
use planish_ir::{BuildError, Dim, Graph, NodeId, Op, Rewriter, Shape, ValueId};

use super::super::pattern::{op, reshaped, transposed};
use super::super::{Found, NoMatch, Rule};
use super::scores;
use crate::build::{reshape_once, transpose_once};

/// A transpose of the matrices of a batch, whose dimensions were made one for it.
pub(super) const TRANSPOSE: Rule = Rule { name: "attention", find: transpose_apart };

fn transpose_apart(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let output = graph.node(node).outputs[0];
    let Op::Reshape(Reshape { x, .. }) = graph.node(node).op else { return Err(NoMatch::Other) };
    if transposed(graph, x, &[0, 2, 1]).and_then(|flat| reshaped(graph, flat)).is_none() {
        return Err(NoMatch::Other);
    }
    let (turned, to) = (graph.ty(x).shape.clone(), graph.ty(output).shape.clone());
    if to.rank() != 4 || to[2..] != turned[1..] {
        return Err(NoMatch::Other);
    }
    Ok(vec![apart(graph, x, &to[..2])?])
}

/// Matrices of a batch, [.., rows, columns], with other leading dimensions of as many matrices; a transpose of the
/// matrices comes after.
fn apart(graph: &mut Rewriter<'_>, x: ValueId, leading: &[Dim]) -> Result<ValueId, BuildError> {
    let with = |graph: &Graph, x: ValueId| {
        let shape = &graph.ty(x).shape;
        leading.iter().chain(&shape[shape.rank() - 2..]).cloned().collect::<Vec<Dim>>()
    };
    let Some(of) = transposed(graph, x, &[0, 2, 1]) else {
        let dims = with(graph, x);
        return reshape_once(graph, x, dims);
    };
    let dims = with(graph, of);
    let of = reshape_once(graph, of, dims)?;
    let rank = leading.len() + 2;
    let perm: Vec<usize> = (0..leading.len()).chain([rank - 1, rank - 2]).collect();
    transpose_once(graph, of, &perm)
}

/// `probabilities * v` in which batch and heads were made one dimension after the softmax.
pub(super) const VALUES: Rule = Rule { name: "attention", find: values_apart };

fn values_apart(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::MatMul(MatMul { a, b }) = graph.node(node).op else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    let Some(probabilities) = reshaped(graph, a).filter(|of| scores::softmax(graph, *of).is_some()) else {
        return Err(NoMatch::Other);
    };
    let (shape, flat) = (graph.ty(probabilities).shape.clone(), graph.ty(a).shape.clone());
    let v = graph.ty(b).shape.clone();
    if shape.rank() != 4 || flat.rank() != 3 || shape[2..] != flat[1..] || v.rank() != 3 || v[0] != flat[0] {
        return Err(NoMatch::Other);
    }
    let v = apart(graph, b, &shape[..2])?;
    let product = graph.part(MatMul { a: probabilities, b: v }, output)?;
    let shape = graph.ty(output).shape.clone();
    Ok(vec![graph.emit(Reshape { x: product, shape }, output)?])
}

/// `softmax(scores) * v` in which batch and heads are one dimension, that are made two after it.
pub(super) const HEADS: Rule = Rule { name: "attention", find: heads_apart };

fn heads_apart(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Reshape(Reshape { x, .. }) = graph.node(node).op else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    let Some(Op::MatMul(MatMul { a, b })) = op(graph, x).cloned() else { return Err(NoMatch::Other) };
    let Some(Op::Softmax(Softmax { x: scores })) = op(graph, a).cloned() else { return Err(NoMatch::Other) };
    let (flat, to) = (graph.ty(x).shape.clone(), graph.ty(output).shape.clone());
    let v = graph.ty(b).shape.clone();
    if flat.rank() != 3 || to.rank() != 4 || to[2..] != flat[1..] || v.rank() != 3 || v[0] != flat[0] {
        return Err(NoMatch::Other);
    }
    let scores = apart(graph, scores, &to[..2])?;
    let probabilities = graph.part(Softmax { x: scores }, a)?;
    let v = apart(graph, b, &to[..2])?;
    Ok(vec![graph.emit(MatMul { a: probabilities, b: v }, output)?])
}

/// What a reshape that leaves the last two dimensions alone gives, where it is done to the operands instead; `None`
/// of operators that it is not done to.
pub(super) fn pushed_through(graph: &mut Rewriter<'_>, value: ValueId) -> Result<Option<ValueId>, BuildError> {
    let Some((x, to)) = leading(graph, value) else { return Ok(None) };
    let Some(op) = op(graph, x).cloned() else { return Ok(None) };
    let from = graph.ty(x).shape.clone();
    let split = |graph: &mut Rewriter<'_>, operand: ValueId| spread(graph, operand, &from, &to);
    let pushed: Op = match op {
        Op::MatMul(MatMul { a, b }) => {
            let shapes = [a, b].map(|operand| graph.ty(operand).shape.clone());
            let lead = from.rank() - 2;
            if shapes.iter().any(|shape| shape.rank() != from.rank() || shape[..lead] != from[..lead]) {
                return Ok(None);
            }
            let leading = &to[..to.rank() - 2];
            MatMul { a: apart(graph, a, leading)?, b: apart(graph, b, leading)? }.into()
        }
        Op::Binary(Binary { kind, a, b }) => Binary { kind, a: split(graph, a)?, b: split(graph, b)? }.into(),
        Op::Select(Select { condition, a, b }) => {
            Select { condition: split(graph, condition)?, a: split(graph, a)?, b: split(graph, b)? }.into()
        }
        _ => return Ok(None),
    };
    graph.part(pushed, value).map(Some)
}

/// The operand and the shape, where a value is a reshape that leaves the last two dimensions alone.
pub(super) fn leading(graph: &Graph, value: ValueId) -> Option<(ValueId, Shape)> {
    let Op::Reshape(Reshape { x, shape }) = op(graph, value)? else { return None };
    let last = |shape: &Shape| shape.rank().checked_sub(2).map(|lead| shape[lead..].to_vec());
    (last(&graph.ty(*x).shape)? == last(shape)?).then(|| (*x, shape.clone()))
}

/// What broadcasts to a shape, so that it broadcasts to another one that the first is reshaped to. It is repeated
/// along those dimensions only that the reshape merges or splits.
fn spread(graph: &mut Rewriter<'_>, value: ValueId, from: &Shape, to: &Shape) -> Result<ValueId, BuildError> {
    let own = graph.ty(value).shape.clone();
    let one = Dim::constant(1);
    if own.iter().all(|dim| *dim == one) {
        return reshape_once(graph, value, []);
    }
    let ahead = from.iter().zip(to.iter()).take_while(|(a, b)| a == b).count();
    let after = from[ahead..].iter().rev().zip(to[ahead..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (middle, end) = (ahead..from.rank() - after, to.rank() - after);
    let missing = from.rank().saturating_sub(own.rank());
    let mut dims = vec![one.clone(); missing];
    dims.extend(own.iter().cloned());
    let mut merged = vec![one.clone(); end - ahead];
    let mut x = value;
    if dims[middle.clone()].iter().any(|dim| *dim != one) {
        if dims[middle.clone()] != from[middle.clone()] {
            dims[middle.clone()].clone_from_slice(&from[middle.clone()]);
            x = graph.part(Expand { x: value, shape: Shape::new(dims.iter().cloned()) }, value)?;
        }
        merged = to[ahead..end].to_vec();
    }
    let dims = dims[..ahead].iter().chain(&merged).chain(&dims[middle.end..]).cloned().collect::<Vec<Dim>>();
    reshape_once(graph, x, dims)
}
