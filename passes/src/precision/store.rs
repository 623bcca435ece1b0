//! Weights in half precision for targets that compute in float32.

use std::collections::{HashMap, HashSet};

use planish_ir::ops::Cast;
use planish_ir::weight::WeightExpr;
use planish_ir::{DType, Def, Graph, Step, ValueId, Weight};

use super::choices::choices;
use super::losses::Loss;
use super::reason::{Kept, Reason, asked};
use super::{HalfPrecision, Halved};
use crate::processing::is_processing;
use crate::{Example, ORT, Options, Outcome, Pass, PassError};

/// Stores weights that were rounded to a half type in it.
pub const STORE_HALF: Pass = Pass {
    name: "store-half",
    summary: "Stores weights that were rounded to half precision in the half type. A cast brings them back to float32 \
              when the model is loaded. The pass runs where half precision is asked for and the target computes in \
              float32. The file is half as large, and a runtime that folds constants computes as before.",
    numerics: "none: the weights were rounded before",
    example: Example {
        target: &ORT,
        fusion: true,
        before: "
            input %x: f32[n, 16]
            weight @w = transpose(cast(cast(uniform(1) : f32[32, 16]) : f16[32, 16]) : f32[32, 16], [1, 0]) : f32[16, 32]
            %y = matmul(%x, @w) : f32[n, 32]
            output y = %y",
        after: "
            input %x: f32[n, 16]
            weight @w = transpose(cast(uniform(1) : f32[32, 16]) : f16[32, 16], [1, 0]) : f16[16, 32]
            %w/cast = cast(@w) {to = f32} : f32[16, 32]
            %y = matmul(%x, %w/cast) : f32[n, 32]
            output y = %y",
    },
    applies: |options| options.half().is_some() && options.target.computes_in_float32,
    run,
};

/// Weights of fewer elements stay in float32: there is little to gain.
const MIN_ELEMENTS: usize = 256;

/// Rounds the weights of a float32 graph to half precision, which leaves their type. Weights that overflow or underflow,
/// those that make features of recordings, those by which is chosen among few, and those that were asked for, stay as they are.
///
/// # Errors
/// When a rounded weight does not take the place of the weight.
pub(super) fn round_weights(
    graph: &mut Graph,
    precision: &HalfPrecision,
    losses: &[(ValueId, Loss)],
) -> Result<Halved, PassError> {
    let mut matched = vec![false; precision.keep.0.len()];
    let mut asked_for: HashMap<ValueId, Reason> = HashMap::new();
    for (_, node) in graph.nodes() {
        if let Some(reason) = asked(graph, node, precision, &mut matched) {
            node.op.visit_operands(&mut |operand| drop(asked_for.insert(operand, reason.clone())));
        }
    }
    for (_, node) in graph.nodes().filter(|(_, node)| is_processing(graph, node)) {
        node.op.visit_operands(&mut |operand| {
            asked_for.entry(operand).or_insert(Reason::Processing);
        });
    }
    let choices = choices(graph);
    for (id, node) in graph.nodes() {
        let Some(chosen) = choices.get(&id) else { continue };
        node.op.visit_operands(&mut |operand| {
            asked_for.entry(operand).or_insert_with(|| Reason::Choice(chosen.clone()));
        });
    }
    let (mut rounded, mut kept) = (Vec::new(), Vec::new());
    for (id, value, weight) in graph.weights() {
        let is_rounded = narrow(weight, precision.half.dtype()).is_some();
        if weight.dtype() != DType::F32 || weight.elements() < MIN_ELEMENTS || is_rounded {
            continue;
        }
        let loss = losses.iter().find(|(of, loss)| *of == id && loss.is_unfit(precision.half));
        match asked_for.remove(&id).or_else(|| loss.map(|(_, loss)| Reason::Weight(loss.clone()))) {
            Some(reason) => kept.push(Kept::weight(value, &reason)),
            None => rounded.extend(weight.cast(precision.half.dtype()).and_then(|w| Some((id, w.cast(DType::F32)?)))),
        }
    }
    let halved: HashSet<ValueId> = rounded.iter().map(|(id, _)| *id).collect();
    for (id, weight) in rounded {
        graph.set_weight(id, weight)?;
    }
    Ok(Halved { changed: halved.len(), kept, matched, weights: halved })
}

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let Some(precision) = options.half() else { return Ok(Outcome::default()) };
    let half = precision.half.dtype();
    let stored = |graph: &Graph, value: ValueId| match &graph.value(value).def {
        Def::Weight(weight) if weight.elements() >= MIN_ELEMENTS => narrow(weight, half),
        _ => None,
    };
    let mut casts: HashMap<ValueId, ValueId> = HashMap::new();
    let changed = graph.rewrite(|graph, node| {
        let mut op = graph.node(node).op.clone();
        let mut operands = op.operands();
        operands.retain(|operand| casts.contains_key(operand) || stored(graph, *operand).is_some());
        if operands.is_empty() {
            return Ok::<_, PassError>(Step::Keep);
        }
        for operand in operands {
            if let (false, Some(weight)) = (casts.contains_key(&operand), stored(graph, operand)) {
                let x = graph.weight_like(weight, operand);
                let cast = graph.part(Cast { x, to: DType::F32 }, operand)?;
                casts.insert(operand, cast);
            }
        }
        op.visit_operands_mut(&mut |v| *v = casts.get(v).copied().unwrap_or(*v));
        let like = graph.node(node).outputs[0];
        Ok(Step::Replace(graph.emit_all(op, like)?))
    })?;
    graph.compact();
    Ok(changed.into())
}

/// A float32 weight in the half type that it was widened from.
pub(super) fn narrow(weight: &Weight, half: DType) -> Option<Weight> {
    match weight.expr() {
        WeightExpr::Cast(of) => (of.dtype() == half && weight.dtype() == DType::F32).then(|| of.clone()),
        expr if expr.moves_elements() => weight.map(&mut |of| narrow(of, half)),
        _ => None,
    }
}
