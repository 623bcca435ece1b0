//! Elimination of common subexpressions.

use std::collections::HashMap;

use planish_ir::handle::Handle;
use planish_ir::{Graph, Op, Step, ValueId, Weight};

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

    let mut seen: HashMap<Op, Vec<ValueId>> = HashMap::new();
    let merged = graph.rewrite(|graph, node| {
        let node = graph.node(node);
        // Operators that draw random numbers are among these.
        if matches!(node.op, Op::Foreign(_)) {
            return Ok::<_, PassError>(Step::Keep);
        }
        let mut key = node.op.clone();
        order_operands(&mut key);
        match seen.get(&key) {
            Some(first) => Ok(Step::Replace(first.clone())),
            None => {
                seen.insert(key, node.outputs.clone());
                Ok(Step::Keep)
            }
        }
    })?;
    graph.compact();
    Ok(merged + repeated.len())
}

/// Puts the operands of commutative operators in a fixed order.
fn order_operands(op: &mut Op) {
    if let Op::Binary(binary) = op
        && binary.kind.is_commutative()
        && binary.b.index() < binary.a.index()
    {
        std::mem::swap(&mut binary.a, &mut binary.b);
    }
}
