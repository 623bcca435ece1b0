//! Layers with a state of a fixed size: LinearAttention and CausalConvWithState, of ONNX and of ONNX Runtime. What they have in
//! other forms, such as several heads of queries for one of keys or windows of states, passes through.

use planish_ir::ops::{Cast, CausalConv, Flag, LinearAttention, Real, Transpose};
use planish_ir::{DType, ValueId};

use super::super::scope::Scope;
use super::Node;

pub(super) fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    match node.proto.op_type.as_str() {
        "LinearAttention" => attention(scope, node),
        "CausalConvWithState" => convolution(scope, node),
        _ => Ok(false),
    }
}

/// An operand, where it is given.
fn optional(scope: &mut Scope, node: &Node<'_>, index: usize) -> Result<Option<ValueId>, String> {
    if node.has(index) { scope.value(node.input(index)?).map(Some) } else { Ok(None) }
}

/// Whether attributes have these values, 0 where one is left out and no other default is given.
fn are(node: &Node<'_>, settings: &[(&str, i64)], default: i64) -> Result<bool, String> {
    for (name, value) in settings {
        if node.int_or(name, default)? != *value {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Gives the results that are asked for their names.
fn name(scope: &mut Scope, node: &Node<'_>, values: [ValueId; 2]) {
    for (index, value) in values.into_iter().enumerate().filter(|(index, _)| node.wants(*index)) {
        scope.set(&node.proto.output[index], value);
    }
}

fn cast(scope: &mut Scope, x: ValueId, to: DType, name: &str) -> Result<ValueId, String> {
    if scope.graph.ty(x).dtype == to { Ok(x) } else { scope.emit(Cast { x, to }, name) }
}

fn attention(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    if !are(node, &[("state_window", 0)], 0)? {
        return Ok(false);
    }
    let (decays, replaces) = match node.text_or("update_rule", "gated_delta")?.as_str() {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(format!("its `update_rule` `{other}` is unknown")),
    };
    let count = |attribute: &str| -> Result<usize, String> {
        let given = node.int(attribute)?.ok_or_else(|| format!("it has no `{attribute}`"))?;
        usize::try_from(given).ok().filter(|count| *count > 0).ok_or_else(|| format!("its `{attribute}` is {given}"))
    };
    let (heads, key_heads) = (count("kv_num_heads")?, count("q_num_heads")?);
    let result = node.output()?;
    let [q, k, v] = [scope.value(node.input(0)?)?, scope.value(node.input(1)?)?, scope.value(node.input(2)?)?];
    let state = optional(scope, node, 3)?;
    let given = |scope: &mut Scope, needed: bool, index: usize| -> Result<Option<ValueId>, String> {
        if needed { scope.value(node.input(index)?).map(Some) } else { Ok(None) }
    };
    let (decay, beta) = (given(scope, decays, 4)?, given(scope, replaces, 5)?);
    let features = scope.graph.ty(q).shape.last().and_then(planish_ir::Dim::as_constant);
    let scale = match (node.float_or("scale", 0.0)?, features) {
        (0.0, Some(features)) => 1.0 / (features as f64 / key_heads as f64).sqrt(),
        (0.0, None) => return Ok(false),
        (scale, _) => scale,
    };
    // The state may be more exact than what is computed of it.
    let (dtype, kept) = (scope.graph.ty(q).dtype, state.map_or(scope.graph.ty(q).dtype, |s| scope.graph.ty(s).dtype));
    let common = if kept == dtype { dtype } else { DType::F32 };
    let mut op = LinearAttention { q, k, v, decay, beta, state, heads, key_heads, scale: Real(scale) };
    for value in [&mut op.q, &mut op.k, &mut op.v] {
        *value = cast(scope, *value, common, result)?;
    }
    for value in [&mut op.decay, &mut op.beta, &mut op.state] {
        *value = value.map(|value| cast(scope, value, common, result)).transpose()?;
    }
    let results = scope.emit_all(op, result)?;
    let values = [cast(scope, results[0], dtype, result)?, cast(scope, results[1], kept, result)?];
    name(scope, node, values);
    Ok(true)
}

fn convolution(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let windows = ["state_window", "state_update_capacity", "state_length", "input_channel_offset", "input_channels"];
    let last = node.int_or("channels_last", 0)?;
    let of_state = node.int_or("state_channels_last", -1)?;
    let is_plain = are(node, &windows.map(|name| (name, 0)), 0)? && are(node, &[("ndim", 1), ("dilation", 1)], 1)?;
    if !is_plain || node.wants(2) || ![-1, last].contains(&of_state) {
        return Ok(false);
    }
    let silu = match node.text_or("activation", "none")?.as_str() {
        "none" => false,
        "silu" | "swish" => true,
        other => return Err(format!("its `activation` `{other}` is unknown")),
    };
    let result = node.output()?;
    let (x, weight) = (scope.value(node.input(0)?)?, scope.value(node.input(1)?)?);
    let (bias, state) = (optional(scope, node, 2)?, optional(scope, node, 3)?);
    let turned = |scope: &mut Scope, x: ValueId| {
        if last == 0 { scope.emit(Transpose { x, perm: vec![0, 2, 1] }, result) } else { Ok(x) }
    };
    let x = turned(scope, x)?;
    let state = state.map(|state| turned(scope, state)).transpose()?;
    let results = scope.emit_all(CausalConv { x, weight, bias, state, silu: Flag(silu) }, result)?;
    let values = [turned(scope, results[0])?, turned(scope, results[1])?];
    name(scope, node, values);
    Ok(true)
}
