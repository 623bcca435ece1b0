//! Softmaxes that are not attention.

use std::collections::BTreeMap;

use planish_ir::ops::{Foreign, MatMul, Softmax};
use planish_ir::{Graph, Op, ValueId};

use super::super::Miss;
use super::scores;

/// A softmax that is not a part of an attention.
struct Unmatched {
    /// What it is the softmax of.
    of: ValueId,
    /// What takes its probabilities.
    users: Vec<String>,
    /// A product with values that is left to ONNX, and why.
    product: Option<String>,
}

/// The softmaxes whose probabilities no product takes, and what takes them. Where a product does, the rule of attention
/// says what is missing.
pub(super) fn unmatched_softmaxes(graph: &Graph) -> Vec<Miss> {
    let mut unmatched: BTreeMap<ValueId, Unmatched> = BTreeMap::new();
    for (_, node) in graph.nodes() {
        match &node.op {
            Op::Softmax(Softmax { x }) => {
                let softmax = Unmatched { of: *x, users: Vec::new(), product: None };
                unmatched.insert(node.outputs[0], softmax);
            }
            Op::MatMul(MatMul { a, .. }) => {
                let scores = scores::softmax(graph, *a);
                unmatched.retain(|_, softmax| Some(softmax.of) != scores);
            }
            Op::Foreign(foreign) => {
                if let Some((scores, reason)) = left_to_onnx(graph, foreign, node.outputs[0]) {
                    let softmax = unmatched.values_mut().find(|softmax| softmax.of == scores);
                    softmax.into_iter().for_each(|softmax| softmax.product = Some(reason.clone()));
                }
            }
            _ => {}
        }
        for operand in node.op.operands() {
            if let Some(softmax) = unmatched.get_mut(&operand) {
                softmax.users.push(format!("`{}`", node.op.kind()));
            }
        }
    }
    for output in graph.outputs() {
        if let Some(softmax) = unmatched.get_mut(&output.value) {
            softmax.users.push(format!("the output `{}`", output.name));
        }
    }
    let missed = unmatched.into_iter().map(|(probabilities, Unmatched { mut users, product, .. })| {
        users.dedup();
        let value = graph.value(probabilities);
        let reason = match product {
            Some(product) => format!("the probabilities `{}` go to {product}", value.name),
            None => format!(
                "the probabilities `{}` go to {}, and no product with values takes them",
                value.name,
                users.join(", ")
            ),
        };
        Miss { rule: "attention", at: value.name.clone(), origin: value.origin.clone(), reason }
    });
    missed.collect()
}

/// The scores whose probabilities a product of ONNX takes, where it is one, and why the graph has it only as that.
fn left_to_onnx(graph: &Graph, product: &Foreign, result: ValueId) -> Option<(ValueId, String)> {
    let [Some(a), Some(b)] = product.inputs[..] else { return None };
    if !product.is("MatMul") {
        return None;
    }
    let scores = scores::softmax(graph, a)?;
    let described = |value: ValueId| format!("`{}`, {}", graph.value(value).name, graph.type_of(value));
    let (columns, rows) = (graph.ty(a).shape.last(), graph.ty(b).shape.iter().rev().nth(1));
    let unknown = match (columns, rows) {
        (Some(columns), Some(rows)) if columns != rows => format!("that {columns} is {rows}"),
        _ => "that their sizes fit each other".to_owned(),
    };
    let reason = format!(
        "the product `{}`, which stays the `MatMul` of ONNX: of its operands, {} and {}, it is not known {unknown}; \
         --shapes fixes sizes",
        graph.value(result).name,
        described(a),
        described(b)
    );
    Some((scores, reason))
}
