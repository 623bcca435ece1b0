//! Attention that appends to a cache in place: ONNX Runtime's GroupQueryAttention.

use planish_ir::ops::{Attention, BinaryKind, Expand, Real, Setting, Sizes};
use planish_ir::{BuildError, DType, Dim, Graph, Node, Op, Shape, TensorType, ValueId};

use super::quantized::{MICROSOFT, foreign};
use super::{dim, mask};
use crate::build::Builder;
use crate::{CacheForm, Options, PassError};

/// The sizes of heads that the operator takes are multiples of this.
const HEAD_MULTIPLE: i64 = 8;

/// Whether attention with a cache is to become the operator.
///
/// # Errors
/// When it has to, and the operator does not compute one of the graph's.
pub(super) fn is_chosen(graph: &Graph, options: &Options) -> Result<bool, PassError> {
    let operators = || graph.nodes().filter_map(|(_, node)| refused(graph, node, options)).collect::<Vec<_>>();
    match options.cache {
        CacheForm::Copy => Ok(false),
        CacheForm::InPlaceIfPossible => Ok(operators().is_empty()),
        CacheForm::InPlace => match operators() {
            operators if operators.is_empty() => Ok(true),
            operators => Err(PassError::Cache { operators }),
        },
    }
}

/// Why an attention with a cache cannot append to it in place: a line of an error.
fn refused(graph: &Graph, node: &Node, options: &Options) -> Option<String> {
    let Op::Attention(attention) = &node.op else { return None };
    attention.past_key?;
    let reason = match options.target.appends_in_place && options.fusion {
        true => refuses(graph, attention)?,
        false => format!("target {} has no operator for it, or fusion is off", options.target),
    };
    let value = graph.value(node.outputs[0]);
    Some(format!("\n  `attention` at `{}` ({}): {reason}", value.name, value.origin))
}

/// Why the operator does not compute an attention with a cache.
fn refuses(graph: &Graph, attention: &Attention) -> Option<String> {
    let (q, k, v) = (graph.ty(attention.q), graph.ty(attention.k), graph.ty(attention.v));
    let heads = dim(attention.heads);
    let size = q.shape[2].exact_div(&heads).and_then(|size| size.as_constant()).unwrap_or(0);
    let past = attention.past_key.map(|past| &graph.ty(past).shape[2]);
    let is_input = |past: Option<ValueId>| past.is_some_and(|past| graph.inputs().contains(&past));
    if !attention.causal.0 {
        Some("it is not causal".to_owned())
    } else if !attention.present.0 {
        Some("its keys and values are no results".to_owned())
    } else if q.dtype != DType::F32 {
        Some(format!("it is computed in {}; the operator computes in f32", q.dtype))
    } else if k.shape.rank() != 3 || v.shape.rank() != 3 {
        Some("its new keys are in heads already".to_owned())
    } else if k.shape[2] != v.shape[2] {
        Some("its keys and values differ in size".to_owned())
    } else if size % HEAD_MULTIPLE != 0 {
        Some(format!("a head has {size} features; the operator takes a multiple of {HEAD_MULTIPLE}"))
    } else if !is_input(attention.past_key) || !is_input(attention.past_value) {
        Some("its cache is no input of the graph".to_owned())
    } else if past.is_none_or(|past| past.as_constant().is_some()) {
        Some("its cache has a fixed size".to_owned())
    } else {
        None
    }
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
    let masks = attention.mask.is_some() || attention.window.is_some();
    let addend = addend(l, attention, masks, (&queries, &keys))?;
    let mut inputs: Vec<Option<ValueId>> = [attention.q, attention.k, attention.v].map(Some).to_vec();
    inputs.extend([attention.past_key, attention.past_value, Some(last), Some(count)]);
    if let Some(addend) = addend {
        inputs.extend([None, None, None, Some(addend)]);
    }
    let mut settings = vec![
        ("num_heads".to_owned(), heads(attention.heads)),
        ("kv_num_heads".to_owned(), heads(attention.kv_heads())),
        ("scale".to_owned(), Setting::Float(attention.scale)),
    ];
    if let Some(Real(cap)) = attention.softcap {
        settings.push(("softcap".to_owned(), Setting::Float(Real(cap))));
    }
    let present = |past: TensorType| TensorType::new(past.dtype, past.shape.with_dim(2, keys.clone()));
    let results = vec![all, present(past_key), present(past_value)];
    foreign(l, (MICROSOFT, "GroupQueryAttention", 1), inputs, settings, results)
}

/// A number of heads.
pub(super) fn heads(heads: usize) -> Setting {
    Setting::Int(i64::try_from(heads).unwrap_or(i64::MAX))
}

/// What is added to the scores of an attention: its bias, and where it `masks`, what leaves keys out.
pub(super) fn bias(l: &mut Builder<'_, '_>, attention: &Attention, masks: bool) -> Result<Option<ValueId>, BuildError> {
    let mask = if masks { mask::added(l, attention, attention.q)? } else { None };
    Ok(match (attention.bias, mask) {
        (Some(bias), Some(mask)) => Some(l.binary(BinaryKind::Add, bias, mask)?),
        (one, other) => one.or(other),
    })
}

/// The same, whole: with a row for each query and a column for each key.
pub(super) fn addend(
    l: &mut Builder<'_, '_>,
    attention: &Attention,
    masks: bool,
    (queries, keys): (&Dim, &Dim),
) -> Result<Option<ValueId>, BuildError> {
    bias(l, attention, masks)?.map(|addend| whole(l, addend, queries, keys)).transpose()
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
