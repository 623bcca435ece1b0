//! Quantized weights, values and layers, from the operators that quantize.

mod blocks;
mod codebook;
mod codes;
mod integers;
mod operators;
mod scheme;

use planish_ir::ops::{FakeQuantize, Foreign, Reshape};
use planish_ir::weight::code_range;
use planish_ir::{DType, Graph, NodeId, Op, Rewriter, ValueId};

use self::codes::{codes_of, moved, numbers};
use self::scheme::{Scheme, input};
use super::pattern::{op, reshaped};
use super::{Found, NoMatch, Rule, run as apply};
use crate::{Example, ONNX, Options, Outcome, Pass, PassError};

/// Raises quantization to weights that are codes and to quantized values.
pub const RAISE_QUANTIZED: Pass = Pass {
    name: "raise-quantized",
    summary: "Raises operators that quantize. DequantizeLinear of constant codes becomes a weight that is these codes. \
              QuantizeLinear and the DequantizeLinear after it become fake_quantize, with reshapes, transposes and \
              slices of the codes between them applied to the numbers. A value that has codes already is not quantized \
              again with the same scale. Products of integers (MatMulInteger with its scales, MatMulIntegerToFloat, \
              DynamicQuantizeMatMul, QGemm) become linear layers of a quantized value and a quantized weight. \
              MatMulNBits becomes a linear layer, and GatherBlockQuantized a lookup, of a weight with a scale for each \
              block, which DequantizeLinear with block_size gives too; MatMulBnb4 becomes a linear layer of a weight of indices. \
              QLinearMatMul, QLinearAdd and QLinearMul become the operator on numbers, between DequantizeLinear and \
              QuantizeLinear.",
    numerics: "Codes, scales and zero points stay as they are. A result between two codes may become the other one, \
               because QLinearMatMul, QLinearAdd, QLinearMul and QGemm round a result that was computed with one factor.",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            weight @codes = dense([1, -2, 3, 4]) : i8[2, 2]
            weight @scales = dense([0.5, 0.25]) : f32[2]
            weight @s = dense([0.125]) : f32[]
            weight @z = dense([128]) : u8[]
            %w = foreign([@codes, @scales], []) {domain = \"ai.onnx\", op = \"DequantizeLinear\", version = 19, settings = [axis = int(1)], captures = [], results = [f32[2, 2]]} : f32[2, 2]
            %c = foreign([%x, @s, @z], []) {domain = \"ai.onnx\", op = \"QuantizeLinear\", version = 19, captures = [], results = [u8[n, 2]]} : u8[n, 2]
            %q = foreign([%c, @s, @z], []) {domain = \"ai.onnx\", op = \"DequantizeLinear\", version = 19, captures = [], results = [f32[n, 2]]} : f32[n, 2]
            %y = matmul(%q, %w) : f32[n, 2]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            weight @w = dequantize([dense([1, -2, 3, 4]) : i8[2, 2], dense([0.5, 0.25]) : f32[2]], 1) : f32[2, 2]
            %q = fake_quantize(%x) {to = u8, scale = 0.125, zero_point = 128} : f32[n, 2]
            %y = matmul(%q, @w) : f32[n, 2]
            output y = %y",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    Ok(apply(graph, RULES, options))
}

/// The rules of quantization.
pub(super) const RULES: &[&Rule] = &[
    &operators::PRODUCT,
    &operators::SUM,
    &operators::GEMM,
    &integers::DYNAMIC,
    &integers::TO_FLOAT,
    &integers::SCALED,
    &blocks::PRODUCT,
    &blocks::ROWS,
    &codebook::PRODUCT,
    &CODES,
    &NUMBERS,
    &AGAIN,
    &ROWS,
];

/// An operator of ONNX or of ONNX Runtime on tensors of known ranks, at a node.
fn foreign<'a>(graph: &'a Graph, node: NodeId, names: &[&str]) -> Result<&'a Foreign, NoMatch> {
    let is_tensor = |value: &ValueId| graph.type_of(*value).as_tensor().is_some();
    match &graph.node(node).op {
        Op::Foreign(foreign) if named(graph, foreign, names) && graph.node(node).outputs.iter().all(is_tensor) => {
            Ok(foreign)
        }
        _ => Err(NoMatch::Other),
    }
}

fn named(graph: &Graph, foreign: &Foreign, names: &[&str]) -> bool {
    let is_tensor = |value: &ValueId| graph.type_of(*value).as_tensor().is_some();
    (foreign.is_standard() || foreign.domain.0 == "com.microsoft")
        && names.contains(&foreign.op.0.as_str())
        && foreign.inputs.iter().flatten().all(is_tensor)
}

/// The operator that computes a value, where it is one of these of ONNX or ONNX Runtime.
fn produced<'a>(graph: &'a Graph, value: ValueId, names: &[&str]) -> Option<&'a Foreign> {
    match op(graph, value)? {
        Op::Foreign(foreign) if named(graph, foreign, names) => Some(foreign),
        _ => None,
    }
}

fn miss<T>(reason: String) -> Result<T, NoMatch> {
    Err(NoMatch::Miss(reason))
}

/// `QuantizeLinear` of a weight: a weight of codes.
const CODES: Rule = Rule { name: "quantized weight", find: codes };

fn codes(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let quantize = foreign(graph, node, &["QuantizeLinear"])?.clone();
    let Some(weight) = input(&quantize, 0).and_then(|x| graph.weight(x)).cloned() else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    let codes = codes_of(graph, &quantize, &weight, output)?;
    Ok(vec![graph.weight_like(codes, output)])
}

/// `DequantizeLinear` of a weight of codes, or of what `QuantizeLinear` gives.
const NUMBERS: Rule = Rule { name: "quantized value", find: dequantize };

fn dequantize(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let dequantize = foreign(graph, node, &["DequantizeLinear"])?.clone();
    let Some(x) = input(&dequantize, 0) else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    if let Some(scale) = input(&dequantize, 1)
        && graph.ty(scale).dtype != graph.ty(output).dtype
    {
        let (scale, result) = (&graph.value(scale).name, graph.ty(output).dtype);
        return miss(format!("the scale `{scale}` is of another type than the result, {result}"));
    }
    if let Some(weight) = blocks::numbers(graph, &dequantize)? {
        return Ok(vec![graph.weight_like(weight, output)]);
    }
    let (dtype, shape) = (graph.ty(x).dtype, graph.ty(x).shape.clone());
    let scheme = Scheme::of(graph, &dequantize, 1, dtype, &shape)?;
    numbers(graph, x, &scheme, output).map(|value| vec![value])
}

/// `fake_quantize` of what the same scale and zero point gave.
const AGAIN: Rule = Rule { name: "quantized value", find: again };

fn again(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::FakeQuantize(quantize) = graph.node(node).op.clone() else { return Err(NoMatch::Other) };
    // Beyond these, the numbers that codes stand for may be too coarse for rounding to find the codes again.
    let exact = match graph.ty(quantize.x).dtype {
        DType::F32 => code_range(quantize.to).is_some() && quantize.to.bits() <= 16,
        DType::F16 => code_range(quantize.to).is_some() && quantize.to.bits() <= 8,
        _ => false,
    };
    if !exact || quantize.scale.is_none() || !quantize.split.0.is_empty() {
        return Err(NoMatch::Other);
    }
    let mut value = quantize.x;
    while let Some(x) = moved(graph, value) {
        value = x;
    }
    let to = |weight| Scheme::of_weight(weight).and_then(|(to, scheme)| scheme.fake(quantize.x, to));
    let same = match (op(graph, value), graph.weight(value)) {
        (Some(Op::FakeQuantize(before)), _) => FakeQuantize { x: quantize.x, ..before.clone() } == quantize,
        (_, Some(weight)) => to(weight) == Some(quantize.clone()),
        _ => false,
    };
    if same { Ok(vec![quantize.x]) } else { Err(NoMatch::Other) }
}

/// `reshape(fake_quantize(linear(reshape(x))))` with the shape first, so that the layer takes the tokens in their own
/// shape.
const ROWS: Rule = Rule { name: "quantized value", find: rows };

fn rows(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Reshape(reshape) = graph.node(node).op.clone() else { return Err(NoMatch::Other) };
    let Some(Op::FakeQuantize(quantize)) = op(graph, reshape.x).cloned() else { return Err(NoMatch::Other) };
    let flat = match op(graph, quantize.x) {
        Some(Op::Linear(linear)) => reshaped(graph, linear.x),
        _ => None,
    };
    if flat.is_none() || quantize.scale.is_none() || !quantize.split.0.is_empty() {
        return Err(NoMatch::Other);
    }
    let output = graph.node(node).outputs[0];
    let x = graph.part(Reshape { x: quantize.x, shape: reshape.shape }, output)?;
    Ok(vec![graph.emit(FakeQuantize { x, ..quantize }, output)?])
}
