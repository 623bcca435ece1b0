//! Rotary position embedding.

use planish_ir::ops::{
    Binary, BinaryKind, Cast, Concat, Expand, Flag, MatMul, Reshape, Rotary, Slice, Split, UnaryKind,
};
use planish_ir::{BuildError, Dim, Graph, NodeId, Op, Rewriter, Shape, ValueId};

use super::pattern::{binary, op, part, reshape, reshaped, scaled, transpose, unary};
use super::{Found, Rule, run as apply};
use crate::{Example, Options, Pass, PassError, Target};

/// Raises rotations of halves to rotary position embedding.
pub const RAISE_ROTARY: Pass = Pass {
    name: "raise-rotary",
    summary: "raises x * cos + concat(-x2, x1) * sin of heads, where x1 and x2 are the halves of x, to rotary; cosines \
              and sines are those of angles that stand twice beside each other, of which one half is taken; where only the first features turn and the rest \
              is put behind, that is a part of the operator. A product \
              of frequencies and positions as matrices becomes the product of each with each",
    numerics: "none",
    example: Example {
        target: Target::Onnx,
        fusion: true,
        before: "
            input %x: f32[b, s, 6]
            input %f: f32[b, s, 1]
            %two = concat([%f, %f]) {axis = 2} : f32[b, s, 2]
            %c = cos(%two) : f32[b, s, 2]
            %d = sin(%two) : f32[b, s, 2]
            %cos = reshape(%c) {shape = [b, s, 1, 2]} : f32[b, s, 1, 2]
            %sin = reshape(%d) {shape = [b, s, 1, 2]} : f32[b, s, 1, 2]
            %h = reshape(%x) {shape = [b, s, 3, 2]} : f32[b, s, 3, 2]
            %x1, %x2 = split(%h) {axis = 3, sizes = [1, 1]} : f32[b, s, 3, 1], f32[b, s, 3, 1]
            %n = neg(%x2) : f32[b, s, 3, 1]
            %turned = concat([%n, %x1]) {axis = 3} : f32[b, s, 3, 2]
            %p = mul(%h, %cos) : f32[b, s, 3, 2]
            %q = mul(%turned, %sin) : f32[b, s, 3, 2]
            %y = add(%p, %q) : f32[b, s, 3, 2]
            output y = %y",
        after: "
            input %x: f32[b, s, 6]
            input %f: f32[b, s, 1]
            %c/cos = cos(%f) : f32[b, s, 1]
            %d/sin = sin(%f) : f32[b, s, 1]
            %y = rotary(%x, %c/cos, %d/sin) {heads = 3} : f32[b, s, 6]
            %y/reshape = reshape(%y) {shape = [b, s, 3, 2]} : f32[b, s, 3, 2]
            output y = %y/reshape",
    },
    run,
};

fn run(graph: &mut Graph, _: &Options) -> Result<usize, PassError> {
    apply(graph, RULES)
}

/// The rules of rotary embedding.
pub(super) const RULES: &[&Rule] = &[&ANGLES, &PART, &ROTARY];

/// A product of a column and a row, transposed: the product of each with each.
const ANGLES: Rule = Rule { name: "rotary", find: angles };

fn angles(graph: &mut Rewriter<'_>, node: NodeId) -> Result<Found, BuildError> {
    let Op::Transpose(p) = &graph.node(node).op else { return Ok(Found::Nothing) };
    let Some(Op::MatMul(MatMul { a, b })) = op(graph, p.x).filter(|_| p.perm == [0, 2, 1]).cloned() else {
        return Ok(Found::Nothing);
    };
    let output = graph.node(node).outputs[0];
    let frequencies = match op(graph, a) {
        Some(Op::Expand(Expand { x, .. })) => *x,
        _ => a,
    };
    let one = Dim::constant(1);
    let (column, row) = (graph.ty(frequencies).shape.clone(), graph.ty(b).shape.clone());
    let fits = graph.weight(frequencies).is_some() && column.rank() == 3 && column[0] == one && column[2] == one;
    if !fits || row.rank() != 3 || row[0] != graph.ty(output).shape[0] {
        return Ok(Found::Nothing);
    }
    let weight = reshape(graph, frequencies, [column[1].clone()])?;
    let column = [row[0].clone(), row[2].clone(), one];
    // Positions are converted first, where they are: so models have it.
    let positions = match op(graph, b) {
        Some(Op::Cast(Cast { x, to })) => {
            let (x, to) = (reshaped(graph, *x).unwrap_or(*x), *to);
            let cast = part(graph, Cast { x, to }, b)?;
            reshape(graph, cast, column)?
        }
        _ => reshape(graph, b, column)?,
    };
    Ok(Found::Match(vec![graph.emit(Binary { kind: BinaryKind::Mul, a: positions, b: weight }, output)?]))
}

/// The same of the first features of each head, with the rest put behind.
const PART: Rule = Rule { name: "rotary", find: part_of_heads };

fn part_of_heads(graph: &mut Rewriter<'_>, node: NodeId) -> Result<Found, BuildError> {
    let Op::Concat(Concat { parts, axis: 3 }) = &graph.node(node).op else { return Ok(Found::Nothing) };
    let output = graph.node(node).outputs[0];
    let [turned, rest] = parts[..] else { return Ok(Found::Nothing) };
    let Some((first, angles)) = rotation(graph, turned) else { return Ok(Found::Nothing) };
    let (Some((x, [start, middle])), Some((same, [again, end]))) = (range(graph, first, 3), range(graph, rest, 3))
    else {
        return Ok(Found::Nothing);
    };
    let whole = start == Dim::constant(0) && middle == again && graph.ty(x).shape[3] == end;
    if x != same || !whole {
        return Ok(Found::Nothing);
    }
    raised(graph, output, x, angles)
}

/// `x * cos + concat(-x2, x1) * sin`.
const ROTARY: Rule = Rule { name: "rotary", find: rotary };

fn rotary(graph: &mut Rewriter<'_>, node: NodeId) -> Result<Found, BuildError> {
    let output = graph.node(node).outputs[0];
    match rotation(graph, output) {
        Some((x, angles)) => raised(graph, output, x, angles),
        None => Ok(Found::Nothing),
    }
}

/// The rotation of the first features of heads, as many as the angles have.
fn raised(
    graph: &mut Rewriter<'_>,
    output: ValueId,
    x: ValueId,
    [cos, sin]: [ValueId; 2],
) -> Result<Found, BuildError> {
    let name = |graph: &Graph, value: ValueId| graph.value(value).name.clone();
    let one = Dim::constant(1);
    let (shape, angles) = (graph.ty(x).shape.clone(), graph.ty(cos).shape.clone());
    if shape.rank() != 4 || angles.rank() != 4 || angles != graph.ty(sin).shape {
        let reason = format!("`{}` is turned, and not of batch, heads, positions and features", name(graph, x));
        return Ok(Found::Miss(reason));
    }
    // Heads stand before positions, or behind.
    let (heads, length) = match (angles[1] == one && angles[2] == shape[2], angles[2] == one && angles[1] == shape[1]) {
        (true, _) => (1, 2),
        (_, true) => (2, 1),
        _ => return Ok(Found::Miss(format!("the angles `{}` are not the same for all heads", name(graph, cos)))),
    };
    let Some(count) = shape[heads].as_constant().and_then(|heads| usize::try_from(heads).ok()) else {
        return Ok(Found::Miss(format!("the number of heads of `{}` is not known", name(graph, x))));
    };
    let mut halves = Vec::new();
    for angle in [cos, sin] {
        let flat = reshape(graph, angle, [0, length, 3].map(|axis| angles[axis].clone()))?;
        match half(graph, flat, DEPTH)? {
            Some(half) => halves.push(half),
            None => {
                let reason = format!("`{}` is not of angles that stand twice beside each other", name(graph, angle));
                return Ok(Found::Miss(reason));
            }
        }
    }
    let swap = |graph: &mut Rewriter<'_>, x| if heads == 1 { transpose(graph, x, SWAP) } else { Ok(x) };
    let by_position = swap(graph, x)?;
    let features = shape[heads].checked_mul(&shape[3]).unwrap_or_default();
    let flat = reshape(graph, by_position, [shape[0].clone(), shape[length].clone(), features])?;
    let rotary = Rotary { x: flat, cos: halves[0], sin: halves[1], heads: count, interleaved: Flag(false) };
    let turned = match graph.emit(rotary, output) {
        Ok(turned) => turned,
        Err(error) => return Ok(Found::Miss(error.to_string())),
    };
    let split = Shape::new([0, length, heads, 3].map(|axis| shape[axis].clone()));
    let split = part(graph, Reshape { x: turned, shape: split }, output)?;
    Ok(Found::Match(vec![swap(graph, split)?]))
}

/// [batch, heads, positions, features] to [batch, positions, heads, features], or back.
const SWAP: &[usize] = &[0, 2, 1, 3];

/// x, cosines and sines, where a value is `x * cos + concat(-x2, x1) * sin`.
fn rotation(graph: &Graph, value: ValueId) -> Option<(ValueId, [ValueId; 2])> {
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
fn range(graph: &Graph, value: ValueId, along: usize) -> Option<(ValueId, [Dim; 2])> {
    let dim = |size: usize| i64::try_from(size).map(Dim::constant).ok();
    match graph.value(value).def {
        planish_ir::Def::Node { node, index } => match &graph.node(node).op {
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
const DEPTH: usize = 8;

/// The first half of the last dimension, where the second is the same.
fn half(graph: &mut Rewriter<'_>, value: ValueId, depth: usize) -> Result<Option<ValueId>, BuildError> {
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
