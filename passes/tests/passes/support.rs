//! Evaluation of graphs in which there may be observers.

use std::collections::BTreeMap;

use planish_eval::Tensor;
use planish_ir::Graph;
use planish_passes::observe::is_observer;
use planish_testing::evaluation;

/// The outputs of a graph, without those of observers.
pub(crate) fn outputs(graph: &Graph, inputs: &BTreeMap<String, Tensor>) -> Result<Vec<(String, Tensor)>, String> {
    let mut outputs = evaluation::outputs(graph, inputs)?;
    outputs.retain(|(name, _)| !is_observer(name));
    Ok(outputs)
}
