//! What chooses among few stays in float32, such as the routers of mixtures of experts: rounding would have them choose others.

use std::collections::{HashMap, HashSet};

use planish_ir::{Def, Graph, NodeId, Op, ValueId};

/// The most candidates of a choice: a router has fewer experts, and a vocabulary more tokens.
const FEW: i64 = 1024;

/// The operators that compute what the largest of at most [`FEW`] numbers are, from the products on that give these numbers, each
/// with the name of what is chosen. What such products take is none of them.
pub(super) fn choices(graph: &Graph) -> HashMap<NodeId, String> {
    let mut found = HashMap::new();
    let mut seen: HashSet<ValueId> = HashSet::new();
    for (id, node) in graph.nodes() {
        let Op::TopK(top) = &node.op else { continue };
        let candidates = graph.ty(top.x).shape.get(top.axis).and_then(|dim| dim.as_constant());
        if candidates.is_none_or(|count| count > FEW) {
            continue;
        }
        let name = node.outputs.last().map_or_else(String::new, |chosen| graph.value(*chosen).name.clone());
        found.insert(id, name.clone());
        let mut open = vec![top.x];
        while let Some(value) = open.pop() {
            let Def::Node { node, .. } = graph.value(value).def else { continue };
            if !seen.insert(value) {
                continue;
            }
            found.entry(node).or_insert_with(|| name.clone());
            let op = &graph.node(node).op;
            if !op.is_product() {
                open.extend(op.operands());
            }
        }
    }
    found
}
