//! Embeddings of positions and of patches.

use planish_ir::ops::{Binary, Conv, Embedding, Linear, Reshape, Slice, Transpose};
use planish_ir::{Dim, Graph, NodeId, Op, Rewriter, Shape, ValueId};

use super::element::{Element, Elements};
use super::pattern::{op, reshaped};
use super::{Found, NoMatch, Rule, run as apply};
use crate::build::reshape_once;
use crate::{Example, ONNX, Options, Outcome, Pass, PassError};

/// Raises embeddings that need no table or no convolution.
pub const RAISE_EMBEDDINGS: Pass = Pass {
    name: "raise-embeddings",
    summary: "Raises lookups of consecutive rows to slices, and convolutions of patches to linear layers. An embedding \
              of consecutive ids becomes a slice of the table. A convolution whose windows are patches beside each \
              other becomes a linear layer of the patches. An operand of a sum loses leading dimensions of 1 that a \
              reshape gave it.",
    numerics: "Products of a patch are summed in another order: relative differences of 1e-7.",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[b, s, 2]
            weight @table = uniform(1) : f32[8, 2]
            %ids = iota() {dtype = i64, length = s} : i64[s]
            %row = reshape(%ids) {shape = [1, s]} : i64[1, s]
            %positions = embedding(@table, %row) : f32[1, s, 2]
            %y = add(%x, %positions) : f32[b, s, 2]
            output y = %y",
        after: "
            input %x: f32[b, s, 2]
            weight @table = uniform(1) : f32[8, 2]
            %positions = slice(@table) {axis = 0, start = 0, end = s} : f32[s, 2]
            %y = add(%x, %positions) : f32[b, s, 2]
            output y = %y",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    Ok(apply(graph, RULES, options))
}

/// The rules of embeddings.
pub(super) const RULES: &[&Rule] = &[&POSITIONS, &BROADCAST, &PATCHES];

/// `embedding(table, 0, 1, 2 ..)`.
const POSITIONS: Rule = Rule { name: "positions", find: positions };

fn positions(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Embedding(Embedding { weight, ids }) = graph.node(node).op else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    let Some([start, end]) = consecutive(graph, ids) else { return Err(NoMatch::Other) };
    let shape = graph.ty(output).shape.clone();
    let slice = graph.emit(Slice { x: weight, axis: 0, start, end }, output)?;
    if graph.ty(slice).shape == shape {
        return Ok(vec![slice]);
    }
    Ok(vec![graph.part(Reshape { x: slice, shape }, output)?])
}

/// The first of consecutive integers, and the one that would follow; of one dimension, but for such of 1.
fn consecutive(graph: &Graph, ids: ValueId) -> Option<[Dim; 2]> {
    let shape = &graph.ty(ids).shape;
    let one = Dim::constant(1);
    let mut wide = (0..shape.rank()).filter(|axis| shape[*axis] != one);
    let (axis, None) = (wide.next()?, wide.next()) else { return None };
    let Element::Integer(id) = Elements::new(graph, shape.clone()).at(ids)? else { return None };
    let start = id.checked_sub(&Elements::index(axis))?;
    let fixed = start.symbols().all(|symbol| Some(symbol) != Elements::index(axis).as_symbol());
    let end = start.checked_add(&shape[axis])?;
    fixed.then_some([start, end])
}

/// `x + reshape(y)` where the reshape puts dimensions of 1 in front, which sums do themselves.
const BROADCAST: Rule = Rule { name: "positions", find: broadcast };

fn broadcast(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Binary(binary) = graph.node(node).op.clone() else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    let rank = graph.ty(output).shape.rank();
    for (one, other) in [(binary.a, binary.b), (binary.b, binary.a)] {
        let Some(inner) = reshaped(graph, one).filter(|_| graph.ty(other).shape.rank() == rank) else { continue };
        let (from, to) = (&graph.ty(inner).shape, &graph.ty(one).shape);
        let added = to.rank().saturating_sub(from.rank());
        if added > 0 && to[..added].iter().all(|d| *d == Dim::constant(1)) && to[added..] == from[..] {
            let replace = |value: ValueId| if value == one { inner } else { value };
            let binary = Binary { a: replace(binary.a), b: replace(binary.b), ..binary };
            return Ok(vec![graph.emit(binary, output)?]);
        }
    }
    Err(NoMatch::Other)
}

/// A convolution with windows side by side, whose positions are put in a row and before the features.
const PATCHES: Rule = Rule { name: "patches", find: patches };

fn patches(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Transpose(Transpose { x: row, perm }) = graph.node(node).op.clone() else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    let Some(convolved) = reshaped(graph, row).filter(|_| perm == [0, 2, 1]) else { return Err(NoMatch::Other) };
    let Some(Op::Conv(conv)) = op(graph, convolved).cloned() else { return Err(NoMatch::Other) };
    let name = graph.value(convolved).name.clone();
    let (x, weight) = (conv.x, conv.weight);
    let (Some(image), Some(kernel)) =
        (Shape::new(graph.ty(x).shape.iter().skip(1).cloned()).as_constant(), graph.ty(weight).shape.as_constant())
    else {
        let found = graph.ty(x);
        return Err(NoMatch::Miss(format!("the size of the images that `{name}` convolves is not known: {found}")));
    };
    let (&[channels, height, width], &[features, own, tall, wide]) = (&image[..], &kernel[..]) else {
        return Err(NoMatch::Other);
    };
    if own != channels || !is_side_by_side(&conv, [tall, wide]) || height % tall != 0 || width % wide != 0 {
        return Err(NoMatch::Miss(format!("the windows of `{name}` are not patches beside each other")));
    }
    let batch = graph.ty(x).shape[0].clone();
    let (rows, columns, pixels) = (height / tall, width / wide, channels * tall * wide);
    let dims = |sizes: &[i64]| sizes.iter().copied().map(Dim::constant).collect::<Vec<Dim>>();
    let parts = Shape::new(std::iter::once(batch.clone()).chain(dims(&[channels, rows, tall, columns, wide])));
    let parts = graph.part(Reshape { x, shape: parts }, output)?;
    let by_patch = graph.part(Transpose { x: parts, perm: vec![0, 2, 4, 1, 3, 5] }, output)?;
    let shape = Shape::new(std::iter::once(batch).chain(dims(&[rows * columns, pixels])));
    let x = graph.part(Reshape { x: by_patch, shape }, output)?;
    let weight = reshape_once(graph, weight, dims(&[features, pixels]))?;
    Ok(vec![graph.emit(Linear::new(x, weight, conv.bias), output)?])
}

/// Whether a convolution's windows touch and nothing is padded.
fn is_side_by_side(conv: &Conv, kernel: [i64; 2]) -> bool {
    let strides = conv.strides.iter().map(|stride| i64::try_from(*stride).ok());
    conv.groups == 1
        && kernel.iter().all(|size| *size > 0)
        && strides.eq(kernel.map(Some))
        && conv.dilations.iter().all(|d| *d == 1)
        && conv.pads.iter().all(|p| *p == 0)
}
