//! Operators that treat the indices of an axis apart: on a part of the axis they compute a part of the result.

use planish_ir::ops::{
    Concat, Expand, FakeQuantize, Gather, LayerNorm, MatMul, Reduce, Reshape, RmsNorm, Rotary, Slice, Softmax,
};
use planish_ir::ops::{Split, Transpose};
use planish_ir::{Dim, Graph, Node, Op, ValueId};

use super::cut::Cut;

/// The operand of an operator, as it has to be for a part of the result: cut, or whole.
pub(super) type Need = (ValueId, Option<Cut>);

/// How the results of a node are cut if an operand is, and others as they have to be then; `held` says how operands are cut.
pub(super) fn spread(
    graph: &Graph,
    node: &Node,
    operand: ValueId,
    held: &dyn Fn(ValueId) -> Option<Cut>,
    ranks: usize,
) -> Option<Vec<Cut>> {
    let cut = held(operand)?;
    let shape = |value: ValueId| &graph.ty(value).shape;
    let result = &shape(*node.outputs.first()?)[..];
    let last = shape(operand).rank() - 1;
    let one = match &node.op {
        op if is_elementwise(op) => {
            let axis = cut.axis + result.len() - shape(operand).rank();
            (size(&result[axis]) == Some(cut.size())).then(|| cut.along(axis))?
        }
        // Products of matrices are apart along the axes in front of rows and columns.
        Op::MatMul(_) => {
            let axis = cut.axis + result.len() - shape(operand).rank();
            (cut.axis + 1 < last && size(&result[axis]) == Some(cut.size())).then(|| cut.along(axis))?
        }
        Op::Softmax(Softmax { x }) | Op::LayerNorm(LayerNorm { x, .. }) | Op::RmsNorm(RmsNorm { x, .. }) => {
            (*x == operand && cut.axis != last).then_some(cut)?
        }
        Op::Rotary(op) => (op.x == operand && has_heads(graph, op, &cut, ranks)).then_some(cut)?,
        Op::Reshape(_) => cut.reshaped(shape(operand), result, ranks)?,
        Op::Transpose(Transpose { perm, .. }) => cut.along(perm.iter().position(|axis| *axis == cut.axis)?),
        Op::Slice(op) if op.axis == cut.axis => {
            let sizes = three(op, cut.size())?;
            let at = usize::from(sizes[0] > 0);
            let present: Vec<usize> = sizes.into_iter().filter(|size| *size > 0).collect();
            cut.parts(&present)?.into_iter().nth(at)?
        }
        Op::Slice(_) => cut,
        Op::Split(Split { axis, sizes, .. }) if *axis == cut.axis => return cut.parts(sizes),
        Op::Split(_) => return Some(vec![cut; node.outputs.len()]),
        Op::Concat(Concat { parts, axis }) if *axis == cut.axis => {
            let all =
                parts.iter().map(|part| held(*part).filter(|cut| cut.axis == *axis)).collect::<Option<Vec<_>>>()?;
            Cut { axis: *axis, runs: all.into_iter().flat_map(|cut| cut.runs).collect() }
        }
        Op::Concat(_) => cut,
        Op::Expand(_) => {
            let axis = cut.axis + result.len() - shape(operand).rank();
            (size(&result[axis]) == Some(cut.size())).then(|| cut.along(axis))?
        }
        Op::Gather(Gather { x, indices, axis }) => {
            let taken = shape(*indices).rank();
            let moved = if cut.axis > *axis { cut.axis + taken - 1 } else { cut.axis };
            (*x == operand && cut.axis != *axis).then(|| cut.along(moved))?
        }
        Op::Reduce(Reduce { axes, keep, .. }) => {
            let gone = if *keep { 0 } else { axes.iter().filter(|axis| **axis < cut.axis).count() };
            (!axes.contains(&cut.axis)).then(|| cut.along(cut.axis - gone))?
        }
        _ => return None,
    };
    Some(vec![one])
}

/// How the operands of a node have to be for results that are cut like this; `None` where it gives no such part.
pub(super) fn needs(graph: &Graph, node: &Node, results: &[Cut], ranks: usize) -> Option<Vec<Need>> {
    let cut = results.first()?;
    let shape = |value: ValueId| &graph.ty(value).shape;
    let result = &shape(*node.outputs.first()?)[..];
    let x = |x: ValueId, cut: Cut, others: &[ValueId]| {
        Some(std::iter::once((x, Some(cut))).chain(others.iter().map(|other| (*other, None))).collect())
    };
    let aligned = |operand: ValueId| {
        let missing = result.len() - shape(operand).rank();
        match cut.axis.checked_sub(missing).map(|axis| (axis, size(&shape(operand)[axis]))) {
            None | Some((_, Some(1))) => Some((operand, None)),
            Some((axis, Some(own))) if own == cut.size() => Some((operand, Some(cut.along(axis)))),
            Some(_) => None,
        }
    };
    match &node.op {
        op if is_elementwise(op) => op.operands().into_iter().map(aligned).collect(),
        Op::MatMul(MatMul { a, b }) if cut.axis + 2 < result.len() => [*a, *b].into_iter().map(aligned).collect(),
        Op::Softmax(op) if cut.axis + 1 != result.len() => x(op.x, cut.clone(), &[]),
        Op::LayerNorm(op) if cut.axis + 1 != result.len() => {
            let others: Vec<ValueId> = std::iter::once(op.weight).chain(op.bias).collect();
            x(op.x, cut.clone(), &others)
        }
        Op::RmsNorm(op) if cut.axis + 1 != result.len() => x(op.x, cut.clone(), &[op.weight]),
        Op::Rotary(op) if has_heads(graph, op, cut, ranks) => x(op.x, cut.clone(), &[op.cos, op.sin]),
        Op::Reshape(op) => x(op.x, cut.reshaped(result, shape(op.x), ranks)?, &[]),
        Op::Transpose(op) => x(op.x, cut.along(op.perm[cut.axis]), &[]),
        Op::Slice(op) if op.axis != cut.axis => x(op.x, cut.clone(), &[]),
        Op::Split(op) if results.iter().all(|other| other.axis == op.axis) => {
            let runs = results.iter().flat_map(|cut| cut.runs.iter().copied()).collect();
            x(op.x, Cut { axis: op.axis, runs }, &[])
        }
        Op::Split(op) if results.iter().all(|other| other == cut) => x(op.x, cut.clone(), &[]),
        Op::Concat(op) if op.axis == cut.axis => {
            let sizes = op.parts.iter().map(|part| size(&shape(*part)[op.axis])).collect::<Option<Vec<_>>>()?;
            Some(op.parts.iter().copied().zip(cut.parts(&sizes)?.into_iter().map(Some)).collect())
        }
        Op::Concat(op) => Some(op.parts.iter().map(|part| (*part, Some(cut.clone()))).collect()),
        Op::Expand(op) => Some(vec![aligned(op.x)?]),
        Op::Gather(op) => {
            let taken = shape(op.indices).rank();
            let axis = match cut.axis {
                axis if axis < op.axis => axis,
                axis => (axis + 1).checked_sub(taken).filter(|axis| *axis > op.axis)?,
            };
            x(op.x, cut.along(axis), &[op.indices])
        }
        Op::Reduce(op) => {
            let mut kept = (0..shape(op.x).rank()).filter(|axis| op.keep || !op.axes.contains(axis));
            let axis = kept.nth(cut.axis).filter(|axis| !op.axes.contains(axis))?;
            x(op.x, cut.along(axis), &[])
        }
        _ => None,
    }
}

/// The attributes of an operator on the part of a rank: `x` and `results` say how its first operand and its results are cut.
pub(super) fn localize(op: &mut Op, x: &Cut, results: &[Cut], ranks: usize) {
    let Some(cut) = results.first() else { return };
    let dim = |size: usize| Dim::constant(i64::try_from(size).unwrap_or(i64::MAX));
    match op {
        Op::Reshape(Reshape { shape, .. }) | Op::Expand(Expand { shape, .. }) => {
            *shape = shape.with_dim(cut.axis, dim(cut.local(ranks)));
        }
        Op::Rotary(op) => op.heads = op.heads * cut.local(ranks) / cut.size(),
        Op::Split(op) if op.axis == x.axis => op.sizes = results.iter().map(|cut| cut.local(ranks)).collect(),
        Op::Slice(op) if op.axis == x.axis => {
            let start = op.start.as_constant().and_then(|start| usize::try_from(start).ok()).unwrap_or(0);
            let before = x.parts(&[start, x.size() - start]).map_or(0, |parts| parts[0].local(ranks));
            (op.start, op.end) = (dim(before), dim(before + cut.local(ranks)));
        }
        _ => {}
    }
}

/// Whether an operator computes each element of the result from the elements at the same place.
fn is_elementwise(op: &Op) -> bool {
    match op {
        Op::Unary(_) | Op::Binary(_) | Op::Select(_) | Op::Cast(_) | Op::Gelu(_) => true,
        Op::FakeQuantize(FakeQuantize { scale, split, .. }) => scale.is_some() && split.0.is_empty(),
        _ => false,
    }
}

/// Whether ranks have whole heads of what is turned.
fn has_heads(graph: &Graph, op: &Rotary, cut: &Cut, ranks: usize) -> bool {
    let features = size(&graph.ty(op.x).shape[2]).unwrap_or(0);
    cut.axis == 2 && cut.is_in_units(ranks, features / op.heads)
}

/// The sizes in front of a slice, of it, and after it.
fn three(op: &Slice, all: usize) -> Option<[usize; 3]> {
    let (start, end) = (size(&op.start)?, size(&op.end)?);
    Some([start, end.checked_sub(start)?, all.checked_sub(end)?])
}

/// A known size.
pub(super) fn size(dim: &Dim) -> Option<usize> {
    usize::try_from(dim.as_constant()?).ok()
}
