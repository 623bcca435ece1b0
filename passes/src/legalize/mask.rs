//! The keys that take part in an attention, as an addend of the scores.

use crate::build::Builder;
use planish_ir::ops::{Attention, BinaryKind, Iota, Reduce, ReduceKind, Select, Slice, UnaryKind};
use planish_ir::{BuildError, DType, Dim, ValueId, Weight};

/// Whether an attention leaves keys out.
pub(super) fn is_needed(attention: &Attention) -> bool {
    attention.mask.is_some() || attention.goes_by_position()
}

/// What is added to `scores`, [batch, heads, queries, keys]: 0, or the finite minimum of their type where a
/// key takes no part. `None` where all do. It depends on sizes and the mask only, so that layers share it.
pub(super) fn added(
    l: &mut Builder<'_, '_>,
    attention: &Attention,
    scores: ValueId,
) -> Result<Option<ValueId>, BuildError> {
    added_of(l, attention, l.graph.ty(scores).dtype, 1.0)
}

/// The same in an element type, with this part of its finite minimum.
pub(super) fn added_of(
    l: &mut Builder<'_, '_>,
    attention: &Attention,
    dtype: DType,
    part: f64,
) -> Result<Option<ValueId>, BuildError> {
    let given = match attention.mask {
        Some(mask) => {
            let shape = l.graph.ty(mask).shape.clone();
            let one = Dim::constant(1);
            Some(l.reshape(mask, [shape[0].clone(), one.clone(), one, shape[1].clone()])?)
        }
        None => None,
    };
    let seen = match attention.goes_by_position() {
        true => Some(seen(l, attention)?),
        false => None,
    };
    let condition = match (given, seen) {
        (Some(given), Some(seen)) => l.binary(BinaryKind::And, given, seen)?,
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => return Ok(None),
    };
    let minimum = dtype.finite_min().unwrap_or(f64::from(f32::MIN)) * part;
    let [a, b] = [0.0, minimum].map(|number| l.graph.weight_part(Weight::scalar(dtype, number), l.like));
    l.emit(Select { condition, a, b }).map(Some)
}

/// Whether the mask of an attention leaves out any key of the batch, a scalar. `None` where keys are left out by position,
/// or there is no mask.
pub(super) fn leaves_out(l: &mut Builder<'_, '_>, attention: &Attention) -> Result<Option<ValueId>, BuildError> {
    let Some(mask) = attention.mask.filter(|_| !attention.goes_by_position()) else { return Ok(None) };
    let left_out = l.unary(UnaryKind::Not, mask)?;
    let counted = l.cast(left_out, DType::I32)?;
    // The sum of no elements is defined, and the largest of them is not.
    let x = l.emit(Reduce { kind: ReduceKind::Sum, x: counted, axes: vec![0, 1], keep: false })?;
    l.cast(x, DType::Bool).map(Some)
}

/// Which keys a query sees by their positions: [queries, keys].
fn seen(l: &mut Builder<'_, '_>, attention: &Attention) -> Result<ValueId, BuildError> {
    // The typing rule of attention has no fewer keys than queries, and sizes in range.
    let queries = l.graph.ty(attention.q).shape[1].clone();
    let past = attention.past_key.map_or_else(Dim::default, |past| l.graph.ty(past).shape[2].clone());
    let k = &l.graph.ty(attention.k).shape;
    let keys = past.checked_add(&k[k.rank() - 2]).unwrap_or_default();
    let start = keys.checked_sub(&queries).unwrap_or_default();
    let key = l.emit(Iota { dtype: DType::I64, length: keys.clone() })?;
    // Queries are at the last positions.
    let query = l.emit(Slice { x: key, axis: 0, start, end: keys })?;
    let query = l.reshape(query, [queries, Dim::constant(1)])?;
    let reached = match (attention.causal.0, attention.window) {
        (false, Some(window)) => {
            let end = l.with_scalar(BinaryKind::Add, query, window as f64)?;
            l.binary(BinaryKind::Greater, end, key)?
        }
        _ => {
            let ahead = l.binary(BinaryKind::Greater, key, query)?;
            l.unary(UnaryKind::Not, ahead)?
        }
    };
    let Some(window) = attention.window else { return Ok(reached) };
    let end = l.with_scalar(BinaryKind::Add, key, window as f64)?;
    let near = l.binary(BinaryKind::Greater, end, query)?;
    l.binary(BinaryKind::And, reached, near)
}
