//! Operators from codes to codes (`QLinearMatMul`, `QLinearAdd`, `QGemm`), on numbers.

use planish_ir::ops::{
    Binary, BinaryKind, Flag, Foreign, InnerOperators, Linear, MatMul, Real, Results, Setting, Settings, Text,
};
use planish_ir::{DType, NodeId, Rewriter, TensorType, ValueId, Weight};

use super::super::{Found, NoMatch, Rule};
use super::scheme::{Scheme, constant, input, int};
use super::{foreign, miss};

/// The opset whose `QuantizeLinear` and `DequantizeLinear` take codes of 8 bits, and scales for channels.
const OPSET: usize = 13;

/// `QLinearMatMul`, as a product between `DequantizeLinear` and `QuantizeLinear`.
pub(super) const PRODUCT: Rule = Rule { name: "quantized product", find: product };

fn product(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let found = foreign(graph, node, &["QLinearMatMul"])?.clone();
    let output = graph.node(node).outputs[0];
    let a = numbers(graph, &found, 0, None, output)?;
    let Some(columns) = input(&found, 3).map(|b| graph.ty(b).shape.rank().saturating_sub(1)) else {
        return Err(NoMatch::Other);
    };
    let b = numbers(graph, &found, 3, Some(columns), output)?;
    let product = graph.part(MatMul { a, b }, output)?;
    quantize(graph, product, &found, 6, output).map(|codes| vec![codes])
}

/// `QLinearAdd` and `QLinearMul`, as a sum or a product between `DequantizeLinear` and `QuantizeLinear`.
pub(super) const SUM: Rule = Rule { name: "quantized sum", find: sum };

fn sum(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let found = foreign(graph, node, &["QLinearAdd", "QLinearMul"])?.clone();
    let output = graph.node(node).outputs[0];
    let kind = if found.op.0 == "QLinearAdd" { BinaryKind::Add } else { BinaryKind::Mul };
    let a = numbers(graph, &found, 0, None, output)?;
    let b = numbers(graph, &found, 3, None, output)?;
    let sum = graph.part(Binary { kind, a, b }, output)?;
    quantize(graph, sum, &found, 6, output).map(|codes| vec![codes])
}

/// `QGemm` with a weight, as a linear layer.
pub(super) const GEMM: Rule = Rule { name: "quantized product", find: gemm };

fn gemm(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let found = foreign(graph, node, &["QGemm"])?.clone();
    let output = graph.node(node).outputs[0];
    let [Some(b), Some(scale)] = [3, 4].map(|at| input(&found, at)) else { return Err(NoMatch::Other) };
    let one = Setting::Float(Real(1.0));
    if int(&found, "transA").is_some_and(|t| t != 0) || found.setting("alpha").is_some_and(|alpha| *alpha != one) {
        return miss("its first operand is transposed, or its product scaled".to_owned());
    }
    let Some(codes) = graph.weight(b).cloned() else {
        return miss(format!("`{}` is not a weight", graph.value(b).name));
    };
    let stored = int(&found, "transB").is_some_and(|t| t != 0);
    let (dtype, shape, out) = (codes.dtype(), graph.ty(b).shape.clone(), usize::from(!stored));
    let scheme = Scheme::along(graph, scale, input(&found, 5), dtype, &shape, out)?;
    let bias = match input(&found, 6) {
        Some(bias) => Some(sums(graph, &found, bias, &scheme)?),
        None => None,
    };
    let weight = graph.weight_like(scheme.dequantize(&codes)?, b);
    let bias = bias.map(|(bias, like)| graph.weight_like(bias, like));
    let x = numbers(graph, &found, 0, None, output)?;
    let layer = Linear { x, weight, bias, transposed: Flag(!stored) };
    if input(&found, 7).is_none() {
        return Ok(vec![graph.emit(layer, output)?]);
    }
    let layer = graph.part(layer, output)?;
    quantize(graph, layer, &found, 7, output).map(|codes| vec![codes])
}

/// The bias of a `QGemm`, whose codes count in the product of both scales.
fn sums(
    graph: &mut Rewriter<'_>,
    gemm: &Foreign,
    bias: ValueId,
    weight: &Scheme,
) -> Result<(Weight, ValueId), NoMatch> {
    let name = graph.value(bias).name.clone();
    let codes = constant(graph, bias, "bias")?;
    let Some(scale) = input(gemm, 1) else { return Err(NoMatch::Other) };
    let (Some(scale), Ok(scales)) = (graph.number(scale), weight.scales.read_numbers()) else {
        return miss(format!("the scale of the bias `{name}` is not a constant"));
    };
    let products: Vec<f64> = scales.iter().map(|s| f64::from(*s as f32 * scale as f32)).collect();
    let scales = Weight::numbers(DType::F32, weight.scales.shape().to_vec(), &products);
    match scales.and_then(|scales| codes.dequantize(0, &scales, None)).filter(|_| codes.shape().len() == 1) {
        Some(bias_numbers) => Ok((bias_numbers, bias)),
        None => miss(format!("the bias `{name}` is {}, not a vector of i32", graph.ty(bias))),
    }
}

/// An operator of ONNX that quantizes.
fn standard(op: &str, inputs: Vec<Option<ValueId>>, axis: Option<usize>, result: TensorType) -> Foreign {
    let axis = axis.and_then(|axis| i64::try_from(axis).ok());
    let settings = axis.into_iter().map(|axis| ("axis".to_owned(), Setting::Int(axis))).collect();
    Foreign {
        inputs,
        captured: Vec::new(),
        domain: Text(Foreign::STANDARD.to_owned()),
        op: Text(op.to_owned()),
        version: OPSET,
        settings: Settings(settings),
        captures: Vec::new(),
        inner: InnerOperators(Vec::new()),
        results: Results(vec![Some(result.into())]),
    }
}

/// The numbers that the operand `at` stands for, with the scale and the zero point after it. A scale for each channel is
/// one for each index of `axis`, where that is given.
fn numbers(
    graph: &mut Rewriter<'_>,
    found: &Foreign,
    at: usize,
    axis: Option<usize>,
    like: ValueId,
) -> Result<ValueId, NoMatch> {
    let [Some(x), Some(scale)] = [at, at + 1].map(|at| input(found, at)) else { return Err(NoMatch::Other) };
    let scales = constant(graph, scale, "scale")?;
    let channels = !scales.shape().is_empty();
    if channels && axis.is_none() {
        return miss(format!("the scale `{}` is not one for all", graph.value(scale).name));
    }
    let ty = TensorType::new(scales.dtype(), graph.ty(x).shape.clone());
    let inputs = vec![Some(x), Some(scale), input(found, at + 2)];
    Ok(graph.part(standard("DequantizeLinear", inputs, axis.filter(|_| channels), ty), like)?)
}

/// The codes of a value, with the scale `at` and the zero point after it.
fn quantize(
    graph: &mut Rewriter<'_>,
    x: ValueId,
    found: &Foreign,
    at: usize,
    output: ValueId,
) -> Result<ValueId, NoMatch> {
    let Some(scale) = input(found, at) else { return Err(NoMatch::Other) };
    if !constant(graph, scale, "scale")?.shape().is_empty() {
        return miss(format!("the scale `{}` is not one for all", graph.value(scale).name));
    }
    let ty = TensorType::new(graph.ty(output).dtype, graph.ty(x).shape.clone());
    let inputs = vec![Some(x), Some(scale), input(found, at + 1)];
    Ok(graph.emit(standard("QuantizeLinear", inputs, None, ty), output)?)
}
