//! Evaluation of one node of weights.

use std::collections::BTreeMap;

use planish_eval::{Tensor, evaluate_op, weight_times_vector};
use planish_ir::ops::{Flag, Linear};
use planish_ir::{Bindings, Graph, Node, Op, ValueId, Weight};

use crate::PassError;

/// The results of a node whose operands are weights.
pub(super) fn evaluate(graph: &Graph, node: &Node) -> Result<Vec<Weight>, PassError> {
    let results = if is_streamed(graph, node) { streamed(graph, node) } else { whole(graph, node) };
    let inline = |t: &Tensor| {
        let weight = Weight::inline(t.dtype(), t.shape().to_vec(), t.to_bytes());
        weight.ok_or_else(|| "a result is not a weight".to_owned())
    };
    results.and_then(|tensors| tensors.iter().map(inline).collect()).map_err(|message| {
        let value = &graph.value(node.outputs[0]);
        PassError::Fold { name: value.name.clone(), origin: value.origin.clone(), message }
    })
}

/// Whether the node is a linear layer of a vector, which reads its weight row by row.
pub(super) fn is_streamed(graph: &Graph, node: &Node) -> bool {
    matches!(&node.op, Op::Linear(Linear { x, bias: None, transposed: Flag(false), .. })
        if graph.ty(*x).shape.rank() == 1)
}

fn streamed(graph: &Graph, node: &Node) -> Result<Vec<Tensor>, String> {
    let Op::Linear(Linear { x, weight, .. }) = &node.op else { return whole(graph, node) };
    let (Some(x), Some(weight)) = (graph.weight(*x), graph.weight(*weight)) else { return whole(graph, node) };
    let vector = x.read_numbers().map_err(|e| e.to_string())?;
    match weight_times_vector(weight, &vector).map_err(|e| e.to_string())? {
        Some(numbers) => {
            let tensor = Tensor::from_f64(weight.dtype(), vec![numbers.len()], &numbers);
            Ok(tensor.into_iter().collect())
        }
        None => whole(graph, node),
    }
}

fn whole(graph: &Graph, node: &Node) -> Result<Vec<Tensor>, String> {
    let mut tensors: BTreeMap<ValueId, Tensor> = BTreeMap::new();
    for operand in node.op.operands() {
        if let Some(weight) = graph.weight(operand) {
            tensors.insert(operand, Tensor::from_weight(weight).map_err(|e| e.to_string())?);
        }
    }
    evaluate_op(&node.op, &|v| &tensors[&v], &Bindings::new()).map_err(|e| e.to_string())
}
