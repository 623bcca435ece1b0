//! The operator Attention that TensorRT has a kernel for.

use planish_ir::{DType, Op, ValueId};

use super::Operator;
use crate::{CastAttention, TRT};

/// Why TensorRT has no kernel for an operator Attention: the first condition that it does not meet.
pub(super) fn missing(node: &Operator<'_>) -> Option<&'static str> {
    let CastAttention::Operator { sizes } = &TRT.attention_between_casts else {
        return Some("TensorRT has no Attention");
    };
    let [Some(q), Some(k), Some(v)] = [0, 1, 2].map(|at| node.operand(at)) else {
        return Some("TensorRT has no Attention without queries, keys and values");
    };
    let heads = |value: ValueId| -> Option<[usize; 2]> {
        let shape = &node.graph.ty(value).shape;
        let [_, heads, _, size] = &shape[..] else { return None };
        let number = |dim: &planish_ir::Dim| usize::try_from(dim.as_constant()?).ok();
        Some([number(heads)?, number(size)?])
    };
    let [Some([count, size]), Some([_, of_keys]), Some([_, of_values])] = [q, k, v].map(heads) else {
        return Some("TensorRT has Attention of [batch, heads, sequence, features] with known heads and features only");
    };
    let Some(half) = half(node, [q, k, v]) else {
        return Some(
            "TensorRT has Attention in float16 or bfloat16 only, or between casts from these to float32 of what is no cache",
        );
    };
    if count < 2 {
        return Some("TensorRT has Attention of two heads or more only");
    }
    if !sizes.contains(&size) || [of_keys, of_values] != [size; 2] {
        return Some("TensorRT has Attention of heads with 9 to 256 features only, the same number in keys and values");
    }
    if node.operand(3).is_some_and(|mask| ![DType::Bool, half].contains(&node.graph.ty(mask).dtype)) {
        return Some("TensorRT has Attention with a mask that is boolean or of the half type only");
    }
    if (4..7).any(|at| node.operand(at).is_some()) {
        return Some("TensorRT has Attention without a past only");
    }
    if node.foreign.setting("softcap").is_some() {
        return Some("TensorRT has Attention without a softcap only");
    }
    (node.results() != 1).then_some("TensorRT has Attention with one result only")
}

/// The half type of all three operands, or that they are cast to float32 from.
fn half(node: &Operator<'_>, operands: [ValueId; 3]) -> Option<DType> {
    let source = |value: ValueId| match node.graph.producer(value).map(|node| &node.op) {
        Some(Op::Cast(cast)) if !is_cache(node, cast.x) => node.graph.ty(cast.x).dtype,
        _ => node.graph.ty(value).dtype,
    };
    let [q, k, v] = operands.map(source);
    (matches!(q, DType::F16 | DType::Bf16) && k == q && v == q).then_some(q)
}

/// Whether a value may be a cache: such operands TensorRT casts, and it has no kernel in float32.
fn is_cache(node: &Operator<'_>, value: ValueId) -> bool {
    let is_output = node.graph.outputs().iter().any(|output| output.value == value);
    is_output || node.graph.producer(value).is_none_or(|node| matches!(node.op, Op::Concat(_)))
}
