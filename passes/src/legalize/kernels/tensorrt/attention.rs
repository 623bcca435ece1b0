//! The operator Attention that TensorRT has a kernel for.

use planish_ir::{DType, Op, ValueId};

use super::Operator;
use crate::{CastAttention, TRT};

/// What is said of other ones.
pub(super) const TAKEN: &str = "TensorRT has a kernel for Attention of two heads or more of 9 to 256 features, in float16 or \
                                bfloat16 or between casts from these to float32 of what is no cache, with one result, a mask that is \
                                boolean or of the half type, no past and no softcap";

/// Whether TensorRT has a kernel for an operator Attention.
pub(super) fn has_kernel(node: &Operator<'_>) -> bool {
    let CastAttention::Operator { sizes } = &TRT.attention_between_casts else { return false };
    let [Some(q), Some(k), Some(v)] = [0, 1, 2].map(|at| node.operand(at)) else { return false };
    let heads = |value: ValueId| -> Option<[usize; 2]> {
        let shape = &node.graph.ty(value).shape;
        let [_, heads, _, size] = &shape[..] else { return None };
        let number = |dim: &planish_ir::Dim| usize::try_from(dim.as_constant()?).ok();
        Some([number(heads)?, number(size)?])
    };
    let ([Some([count, size]), Some([_, of_keys]), Some([_, of_values])], Some(half)) =
        ([q, k, v].map(heads), half(node, [q, k, v]))
    else {
        return false;
    };
    let mask = node.operand(3).is_none_or(|mask| [DType::Bool, half].contains(&node.graph.ty(mask).dtype));
    let past = (4..7).any(|at| node.operand(at).is_some());
    let capped = node.foreign.setting("softcap").is_some();
    count > 1
        && sizes.contains(&size)
        && [of_keys, of_values] == [size; 2]
        && mask
        && !past
        && !capped
        && node.results() == 1
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
