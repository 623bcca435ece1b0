//! Lowering of linear layers.

use planish_ir::ops::{BinaryKind, MatMul, Reshape, Transpose};
use planish_ir::{Dim, Graph, Op, Rewriter, Step, ValueId};

use crate::build::Builder;
use crate::{Example, ONNX, Options, Outcome, Pass, PassError};

/// Lowers linear layers that are not a single matrix product to a product and a sum.
pub const LOWER_LINEAR: Pass = Pass {
    name: "lower-linear",
    summary: "Lowers linear layers to a matrix product and a sum. The weight is transposed, unless it is stored that \
              way. The pass lowers layers whose operand is not a matrix, layers whose operand comes from \
              DequantizeLinear, and without fusion all layers. Every other layer becomes one Gemm, which takes the \
              weight as stored. ONNX Runtime would quantize the weight of a Gemm between DequantizeLinear and \
              QuantizeLinear, and the model does not do that.",
    numerics: "The sum rounds once more: relative differences of 1e-7.",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[b, s, 2]
            weight @w = dense([1.0, 2.0]) : f32[1, 2]
            weight @c = dense([3.0]) : f32[1]
            %y = linear(%x, @w, bias: @c) : f32[b, s, 1]
            output y = %y",
        after: "
            input %x: f32[b, s, 2]
            weight @w = dense([1.0, 2.0]) : f32[1, 2]
            weight @c = dense([3.0]) : f32[1]
            %y/transpose = transpose(@w) {perm = [1, 0]} : f32[2, 1]
            %y/matmul = matmul(%x, %y/transpose) : f32[b, s, 1]
            %y/add = add(%y/matmul, @c) : f32[b, s, 1]
            output y = %y/add",
    },
    applies: |options| !options.keeps_operators(),
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let lowered = graph.rewrite(|graph, node| {
        let like = graph.node(node).outputs[0];
        let linear = match &graph.node(node).op {
            Op::Linear(p) if !options.fusion || graph.ty(p.x).shape.rank() != 2 || is_dequantized(graph, p.x) => {
                p.clone()
            }
            _ => return Ok::<_, PassError>(Step::Keep),
        };
        let (shape, out) = (graph.ty(linear.x).shape.clone(), graph.ty(like).shape.clone());
        let mut l = Builder::at(graph, like);
        let b = match linear.transposed.0 {
            true => linear.weight,
            false => l.transpose(linear.weight, &[1, 0])?,
        };
        let product = if shape.rank() == 1 {
            let a = l.reshape(linear.x, [Dim::constant(1), shape[0].clone()])?;
            let row = l.emit(MatMul { a, b })?;
            l.reshape(row, out.iter().cloned())?
        } else {
            l.emit(MatMul { a: linear.x, b })?
        };
        let value = match linear.bias {
            // ONNX Runtime joins a product and a vector that is added to one Gemm with its weight quantized; a row it leaves.
            Some(bias) if shape.rank() == 2 && is_dequantized(l.graph, linear.x) => {
                let row = l.reshape(bias, [Dim::constant(1), out[1].clone()])?;
                l.binary(BinaryKind::Add, product, row)?
            }
            Some(bias) => l.binary(BinaryKind::Add, product, bias)?,
            None => product,
        };
        Ok(Step::Replace(vec![value]))
    })?;
    graph.compact();
    Ok(lowered.into())
}

/// Whether a value is what a `DequantizeLinear` (of ONNX or ONNX Runtime) gives, perhaps in another shape or order.
fn is_dequantized(graph: &Rewriter<'_>, mut value: ValueId) -> bool {
    loop {
        match graph.producer(value).map(|node| &node.op) {
            Some(Op::Foreign(foreign)) => return foreign.op.0 == "DequantizeLinear",
            Some(Op::Reshape(Reshape { x, .. }) | Op::Transpose(Transpose { x, .. })) => value = *x,
            _ => return false,
        }
    }
}
