//! Removal of nodes and weights that no output needs.

use planish_ir::Graph;

use crate::{Example, ONNX, Options, Outcome, Pass, PassError};

/// Removes nodes and weights that no output needs. Inputs stay: they are the model's interface.
pub const DEAD_CODE: Pass = Pass {
    name: "dead-code",
    summary: "Removes nodes and weights that no output needs. Inputs stay, because they are the model's interface.",
    numerics: "none",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            weight @unused = dense([1.0, 2.0]) : f32[2]
            %dead = exp(%x) : f32[n, 2]
            %y = relu(%x) : f32[n, 2]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            %y = relu(%x) : f32[n, 2]
            output y = %y",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, _: &Options) -> Result<Outcome, PassError> {
    Ok(graph.compact().into())
}
