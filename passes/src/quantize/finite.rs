//! Weights that no codes stand for, because a number of them is not finite.

use std::collections::BTreeMap;

use planish_ir::weight::WeightError;
use planish_ir::{DType, Graph, Op, ValueId, Weight};
use rayon::prelude::*;

use super::recurrent;
use crate::{Example, ORT, Options, Outcome, Pass, PassError};

/// Checks the scales of the codes that a model comes with.
pub const CHECK_CODES: Pass = Pass {
    name: "check-codes",
    summary: "Checks that the scales of the codes that a model comes with are finite, those of DequantizeLinear and QuantizeLinear \
              among them. A scale that is NaN or infinite is an error that names the weight. Where the recipe has `allow_non_finite`, such a \
              weight becomes the floats that its codes stand for, and such an operator stays as it is.",
    numerics: "None.",
    example: Example {
        target: &ORT,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            weight @w = dequantize([dense([1, 2]) : i8[1, 2], dense([0.5]) : f32[1]], 0) : f32[1, 2]
            %y = linear(%x, @w) : f32[n, 1]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            weight @w = dequantize([dense([1, 2]) : i8[1, 2], dense([0.5]) : f32[1]], 0) : f32[1, 2]
            %y = linear(%x, @w) : f32[n, 1]
            output y = %y",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let weights: Vec<(ValueId, &Weight)> = graph.weights().map(|(id, _, weight)| (id, weight)).collect();
    let one = |(id, weight): (ValueId, &Weight)| {
        let failed = |source| PassError::of_weight(graph, id, source);
        match weight.check_scales() {
            Ok(()) => Ok(None),
            Err(WeightError::NotFinite(_)) if options.allow_non_finite => {
                let bytes = weight.read().map_err(failed)?;
                Ok(Weight::inline(weight.dtype(), weight.shape().to_vec(), bytes).map(|floats| (id, floats)))
            }
            Err(error) => Err(failed(error)),
        }
    };
    let floats: Vec<(ValueId, Weight)> =
        weights.into_par_iter().filter_map(|weight| one(weight).transpose()).collect::<Result<_, _>>()?;
    if !options.allow_non_finite {
        let scales =
            graph.nodes().filter_map(|(_, node)| scale(&node.op)).filter_map(|id| Some((id, graph.weight(id)?)));
        scales.into_iter().try_for_each(|(id, weight)| {
            weight.check_finite().map_err(|source| PassError::of_weight(graph, id, source))
        })?;
    }
    let changed = floats.len();
    for (id, weight) in floats {
        graph.set_weight(id, weight)?;
    }
    Ok(changed.into())
}

/// The scale of an operator of ONNX between codes and numbers.
fn scale(op: &Op) -> Option<ValueId> {
    let Op::Foreign(op) = op else { return None };
    let has_scale = op.is("DequantizeLinear") || op.is("QuantizeLinear");
    has_scale.then(|| op.inputs.get(1).copied().flatten())?
}

/// Why no codes stand for the weights of a graph that are not finite, by their names: the weights of linear layers, convolutions,
/// experts, tables and recurrent layers.
///
/// # Errors
/// When a weight cannot be read.
pub fn not_finite_weights(graph: &Graph) -> Result<BTreeMap<String, String>, PassError> {
    let matrices = graph.nodes().flat_map(|(_, node)| match &node.op {
        Op::Linear(linear) => vec![linear.weight],
        Op::Embedding(embedding) => vec![embedding.weight],
        Op::Gather(gather) => vec![gather.x],
        Op::Conv(conv) => vec![conv.weight],
        Op::Experts(p) => [Some(p.gate), p.up, Some(p.down)].into_iter().flatten().collect(),
        _ => Vec::new(),
    });
    let is_matrix = |id: &ValueId| graph.weight(*id).is_some_and(|weight| (2..=5).contains(&weight.shape().len()));
    let of_recurrent = graph.nodes().filter_map(|(_, node)| recurrent::weights(graph, node)).flatten();
    let mut taken: Vec<ValueId> = matrices.filter(is_matrix).chain(of_recurrent).collect();
    taken.sort_unstable();
    taken.dedup();
    let one = |id: &ValueId| {
        let weight = graph.weight(*id).filter(|weight| weight.dtype() == DType::F32)?;
        match weight.check_finite() {
            Ok(()) => None,
            Err(WeightError::NotFinite(found)) => Some(Ok((graph.value(*id).name.clone(), found.to_string()))),
            Err(error) => Some(Err(PassError::of_weight(graph, *id, error))),
        }
    };
    taken.par_iter().filter_map(one).collect()
}
