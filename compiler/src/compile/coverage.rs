//! What of a model is quantized, and what is left.

use std::collections::{HashMap, HashSet};

use planish_artifact::coverage::{Coverage, Left};
use planish_ir::{Graph, Node, Op, ValueId, Weight};
use planish_passes::quantize::{Quantization, WeightForm, WeightPlan, weights_of_codes};

use crate::quantize::BY_LIMITS;

/// Weights of fewer elements, and vectors, are not counted: there is nothing to gain.
const LEAST: usize = 256;

/// The names of the matrices of a graph that are codes already.
pub(super) fn codes_of(graph: &Graph) -> HashSet<String> {
    let (taken, codes) = (taken(graph), weights_of_codes(graph));
    let counted = |id: &ValueId, weight: &Weight| taken.contains_key(id) && is_counted(weight) && codes.contains(id);
    let codes = graph.weights().filter(|(id, _, weight)| counted(id, weight));
    codes.map(|(_, value, _)| value.name.clone()).collect()
}

/// What of a graph that was quantized is codes; `before` has the names of those that were codes before.
pub(super) fn coverage(
    graph: &Graph,
    before: &HashSet<String>,
    quantization: Option<&Quantization>,
    weights: Option<&WeightPlan>,
) -> Coverage {
    let reasons = reasons(quantization, weights);
    let (taken, codes) = (taken(graph), weights_of_codes(graph));
    let mut coverage = Coverage::default();
    for (id, value, weight) in graph.weights().filter(|(_, _, weight)| is_counted(weight)) {
        let Some(node) = taken.get(&id) else { continue };
        let elements = weight.elements() as u64;
        if codes.contains(&id) {
            if before.contains(&value.name) {
                coverage.kept += elements;
                coverage.kept_weights += 1;
            } else {
                coverage.quantized += elements;
            }
        } else if weight.dtype().is_float() {
            let result = &graph.value(node.outputs[0]).name;
            let planned = reasons.get(result.as_str()).or_else(|| reasons.get(value.name.as_str()));
            let reason = planned.map_or_else(|| unplanned(&node.op), |reason| without_figures(reason)).to_owned();
            coverage.add(Left { operator: operator(&node.op), weights: 1, elements, reason });
        }
    }
    coverage.sort();
    coverage
}

fn is_counted(weight: &Weight) -> bool {
    weight.shape().len() > 1 && weight.elements() >= LEAST
}

/// The first node that takes each operand.
fn taken(graph: &Graph) -> HashMap<ValueId, &Node> {
    let mut taken = HashMap::new();
    for (_, node) in graph.nodes() {
        node.op.visit_operands(&mut |operand| {
            taken.entry(operand).or_insert(node);
        });
    }
    taken
}

fn operator(op: &Op) -> String {
    match op {
        Op::Foreign(op) => op.op.0.clone(),
        op => op.mnemonic().to_owned(),
    }
}

/// Why layers and weights stay floats, by the names of layers and weights.
fn reasons<'a>(quantization: Option<&'a Quantization>, weights: Option<&'a WeightPlan>) -> HashMap<&'a str, &'a str> {
    let mut reasons = HashMap::new();
    let plan = quantization.map(|quantization| &quantization.plan);
    for input in plan.iter().flat_map(|plan| plan.inputs.iter().chain(&plan.maps)) {
        let Some(reason) = input.activation.reason() else { continue };
        reasons.extend(input.layers.iter().map(|layer| (layer.as_str(), reason)));
    }
    for planned in plan.iter().flat_map(|plan| &plan.weights).chain(weights.iter().flat_map(|plan| &plan.weights)) {
        if let WeightForm::Float { reason } = &planned.form {
            reasons.insert(planned.weight.as_str(), reason);
        }
    }
    reasons
}

/// A reason without what a search measured, which is another one for each step.
fn without_figures(reason: &str) -> &str {
    reason.find(BY_LIMITS).map_or(reason, |at| &reason[..at + BY_LIMITS.len()])
}

/// Why an operator that no plan has takes a weight of floats.
fn unplanned(op: &Op) -> &'static str {
    match op {
        Op::Foreign(op) => match op.op.0.as_str() {
            "ConvTranspose" => "planish does not quantize transposed convolutions",
            "LSTM" | "GRU" | "RNN" => "these options leave recurrent layers as they are; --int8 quantizes them",
            _ => "planish knows no form of this operator on codes",
        },
        Op::Conv(_) => "--int8 quantizes convolutions with one to three spatial axes and weights that are known",
        Op::Experts(_) => "planish quantizes experts where weights alone are quantized",
        Op::Linear(_) => "its input or its weight is of another type than float32",
        Op::Embedding(_) | Op::Gather(_) | Op::Slice(_) => "a table of positions or types, not of tokens",
        _ => "a constant that is not the weight of a layer",
    }
}
