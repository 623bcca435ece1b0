//! Removal of operators without effect.

use planish_ir::ops::{Binary, BinaryKind, Cast, Reshape, Transpose};
use planish_ir::{Graph, NodeId, Op, Rewriter, Step, ValueId};

use crate::{Example, ONNX, Options, Outcome, Pass, PassError};

/// Removes operators that give back their operand, and merges chains of reshapes and transposes.
pub const IDENTITIES: Pass = Pass {
    name: "identities",
    summary: "Removes operators that return their operand unchanged. These are casts, reshapes, expansions, slices and \
              transposes to what is there already, concatenations of one tensor, sums with 0 and products with 1. The \
              pass also merges a reshape of a reshape, a transpose of a transpose, and a cast of a value that a cast \
              widened.",
    numerics: "none",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[n, 6]
            %a = cast(%x) {to = f32} : f32[n, 6]
            %b = reshape(%a) {shape = [n, 2, 3]} : f32[n, 2, 3]
            %c = reshape(%b) {shape = [n, 3, 2]} : f32[n, 3, 2]
            %y = slice(%c) {axis = 1, start = 0, end = 3} : f32[n, 3, 2]
            output y = %y",
        after: "
            input %x: f32[n, 6]
            %c = reshape(%x) {shape = [n, 3, 2]} : f32[n, 3, 2]
            output y = %c",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, _: &Options) -> Result<Outcome, PassError> {
    let changed = graph.rewrite(step)?;
    graph.compact();
    Ok(changed.into())
}

fn step(graph: &mut Rewriter<'_>, node: NodeId) -> Result<Step, PassError> {
    let output = graph.node(node).outputs[0];
    let operand = match graph.node(node).op.clone() {
        Op::Cast(Cast { x, to }) => match graph.producer(x).map(|n| &n.op) {
            Some(Op::Cast(inner)) if graph.ty(inner.x).dtype.widens_to(graph.ty(x).dtype) => {
                let x = inner.x;
                return merged(graph, x, Cast { x, to }.into(), output);
            }
            _ => x,
        },
        Op::Expand(p) => p.x,
        Op::Slice(p) => p.x,
        Op::Concat(p) if p.parts.len() == 1 => p.parts[0],
        Op::Binary(p) => match without_neutral(graph, &p) {
            Some(x) => x,
            None => return Ok(Step::Keep),
        },
        Op::Reshape(Reshape { x, shape }) => match graph.producer(x).map(|n| &n.op) {
            Some(Op::Reshape(inner)) => {
                let x = inner.x;
                return merged(graph, x, Reshape { x, shape }.into(), output);
            }
            _ => x,
        },
        Op::Transpose(Transpose { x, perm }) => match graph.producer(x).map(|n| &n.op) {
            Some(Op::Transpose(inner)) => {
                let (x, perm) = (inner.x, perm.iter().map(|&p| inner.perm[p]).collect());
                return merged(graph, x, Transpose { x, perm }.into(), output);
            }
            _ if perm.is_sorted() => x,
            _ => return Ok(Step::Keep),
        },
        _ => return Ok(Step::Keep),
    };
    // A slice of the operand's own shape starts at 0, and an expansion to it repeats nothing.
    Ok(if graph.ty(operand) == graph.ty(output) { Step::Replace(vec![operand]) } else { Step::Keep })
}

/// The other operand, where one has no effect.
fn without_neutral(graph: &Graph, p: &Binary) -> Option<ValueId> {
    let is = |value: ValueId, number: f64| graph.number(value) == Some(number);
    match p.kind {
        BinaryKind::Add if is(p.a, 0.0) => Some(p.b),
        BinaryKind::Add | BinaryKind::Sub if is(p.b, 0.0) => Some(p.a),
        BinaryKind::Mul if is(p.a, 1.0) => Some(p.b),
        BinaryKind::Mul | BinaryKind::Div | BinaryKind::Pow if is(p.b, 1.0) => Some(p.a),
        _ => None,
    }
}

/// The operator applied to `x` directly, or just `x` where that has no effect.
fn merged(graph: &mut Rewriter<'_>, x: ValueId, op: Op, output: ValueId) -> Result<Step, PassError> {
    let without_effect = match &op {
        Op::Transpose(p) => p.perm.is_sorted(),
        _ => graph.ty(x) == graph.ty(output),
    };
    let value = if without_effect { x } else { graph.emit(op, output)? };
    Ok(Step::Replace(vec![value]))
}
