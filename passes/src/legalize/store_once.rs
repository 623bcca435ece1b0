//! Codes that are stored once although operators take them in two orders.

use std::collections::HashMap;

use planish_ir::ops::{Gather, Transpose};
use planish_ir::weight::WeightExpr;
use planish_ir::{DType, Graph, Step, ValueId, Weight};

use crate::{Example, ORT, Options, Outcome, Pass, PassError};

/// Stores codes once that one operator takes by rows and another by columns.
pub const STORE_ONCE: Pass = Pass {
    name: "store-once",
    summary: "Stores codes once that one operator takes by rows and another by columns, such as a table of tokens and the \
              layer that scores tokens with it. A Transpose gives the codes to the second operator, and a Gather after it the \
              rows that are repeated for columns that are split. Both depend on weights alone, so a runtime computes them when \
              it loads the model. The pass runs after all folding, which would undo it.",
    numerics: "none",
    example: Example {
        target: &ORT,
        fusion: true,
        before: "
            input %ids: i64[n]
            weight @t = quantize([uniform(1) : f32[512, 256], dense([0.01]) : f32[]], 0) : i8[512, 256]
            weight @w = transpose(quantize([uniform(1) : f32[512, 256], dense([0.01]) : f32[]], 0) : i8[512, 256], [1, 0]) : i8[256, 512]
            %r = gather(@t, %ids) {axis = 0} : i8[n, 256]
            %c = gather(@w, %ids) {axis = 1} : i8[256, n]
            output r = %r
            output c = %c",
        after: "
            input %ids: i64[n]
            weight @t = quantize([uniform(1) : f32[512, 256], dense([0.01]) : f32[]], 0) : i8[512, 256]
            %r = gather(@t, %ids) {axis = 0} : i8[n, 256]
            %w/transpose = transpose(@t) {perm = [1, 0]} : i8[256, 512]
            %c = gather(%w/transpose, %ids) {axis = 1} : i8[256, n]
            output r = %r
            output c = %c",
    },
    applies: |_| true,
    run,
};

/// Codes that take fewer bytes are stored twice: an operator more costs more.
const LEAST_BYTES: u64 = 64 << 10;

/// Codes as others in another order.
struct Turned {
    /// The codes by rows.
    of: ValueId,
    /// What is taken of their columns, where that is not each of them once.
    columns: Option<Vec<i64>>,
}

fn run(graph: &mut Graph, _: &Options) -> Result<Outcome, PassError> {
    // What is dead would count.
    graph.compact();
    let is_large = |weight: &Weight| matches!(weight.dtype(), DType::I8 | DType::U8) && weight.bytes() >= LEAST_BYTES;
    let codes = || graph.weights().filter(|(_, _, weight)| is_large(weight));
    let stored: HashMap<&Weight, ValueId> = codes().map(|(id, _, weight)| (weight, id)).collect();
    let one = |weight: &Weight| {
        let (turned, columns) = match weight.expr() {
            WeightExpr::Gather(of, 0, rows) => {
                let rows: Option<Vec<i64>> = rows.iter().map(|row| i64::try_from(*row).ok()).collect();
                (of, Some(rows?))
            }
            _ => (weight, None),
        };
        let WeightExpr::Transpose(of, _) = turned.expr() else { return None };
        let is_turned = of.shape().len() == 2;
        stored.get(of).filter(|_| is_turned).map(|of| Turned { of: *of, columns })
    };
    let turned: HashMap<ValueId, Turned> = codes().filter_map(|(id, _, weight)| Some((id, one(weight)?))).collect();
    let mut emitted: HashMap<ValueId, ValueId> = HashMap::new();
    let changed = graph.rewrite(|graph, node| {
        let mut op = graph.node(node).op.clone();
        let mut operands = op.operands();
        operands.retain(|operand| turned.contains_key(operand));
        if operands.is_empty() {
            return Ok::<_, PassError>(Step::Keep);
        }
        for operand in operands {
            let Some(Turned { of, columns }) = turned.get(&operand).filter(|_| !emitted.contains_key(&operand)) else {
                continue;
            };
            let mut value = graph.part(Transpose { x: *of, perm: vec![1, 0] }, operand)?;
            if let Some(columns) = columns {
                let indices = graph.weight_part(Weight::integers(columns), operand);
                value = graph.part(Gather { x: value, indices, axis: 0 }, operand)?;
            }
            emitted.insert(operand, value);
        }
        op.visit_operands_mut(&mut |v| *v = emitted.get(v).copied().unwrap_or(*v));
        let like = graph.node(node).outputs[0];
        Ok(Step::Replace(graph.emit_all(op, like)?))
    })?;
    graph.compact();
    Ok(changed.into())
}
