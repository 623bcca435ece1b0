//! The feed-forward of a layer.

use planish_ir::ValueId;
use planish_ir::ops::{Binary, BinaryKind, Split};

use super::forms::FeedForward;
use super::scaled;
use super::settings::Settings;
use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;

/// Adds that of a layer: [batch_size, sequence_length, hidden] to the same.
pub(super) fn apply(
    b: &mut Builder<'_>,
    s: &Settings,
    x: ValueId,
    layer: usize,
    module: &str,
) -> Result<ValueId, ModelError> {
    match s.experts.as_ref().filter(|mixture| mixture.is_in(layer)) {
        Some(mixture) => mixture.apply(b, s, x, layer, module),
        None => dense(b, s, x, s.intermediate_of(layer), module),
    }
}

/// Adds one without experts, with so many features inside.
pub(crate) fn dense(
    b: &mut Builder<'_>,
    s: &Settings,
    x: ValueId,
    size: Size,
    module: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let (inner, outer, bias) = ([size, s.hidden], [s.hidden, size], s.feed_forward_bias);
    let (gate, up, down) = match s.feed_forward {
        FeedForward::Gated { gate, up, down } => {
            let gate = b.projection(x, &at(gate), inner, bias)?;
            (gate, Some(b.projection(x, &at(up), inner, bias)?), down)
        }
        FeedForward::Packed { both, last, down } => {
            let all = Size::derived(2 * size.value, "2 * intermediate_size");
            let packed = b.projection(x, &at(both), [all, s.hidden], bias)?;
            let split = Split { x: packed, axis: 2, sizes: vec![size.value; 2] };
            match b.emit_all(split, &at("split"))?[..] {
                [a, b] if last => (b, Some(a), down),
                [a, b] => (a, Some(b), down),
                _ => unreachable!("a split has as many results as sizes"),
            }
        }
        FeedForward::Own(apply) => return apply(b, s, x, module),
        FeedForward::None => return Ok(x),
        FeedForward::Plain { up, down } => (b.projection(x, &at(up), inner, bias)?, None, down),
    };
    let gate = scaled(b, gate, s.gate_factor, &at("gate"))?;
    let mut x = s.activation.apply(b, gate, &at("act_fn"))?;
    if let Some(up) = up {
        x = b.emit(Binary { kind: BinaryKind::Mul, a: x, b: up }, &at("mul"))?;
    }
    b.projection(x, &at(down), outer, bias || s.down_bias)
}
