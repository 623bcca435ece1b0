//! Attention of a half type as one operator between casts: a kernel for half types that accumulates in float32.

use planish_ir::ops::{Attention, Foreign, InnerOperators, Real, Results, Setting, Settings, Text};
use planish_ir::{BuildError, DType, TensorType, Type, ValueId};

use super::attention::{ATTENTION_OPSET, merged, split_heads};
use super::{dim, mask};
use crate::build::Builder;
use crate::{CastAttention, Options};

/// Whether the target takes an attention as an operator between casts.
pub(super) fn fits(l: &Builder<'_, '_>, attention: &Attention, options: &Options) -> bool {
    let CastAttention::Operator { sizes } = &options.target.attention_between_casts else { return false };
    let q = l.graph.ty(attention.q);
    let size = |value: ValueId, heads: usize| {
        let shape = &l.graph.ty(value).shape;
        let features = usize::try_from(shape[shape.rank() - 1].as_constant()?).ok()?;
        Some(if shape.rank() == 4 { features } else { features / heads })
    };
    let of_queries = size(attention.q, attention.heads);
    let half = matches!(q.dtype, DType::F16 | DType::Bf16);
    options.fusion
        && options.opset >= ATTENTION_OPSET
        && half
        && attention.heads > 1
        && of_queries.is_some_and(|size| sizes.contains(&size))
        && of_queries == size(attention.v, attention.kv_heads())
        && l.graph.ty(attention.k).shape.rank() == 3
        && attention.past_key.is_none()
        && !attention.present.0
        && attention.bias.is_none()
        && attention.softcap.is_none()
}

/// The result of an attention that [`fits`]; `swap` says that it is wanted as [queries, batch, features] too.
pub(super) fn lower(l: &mut Builder<'_, '_>, attention: &Attention, swap: bool) -> Result<ValueId, BuildError> {
    let half = l.graph.ty(attention.q).dtype;
    let q = split_heads(l, attention.q, attention.heads, [0, 2, 1, 3])?;
    let [k, v] = [attention.k, attention.v].map(|x| split_heads(l, x, attention.kv_heads(), [0, 2, 1, 3]));
    let (k, v) = (k?, v?);
    // Half of the finite minimum: no score becomes infinite with it.
    let left_out = mask::added_of(l, attention, half, 0.5)?;
    let left_out = left_out.map(|mask| in_four_dimensions(l, mask)).transpose()?;
    let operands = [q, k, v].map(|x| l.cast(x, DType::F32)).into_iter().collect::<Result<Vec<_>, _>>()?;
    let result = TensorType::new(DType::F32, l.graph.ty(q).shape.clone());
    let operator = Foreign {
        inputs: operands.into_iter().map(Some).chain(left_out.map(Some)).collect(),
        captured: Vec::new(),
        domain: Text(Foreign::STANDARD.to_owned()),
        op: Text("Attention".to_owned()),
        version: ATTENTION_OPSET as usize,
        settings: Settings(vec![("scale".to_owned(), Setting::Float(Real(attention.scale.0)))]),
        captures: Vec::new(),
        inner: InnerOperators(Vec::new()),
        results: Results(vec![Some(Type::Tensor(result))]),
    };
    let mixed = l.emit(operator)?;
    let mixed = l.cast(mixed, half)?;
    merged(l, mixed, swap)
}

/// The results of an attention of a half type, as the same operator on float32.
pub(super) fn whole(l: &mut Builder<'_, '_>, attention: &Attention) -> Result<Vec<ValueId>, BuildError> {
    let half = l.graph.ty(attention.q).dtype;
    let mut wide = attention.clone();
    let [q, k, v] = [attention.q, attention.k, attention.v].map(|x| l.cast(x, DType::F32));
    (wide.q, wide.k, wide.v) = (q?, k?, v?);
    let [bias, past_key, past_value] = [attention.bias, attention.past_key, attention.past_value]
        .map(|x| x.map(|x| l.cast(x, DType::F32)).transpose());
    (wide.bias, wide.past_key, wide.past_value) = (bias?, past_key?, past_value?);
    l.emit_all(wide)?.into_iter().map(|result| l.cast(result, half)).collect()
}

/// TensorRT takes masks of four dimensions.
fn in_four_dimensions(l: &mut Builder<'_, '_>, mask: ValueId) -> Result<ValueId, BuildError> {
    let shape = l.graph.ty(mask).shape.clone();
    match shape.rank() {
        4 => Ok(mask),
        rank => l.reshape(mask, std::iter::repeat_n(dim(1), 4 - rank).chain(shape.iter().cloned())),
    }
}
