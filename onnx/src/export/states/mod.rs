//! Linear attention in ONNX: a Scan over chunks of tokens, or over the tokens where each element of a key has a decay.

mod body;
mod chunks;
mod lengths;
mod tokens;

use planish_ir::ValueId;
use planish_ir::ops::LinearAttention;

use super::Emitter;

pub(super) use lengths::Cache;

/// Appends the nodes of the results `y` and the last state.
pub(super) fn emit(e: &mut Emitter<'_>, op: &LinearAttention, results: [ValueId; 2]) -> Result<(), String> {
    if op.decay.is_some_and(|decay| op.decays_by_element(&e.graph.ty(decay).shape)) {
        let scan = tokens::scan(e, op, results)?;
        e.nodes.push(scan);
        return Ok(());
    }
    chunks::emit(e, op, results)
}

/// The state before the first token, and the sizes of a key and of a value.
fn state(e: &Emitter<'_>, op: &LinearAttention) -> Result<(ValueId, i64, i64), String> {
    let Some(state) = op.state else { return Err("legalization gives it a state".to_owned()) };
    let sizes = &e.graph.ty(state).shape;
    let known = |axis: usize| sizes.get(axis).and_then(planish_ir::Dim::as_constant).unwrap_or(0);
    Ok((state, known(2), known(3)))
}

/// The scale of results where it is not 1.
fn scale(e: &mut Emitter<'_>, op: &LinearAttention) -> Result<Option<String>, String> {
    if op.scale.0 == 1.0 {
        return Ok(None);
    }
    let dtype = e.graph.ty(op.v).dtype;
    e.number(dtype, op.scale.0).map(Some).ok_or_else(|| format!("its scale is no number of {dtype}"))
}
