//! What a graph has of the operators that raising finds.

use std::collections::BTreeMap;

use planish_ir::ops::{Unary, UnaryKind};
use planish_ir::{Graph, Op};

/// How many of each of the operators that raising finds a graph has, by name; those that it has.
#[must_use]
pub fn raised(graph: &Graph) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for (_, node) in graph.nodes() {
        let counted = matches!(
            node.op,
            Op::Linear(_)
                | Op::Attention(_)
                | Op::LayerNorm(_)
                | Op::RmsNorm(_)
                | Op::Gelu(_)
                | Op::Unary(Unary { kind: UnaryKind::Silu, .. })
                | Op::Rotary(_)
                | Op::Embedding(_)
        );
        if counted {
            *counts.entry(node.op.mnemonic()).or_insert(0) += 1;
        }
    }
    counts
}
