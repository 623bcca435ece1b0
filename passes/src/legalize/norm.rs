//! Lowering of norms.

use planish_ir::ops::{Binary, BinaryKind, LayerNorm, Reduce, ReduceKind, RmsNorm, UnaryKind};
use planish_ir::{BuildError, Dim, Graph, Op, Step, ValueId};

use crate::build::Builder;
use crate::raise::root_of_squares;
use crate::{Example, ONNX, Options, Outcome, Pass, PassError};

/// Lowers norms that the target has no operator for to arithmetic.
pub const LOWER_NORMS: Pass = Pass {
    name: "lower-norms",
    summary: "Lowers norms to means, squares and a square root. Layer normalization is lowered only without fusion, \
              because every opset that planish writes has an operator for it. Root mean square normalization is \
              lowered without fusion and before opset 23, in the form that ONNX Runtime recognizes and fuses when it \
              loads a graph. In float16 and bfloat16, everything before the product with the weight is computed in \
              float32. What is divided by sqrt(mean(x^2) + eps) becomes a product with the power -1/2, if the last \
              size of x is 1 or only a run knows it: ONNX Runtime makes a norm of the division and of a vector that \
              it is multiplied with, and that norm refuses a vector which has more elements than x has features.",
    numerics: "Each step rounds, where a fused kernel rounds once: relative differences of a few 1e-7. In float16 and \
               bfloat16 the normalized value, its product with the weight and the sum with the bias each round.",
    example: Example {
        target: &ONNX,
        fusion: false,
        before: "
            input %x: f32[n, 2]
            weight @w = dense([1.0, 2.0]) : f32[2]
            %y = layer_norm(%x, @w) {eps = 1e-5} : f32[n, 2]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            weight @w = dense([1.0, 2.0]) : f32[2]
            weight @y/const = dense([1e-5]) : f32[]
            %y/reduce_mean = reduce_mean(%x) {axes = [1], keep = true} : f32[n, 1]
            %y/sub = sub(%x, %y/reduce_mean) : f32[n, 2]
            %y/mul = mul(%y/sub, %y/sub) : f32[n, 2]
            %y/reduce_mean_1 = reduce_mean(%y/mul) {axes = [1], keep = true} : f32[n, 1]
            %y/add = add(%y/reduce_mean_1, @y/const) : f32[n, 1]
            %y/sqrt = sqrt(%y/add) : f32[n, 1]
            %y/div = div(%y/sub, %y/sqrt) : f32[n, 2]
            %y/mul_1 = mul(%y/div, @w) : f32[n, 2]
            output y = %y/mul_1",
    },
    applies: |options| !options.keeps_operators(),
    run,
};

/// The first opset with an operator for root mean square normalization.
const RMS_OPSET: u32 = 23;

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let keep_rms = options.fusion && options.opset >= RMS_OPSET;
    let lowered = graph.rewrite(|graph, node| {
        let like = graph.node(node).outputs[0];
        let op = graph.node(node).op.clone();
        let mut l = Builder::at(graph, like);
        let value = match op {
            Op::LayerNorm(norm) if !options.fusion => layer_norm(&mut l, &norm)?,
            Op::RmsNorm(norm) if !keep_rms => rms_norm(&mut l, &norm)?,
            Op::Binary(Binary { kind: BinaryKind::Div, a, b }) => match perhaps_single(l.graph, b) {
                Some(sum) => times_inverse_root(&mut l, a, sum)?,
                None => return Ok(Step::Keep),
            },
            _ => return Ok::<_, PassError>(Step::Keep),
        };
        Ok(Step::Replace(vec![value]))
    })?;
    graph.compact();
    Ok(lowered.into())
}

/// `mean(x^2) + eps`, where a value is its square root and x may have a single feature.
fn perhaps_single(graph: &Graph, root: ValueId) -> Option<ValueId> {
    root_of_squares(graph, root).filter(|[x, _]| may_be_single(graph, *x)).map(|[_, sum]| sum)
}

/// Whether the last size is 1, or only a run knows it.
fn may_be_single(graph: &Graph, x: ValueId) -> bool {
    graph.ty(x).shape.last().and_then(Dim::as_constant).is_none_or(|features| features == 1)
}

/// `x * sum^(-1/2)`.
fn times_inverse_root(l: &mut Builder<'_, '_>, x: ValueId, sum: ValueId) -> Result<ValueId, BuildError> {
    let inverse = l.with_scalar(BinaryKind::Pow, sum, -0.5)?;
    l.binary(BinaryKind::Mul, x, inverse)
}

/// `x / sqrt(sum)`. Of a single feature a weight of ones goes, and what else is multiplied may have more elements.
fn over_root(l: &mut Builder<'_, '_>, x: ValueId, sum: ValueId) -> Result<ValueId, BuildError> {
    if may_be_single(l.graph, x) {
        return times_inverse_root(l, x, sum);
    }
    let root = l.unary(UnaryKind::Sqrt, sum)?;
    l.binary(BinaryKind::Div, x, root)
}

fn layer_norm(l: &mut Builder<'_, '_>, norm: &LayerNorm) -> Result<ValueId, BuildError> {
    let axes = vec![l.graph.ty(norm.x).shape.rank() - 1];
    let mean = |x| Reduce { kind: ReduceKind::Mean, x, axes: axes.clone(), keep: true };
    let dtype = l.graph.ty(norm.x).dtype;
    let x = l.widened(norm.x)?;
    let center = l.emit(mean(x))?;
    let shifted = l.binary(BinaryKind::Sub, x, center)?;
    let square = l.binary(BinaryKind::Mul, shifted, shifted)?;
    let variance = l.emit(mean(square))?;
    let positive = l.with_scalar(BinaryKind::Add, variance, norm.eps.0)?;
    let normal = over_root(l, shifted, positive)?;
    let normal = l.cast(normal, dtype)?;
    let scaled = l.binary(BinaryKind::Mul, normal, norm.weight)?;
    match norm.bias {
        Some(bias) => l.binary(BinaryKind::Add, scaled, bias),
        None => Ok(scaled),
    }
}

fn rms_norm(l: &mut Builder<'_, '_>, norm: &RmsNorm) -> Result<ValueId, BuildError> {
    let axes = vec![l.graph.ty(norm.x).shape.rank() - 1];
    let dtype = l.graph.ty(norm.x).dtype;
    let x = l.widened(norm.x)?;
    let square = l.with_scalar(BinaryKind::Pow, x, 2.0)?;
    let mean = l.emit(Reduce { kind: ReduceKind::Mean, x: square, axes, keep: true })?;
    let positive = l.with_scalar(BinaryKind::Add, mean, norm.eps.0)?;
    let normal = over_root(l, x, positive)?;
    let normal = l.cast(normal, dtype)?;
    l.binary(BinaryKind::Mul, normal, norm.weight)
}
