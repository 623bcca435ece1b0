//! The weights of recurrent layers, as codes with a scale for each feature that they compute.

use std::collections::HashMap;

use planish_ir::ops::{Foreign, Setting, Text};
use planish_ir::{DType, Graph, Node, NodeId, Op, Rewriter, ValueId, Weight};

use super::sites::MIN_FEATURES;
use super::weights::{WeightScales, quantized_rows};
use super::{Plan, PlannedWeight, Settings, WeightForm};
use crate::legalize::{MICROSOFT, reshaped};
use crate::{PassError, QuantizedForm};

/// ONNX Runtime's operator for an LSTM on codes.
const DYNAMIC: &str = "DynamicQuantizeLSTM";

/// The operands that are the weights of a recurrent layer, [directions, features, inputs] and [directions, features, hidden].
const WEIGHTS: [usize; 2] = [1, 2];

/// The operands of an LSTM in front of the scales of its codes: the last one is that of peepholes.
const OPERANDS: usize = 8;

/// A recurrent layer of ONNX with float32 weights that are known.
struct Recurrent<'a> {
    op: &'a Foreign,
    weights: [ValueId; 2],
}

impl<'a> Recurrent<'a> {
    fn of(graph: &Graph, node: &'a Node) -> Option<Self> {
        let Op::Foreign(op) = &node.op else { return None };
        if !["LSTM", "GRU", "RNN"].iter().any(|name| op.is(name)) {
            return None;
        }
        let known = |at: usize| {
            let value = op.inputs.get(at).copied().flatten()?;
            let weight = graph.weight(value)?;
            let is_plain =
                weight.dtype() == DType::F32 && reshaped(weight).is_none() && weight.as_dequantized().is_none();
            (is_plain && weight.shape().len() == 3).then_some(value)
        };
        let [Some(input), Some(hidden)] = WEIGHTS.map(known) else { return None };
        Some(Self { op, weights: [input, hidden] })
    }

    /// Whether ONNX Runtime has a kernel for it on codes.
    fn is_dynamic(&self) -> bool {
        self.op.is("LSTM") && self.op.setting("layout").is_none_or(|layout| *layout == Setting::Int(0))
    }
}

/// The weights of a recurrent layer that may become codes; `None` for another node.
pub(super) fn weights(graph: &Graph, node: &Node) -> Option<[ValueId; 2]> {
    Recurrent::of(graph, node).map(|layer| layer.weights)
}

/// For each recurrent layer its weights and first result.
pub(super) fn named(graph: &Graph) -> Vec<Vec<ValueId>> {
    let layers = graph.nodes().filter_map(|(_, node)| Some((weights(graph, node)?, *node.outputs.first()?)));
    layers.map(|([input, hidden], result)| vec![input, hidden, result]).collect()
}

/// The plan of the weights of recurrent layers, in the order of the graph.
pub(super) fn planned(graph: &Graph, settings: &Settings) -> Vec<PlannedWeight> {
    let mut order: Vec<ValueId> = Vec::new();
    let mut takers: HashMap<ValueId, Vec<(NodeId, bool)>> = HashMap::new();
    for (id, node) in graph.nodes().filter(|_| settings.weights) {
        let Some(layer) = Recurrent::of(graph, node) else { continue };
        let dynamic = settings.form == QuantizedForm::IntegerProducts && layer.is_dynamic();
        for weight in layer.weights {
            let own = takers.entry(weight).or_insert_with(|| {
                order.push(weight);
                Vec::new()
            });
            own.push((id, dynamic));
        }
    }
    let one = |weight: ValueId| {
        let takers = takers.remove(&weight)?;
        let result = |(node, _): &(NodeId, bool)| graph.node(*node).outputs.first().copied();
        let results: Vec<ValueId> = takers.iter().filter_map(result).collect();
        let values = || results.iter().chain([&weight]).map(|value| graph.value(*value));
        let kept = settings.keep.float(|named| named.any(values()));
        let [_, features, columns] = *graph.weight(weight)?.shape() else { return None };
        let least = features.min(columns);
        let not_finite = settings.not_finite.get(&graph.value(weight).name);
        let form = match (kept, not_finite) {
            (Some(exception), _) => WeightForm::Float { reason: exception.reason.clone() },
            (None, Some(reason)) => WeightForm::Float { reason: reason.clone() },
            (None, None) if least < MIN_FEATURES => {
                WeightForm::Float { reason: format!("a layer of {least} features is too small") }
            }
            (None, None) => WeightForm::Rows { codes: DType::I8, integers: takers.iter().all(|(_, dynamic)| *dynamic) },
        };
        Some(PlannedWeight {
            weight: graph.value(weight).name.clone(),
            used_by: results.iter().map(|result| graph.value(*result).name.clone()).collect(),
            elements: graph.weight(weight)?.elements(),
            form,
        })
    };
    order.into_iter().filter_map(one).collect()
}

/// The codes of weights, by what they were.
#[derive(Default)]
pub(super) struct Codes(HashMap<ValueId, ValueId>);

impl Codes {
    /// A recurrent layer with weights of codes, as a plan says; `None` for another node.
    pub(super) fn step(
        &mut self,
        graph: &mut Rewriter<'_>,
        node: NodeId,
        plan: &Plan,
        how: WeightScales,
    ) -> Result<Option<Vec<ValueId>>, PassError> {
        let Some(Recurrent { op, weights }) = Recurrent::of(graph, graph.node(node)) else { return Ok(None) };
        let (mut op, like) = (op.clone(), graph.node(node).outputs[0]);
        let form = |weight: ValueId| {
            let name = graph.value(weight).name.as_str();
            plan.coded_weights().find(|(planned, _)| *planned == name).map(|(_, form)| form)
        };
        let forms = weights.map(form);
        if forms.iter().all(|form| matches!(form, Some(WeightForm::Rows { integers: true, .. }))) {
            op.inputs.resize(OPERANDS, None);
            for (at, weight) in WEIGHTS.into_iter().zip(weights) {
                let Some([codes, scales, zeros]) = factors(graph, weight, how)? else { return Ok(None) };
                op.inputs[at] = Some(codes);
                op.inputs.extend([Some(scales), Some(zeros)]);
            }
            op.settings.0.retain(|(name, _)| name != "layout");
            let op = Foreign { domain: Text(MICROSOFT.to_owned()), op: Text(DYNAMIC.to_owned()), version: 1, ..op };
            return Ok(Some(graph.emit_all(op, like)?));
        }
        let is_planned = forms.map(|form| form.is_some());
        for ((at, weight), _) in WEIGHTS.into_iter().zip(weights).zip(is_planned).filter(|(_, planned)| *planned) {
            let codes = match self.0.get(&weight) {
                Some(codes) => *codes,
                None => {
                    let Some(codes) = numbers(graph, weight, how)? else { return Ok(None) };
                    *self.0.entry(weight).or_insert(codes)
                }
            };
            op.inputs[at] = Some(codes);
        }
        if is_planned == [false, false] { Ok(None) } else { Ok(Some(graph.emit_all(op, like)?)) }
    }
}

/// A weight as one matrix, [directions * features, columns].
fn matrix(weight: &Weight) -> Option<Weight> {
    let [directions, features, columns] = *weight.shape() else { return None };
    weight.reshape(&[directions * features, columns])
}

/// The numbers that the codes of a weight stand for, of the shape of the weight.
fn numbers(graph: &mut Rewriter<'_>, value: ValueId, how: WeightScales) -> Result<Option<ValueId>, PassError> {
    let Some(weight) = graph.weight(value) else { return Ok(None) };
    let Some(matrix) = matrix(weight) else { return Ok(None) };
    let shape = weight.shape().to_vec();
    let rows = quantized_rows(&matrix, how).map_err(|source| PassError::of_weight(graph, value, source))?;
    Ok(rows.and_then(|rows| rows.reshape(&shape)).map(|weight| graph.weight_like(weight, value)))
}

/// The codes of a weight as DynamicQuantizeLSTM takes them, [directions, columns, features], with scales and zero points of
/// [directions, features].
fn factors(graph: &mut Rewriter<'_>, value: ValueId, how: WeightScales) -> Result<Option<[ValueId; 3]>, PassError> {
    let Some(weight) = graph.weight(value) else { return Ok(None) };
    let [directions, features, columns] = *weight.shape() else { return Ok(None) };
    let Some(matrix) = matrix(weight) else { return Ok(None) };
    let rows = quantized_rows(&matrix, how).map_err(|source| PassError::of_weight(graph, value, source))?;
    let Some(of) = rows.as_ref().and_then(Weight::as_dequantized) else { return Ok(None) };
    let codes = of.codes.reshape(&[directions, features, columns]).and_then(|codes| codes.transpose(&[0, 2, 1]));
    let scales = of.scales.reshape(&[directions, features]);
    let zeros = Weight::numbers(DType::I8, vec![directions, features], &vec![0.0; directions * features]);
    let (Some(codes), Some(scales), Some(zeros)) = (codes, scales, zeros) else { return Ok(None) };
    let codes = graph.weight_like(codes, value);
    Ok(Some([codes, graph.weight_part(scales, value), graph.weight_part(zeros, value)]))
}
