//! What turns, and by which angles.

use planish_ir::ops::{BinaryKind, Concat, Slice, Split, UnaryKind};
use planish_ir::{BuildError, Def, Dim, Graph, Op, Rewriter, ValueId};

use super::super::pattern::{binary, op, part, scaled, unary};

/// a and b, cosines and sines, where two values are `a * cos - b * sin` and `b * cos + a * sin`.
pub(super) fn turned_pair(graph: &Graph, difference: ValueId, sum: ValueId) -> Option<([ValueId; 2], [ValueId; 2])> {
    let product = |value| binary(graph, value, BinaryKind::Mul);
    let [near, far] = binary(graph, difference, BinaryKind::Sub)?;
    let ([a, cos], [b, sin]) = (product(near)?, product(far)?);
    let [p, q] = binary(graph, sum, BinaryKind::Add)?;
    let summands = [product(p)?, product(q)?];
    let is = |product: &[ValueId; 2], x, y| *product == [x, y] || *product == [y, x];
    let orders = [([a, cos], [b, sin]), ([cos, a], [b, sin]), ([a, cos], [sin, b]), ([cos, a], [sin, b])];
    orders.into_iter().find_map(|([a, cos], [b, sin])| {
        let [p, q] = &summands;
        let matches = is(p, b, cos) && is(q, a, sin) || is(q, b, cos) && is(p, a, sin);
        matches.then_some(([a, b], [cos, sin]))
    })
}

/// x, cosines and sines, where a value is `x * cos + concat(-x2, x1) * sin`.
pub(super) fn rotation(graph: &Graph, value: ValueId) -> Option<(ValueId, [ValueId; 2])> {
    let [a, b] = binary(graph, value, BinaryKind::Add)?;
    [(a, b), (b, a)].into_iter().find_map(|(straight, crossed)| {
        let straight = binary(graph, straight, BinaryKind::Mul)?;
        let crossed = binary(graph, crossed, BinaryKind::Mul)?;
        [0, 1].into_iter().find_map(|i| {
            let x = turned(graph, crossed[i])?;
            let cos = if straight[0] == x { straight[1] } else { straight[0] };
            straight.contains(&x).then_some((x, [cos, crossed[1 - i]]))
        })
    })
}

/// x, where a value is `concat(-x2, x1)` of its halves.
fn turned(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let Op::Concat(Concat { parts, axis }) = op(graph, value)? else { return None };
    let [negative, first] = parts[..] else { return None };
    let second = unary(graph, negative, UnaryKind::Neg)?;
    let (x, [start, middle]) = range(graph, first, *axis)?;
    let (same, [again, end]) = range(graph, second, *axis)?;
    let last = graph.ty(x).shape.rank() - 1 == *axis;
    let halves = start == Dim::constant(0) && middle == again && graph.ty(x).shape[*axis] == end;
    (last && halves && x == same && graph.ty(first) == graph.ty(second)).then_some(x)
}

/// What a value is a part of along an axis, and from where to where.
pub(super) fn range(graph: &Graph, value: ValueId, along: usize) -> Option<(ValueId, [Dim; 2])> {
    let dim = |size: usize| i64::try_from(size).map(Dim::constant).ok();
    match graph.value(value).def {
        Def::Node { node, index } => match &graph.node(node).op {
            Op::Slice(Slice { x, axis, start, end }) if *axis == along => Some((*x, [start.clone(), end.clone()])),
            Op::Split(Split { x, axis, sizes }) if *axis == along => {
                let start: usize = sizes.iter().take(index).sum();
                Some((*x, [dim(start)?, dim(start + sizes.get(index)?)?]))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Behind how many operators angles are looked for.
pub(super) const DEPTH: usize = 8;

/// The first half of the last dimension, where the second is the same.
pub(super) fn half(graph: &mut Rewriter<'_>, value: ValueId, depth: usize) -> Result<Option<ValueId>, BuildError> {
    let Some(mut found) = op(graph, value).filter(|_| depth > 0).cloned() else { return Ok(None) };
    let rank = graph.ty(value).shape.rank();
    let x = match &found {
        Op::Concat(Concat { parts, axis }) => {
            let twice = parts.len() == 2 && parts[0] == parts[1] && axis + 1 == rank;
            return Ok(twice.then(|| parts[0]));
        }
        Op::Unary(p) => p.x,
        Op::Cast(p) => p.x,
        Op::Reshape(p) if graph.ty(p.x).shape.last() == p.shape.last() => p.x,
        Op::Binary(_) => match scaled(graph, value) {
            Some((x, _)) => x,
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let Some(inner) = half(graph, x, depth - 1)? else { return Ok(None) };
    if let Op::Reshape(p) = &mut found {
        let last = graph.ty(inner).shape.last().cloned().unwrap_or_default();
        p.shape = p.shape.with_dim(rank - 1, last);
    }
    found.visit_operands_mut(&mut |v| {
        if *v == x {
            *v = inner
        }
    });
    part(graph, found, value).map(Some)
}
