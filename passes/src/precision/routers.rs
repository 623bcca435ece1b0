//! Routers of mixtures of experts: what chooses the experts of a token stays in float32, as rounding would choose others.

use std::collections::{HashMap, HashSet};

use planish_ir::{Def, Graph, NodeId, Op, ValueId};

/// The operators that compute which experts tokens take, from the products of routers on, each with the name of the result of the
/// experts. What routers take is none of them.
pub(super) fn routers(graph: &Graph) -> HashMap<NodeId, String> {
    let mut found = HashMap::new();
    let mut seen: HashSet<ValueId> = HashSet::new();
    for (_, node) in graph.nodes() {
        let Op::Experts(experts) = &node.op else { continue };
        let name = &graph.value(node.outputs[0]).name;
        let mut open = vec![experts.indices];
        while let Some(value) = open.pop() {
            let Def::Node { node: id, .. } = graph.value(value).def else { continue };
            if !seen.insert(value) {
                continue;
            }
            found.entry(id).or_insert_with(|| name.clone());
            let op = &graph.node(id).op;
            if !op.is_product() {
                open.extend(op.operands());
            }
        }
    }
    found
}
