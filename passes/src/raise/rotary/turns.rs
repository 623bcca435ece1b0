//! What turns, and by which angles.

use planish_ir::ops::{BinaryKind, Concat, Slice, Split, UnaryKind};
use planish_ir::{BuildError, Def, Dim, Graph, Op, Rewriter, Shape, ValueId};

use super::super::pattern::{binary, op, reshaped, scaled, unary};
use crate::build::reshape_once;

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

/// A rotation: `x * cos + y * sin`, where y has each pair of x as `(-b, a)`.
pub(super) struct Rotation {
    pub(super) x: ValueId,
    /// Cosines and sines, each standing twice.
    pub(super) angles: [ValueId; 2],
    pub(super) pairs: Pairs,
}

/// Which features are a pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pairs {
    /// `(i, i + pairs)`.
    Halves,
    /// `(2i, 2i + 1)`.
    Neighbours,
}

/// The rotation that a value is.
pub(super) fn rotation(graph: &Graph, value: ValueId) -> Option<Rotation> {
    let [a, b] = binary(graph, value, BinaryKind::Add)?;
    [(a, b), (b, a)].into_iter().find_map(|(straight, crossed)| {
        let straight = binary(graph, straight, BinaryKind::Mul)?;
        let crossed = binary(graph, crossed, BinaryKind::Mul)?;
        [0, 1].into_iter().find_map(|i| {
            let halves = turned(graph, crossed[i]).map(|x| (x, Pairs::Halves));
            let (x, pairs) = halves.or_else(|| Some((turned_neighbours(graph, crossed[i])?, Pairs::Neighbours)))?;
            let cos = if straight[0] == x { straight[1] } else { straight[0] };
            straight.contains(&x).then_some(Rotation { x, angles: [cos, crossed[1 - i]], pairs })
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

/// x, where a value has its features as `-x1, x0, -x3, x2 ..`.
fn turned_neighbours(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let Op::Concat(Concat { parts, axis }) = op(graph, reshaped(graph, value)?)? else { return None };
    let [negative, even] = parts[..] else { return None };
    let odd = unary(graph, reshaped(graph, negative)?, UnaryKind::Neg)?;
    let (x, first) = every_second(graph, reshaped(graph, even)?)?;
    let (same, second) = every_second(graph, odd)?;
    let ty = graph.ty(value);
    (x == same && [first, second] == [0, 1] && *axis == ty.shape.rank() && graph.ty(x) == ty).then_some(x)
}

/// What a value has every second of the features of, an even number, and the first of these.
fn every_second(graph: &Graph, value: ValueId) -> Option<(ValueId, usize)> {
    let Op::Foreign(slice) = op(graph, value)? else { return None };
    let [Some(x), starts, ends, axes, steps] = slice.inputs[..] else { return None };
    let number = |operand: Option<ValueId>| graph.number(operand?);
    let shape = &graph.ty(x).shape;
    let (last, features) = (shape.rank().checked_sub(1)?, shape.last()?.as_constant()?);
    let is_last = [last as f64, -1.0].contains(&number(axes)?);
    let whole = number(ends)? >= features as f64 && features % 2 == 0 && number(steps)? == 2.0;
    let start = [0usize, 1].into_iter().find(|start| number(starts) == Some(*start as f64))?;
    (slice.is("Slice") && is_last && whole).then_some((x, start))
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

/// After how many operators angles are looked for.
const DEPTH: usize = 8;

/// Angles that are each repeated, without the repetition.
pub(super) fn once(graph: &mut Rewriter<'_>, value: ValueId, pairs: Pairs) -> Result<Option<ValueId>, BuildError> {
    within(graph, value, pairs, DEPTH)
}

fn within(graph: &mut Rewriter<'_>, value: ValueId, pairs: Pairs, depth: usize) -> Result<Option<ValueId>, BuildError> {
    let Some(mut found) = op(graph, value).filter(|_| depth > 0).cloned() else { return Ok(None) };
    let rank = graph.ty(value).shape.rank();
    let x = match &found {
        Op::Concat(Concat { parts, axis }) if pairs == Pairs::Halves => {
            let twice = parts.len() == 2 && parts[0] == parts[1] && axis + 1 == rank;
            return Ok(twice.then(|| parts[0]));
        }
        Op::Unary(p) => p.x,
        Op::Cast(p) => p.x,
        Op::Reshape(p) if graph.ty(p.x).shape.last() == p.shape.last() => p.x,
        Op::Reshape(p) if pairs == Pairs::Neighbours => {
            let Some((single, shape)) = before_repeating(graph, p.x, &p.shape) else { return Ok(None) };
            return reshape_once(graph, single, shape).map(Some);
        }
        Op::Binary(_) => match scaled(graph, value) {
            Some((x, _)) => x,
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let Some(inner) = within(graph, x, pairs, depth - 1)? else { return Ok(None) };
    if let Op::Reshape(p) = &mut found {
        let last = graph.ty(inner).shape.last().cloned().unwrap_or_default();
        p.shape = p.shape.with_dim(rank - 1, last);
    }
    found.visit_operands_mut(&mut |v| {
        if *v == x {
            *v = inner
        }
    });
    graph.part(found, value).map(Some)
}

/// A value that is repeated along a last dimension of its own, and its shape without that dimension, where the dimension is
/// merged with the one before.
fn before_repeating(graph: &Graph, twice: ValueId, merged: &Shape) -> Option<(ValueId, Vec<Dim>)> {
    let single = match op(graph, twice)? {
        Op::Expand(p) => p.x,
        Op::Concat(p) if p.parts.len() == 2 && p.parts[0] == p.parts[1] => p.parts[0],
        _ => return None,
    };
    let (one, two) = (&graph.ty(single).shape, &graph.ty(twice).shape);
    let (last, lead) = two.split_last()?;
    let (features, before) = lead.split_last()?;
    let repeats =
        *last == Dim::constant(2) && one.rank() == two.rank() && one[..] == *[lead, &[Dim::constant(1)]].concat();
    let merges = merged
        .split_last()
        .is_some_and(|(all, rest)| rest == before && features.checked_mul(last).as_ref() == Some(all));
    (repeats && merges).then(|| (single, lead.to_vec()))
}
