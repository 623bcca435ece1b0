//! Softmaxes that are no attention.

use std::collections::BTreeMap;

use planish_ir::ops::{MatMul, Softmax};
use planish_ir::{Graph, Op, ValueId};

use super::super::Miss;
use super::scores;

/// The softmaxes whose probabilities no product takes, and what takes them. Where a product does, the rule of attention
/// says what is missing.
pub(in super::super) fn left(graph: &Graph) -> Vec<Miss> {
    let mut left: BTreeMap<ValueId, (ValueId, Vec<String>)> = BTreeMap::new();
    for (_, node) in graph.nodes() {
        match node.op {
            Op::Softmax(Softmax { x }) => drop(left.insert(node.outputs[0], (x, Vec::new()))),
            Op::MatMul(MatMul { a, .. }) => {
                let scores = scores::softmax(graph, a);
                left.retain(|_, (x, _)| Some(*x) != scores);
            }
            _ => {}
        }
        for operand in node.op.operands() {
            if let Some((_, users)) = left.get_mut(&operand) {
                users.push(format!("`{}`", node.op.kind()));
            }
        }
    }
    for output in graph.outputs() {
        if let Some((_, users)) = left.get_mut(&output.value) {
            users.push(format!("the output `{}`", output.name));
        }
    }
    let missed = left.into_iter().map(|(softmax, (_, mut users))| {
        users.dedup();
        let value = graph.value(softmax);
        let reason = format!(
            "the probabilities `{}` go to {}, and no product with values takes them",
            value.name,
            users.join(", ")
        );
        Miss { rule: "attention", at: value.name.clone(), origin: value.origin.clone(), reason }
    });
    missed.collect()
}
