//! The linear layers of a graph, by what they take.

use std::collections::HashMap;

use planish_ir::ops::Linear;
use planish_ir::{DType, Graph, Node, NodeId, Op, ValueId};

/// Layers with fewer inputs or outputs are not worth quantizing: the products are small.
pub const MIN_FEATURES: usize = 16;

/// A value that linear layers take.
pub struct Site {
    /// The value, [.., columns].
    pub value: ValueId,
    /// The layers, in the order of the graph.
    pub layers: Vec<NodeId>,
    /// The number of columns.
    pub columns: usize,
}

/// The inputs of the float32 layers with a stored weight, in the order in which the first layer of each comes.
#[must_use]
pub fn sites(graph: &Graph) -> Vec<Site> {
    let mut sites: Vec<Site> = Vec::new();
    let mut known: HashMap<ValueId, usize> = HashMap::new();
    for (id, node) in graph.nodes() {
        let Some((linear, [columns, _])) = layer(graph, node) else { continue };
        let at = *known.entry(linear.x).or_insert_with(|| {
            sites.push(Site { value: linear.x, layers: Vec::new(), columns });
            sites.len() - 1
        });
        sites[at].layers.push(id);
    }
    sites
}

/// A float32 layer with a weight, and how many features it takes and gives.
pub(super) fn layer<'a>(graph: &'a Graph, node: &'a Node) -> Option<(&'a Linear, [usize; 2])> {
    let Op::Linear(linear) = &node.op else { return None };
    let weight = graph.weight(linear.weight).filter(|weight| weight.dtype() == DType::F32)?;
    let [a, b] = weight.shape() else { return None };
    let features = if linear.transposed.0 { [*a, *b] } else { [*b, *a] };
    // What is quantized already stays as it is.
    let plain = weight.as_dequantized().is_none() && graph.weight(linear.x).is_none();
    plain.then_some((linear, features))
}

/// The name of what a layer gives.
pub(super) fn name(graph: &Graph, layer: NodeId) -> &str {
    &graph.value(graph.node(layer).outputs[0]).name
}
