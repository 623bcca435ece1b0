//! Graphs of half precision for targets that compute in float32.

use planish_ir::{DType, Graph, Node, NodeId, Op, ValueId};

use super::rebuild::{ElementTypes, rebuild};
use crate::{Example, ORT, Options, Outcome, Pass, PassError};

/// Has a graph of half precision compute in float32 where the target does.
pub const WIDEN: Pass = Pass {
    name: "widen",
    summary: "Computes half-precision operators of an ONNX graph in float32, for targets without half kernels. Weights \
              are cast lazily. Inputs and outputs keep their types, and casts stand beside them. Operators that pass \
              through keep the types of their operands.",
    numerics: "Results no longer round to the half type.",
    example: Example {
        target: &ORT,
        fusion: true,
        before: "
            input %x: f16[n, 2]
            weight @w = uniform(1) : f16[3, 2]
            %y = linear(%x, @w) : f16[n, 3]
            output y = %y",
        after: "
            input %x: f16[n, 2]
            weight @w = cast(uniform(1) : f16[3, 2]) : f32[3, 2]
            %x/cast = cast(%x) {to = f32} : f32[n, 2]
            %y = linear(%x/cast, @w) : f32[n, 3]
            %y/cast = cast(%y) {to = f16} : f16[n, 3]
            output y = %y/cast",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let half = |graph: &Graph, value: &ValueId| is_half(graph.ty(*value).dtype);
    // Casts beside operators that pass through, inputs and outputs are what this leaves.
    let nodes = graph.nodes().filter(|(_, node)| !matches!(node.op, Op::Foreign(_) | Op::Cast(_)));
    let computes = |node: &Node| node.outputs.iter().chain(&node.op.operands()).any(|value| half(graph, value));
    let halves = nodes.filter(|(_, node)| computes(node)).count();
    if halves > 0 && options.target.computes_in_float32 {
        *graph = rebuild(graph, &Widened)?;
        return Ok(halves.into());
    }
    Ok(Outcome::default())
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::Bf16)
}

fn widened(dtype: DType) -> DType {
    if is_half(dtype) { DType::F32 } else { dtype }
}

/// Everything half in float32.
struct Widened;

impl ElementTypes for Widened {
    fn outside(&self, dtype: DType) -> DType {
        dtype
    }

    fn operand(&self, _: NodeId, op: &Op, _: ValueId, dtype: DType, _: Option<DType>) -> DType {
        if matches!(op, Op::Foreign(_)) { dtype } else { widened(dtype) }
    }

    fn cast(&self, _: NodeId, dtype: DType) -> DType {
        widened(dtype)
    }
}
