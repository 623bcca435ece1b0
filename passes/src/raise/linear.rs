//! Linear layers.

use planish_ir::ops::{Binary, BinaryKind, Flag, Linear, MatMul, Reshape};
use planish_ir::weight::WeightExpr;
use planish_ir::{Dim, Graph, NodeId, Op, Rewriter, ValueId};

use super::pattern::{op, reshaped};
use super::{Found, NoMatch, Rule, run as apply};
use crate::build::reshape_once;
use crate::{Example, ONNX, Options, Outcome, Pass, PassError};

/// Raises products with weights to linear layers.
pub const RAISE_LINEAR: Pass = Pass {
    name: "raise-linear",
    summary: "Raises products with a weight to linear layers. A vector that is added to such a product becomes the \
              bias of the layer. Where tokens were made rows of one matrix for a linear layer, the layer takes the \
              tokens in their own shape.",
    numerics: "none",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[n, t, 2]
            weight @w = uniform(1) : f32[2, 3]
            weight @b = uniform(2) : f32[3]
            %p = matmul(%x, @w) : f32[n, t, 3]
            %y = add(@b, %p) : f32[n, t, 3]
            output y = %y",
        after: "
            input %x: f32[n, t, 2]
            weight @w = uniform(1) : f32[2, 3]
            weight @b = uniform(2) : f32[3]
            %y = linear(%x, @w, bias: @b) {transposed = true} : f32[n, t, 3]
            output y = %y",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    Ok(apply(graph, RULES, options))
}

/// The rules of linear layers.
pub(super) const RULES: &[&Rule] = &[&PRODUCT, &BIAS, &UNFLATTEN];

/// `matmul(x, W)` of a matrix W.
const PRODUCT: Rule = Rule { name: "linear", find: product };

fn product(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::MatMul(MatMul { a, b }) = graph.node(node).op else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    let Some(weight) = graph.weight(b).cloned() else { return Err(NoMatch::Other) };
    if weight.shape().len() != 2 {
        let (name, ty) = (&graph.value(b).name, graph.ty(b));
        return Err(NoMatch::Miss(format!("the weight `{name}` is {ty}, not a matrix")));
    }
    // A transpose of what is stored is what is stored, [out, in].
    let (weight, transposed) = match weight.expr() {
        WeightExpr::Transpose(of, perm) if perm == &[1, 0] => (graph.weight_like(of.clone(), b), Flag(false)),
        _ => (b, Flag(true)),
    };
    Ok(vec![graph.emit(Linear { x: a, weight, bias: None, transposed }, output)?])
}

/// `linear(x, W) + b` of a vector b.
const BIAS: Rule = Rule { name: "linear", find: bias };

fn bias(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Binary(Binary { kind: BinaryKind::Add, a, b }) = graph.node(node).op else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    for (layer, bias) in [(a, b), (b, a)] {
        let Some(Op::Linear(linear)) = op(graph, layer).filter(|_| graph.weight(bias).is_some()).cloned() else {
            continue;
        };
        if linear.bias.is_some() {
            continue;
        }
        let features: Vec<Dim> = graph.ty(layer).shape.last().cloned().into_iter().collect();
        let vector = match graph.ty(bias).shape.split_last() {
            Some((last, rest)) => features == [last.clone()] && rest.iter().all(|d| *d == Dim::constant(1)),
            None => false,
        };
        if !vector || graph.ty(layer) != graph.ty(output) {
            let (name, ty) = (&graph.value(bias).name, graph.ty(bias));
            return Err(NoMatch::Miss(format!(
                "`{name}`, which is added, is {ty}, not a vector of the layer's features"
            )));
        }
        let bias = reshape_once(graph, bias, features)?;
        return Ok(vec![graph.emit(Linear { bias: Some(bias), ..linear }, output)?]);
    }
    Err(NoMatch::Other)
}

/// `reshape(linear(reshape(x)))` in which both reshapes leave the features alone.
const UNFLATTEN: Rule = Rule { name: "linear", find: unflatten };

fn unflatten(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Reshape(Reshape { x: flat, .. }) = &graph.node(node).op else { return Err(NoMatch::Other) };
    let Some(Op::Linear(linear)) = op(graph, *flat).cloned() else { return Err(NoMatch::Other) };
    let Some(x) = reshaped(graph, linear.x) else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    let (from, to) = (&graph.ty(x).shape, &graph.ty(output).shape);
    let leading = |value: ValueId| graph.ty(value).shape.split_last().map(|(_, rest)| rest.to_vec());
    let features = |value: ValueId| -> Option<Dim> { graph.ty(value).shape.last().cloned() };
    let kept = features(x) == features(linear.x) && features(output) == features(*flat) && from.rank() == to.rank();
    if !kept || leading(x) != leading(output) {
        return Err(NoMatch::Other);
    }
    Ok(vec![graph.emit(Linear { x, ..linear }, output)?])
}
