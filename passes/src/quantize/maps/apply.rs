//! Convolutions on codes, as a plan says.

use std::collections::HashMap;

use planish_ir::ops::Conv;
use planish_ir::weight::WeightError;
use planish_ir::{DType, Graph, NodeId, Rewriter, Step, ValueId, Weight};
use rayon::prelude::*;

use super::planner::range;
use super::{Maps, Source, convolution, limits};
use crate::PassError;
use crate::quantize::weights::{WeightScales, scales};
use crate::quantize::{Activation, Quantization};

/// How far beyond a limit the number of a code may lie, in scales: what rounding the scale costs.
const TOLERANCE: f64 = 1e-3;

/// Makes codes of feature maps and of weights of convolutions. Returns how many nodes changed.
pub(in crate::quantize) fn apply(graph: &mut Graph, quantization: &Quantization) -> Result<usize, PassError> {
    let plan = &quantization.plan;
    let names: HashMap<&str, &Activation> = plan.maps.iter().map(|map| (map.value.as_str(), &map.activation)).collect();
    let planned = |value: ValueId| {
        let activation = *names.get(graph.value(value).name.as_str())?;
        activation.codes().map(|_| activation.clone())
    };
    let maps = Maps::of(graph, &|value| planned(value).is_some());
    let alone: Vec<&str> = plan.coded_weights().map(|(name, _)| name).collect();
    let takes_codes = |id: NodeId, conv: &Conv| {
        maps.convolutions.contains(&id) || alone.contains(&graph.value(conv.weight).name.as_str())
    };
    let convolutions: HashMap<NodeId, Conv> = graph
        .nodes()
        .filter_map(|(id, node)| Some((id, convolution(graph, node).filter(|conv| takes_codes(id, conv))?.clone())))
        .collect();
    let mut taken: Vec<ValueId> = convolutions.values().map(|conv| conv.weight).collect();
    taken.sort_unstable();
    taken.dedup();
    let one = |value: ValueId| {
        let Some(weight) = graph.weight(value) else { return Ok(None) };
        let codes = quantized(weight, quantization.weight_scales);
        Ok(codes.map_err(|source| PassError::of_weight(graph, value, source))?.map(|codes| (value, codes)))
    };
    let weights: HashMap<ValueId, Weight> =
        taken.into_par_iter().filter_map(|value| one(value).transpose()).collect::<Result<_, PassError>>()?;
    let coded_maps = maps.maps.iter().filter_map(|map| Some((map.value, map.source, planned(map.value)?)));
    let (floats, given): (Vec<_>, Vec<_>) = coded_maps.partition(|(_, source, _)| *source == Source::Floats);
    let by_value = |maps: Vec<(ValueId, Source, Activation)>| -> HashMap<ValueId, Activation> {
        maps.into_iter().map(|(value, _, activation)| (value, activation)).collect()
    };
    // What operators on codes compute is quantized where it is computed, the rest where convolutions take it.
    let (floats, given) = (by_value(floats), by_value(given));
    let (mut inputs, mut coded) = (HashMap::new(), HashMap::new());
    graph.rewrite(|graph, node| {
        let like = graph.node(node).outputs[0];
        let mut op = graph.node(node).op.clone();
        let is_conv = convolutions.contains_key(&node);
        if let Some(conv) = convolution(graph, graph.node(node)).filter(|_| is_conv).cloned() {
            let x = match (inputs.get(&conv.x), floats.get(&conv.x)) {
                (Some(x), _) => *x,
                (None, Some(activation)) if maps.convolutions.contains(&node) => {
                    let x = quantized_map(graph, conv.x, activation, conv.x)?;
                    inputs.insert(conv.x, x);
                    x
                }
                _ => conv.x,
            };
            let weight = match (coded.get(&conv.weight), weights.get(&conv.weight)) {
                (Some(weight), _) => *weight,
                (None, Some(codes)) => {
                    let weight = graph.weight_like(codes.clone(), conv.weight);
                    coded.insert(conv.weight, weight);
                    weight
                }
                (None, None) => conv.weight,
            };
            op = Conv { x, weight, ..conv }.into();
        }
        let results = match given.get(&like) {
            None if is_conv => graph.emit_all(op, like)?,
            None => return Ok(Step::Keep),
            Some(activation) => {
                let x = graph.emit(op, like)?;
                let x = unlimited(graph, x, activation);
                vec![quantized_map(graph, x, activation, like)?]
            }
        };
        Ok::<_, PassError>(Step::Replace(results))
    })
}

fn quantized_map(
    graph: &mut Rewriter<'_>,
    x: ValueId,
    activation: &Activation,
    like: ValueId,
) -> Result<ValueId, PassError> {
    match activation.operator(x) {
        Some(operator) => Ok(graph.part(operator, like)?),
        None => Ok(x),
    }
}

/// What activations take that limit nothing that the codes have numbers for.
fn unlimited(graph: &Graph, mut x: ValueId, activation: &Activation) -> ValueId {
    let (Some(range), Activation::Static { scale, .. }) = (range(activation), activation) else { return x };
    let slack = TOLERANCE * f64::from(*scale);
    while let Some((of, [least, largest])) = graph.producer(x).and_then(|node| limits(graph, &node.op)) {
        if range.min < least - slack || range.max > largest + slack {
            break;
        }
        x = of;
    }
    x
}

/// A weight, [out, ..], as codes of i8 with a scale for each index of its first dimension.
fn quantized(weight: &Weight, how: WeightScales) -> Result<Option<Weight>, WeightError> {
    let out = weight.shape()[0];
    let Some(matrix) = weight.reshape(&[out, weight.elements() / out.max(1)]) else { return Ok(None) };
    let scales = scales(&matrix, 0, DType::I8, how)?;
    let codes = weight.quantize(DType::I8, 0, &scales, None);
    Ok(codes.and_then(|codes| codes.dequantize(0, &scales, None)))
}
