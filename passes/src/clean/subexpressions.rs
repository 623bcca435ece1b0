//! Elimination of common subexpressions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::BuildHasher;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use planish_ir::handle::Handle;
use planish_ir::ops::Binary;
use planish_ir::{Graph, NodeId, Op, Step, ValueId, Weight};

use crate::{Example, ONNX, Options, Outcome, Pass, PassError};

/// Computes equal things once.
pub const COMMON_SUBEXPRESSIONS: Pass = Pass {
    name: "common-subexpressions",
    summary: "Computes equal values once. Equal weights become one weight. Nodes with the same operator, operands and \
              attributes become one node. The operands of commutative operators may stand in either order.",
    numerics: "none",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            weight @one = dense([1.0]) : f32[1]
            weight @also_one = dense([1.0]) : f32[1]
            %a = add(%x, @one) : f32[n, 2]
            %b = add(@also_one, %x) : f32[n, 2]
            %y = mul(%a, %b) : f32[n, 2]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            weight @one = dense([1.0]) : f32[1]
            %a = add(%x, @one) : f32[n, 2]
            %y = mul(%a, %a) : f32[n, 2]
            output y = %y",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, _: &Options) -> Result<Outcome, PassError> {
    let repeated = repeated_weights(graph);
    graph.substitute(&repeated);

    let hasher = DefaultHashBuilder::default();
    // The first node of each kind, with its hash.
    let mut seen: HashTable<(u64, NodeId)> = HashTable::with_capacity(graph.nodes().len());
    let merged = graph.rewrite(|graph, id| {
        let node = graph.node(id);
        // Operators that draw random numbers are among these.
        if matches!(node.op, Op::Foreign(_)) {
            return Ok::<_, PassError>(Step::Keep);
        }
        let op = ordered(&node.op);
        let hash = hasher.hash_one(&*op);
        let same = |(other, first): &(u64, NodeId)| *other == hash && ordered(&graph.node(*first).op) == op;
        match seen.entry(hash, same, |(hash, _)| *hash) {
            Entry::Occupied(first) => Ok(Step::Replace(graph.node(first.get().1).outputs.clone())),
            Entry::Vacant(entry) => {
                entry.insert((hash, id));
                Ok(Step::Keep)
            }
        }
    })?;
    graph.compact();
    Ok((merged + repeated.len()).into())
}

/// Weights that are equal to one before, and that one.
fn repeated_weights(graph: &Graph) -> HashMap<ValueId, ValueId> {
    let mut first: hashbrown::HashMap<&Weight, ValueId> = hashbrown::HashMap::new();
    let weights = graph.weights().map(|(id, _, weight)| (id, *first.entry(weight).or_insert(id)));
    weights.filter(|(id, first)| id != first).collect()
}

/// The operator with the operands in a fixed order, where that order is free.
fn ordered(op: &Op) -> Cow<'_, Op> {
    match op {
        Op::Binary(p) if p.kind.is_commutative() && p.b.index() < p.a.index() => {
            Cow::Owned(Binary { a: p.b, b: p.a, ..p.clone() }.into())
        }
        _ => Cow::Borrowed(op),
    }
}
