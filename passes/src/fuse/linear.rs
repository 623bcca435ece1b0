//! Linear layers with what follows them.

use planish_ir::ops::{Activation, Binary, BinaryKind, FusedLinear};
use planish_ir::{Graph, NodeId, Op, Rewriter, ValueId};

use super::{Found, Uses, activation, apply, op};
use crate::raise::NoMatch;
use crate::{CUDA, Example, Options, Outcome, Pass, PassError};

/// Joins linear layers with the activation and the residual that follow them.
pub const FUSE_LINEAR: Pass = Pass {
    name: "fuse-linear",
    summary: "Joins a linear layer with the activation of its result, and with the sum that its result goes into, for \
              target cuda. Activations are gelu in both forms, silu and relu. The other addend has the type of the \
              result. Sums that a norm reads are joined with the norm instead (fuse-norms).",
    numerics: "In half types, neither the product nor the activation rounds before what follows.",
    example: Example {
        target: &CUDA,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            weight @up = uniform(1) : f32[4, 2]
            weight @b = uniform(2) : f32[4]
            weight @down = uniform(3) : f32[2, 4]
            %u = linear(%x, @up, bias: @b) : f32[n, 4]
            %a = gelu(%u) {form = erf} : f32[n, 4]
            %d = linear(%a, @down) : f32[n, 2]
            %y = add(%x, %d) : f32[n, 2]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            weight @up = uniform(1) : f32[4, 2]
            weight @b = uniform(2) : f32[4]
            weight @down = uniform(3) : f32[2, 4]
            %a = fused_linear(%x, @up, bias: @b) {activation = gelu_erf} : f32[n, 4]
            %y = fused_linear(%a, @down, residual: %x) {activation = none} : f32[n, 2]
            output y = %y",
    },
    applies: |options| options.keeps_operators(),
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    Ok(apply(graph, options, "fused_linear", fuse))
}

fn fuse(graph: &mut Rewriter<'_>, node: NodeId, uses: &Uses) -> Found {
    let output = graph.node(node).outputs[0];
    if let Some((x, activation)) = activation(&graph.node(node).op) {
        let Some(layer) = layer(graph, x) else { return Err(NoMatch::Other) };
        if layer.activation != Activation::None || layer.residual.is_some() {
            return Err(NoMatch::Other);
        }
        if !uses.is_single(x) {
            let name = &graph.value(x).name;
            return Err(NoMatch::Miss(format!("the layer `{name}` has other uses than its activation")));
        }
        return Ok(vec![graph.emit(FusedLinear { activation, ..layer }, output)?]);
    }
    let Op::Binary(Binary { kind: BinaryKind::Add, a, b }) = graph.node(node).op else { return Err(NoMatch::Other) };
    let mut missed = NoMatch::Other;
    for (x, residual) in [(a, b), (b, a)] {
        let Some(layer) = layer(graph, x).filter(|layer| layer.residual.is_none()) else { continue };
        let name = &graph.value(x).name;
        if !uses.is_single(x) {
            missed = NoMatch::Miss(format!("the layer `{name}` has other uses than the sum"));
        } else if graph.ty(x) != graph.ty(residual) {
            let (own, other) = (graph.ty(x), graph.ty(residual));
            missed = NoMatch::Miss(format!("the layer `{name}` is {own}, and what is added to it is {other}"));
        } else {
            return Ok(vec![graph.emit(FusedLinear { residual: Some(residual), ..layer }, output)?]);
        }
    }
    Err(missed)
}

/// The layer that gives a value.
fn layer(graph: &Graph, value: ValueId) -> Option<FusedLinear> {
    match op(graph, value)? {
        Op::Linear(linear) => Some(FusedLinear::new(linear)),
        Op::FusedLinear(layer) => Some(layer.clone()),
        _ => None,
    }
}
