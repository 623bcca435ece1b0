//! Operators of ONNX and of ONNX Runtime that pass through.

use crate::ops::{Foreign, Setting};
use crate::{Node, ValueId};

use super::native::{self, GELU_ERF, GELU_TANH, LAYER_NORM, RMS_NORM, SCORE, SOFTMAX, at, scored};
use super::sizes::{Sizes, product};
use super::{Cost, Flops};

/// The domain of ONNX Runtime's operators.
const MICROSOFT: &str = "com.microsoft";

/// Operators whose result is their operand under another shape, or a constant of the run.
const FREE: &[&str] = &["Constant", "Flatten", "Identity", "Reshape", "Shape", "Size", "Squeeze", "Unsqueeze"];

/// Operators that move, choose or convert elements.
const MOVES: &str = "\
    Bernoulli BitCast Cast CastLike CenterCropPad Col2Im Compress Concat ConcatFromSequence ConstantOfShape \
    DepthToSpace Expand EyeLike Gather GatherElements GatherND MaxUnpool Multinomial NonMaxSuppression NonZero \
    OneHot Optional OptionalGetElement OptionalHasElement Pad RandomNormal RandomNormalLike RandomUniform \
    RandomUniformLike Range RegexFullMatch ReverseSequence Scatter ScatterElements ScatterND SequenceAt \
    SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength Slice SpaceToDepth Split \
    SplitToSequence StringConcat StringNormalizer StringSplit TensorScatter TfIdfVectorizer Tile TopK Transpose \
    Trilu Unique Upsample Where";

/// Operators of ONNX with graphs inside, and those whose operations depend on more than sizes.
const UNKNOWN: &[&str] = &["If", "Loop", "Scan", "SequenceMap", "DFT", "STFT", "Det", "MelWeightMatrix"];

/// Operators of ONNX Runtime that compute on each element for itself.
const ELEMENTWISE: &str = "\
    BiasAdd BiasSplitGelu DequantizeLinear DynamicQuantizeLinear Inverse QLinearAdd QLinearAveragePool QLinearConcat \
    QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid QuantizeLinear";

/// What an operator costs.
pub(super) fn cost(op: &Foreign, node: &Node, sizes: &Sizes<'_>) -> Result<Cost, String> {
    let name = op.op.0.as_str();
    if op.is_standard() && FREE.contains(&name) {
        return Ok(Cost::default());
    }
    let flops = flops(op, node, sizes)?;
    let takes_some = matches!(name, "Gather" | "GatherElements" | "GatherND" | "Slice" | "GatherBlockQuantized");
    match op.inputs.first() {
        Some(Some(x)) if takes_some => native::some_of(*x, node, flops, sizes),
        _ => sizes.cost(node, flops, |_| Ok(None)),
    }
}

fn flops(op: &Foreign, node: &Node, sizes: &Sizes<'_>) -> Result<Flops, String> {
    let each = |times: u64| widest(op, node, sizes).map(|elements| Flops::others(elements.saturating_mul(times)));
    let known = [Foreign::STANDARD, MICROSOFT].contains(&op.domain.0.as_str());
    match op.op.0.as_str() {
        name if !known => Err(format!("operator {name} of domain {} is not known", op.domain.0)),
        name if !op.captured.is_empty() || UNKNOWN.contains(&name) => {
            Err(format!("what {name} computes depends on more than sizes"))
        }
        "MatMul"
        | "MatMulInteger"
        | "MatMulIntegerToFloat"
        | "DynamicQuantizeMatMul"
        | "QLinearMatMul"
        | "FusedMatMul"
        | "FusedMatMulActivation"
        | "TransposeMatMul"
        | "MatMulNBits"
        | "MatMulBnb4"
        | "MatMulFpQ4"
        | "Gemm"
        | "FusedGemm"
        | "QGemm"
        | "GemmFloat8"
        | "GemmFastGelu" => matrices(op, node, sizes),
        "Conv" | "ConvInteger" | "FusedConv" | "NhwcFusedConv" | "NhwcConv" | "DeformConv" => {
            convolution(output(node)?, operand(op, 1)?, sizes)
        }
        "QLinearConv" => convolution(output(node)?, operand(op, 3)?, sizes),
        "ConvTranspose" | "ConvTransposeWithDynamicPads" => convolution(operand(op, 0)?, operand(op, 1)?, sizes),
        "Einsum" => einsum(op, sizes),
        "LSTM" | "GRU" | "RNN" | "DynamicQuantizeLSTM" => recurrent(op, sizes),
        "Attention" if !op.is_standard() => packed_attention(op, 4, node, sizes),
        "QAttention" => packed_attention(op, 8, node, sizes),
        "Attention" => attention(op, 4, node, sizes),
        "MultiHeadAttention" => attention(op, 6, node, sizes),
        "DecoderMaskedMultiHeadAttention" => attention(op, 5, node, sizes),
        "GroupQueryAttention" => attention(op, 3, node, sizes),
        "Softmax" | "LogSoftmax" | "QLinearSoftmax" => each(SOFTMAX),
        "BiasSoftmax" => each(SOFTMAX + 1),
        "LayerNormalization" | "GroupNormalization" | "InstanceNormalization" | "GroupNorm" | "SkipGroupNorm" => {
            each(LAYER_NORM)
        }
        "SkipLayerNormalization" | "EmbedLayerNormalization" => each(1 + LAYER_NORM),
        "RMSNormalization" | "SimplifiedLayerNormalization" => each(RMS_NORM),
        "SkipSimplifiedLayerNormalization" => each(1 + RMS_NORM),
        "Gelu" | "QuickGelu" => each(GELU_ERF),
        "BiasGelu" => each(1 + GELU_ERF),
        "FastGelu" => each(GELU_TANH),
        "RotaryEmbedding" | "GemmaRotaryEmbedding" => each(native::ROTARY),
        name if listed(MOVES, name) || name == "GatherBlockQuantized" => Ok(Flops::default()),
        name if op.is_standard() || listed(ELEMENTWISE, name) => each(1),
        name => Err(format!("operator {name} of ONNX Runtime is not counted")),
    }
}

fn listed(names: &str, name: &str) -> bool {
    names.split(' ').any(|listed| listed == name)
}

/// The number of elements of the first operand or of the first result, whichever has more, where one of them holds
/// floating-point numbers.
fn widest(op: &Foreign, node: &Node, sizes: &Sizes<'_>) -> Result<u64, String> {
    let first = op.inputs.first().copied().flatten();
    let values = || first.into_iter().chain(node.outputs.first().copied());
    if !values().any(|v| sizes.graph.type_of(v).dtype().is_some_and(|dtype| dtype.is_float())) {
        return Ok(0);
    }
    values().try_fold(0, |most, v| Ok(most.max(sizes.elements(v)?)))
}

fn operand(op: &Foreign, index: usize) -> Result<ValueId, String> {
    let value = op.inputs.get(index).copied().flatten();
    value.ok_or_else(|| format!("operand {index} of {} is missing", op.op.0))
}

fn output(node: &Node) -> Result<ValueId, String> {
    node.outputs.first().copied().ok_or_else(|| "there is no result".to_owned())
}

/// A product of matrices.
fn matrices(op: &Foreign, node: &Node, sizes: &Sizes<'_>) -> Result<Flops, String> {
    let (a, elements) = (sizes.shape(operand(op, 0)?)?, sizes.elements(output(node)?)?);
    let transposed = matches!(op.setting("transA"), Some(Setting::Int(1..)));
    let inner = a.len().checked_sub(if transposed { 2 } else { 1 }).map_or(1, |axis| at(&a, axis));
    let is_gemm = matches!(op.op.0.as_str(), "Gemm" | "FusedGemm" | "QGemm" | "GemmFloat8" | "GemmFastGelu");
    let has_bias = is_gemm && op.inputs.get(2).is_some_and(Option::is_some);
    Ok(Flops::products(elements.saturating_mul(inner)).and(if has_bias { elements } else { 0 }))
}

/// Each element of `x`, the result of a convolution or the operand of a transposed one, with each of a filter.
fn convolution(x: ValueId, filters: ValueId, sizes: &Sizes<'_>) -> Result<Flops, String> {
    let filters = sizes.shape(filters)?;
    let filter = filters.get(1..).map_or(1, product);
    Ok(Flops::products(sizes.elements(x)?.saturating_mul(filter)))
}

/// Every element of the weights for every step of every row.
fn recurrent(op: &Foreign, sizes: &Sizes<'_>) -> Result<Flops, String> {
    let x = sizes.shape(operand(op, 0)?)?;
    let weights = sizes.elements(operand(op, 1)?)?.saturating_add(sizes.elements(operand(op, 2)?)?);
    Ok(Flops::products(product(&[at(&x, 0), at(&x, 1), weights])))
}

/// ONNX Runtime's Attention, which has the product with the packed weights of queries, keys and values inside.
fn packed_attention(op: &Foreign, past: usize, node: &Node, sizes: &Sizes<'_>) -> Result<Flops, String> {
    let (x, weights) = (sizes.shape(operand(op, 0)?)?, sizes.shape(operand(op, 1)?)?);
    let rows = product(&[at(&x, 0), at(&x, 1)]);
    let context = sizes.shape(output(node)?)?;
    let values = context.last().copied().unwrap_or(0);
    let queries = at(&weights, 1).saturating_sub(values) / 2;
    // [2, batch, heads, past, size].
    let past = op.inputs.get(past).copied().flatten().map_or(Ok(0), |v| sizes.shape(v).map(|shape| at(&shape, 3)))?;
    let keys = at(&x, 1).saturating_add(past);
    let scores = product(&[rows, heads(op, "num_heads")?, keys]);
    let projections = rows.saturating_mul(product(&weights));
    let attention = scored(rows.saturating_mul(queries), product(&context), keys, scores, SCORE);
    Ok(Flops {
        products: attention.products.saturating_add(projections.saturating_mul(2)),
        others: attention.others.saturating_add(rows.saturating_mul(at(&weights, 1))),
    })
}

/// Attention of projected queries, keys and values, with the cached keys at this place among the operands.
fn attention(op: &Foreign, past: usize, node: &Node, sizes: &Sizes<'_>) -> Result<Flops, String> {
    let q = sizes.shape(operand(op, 0)?)?;
    let context = sizes.elements(output(node)?)?;
    let length = |shape: &[u64]| match shape.len() {
        // [batch, heads, keys, size], and the packed [batch, keys, heads, 2 or 3, size].
        4 => at(shape, 2),
        _ => at(shape, 1),
    };
    let key = op.inputs.get(1).copied().flatten().map(|v| sizes.shape(v)).transpose()?;
    let past = op.inputs.get(past).copied().flatten().map_or(Ok(0), |v| sizes.shape(v).map(|shape| at(&shape, 2)))?;
    let keys = length(key.as_ref().unwrap_or(&q)).saturating_add(past);
    let heads = match q.len() {
        4 => at(&q, 1),
        _ => heads(op, if op.is_standard() { "q_num_heads" } else { "num_heads" })?,
    };
    let scores = product(&[at(&q, 0), length(&q), heads, keys]);
    // Where queries come packed with keys and values, they have the features of the result.
    let queries = if key.is_some() { product(&q) } else { context };
    Ok(scored(queries, context, keys, scores, SCORE))
}

fn heads(op: &Foreign, setting: &str) -> Result<u64, String> {
    match op.setting(setting) {
        Some(Setting::Int(heads)) => Ok(u64::try_from(*heads).unwrap_or(0)),
        _ => Err(format!("{} has no {setting}", op.op.0)),
    }
}

/// A sum of products over labels.
fn einsum(op: &Foreign, sizes: &Sizes<'_>) -> Result<Flops, String> {
    let equation = match op.setting("equation") {
        Some(Setting::Bytes(bytes)) => std::str::from_utf8(bytes).map_err(|_| "the equation of Einsum is no text"),
        _ => Err("Einsum has no equation"),
    }?;
    let operands: Vec<&str> = equation.split("->").next().unwrap_or_default().split(',').map(str::trim).collect();
    // The dimensions that an ellipsis stands for are counted from the last one, as they broadcast.
    let mut labels: std::collections::BTreeMap<(char, usize), u64> = std::collections::BTreeMap::new();
    for (index, text) in operands.iter().enumerate() {
        let shape = sizes.shape(operand(op, index)?)?;
        let (before, after) = text.split_once("...").unwrap_or((text, ""));
        let named = |text: &str| text.chars().filter(|c| !c.is_whitespace()).map(|c| (c, 0)).collect::<Vec<_>>();
        let (before, after) = (named(before), named(after));
        let open = shape.len().saturating_sub(before.len() + after.len());
        let open = (0..open).rev().map(|place| ('.', place));
        for (label, size) in before.into_iter().chain(open).chain(after).zip(shape) {
            let known = labels.entry(label).or_insert(size);
            *known = if *known == 1 { size } else { *known };
        }
    }
    let combinations = labels.values().fold(1, |product: u64, size| product.saturating_mul(*size));
    Ok(Flops::products(combinations.saturating_mul(operands.len() as u64 - 1)))
}
