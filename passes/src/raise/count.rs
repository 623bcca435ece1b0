//! The number of operators of each kind that raising finds.

use std::collections::BTreeMap;

use planish_ir::ops::{Unary, UnaryKind};
use planish_ir::{Graph, Op, Origin};

/// An operator that raising finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The operator, e.g. `attention`.
    pub operator: &'static str,
    /// Its result.
    pub at: String,
    /// Where that came from.
    pub origin: Origin,
}

/// The operators of a graph that are of the kinds that raising finds, in order.
#[must_use]
pub fn matches(graph: &Graph) -> Vec<Match> {
    let found = graph.nodes().filter(|(_, node)| is_raised(&node.op)).map(|(_, node)| {
        let value = graph.value(node.outputs[0]);
        Match { operator: node.op.mnemonic(), at: value.name.clone(), origin: value.origin.clone() }
    });
    found.collect()
}

/// How many of each of the operators that raising finds a graph has, by name; those that it has.
#[must_use]
pub fn raised(graph: &Graph) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for (_, node) in graph.nodes().filter(|(_, node)| is_raised(&node.op)) {
        *counts.entry(node.op.mnemonic()).or_insert(0) += 1;
    }
    counts
}

fn is_raised(op: &Op) -> bool {
    matches!(
        op,
        Op::Linear(_)
            | Op::Attention(_)
            | Op::LayerNorm(_)
            | Op::RmsNorm(_)
            | Op::Gelu(_)
            | Op::Unary(Unary { kind: UnaryKind::Silu, .. })
            | Op::Rotary(_)
            | Op::Embedding(_)
    )
}
