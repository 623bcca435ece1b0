//! Reshapes in ONNX, with as little computed as possible. Whatever sizes a run has, zero included,
//! the form must hold, but for the rows of strided products.

use std::collections::{HashMap, HashSet};

use planish_ir::ops::{Binary, BinaryKind, MatMul, Reshape, Transpose};
use planish_ir::{Dim, Graph, Op, Shape, ValueId};

use super::Emitter;
use super::nodes::{Form, form, int, size};

/// The node for a reshape.
pub(super) fn reshape(e: &mut Emitter<'_>, op: &Reshape, result: ValueId) -> Form {
    let from = e.graph.ty(op.x).shape.clone();
    let x = e.name(op.x).to_owned();
    if e.strided.contains(&result)
        && let Some(refusing) = refusing_none(&op.shape)
    {
        let sizes = e.shape(&refusing);
        return form("Reshape", vec![x, sizes], Vec::new());
    }
    if let Some(axes) = ones(&from, &op.shape) {
        let axes = e.constant(&axes);
        return form("Unsqueeze", vec![x, axes], Vec::new());
    }
    if let Some(axes) = ones(&op.shape, &from) {
        let axes = e.constant(&axes);
        return form("Squeeze", vec![x, axes], Vec::new());
    }
    match target(&from, &op.shape) {
        Some(sizes) => {
            let sizes = e.constant(&sizes);
            form("Reshape", vec![x, sizes], Vec::new())
        }
        None => {
            let sizes = e.shape(&op.shape);
            // A size of 0 means 0, not the operand's.
            form("Reshape", vec![x, sizes], vec![int("allowzero", 1)])
        }
    }
}

/// Results of reshapes whose first dimension a transpose moves into the matrices of a product. ONNX Runtime makes the two
/// one product of strided matrices when it loads the graph, and that divides by the number of their rows: of none, it
/// ends the process.
pub(super) fn strided(graph: &Graph) -> HashSet<ValueId> {
    // What becomes matrices, by what it is a transpose of.
    let mut turned: HashMap<ValueId, ValueId> = HashMap::new();
    let mut strided = HashSet::new();
    for (_, node) in graph.nodes() {
        let (of, result) = match &node.op {
            Op::Transpose(Transpose { x, perm }) if perm.len() > 2 && perm[perm.len() - 2..].contains(&0) => {
                (Some(*x), node.outputs[0])
            }
            Op::Binary(Binary { kind: BinaryKind::Mul, a, .. }) => (turned.get(a).copied(), node.outputs[0]),
            Op::MatMul(MatMul { a, b }) => {
                strided.extend([a, b].into_iter().filter_map(|operand| turned.get(operand)));
                continue;
            }
            _ => continue,
        };
        turned.extend(of.map(|of| (result, of)));
    }
    strided
}

/// The shape with its second dimension left to work out: runtimes do so beside sizes that are never 0 only, and refuse
/// a first dimension of none.
fn refusing_none(to: &Shape) -> Option<Shape> {
    let [first, _, rest @ ..] = &to[..] else { return None };
    let known = rest.iter().all(|dim| dim.as_constant().is_some_and(|size| size > 0));
    (known && first.as_constant().is_none()).then(|| to.with_dim(1, Dim::constant(-1)))
}

/// Where `to` has a 1 that `from` has not, if that is all in which they differ.
fn ones(from: &Shape, to: &Shape) -> Option<Vec<i64>> {
    let mut rest = from.iter().peekable();
    let mut axes = Vec::new();
    for (axis, dim) in to.iter().enumerate() {
        if rest.next_if_eq(&dim).is_none() {
            (*dim == Dim::constant(1)).then(|| axes.push(size(axis)))?;
        }
    }
    (rest.peek().is_none() && !axes.is_empty()).then_some(axes)
}

/// The target as a constant, where ONNX's shorthands reach: 0 keeps the operand's dimension, and
/// one -1 is what remains, which runtimes work out only next to sizes that are never 0.
fn target(from: &Shape, to: &Shape) -> Option<Vec<i64>> {
    let kept = |(i, dim): (usize, &Dim)| match dim.as_constant() {
        Some(size) => (size > 0).then_some(size),
        None => (from.get(i) == Some(dim)).then_some(0),
    };
    let sizes: Vec<Option<i64>> = to.iter().enumerate().map(kept).collect();
    let open = sizes.iter().filter(|s| s.is_none()).count();
    let positive = sizes.iter().flatten().all(|&s| s > 0);
    let remaining = to.iter().zip(&sizes).all(|(dim, s)| s.is_some() || dim.as_constant().is_none());
    match open {
        0 => sizes.into_iter().collect(),
        1 if positive && remaining => Some(sizes.into_iter().map(|s| s.unwrap_or(-1)).collect()),
        _ => None,
    }
}
