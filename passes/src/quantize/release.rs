//! Weights of codes that are quantized anew.

use planish_ir::{DType, Graph, Op, ValueId, Weight};

use super::tables::table;
use crate::PassError;

/// Makes floats of weights that a model came with as codes, so that a plan has them as any other weight: those of linear layers
/// that take floats, and tables that rows are looked up in. Returns how many they are.
///
/// # Errors
/// When what a weight stands for does not take its place, which is a bug.
pub fn release_codes(graph: &mut Graph) -> Result<usize, PassError> {
    let mut released: Vec<(ValueId, Weight)> = Vec::new();
    for (_, node) in graph.nodes() {
        let weight = match &node.op {
            // What is quantized in front of a layer belongs to its codes.
            Op::Linear(linear) if !is_quantized(graph, linear.x) => Some(linear.weight),
            op => table(op),
        };
        let Some(value) = weight else { continue };
        let is_new = released.iter().all(|(known, _)| *known != value);
        if let Some(floats) = graph.weight(value).and_then(floats).filter(|_| is_new) {
            released.push((value, floats));
        }
    }
    let count = released.len();
    for (value, floats) in released {
        graph.set_weight(value, floats)?;
    }
    Ok(count)
}

fn is_quantized(graph: &Graph, value: ValueId) -> bool {
    matches!(graph.producer(value).map(|node| &node.op), Some(Op::FakeQuantize(_)))
}

/// The numbers of a float32 matrix of codes as an expression of which the codes are no part: each times 1.
fn floats(weight: &Weight) -> Option<Weight> {
    let has_codes = weight.as_dequantized().is_some() || weight.as_codebook().is_some();
    if !has_codes || weight.dtype() != DType::F32 || weight.shape().len() != 2 {
        return None;
    }
    weight.without_codes()
}
