//! Rotary position embedding.

mod turns;

use planish_ir::ops::{Binary, BinaryKind, Cast, Concat, Expand, Flag, MatMul, Reshape, Rotary};
use planish_ir::{Dim, Graph, NodeId, Op, Rewriter, Shape, ValueId};

use super::pattern::{op, reshaped};
use super::{Found, NoMatch, Rule, run as apply};
use crate::build::{reshape_once, transpose_once};
use crate::{Example, ONNX, Options, Outcome, Pass, PassError};
use turns::{Pairs, Rotation, once, range, rotation, turned_pair};

/// Raises rotations of halves to rotary position embedding.
pub const RAISE_ROTARY: Pass = Pass {
    name: "raise-rotary",
    summary: "Raises rotations to rotary position embedding. x * cos + concat(-x2, x1) * sin of heads becomes rotary, \
              where x1 and x2 are the halves of x. concat(a * cos - b * sin, b * cos + a * sin) becomes rotary too, \
              where a and b are halves or neighbours. x1 and x2 may also be every second feature. Where cosines and \
              sines hold the same angles twice beside each other, the operator takes one half. Where only the first \
              features turn and the rest is put after them, the operator covers both. A matrix product of frequencies \
              and positions becomes the elementwise product of each frequency with each position.",
    numerics: "none",
    example: Example {
        target: &ONNX,
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
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    Ok(apply(graph, RULES, options))
}

/// The rules of rotary embedding.
pub(super) const RULES: &[&Rule] = &[&ANGLES, &PART, &ROTARY, &PAIRS];

/// A product of a column and a row, transposed: the product of each with each.
const ANGLES: Rule = Rule { name: "rotary", find: angles };

fn angles(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Transpose(p) = &graph.node(node).op else { return Err(NoMatch::Other) };
    let Some(Op::MatMul(MatMul { a, b })) = op(graph, p.x).filter(|_| p.perm == [0, 2, 1]).cloned() else {
        return Err(NoMatch::Other);
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
        return Err(NoMatch::Other);
    }
    let weight = reshape_once(graph, frequencies, [column[1].clone()])?;
    let column = [row[0].clone(), row[2].clone(), one];
    // Positions are converted first, where they are: so models have it.
    let positions = match op(graph, b) {
        Some(Op::Cast(Cast { x, to })) => {
            let (x, to) = (reshaped(graph, *x).unwrap_or(*x), *to);
            let cast = graph.part(Cast { x, to }, b)?;
            reshape_once(graph, cast, column)?
        }
        _ => reshape_once(graph, b, column)?,
    };
    Ok(vec![graph.emit(Binary { kind: BinaryKind::Mul, a: positions, b: weight }, output)?])
}

/// The same of the first features of each head, with the rest put after.
const PART: Rule = Rule { name: "rotary", find: part_of_heads };

fn part_of_heads(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Concat(Concat { parts, axis: 3 }) = &graph.node(node).op else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    let [turned, rest] = parts[..] else { return Err(NoMatch::Other) };
    let Some(rotation) = rotation(graph, turned) else { return Err(NoMatch::Other) };
    let (Some((x, [start, middle])), Some((same, [again, end]))) = (range(graph, rotation.x, 3), range(graph, rest, 3))
    else {
        return Err(NoMatch::Other);
    };
    let whole = start == Dim::constant(0) && middle == again && graph.ty(x).shape[3] == end;
    if x != same || !whole {
        return Err(NoMatch::Other);
    }
    raised(graph, output, Rotation { x, ..rotation })
}

/// `x * cos + concat(-x2, x1) * sin`, or the same of neighbours.
const ROTARY: Rule = Rule { name: "rotary", find: rotary };

fn rotary(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let output = graph.node(node).outputs[0];
    match rotation(graph, output) {
        Some(rotation) => raised(graph, output, rotation),
        None => Err(NoMatch::Other),
    }
}

/// The rotation of the first features of heads, as many as the angles have; each angle is repeated.
fn raised(graph: &mut Rewriter<'_>, output: ValueId, rotation: Rotation) -> Found {
    let Rotation { x, angles, pairs } = rotation;
    let mut halves = Vec::new();
    for angle in angles {
        match once(graph, angle, pairs)? {
            Some(half) => halves.push(half),
            None => {
                let name = &graph.value(angle).name;
                return Err(NoMatch::Miss(match pairs {
                    Pairs::Halves => format!("`{name}` is not of angles that stand twice beside each other"),
                    Pairs::Neighbours => format!("`{name}` is not of angles each of which stands twice"),
                }));
            }
        }
    }
    let [cos, sin] = halves[..] else { return Err(NoMatch::Other) };
    rotated(graph, output, x, [cos, sin], pairs)
}

/// The rotation of pairs, by angles with a dimension of 1 where x has its heads. x is of four dimensions, or has one
/// more that has each pair of neighbours.
fn rotated(graph: &mut Rewriter<'_>, output: ValueId, x: ValueId, [cos, sin]: [ValueId; 2], pairs: Pairs) -> Found {
    let described = |graph: &Graph, value: ValueId| format!("`{}` is {}", graph.value(value).name, graph.ty(value));
    let one = Dim::constant(1);
    let (shape, own) = (graph.ty(x).shape.clone(), graph.ty(cos).shape.clone());
    let rank = shape.rank();
    if rank != 4 && (rank != 5 || pairs == Pairs::Halves) {
        let reason = format!("{}, which is not of batch, heads, positions and features", described(graph, x));
        return Err(NoMatch::Miss(reason));
    }
    if own != graph.ty(sin).shape || own.rank() > rank {
        let (cos, sin, x) = (described(graph, cos), described(graph, sin), described(graph, x));
        return Err(NoMatch::Miss(format!("{cos} and {sin}, which are not angles of positions where {x}")));
    }
    // Products put dimensions of 1 in front themselves.
    let angles = Shape::new(vec![one.clone(); rank - own.rank()].into_iter().chain(own.iter().cloned()));
    // Heads are before positions, or after.
    let (heads, length) = match (angles[1] == one && angles[2] == shape[2], angles[2] == one && angles[1] == shape[1]) {
        (true, _) => (1, 2),
        (_, true) => (2, 1),
        _ => {
            let (cos, x) = (described(graph, cos), described(graph, x));
            return Err(NoMatch::Miss(format!("{cos}, which is not the same for all heads where {x}")));
        }
    };
    let Some(count) = shape[heads].as_constant().and_then(|heads| usize::try_from(heads).ok()) else {
        return Err(NoMatch::Miss(format!("{}: the number of heads is not known", described(graph, x))));
    };
    let by_position = |axis: usize| [0, length, axis];
    let cos = reshape_once(graph, cos, by_position(3).map(|axis| angles[axis].clone()))?;
    let sin = reshape_once(graph, sin, by_position(3).map(|axis| angles[axis].clone()))?;
    let perm: Vec<usize> =
        if heads == 1 { [0, 2, 1].into_iter().chain(3..rank).collect() } else { (0..rank).collect() };
    let swapped = transpose_once(graph, x, &perm)?;
    let features =
        shape[3..].iter().try_fold(shape[heads].clone(), |all, dim| all.checked_mul(dim)).unwrap_or_default();
    let flat = reshape_once(graph, swapped, [shape[0].clone(), shape[length].clone(), features])?;
    let rotary = Rotary { x: flat, cos, sin, heads: count, interleaved: Flag(pairs == Pairs::Neighbours) };
    let turned = graph.emit(rotary, output)?;
    let split = Shape::new(perm.iter().map(|axis| shape[*axis].clone()));
    let split = graph.part(Reshape { x: turned, shape: split }, output)?;
    Ok(vec![transpose_once(graph, split, &perm)?])
}

/// `concat(a * cos - b * sin, b * cos + a * sin)` of the two of each pair: of halves along the features,
/// or of neighbours along a dimension of their own.
const PAIRS: Rule = Rule { name: "rotary", find: pairs };

fn pairs(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Concat(Concat { parts, axis }) = graph.node(node).op.clone() else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    let Some((difference, rest)) = parts.split_first() else { return Err(NoMatch::Other) };
    let Some((sum, rest)) = rest.split_first() else { return Err(NoMatch::Other) };
    let Some(([a, b], angles)) = turned_pair(graph, *difference, *sum) else { return Err(NoMatch::Other) };
    let (Some((x, first)), Some((same, second))) = (range(graph, a, axis), range(graph, b, axis)) else {
        return Err(NoMatch::Other);
    };
    let end = match rest {
        [] => second[1].clone(),
        [tail] => match range(graph, *tail, axis) {
            Some((whole, [start, end])) if whole == x && start == second[1] => end,
            _ => return Err(NoMatch::Other),
        },
        _ => return Err(NoMatch::Other),
    };
    let one_after_another = first[0] == Dim::constant(0) && first[1] == second[0] && graph.ty(x).shape[axis] == end;
    if x != same || !one_after_another || graph.ty(a) != graph.ty(b) || axis + 1 != graph.ty(x).shape.rank() {
        return Err(NoMatch::Other);
    }
    rotated(graph, output, x, angles, if axis == 4 { Pairs::Neighbours } else { Pairs::Halves })
}
