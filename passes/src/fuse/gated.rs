//! Products with an activation.

use planish_ir::ops::{Binary, BinaryKind, Gated};
use planish_ir::{Graph, NodeId, Op, Rewriter};

use super::{Found, Uses, activation, apply, op};
use crate::raise::NoMatch;
use crate::{CUDA, Example, Options, Outcome, Pass, PassError};

/// Joins activations with the products that they gate.
pub const FUSE_GATED: Pass = Pass {
    name: "fuse-gated",
    summary: "Joins an activation with the product that only it goes into, for target cuda, as in feed-forward layers \
              with a gate. Activations are gelu in both forms, silu and relu.",
    numerics: "In half types, the activation does not round before the product.",
    example: Example {
        target: &CUDA,
        fusion: true,
        before: "
            input %g: f32[n, 2]
            input %u: f32[n, 2]
            %a = silu(%g) : f32[n, 2]
            %y = mul(%a, %u) : f32[n, 2]
            output y = %y",
        after: "
            input %g: f32[n, 2]
            input %u: f32[n, 2]
            %y = gated(%g, %u) {activation = silu} : f32[n, 2]
            output y = %y",
    },
    applies: |options| options.keeps_operators(),
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    Ok(apply(graph, options, "gated", fuse))
}

fn fuse(graph: &mut Rewriter<'_>, node: NodeId, uses: &Uses) -> Found {
    let Op::Binary(Binary { kind: BinaryKind::Mul, a, b }) = graph.node(node).op else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    let mut missed = NoMatch::Other;
    for (active, up) in [(a, b), (b, a)] {
        let Some((gate, activation)) = op(graph, active).and_then(activation) else { continue };
        let name = &graph.value(active).name;
        if !uses.is_single(active) {
            missed = NoMatch::Miss(format!("the activation `{name}` has other uses"));
        } else if graph.ty(gate) != graph.ty(up) {
            let (gate, other) = (graph.ty(gate), graph.ty(up));
            missed = NoMatch::Miss(format!("the activation `{name}` is {gate}, and it is multiplied with {other}"));
        } else {
            return Ok(vec![graph.emit(Gated { gate, up, activation }, output)?]);
        }
    }
    Err(missed)
}
