//! Elimination of common subexpressions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use planish_ir::handle::Handle;
use planish_ir::ops::Binary;
use planish_ir::{Graph, NodeId, Op, Step, ValueId, Weight};

use crate::{Example, Options, Pass, PassError, Target};

/// Computes equal things once.
pub const COMMON_SUBEXPRESSIONS: Pass = Pass {
    name: "common-subexpressions",
    summary: "computes equal things once: equal weights become one, and nodes with the same operator, operands and \
              attributes become one; operands of commutative operators may stand in either order",
    numerics: "none",
    example: Example {
        target: Target::Onnx,
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
    run,
};

fn run(graph: &mut Graph, _: &Options) -> Result<usize, PassError> {
    let mut first: HashMap<&Weight, ValueId> = HashMap::new();
    let mut repeated: HashMap<ValueId, ValueId> = HashMap::new();
    for (id, _, weight) in graph.weights() {
        let first = *first.entry(weight).or_insert(id);
        if first != id {
            repeated.insert(id, first);
        }
    }
    graph.substitute(&repeated);

    let hasher = RandomState::new();
    let mut seen: HashTable<NodeId> = HashTable::new();
    let merged = graph.rewrite(|graph, id| {
        let node = graph.node(id);
        // Operators that draw random numbers are among these.
        if matches!(node.op, Op::Foreign(_)) {
            return Ok::<_, PassError>(Step::Keep);
        }
        let op = ordered(&node.op);
        let hash = |id: &NodeId| hasher.hash_one(&*ordered(&graph.node(*id).op));
        match seen.entry(hasher.hash_one(&*op), |other| ordered(&graph.node(*other).op) == op, hash) {
            Entry::Occupied(first) => Ok(Step::Replace(graph.node(*first.get()).outputs.clone())),
            Entry::Vacant(entry) => {
                entry.insert(id);
                Ok(Step::Keep)
            }
        }
    })?;
    graph.compact();
    Ok(merged + repeated.len())
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
