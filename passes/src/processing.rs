//! What makes features of recordings in a graph, before the model reads them.

use planish_ir::{Graph, InputRole, Node};

/// Whether an operator processes recordings: its name is a part of that of the recordings. Features are logarithms of energies that
/// differ by many orders of magnitude, so they are computed in float32 whatever the model is.
pub(crate) fn is_processing(graph: &Graph, node: &Node) -> bool {
    let name = |id| graph.value(id).name.as_str();
    let input = graph.inputs().iter().map(|id| name(*id)).find(|n| graph.interface.input(n) == InputRole::Recording);
    let is_part = |name: &str, of: &str| name.strip_prefix(of).is_some_and(|rest| rest.starts_with('.'));
    input.is_some_and(|input| node.outputs.iter().all(|id| is_part(name(*id), input)))
}
