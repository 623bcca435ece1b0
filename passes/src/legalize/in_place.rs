//! Attention that appends to a cache in place: ONNX Runtime's GroupQueryAttention.

use planish_ir::ops::{Attention, BinaryKind, Expand, Real, Setting, Sizes};
use planish_ir::{BuildError, DType, Dim, Graph, Shape, TensorType, ValueId};

use super::mask;
use super::quantized::{MICROSOFT, foreign};
use crate::build::Builder;

/// Why the operator does not compute an attention with a cache.
pub(super) fn refuses(graph: &Graph, attention: &Attention) -> Option<String> {
    let (q, k, v) = (graph.ty(attention.q), graph.ty(attention.k), graph.ty(attention.v));
    let reason = if attention.past_key.is_none() || !attention.present.0 {
        "it has no cache"
    } else if !attention.causal.0 {
        "it is not causal"
    } else if q.dtype != DType::F32 {
        "it is not computed in float32"
    } else if k.shape.rank() != 3 || v.shape.rank() != 3 {
        "its keys are in heads already"
    } else if k.shape[2] != v.shape[2] {
        "its keys and values differ in size"
    } else {
        return None;
    };
    Some(reason.to_owned())
}

/// The results of an attention that the operator computes. Its operands are queries, keys, values, the cache, the last
/// position of each row and the number of all keys. What a mask, a window or a bias changes is an addend of the scores.
pub(super) fn lower(l: &mut Builder<'_, '_>, attention: &Attention) -> Result<Vec<ValueId>, BuildError> {
    let all = l.graph.ty(attention.q).clone();
    let [batch, queries, _] = [0, 1, 2].map(|axis: usize| all.shape[axis].clone());
    let cached = |l: &Builder<'_, '_>, past: Option<ValueId>| past.map(|past| l.graph.ty(past).clone());
    let (Some(past_key), Some(past_value)) = (cached(l, attention.past_key), cached(l, attention.past_value)) else {
        return l.emit_all(attention.clone());
    };
    // The typing rule of attention has sizes in range.
    let keys = past_key.shape[2].checked_add(&queries).unwrap_or_default();
    let sizes = l.emit(Sizes { of: Shape::new([keys.clone()]) })?;
    let count = l.cast(sizes, DType::I32)?;
    let last = l.with_scalar(BinaryKind::Sub, count, 1.0)?;
    let last = l.emit(Expand { x: last, shape: Shape::new([batch]) })?;
    let count = l.reshape(count, [])?;
    let addend = match attention.mask.is_some() || attention.window.is_some() {
        true => mask::added(l, attention, attention.q)?,
        false => None,
    };
    let addend = match (attention.bias, addend) {
        (Some(bias), Some(mask)) => Some(l.binary(BinaryKind::Add, bias, mask)?),
        (one, other) => one.or(other),
    };
    let addend = addend.map(|addend| whole(l, addend, &queries, &keys)).transpose()?;
    let mut inputs: Vec<Option<ValueId>> = [attention.q, attention.k, attention.v].map(Some).to_vec();
    inputs.extend([attention.past_key, attention.past_value, Some(last), Some(count)]);
    if let Some(addend) = addend {
        inputs.extend([None, None, None, Some(addend)]);
    }
    let count = |heads: usize| Setting::Int(i64::try_from(heads).unwrap_or(i64::MAX));
    let mut settings = vec![
        ("num_heads".to_owned(), count(attention.heads)),
        ("kv_num_heads".to_owned(), count(attention.kv_heads())),
        ("scale".to_owned(), Setting::Float(attention.scale)),
    ];
    if let Some(Real(cap)) = attention.softcap {
        settings.push(("softcap".to_owned(), Setting::Float(Real(cap))));
    }
    let present = |past: TensorType| TensorType::new(past.dtype, past.shape.with_dim(2, keys.clone()));
    let results = vec![all, present(past_key), present(past_value)];
    foreign(l, (MICROSOFT, "GroupQueryAttention", 1), inputs, settings, results)
}

/// An addend of scores with four dimensions, the last two of them whole: [batch or 1, heads or 1, queries, keys].
fn whole(l: &mut Builder<'_, '_>, addend: ValueId, queries: &Dim, keys: &Dim) -> Result<ValueId, BuildError> {
    let mut dims = l.graph.ty(addend).shape.to_vec();
    while dims.len() < 4 {
        dims.insert(0, Dim::constant(1));
    }
    let addend = l.reshape(addend, dims.clone())?;
    let wanted = Shape::new([dims[0].clone(), dims[1].clone(), queries.clone(), keys.clone()]);
    match l.graph.ty(addend).shape == wanted {
        true => Ok(addend),
        false => l.emit(Expand { x: addend, shape: wanted }),
    }
}
