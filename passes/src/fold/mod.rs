//! Folding of values that are known at compile time.

mod evaluate;

use std::collections::HashMap;

use planish_ir::{Graph, Node, NodeId, Op, Step, ValueId, Weight};
use rayon::prelude::*;

use crate::{Example, ONNX, Options, Outcome, Pass, PassError};
use evaluate::{evaluate, is_streamed};

/// The most bytes that one folded operator may write: what is computed is held in memory and goes
/// into every artifact.
pub const RESULT_BYTES: u64 = 1 << 20;

/// The most bytes that one folded operator may read: they are in memory at once.
pub const OPERAND_BYTES: u64 = 64 << 20;

/// Computes at compile time what depends on weights only.
pub const FOLD: Pass = Pass {
    name: "fold",
    summary: "Computes at compile time what depends on weights only. Transposes, casts, reshapes and concatenations of \
              weights become lazy weight expressions, whatever their size. Other operators are evaluated when they \
              read at most 64 MiB and write at most 1 MiB. A linear layer of a vector may read more, because it reads \
              its weight piece by piece.",
    numerics: "The reference interpreter computes the values. It rounds float32 results once, from float64.",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[n, 3]
            weight @w = uniform(1) : f32[3, 3]
            weight @two = dense([2.0]) : f32[]
            %t = transpose(@w) {perm = [1, 0]} : f32[3, 3]
            %four = mul(@two, @two) : f32[]
            %p = matmul(%x, %t) : f32[n, 3]
            %y = mul(%p, %four) : f32[n, 3]
            output y = %y",
        after: "
            input %x: f32[n, 3]
            weight @t = transpose(uniform(1) : f32[3, 3], [1, 0]) : f32[3, 3]
            weight @four = dense([4.0]) : f32[]
            %p = matmul(%x, @t) : f32[n, 3]
            %y = mul(%p, @four) : f32[n, 3]
            output y = %y",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, _: &Options) -> Result<Outcome, PassError> {
    // What depends on stored weights alone is evaluated in parallel; what depends on that, when
    // its turn comes.
    let ready: Vec<(NodeId, &Node)> = graph.nodes().filter(|(_, node)| is_evaluated(graph, node)).collect();
    let evaluated = ready.into_par_iter().map(|(id, node)| Ok((id, evaluate(graph, node)?)));
    let mut evaluated = evaluated.collect::<Result<HashMap<NodeId, Vec<Weight>>, PassError>>()?;
    let folded = graph.rewrite(|graph, id| {
        let node = graph.node(id);
        let weights = match (evaluated.remove(&id), lazily(graph, node)) {
            (Some(weights), _) => weights,
            (None, Some(weight)) => vec![weight],
            (None, None) if is_evaluated(graph, node) => evaluate(graph, node)?,
            (None, None) => return Ok::<_, PassError>(Step::Keep),
        };
        let outputs = node.outputs.clone();
        let replace = |(weight, output): (Weight, &ValueId)| graph.weight_like(weight, *output);
        Ok(Step::Replace(weights.into_iter().zip(&outputs).map(replace).collect()))
    })?;
    graph.compact();
    Ok(folded.into())
}

/// The operator as a transform of weights, where it is one.
fn lazily(graph: &Graph, node: &Node) -> Option<Weight> {
    match &node.op {
        Op::Transpose(p) => graph.weight(p.x)?.transpose(&p.perm),
        Op::Cast(p) if graph.ty(p.x).dtype.is_float() && p.to.is_float() => graph.weight(p.x)?.cast(p.to),
        Op::Reshape(p) => {
            let sizes: Option<Vec<usize>> = p.shape.as_constant()?.iter().map(|&d| usize::try_from(d).ok()).collect();
            graph.weight(p.x)?.reshape(&sizes?)
        }
        Op::Concat(p) => {
            let parts: Option<Vec<Weight>> = p.parts.iter().map(|v| graph.weight(*v).cloned()).collect();
            Weight::concat(&parts?, p.axis)
        }
        _ => None,
    }
}

fn depends_on_weights_alone(graph: &Graph, node: &Node) -> bool {
    let mut known = true;
    node.op.visit_operands(&mut |v| known &= graph.weight(v).is_some());
    known
}

/// Whether a node depends on weights alone, is not a transform of them, and is within the budget.
fn is_evaluated(graph: &Graph, node: &Node) -> bool {
    // Other ranks may have other weights.
    let is_collective = matches!(node.op, Op::AllReduce(_) | Op::AllGather(_));
    if is_collective || !depends_on_weights_alone(graph, node) {
        return false;
    }
    let operands = node.op.operands();
    // What the bounds of a slice or the elements of a vector of sizes are can depend on symbols that the
    // shape of the result does not depend on.
    let mut symbolic = false;
    node.op.visit_dims(&mut |dim| symbolic |= dim.as_constant().is_none());
    let is_computed = |v: &ValueId| graph.ty(*v).dtype.is_computed();
    let known = node.outputs.iter().all(|v| graph.ty(*v).shape.as_constant().is_some() && is_computed(v))
        && operands.iter().all(is_computed)
        && !symbolic
        && !matches!(node.op, Op::Foreign(_));
    known && lazily(graph, node).is_none() && {
        let sum = |values: &[ValueId]| values.iter().try_fold(0u64, |sum, v| sum.checked_add(graph.ty(*v).bytes()?));
        sum(&node.outputs).is_some_and(|bytes| bytes <= RESULT_BYTES)
            && (is_streamed(graph, node) || sum(&operands).is_some_and(|bytes| bytes <= OPERAND_BYTES))
    }
}
