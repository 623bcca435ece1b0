//! ONNX Runtime's operators with states of a fixed size, in the forms that operators of the graph have.

use planish_ir::ops::{CausalConv, Flag, LinearAttention, Real};
use planish_ir::{Bindings, Op, ValueId};

use super::{Maybe, Node, not_computed};
use crate::Tensor;
use crate::ops::run as run_operator;

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "CausalConvWithState" => computed(node, convolution(node)),
        "LinearAttention" => computed(node, attention(node)),
        _ => Ok(None),
    }
}

/// The results of an operator of the graph, on the operands of the node.
fn computed(node: &Node<'_>, op: Option<Op>) -> Maybe {
    let op = op.ok_or_else(|| not_computed(node))?;
    let operand = |value: ValueId| -> &Tensor {
        let at = node.op.inputs.iter().position(|input| *input == Some(value));
        at.and_then(|at| node.optional(at)).unwrap_or_else(|| unreachable!("the operator has the node's operands"))
    };
    run_operator(&op, &operand, &Bindings::new(), node.context).map(Some)
}

fn convolution(node: &Node<'_>) -> Option<Op> {
    let input = |at: usize| node.op.inputs.get(at).copied().flatten();
    let silu = match node.text("activation", "none").as_str() {
        "none" => false,
        "silu" | "swish" => true,
        _ => return None,
    };
    let is_plain = [("channels_last", 0, 1), ("ndim", 1, 1), ("dilation", 1, 1), ("state_window", 0, 0)];
    let is_plain = is_plain.iter().all(|(name, default, wanted)| node.int(name, *default) == *wanted);
    let op = CausalConv { x: input(0)?, weight: input(1)?, bias: input(2), state: input(3), silu: Flag(silu) };
    is_plain.then(|| op.into())
}

fn attention(node: &Node<'_>) -> Option<Op> {
    let input = |at: usize| node.op.inputs.get(at).copied().flatten();
    let [heads, key_heads] = ["kv_num_heads", "q_num_heads"].map(|name| usize::try_from(node.int(name, 0)).ok());
    let (heads, key_heads) = (heads?, key_heads?);
    let (decays, replaces) = match node.text("update_rule", "gated_delta").as_str() {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        _ => return None,
    };
    let width = node.optional(0)?.shape().last().copied()?;
    let scale = match node.float("scale", 0.0) {
        0.0 => 1.0 / ((width.checked_div(key_heads)?) as f64).sqrt(),
        scale => scale,
    };
    let op = LinearAttention {
        q: input(0)?,
        k: input(1)?,
        v: input(2)?,
        decay: input(4).filter(|_| decays),
        beta: input(5).filter(|_| replaces),
        state: input(3),
        heads,
        key_heads,
        scale: Real(scale),
    };
    (node.int("state_window", 0) == 0).then(|| op.into())
}
