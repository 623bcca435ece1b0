//! The feed-forward of a layer.

use planish_ir::ValueId;
use planish_ir::ops::{Binary, BinaryKind, Split};

use super::settings::{FeedForward, Settings};
use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;

/// Adds it: [batch_size, sequence_length, hidden] to the same.
pub(super) fn apply(b: &mut Builder<'_>, s: &Settings, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let (inner, outer, bias) = ([s.intermediate, s.hidden], [s.hidden, s.intermediate], s.feed_forward_bias);
    let (gate, up, down) = match s.feed_forward {
        FeedForward::Gated { gate, up, down } => {
            let gate = b.projection(x, &at(gate), inner, bias)?;
            (gate, Some(b.projection(x, &at(up), inner, bias)?), down)
        }
        FeedForward::Packed { both, last, down } => {
            let size = Size::derived(2 * s.intermediate.value, "2 * intermediate_size");
            let packed = b.projection(x, &at(both), [size, s.hidden], bias)?;
            let split = Split { x: packed, axis: 2, sizes: vec![s.intermediate.value; 2] };
            match b.emit_all(split, &at("split"))?[..] {
                [a, b] if last => (b, Some(a), down),
                [a, b] => (a, Some(b), down),
                _ => unreachable!("a split has as many results as sizes"),
            }
        }
        FeedForward::Own(apply) => return apply(b, s, x, module),
        FeedForward::Plain { up, down } => (b.projection(x, &at(up), inner, bias)?, None, down),
    };
    let mut x = s.activation.apply(b, gate, &at("act_fn"))?;
    if let Some(up) = up {
        x = b.emit(Binary { kind: BinaryKind::Mul, a: x, b: up }, &at("mul"))?;
    }
    b.projection(x, &at(down), outer, bias || s.down_bias)
}
