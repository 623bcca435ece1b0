//! Convolutions over the tokens up to each.

use planish_ir::ops::{BinaryKind, CausalConv, Concat, Setting, Slice, Split, Unary, UnaryKind};
use planish_ir::{BuildError, Dim, ValueId};

use super::{text, zeros};
use crate::build::Builder;
use crate::legalize::MICROSOFT;
use crate::legalize::quantized::foreign;

/// ONNX Runtime's operator, on tokens in rows.
pub(super) fn operator(l: &mut Builder<'_, '_>, op: &CausalConv) -> Result<Vec<ValueId>, BuildError> {
    let y = l.graph.ty(op.x).clone();
    let state = l.graph.ty(op.x).shape.clone();
    let taps = l.graph.ty(op.weight).shape[2].clone();
    let before = taps.checked_sub(&Dim::constant(1)).unwrap_or_default();
    let state = planish_ir::TensorType::new(y.dtype, state.with_dim(1, before));
    let inputs = vec![Some(op.x), Some(op.weight), op.bias, op.state];
    let settings = vec![
        ("activation".to_owned(), text(if op.silu.0 { "silu" } else { "none" })),
        ("channels_last".to_owned(), Setting::Int(1)),
    ];
    foreign(l, (MICROSOFT, "CausalConvWithState", 1), inputs, settings, vec![y, state])
}

/// A product and a sum for each tap.
pub(super) fn sums(l: &mut Builder<'_, '_>, op: &CausalConv) -> Result<Vec<ValueId>, BuildError> {
    let (x, weight) = (l.graph.ty(op.x).clone(), l.graph.ty(op.weight).shape.clone());
    let (channels, tokens) = (x.shape[2].clone(), x.shape[1].clone());
    // The typing rule has a known number of taps.
    let taps = weight[2].as_constant().unwrap_or(1);
    let before = Dim::constant(taps - 1);
    let state = match op.state {
        Some(state) => state,
        None => zeros(l, op.x, &x.shape.with_dim(1, before.clone()))?,
    };
    let all = if taps == 1 { op.x } else { l.emit(Concat { parts: vec![state, op.x], axis: 1 })? };
    let end = tokens.checked_add(&before).unwrap_or_default();
    let by_tap = l.reshape(op.weight, [channels, weight[2].clone()])?;
    let by_tap = l.transpose(by_tap, &[1, 0])?;
    let rows = match usize::try_from(taps).unwrap_or(1) {
        1 => vec![by_tap],
        taps => l.emit_all(Split { x: by_tap, axis: 0, sizes: vec![1; taps] })?,
    };
    let mut sum: Option<ValueId> = None;
    for (tap, row) in (0..).map(Dim::constant).zip(rows) {
        let to = tap.checked_add(&tokens).unwrap_or_default();
        let seen = if taps == 1 { all } else { l.emit(Slice { x: all, axis: 1, start: tap, end: to })? };
        let part = l.binary(BinaryKind::Mul, seen, row)?;
        sum = Some(sum.map_or(Ok(part), |sum| l.binary(BinaryKind::Add, sum, part))?);
    }
    let mut y = sum.unwrap_or(op.x);
    if let Some(bias) = op.bias {
        y = l.binary(BinaryKind::Add, y, bias)?;
    }
    if op.silu.0 {
        y = l.emit(Unary { kind: UnaryKind::Silu, x: y })?;
    }
    let next = if taps == 1 { state } else { l.emit(Slice { x: all, axis: 1, start: tokens, end })? };
    Ok(vec![y, next])
}
