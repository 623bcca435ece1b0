//! Reshapes in ONNX, with as little computed as possible. Whatever sizes a run has, zero included,
//! the form must hold.

use planish_ir::ops::Reshape;
use planish_ir::{Dim, Shape};

use super::Emitter;
use super::nodes::{Form, form, int, size};

/// The node for a reshape.
pub(super) fn reshape(e: &mut Emitter<'_>, op: &Reshape) -> Form {
    let from = e.graph.ty(op.x).shape.clone();
    let x = e.name(op.x).to_owned();
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
