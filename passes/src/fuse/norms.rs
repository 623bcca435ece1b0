//! Sums and the norms of them.

use planish_ir::ops::{AddNorm, Binary, BinaryKind, Linear};
use planish_ir::{Graph, NodeId, Op, Rewriter, ValueId};

use super::{Found, Norms, Uses, apply, op};
use crate::raise::NoMatch;
use crate::{CUDA, Example, Options, Outcome, Pass, PassError};

/// Joins norms with the sums that they normalize.
pub const FUSE_NORMS: Pass = Pass {
    name: "fuse-norms",
    summary: "Joins a norm with the sum that it normalizes, for target cuda. The sum is the second result, which its \
              other users take: in models that normalize first, the residual of the next sum. Where an addend is a \
              linear layer that nothing else takes, the bias of the layer becomes a third addend.",
    numerics: "In half types, the bias is added without rounding the product first.",
    example: Example {
        target: &CUDA,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            input %r: f32[n, 2]
            weight @w = uniform(1) : f32[2, 2]
            weight @b = uniform(2) : f32[2]
            weight @g = uniform(3) : f32[2]
            %p = linear(%x, @w, bias: @b) : f32[n, 2]
            %s = add(%r, %p) : f32[n, 2]
            %y = rms_norm(%s, @g) {eps = 0.1} : f32[n, 2]
            %z = add(%s, %y) : f32[n, 2]
            output z = %z",
        after: "
            input %x: f32[n, 2]
            input %r: f32[n, 2]
            weight @w = uniform(1) : f32[2, 2]
            weight @b = uniform(2) : f32[2]
            weight @g = uniform(3) : f32[2]
            %p = linear(%x, @w) : f32[n, 2]
            %y, %y_1 = add_norm(%p, %r, @g, bias: @b) {norm = rms, eps = 0.1} : f32[n, 2], f32[n, 2]
            %z = add(%y_1, %y) : f32[n, 2]
            output z = %z",
    },
    applies: |options| options.keeps_operators(),
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let mut norms = Norms::new(graph);
    let outcome = apply(graph, options, "add_norm", |graph, node, uses| fuse(graph, node, uses, &mut norms));
    Ok(outcome)
}

fn fuse(graph: &mut Rewriter<'_>, node: NodeId, uses: &Uses, norms: &mut Norms) -> Found {
    if let Some(normalized) = norms.done.get(&node) {
        return Ok(vec![*normalized]);
    }
    let norm = norms.at(graph, node).ok_or(NoMatch::Other)?;
    let Op::Binary(Binary { kind: BinaryKind::Add, a, b }) = graph.node(node).op else { return Err(NoMatch::Other) };
    let ty = graph.ty(norm.x).clone();
    if let Some(other) = [a, b].into_iter().find(|addend| *graph.ty(*addend) != ty) {
        let (name, found) = (&graph.value(other).name, graph.ty(other));
        return Err(NoMatch::Miss(format!("the addend `{name}` is {found}, and the sum is {ty}")));
    }
    let layers = [(a, b), (b, a)].map(|(x, residual)| Some((layer(graph, x, uses)?, x, residual)));
    let (x, residual, bias) = match layers.into_iter().flatten().next() {
        Some((linear, x, residual)) => {
            let bias = linear.bias;
            (graph.emit(Linear { bias: None, ..linear }, x)?, residual, bias)
        }
        None => (a, b, None),
    };
    let (weight, norm_bias, kind, eps) = (norm.weight, norm.bias, norm.kind, norm.eps);
    norms.fused(graph, &norm, AddNorm { x, residual, weight, bias, norm_bias, norm: kind, eps })
}

/// The linear layer with a bias that gives a value, which only the sum takes.
fn layer(graph: &Graph, value: ValueId, uses: &Uses) -> Option<Linear> {
    match op(graph, value)? {
        Op::Linear(linear) if linear.bias.is_some() && uses.is_single(value) => Some(linear.clone()),
        _ => None,
    }
}
