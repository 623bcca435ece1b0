//! Attention without a cache as one operator: ONNX Runtime's MultiHeadAttention.

use planish_ir::ops::{Attention, Setting};
use planish_ir::{BuildError, DType, Graph, ValueId};

use super::in_place::{addend, heads};
use super::mask;
use super::quantized::{MICROSOFT, foreign};
use crate::build::Builder;

/// Whether the operator computes an attention.
pub(super) fn fits(graph: &Graph, attention: &Attention) -> bool {
    let is_rows = |value: ValueId| graph.ty(value).shape.rank() == 3;
    let is_alone = attention.past_key.is_none() && !attention.present.0;
    let is_f32 = graph.ty(attention.q).dtype == DType::F32;
    let is_plain = attention.softcap.is_none() && attention.kv_heads() == attention.heads;
    is_alone && is_f32 && is_plain && is_rows(attention.k) && is_rows(attention.v)
}

/// The result of an attention that the operator computes. Its operands are queries, keys, values, and an addend of the scores.
pub(super) fn lower(l: &mut Builder<'_, '_>, attention: &Attention) -> Result<Vec<ValueId>, BuildError> {
    let all = l.graph.ty(attention.q).clone();
    let values = l.graph.ty(attention.v).shape[2].clone();
    let keys = l.graph.ty(attention.k).shape[1].clone();
    let addend = addend(l, attention, mask::is_needed(attention), (&all.shape[1], &keys))?;
    let mut inputs: Vec<Option<ValueId>> = [attention.q, attention.k, attention.v].map(Some).to_vec();
    if let Some(addend) = addend {
        inputs.extend([None, None, Some(addend)]);
    }
    let settings =
        vec![("num_heads".to_owned(), heads(attention.heads)), ("scale".to_owned(), Setting::Float(attention.scale))];
    let result = planish_ir::TensorType::new(all.dtype, all.shape.with_dim(2, values));
    foreign(l, (MICROSOFT, "MultiHeadAttention", 1), inputs, settings, vec![result])
}
