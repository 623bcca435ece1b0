//! The plan of feature maps, and of the weights of convolutions alone.

use std::collections::{BTreeMap, HashMap};

use planish_ir::{DType, Dim, Graph, NodeId, ValueId, Weight};

use super::{Maps, Source, convolution, moved};
use crate::calibration::InputStatistics;
use crate::quantize::planner::fixed;
use crate::quantize::{Activation, PlannedInput, PlannedWeight, Settings, WeightForm, sites};
use crate::{QuantizedForm, Range};

/// Weights with fewer elements are not worth a scale for each channel.
const MIN_ELEMENTS: usize = 256;

impl Settings {
    /// The type of the codes of feature maps; `None` where these settings have none.
    pub(in crate::quantize) fn codes_of_maps(&self) -> Option<DType> {
        match (self.codes, self.form) {
            (DType::F8E4M3FN, _) | (_, QuantizedForm::Codes) => None,
            // An activation that gives no negative numbers is the limit of unsigned codes.
            (_, QuantizedForm::IntegerProducts | QuantizedForm::UnsignedPairs | QuantizedForm::Pairs) => {
                Some(DType::U8)
            }
            (_, QuantizedForm::SignedPairs) => Some(DType::I8),
        }
    }
}

/// For each convolution its weight and its result.
pub(in crate::quantize) fn named(graph: &Graph, settings: &Settings) -> Vec<Vec<ValueId>> {
    let nodes = graph.nodes().filter(|_| settings.codes_of_maps().is_some());
    nodes.filter_map(|(_, node)| Some(vec![convolution(graph, node)?.weight, node.outputs[0]])).collect()
}

/// The plan of feature maps whose elements were measured. What a convolution that is kept takes has the reason.
pub(in crate::quantize) fn planned(
    graph: &Graph,
    settings: &Settings,
    statistics: &BTreeMap<String, InputStatistics>,
) -> Vec<PlannedInput> {
    let Some(codes) = settings.codes_of_maps() else { return Vec::new() };
    let settings = Settings { codes, dynamic: false, ..settings.clone() };
    let all = Maps::of(graph, &|_| true);
    let known = |value: ValueId| statistics.get(&graph.value(value).name);
    let mut floats: HashMap<ValueId, String> = HashMap::new();
    for map in &all.maps {
        let kept = map.takers.iter().find_map(|conv| kept(graph, *conv, &settings));
        let channels = graph.ty(map.value).shape.get(1).and_then(Dim::as_constant);
        let fits = known(map.value).is_some_and(|of| i64::try_from(of.columns.len()).ok() == channels);
        let unknown = (!fits).then(|| "the calibration does not have it".to_owned());
        if let Some(reason) = kept.or(unknown) {
            floats.insert(map.value, reason);
        }
    }
    let quantized = Maps::of(graph, &|value| !floats.contains_key(&value));
    let mut activations: HashMap<ValueId, Activation> = HashMap::new();
    let mut plan = Vec::new();
    for map in &all.maps {
        let own = quantized.get(map.value);
        let activation = match (floats.get(&map.value), own.map(|map| map.source)) {
            (Some(reason), _) => Activation::Float { reason: reason.clone() },
            // What a convolution that is kept gives.
            (None, None) if map.takers.is_empty() => continue,
            (None, None) => Activation::Float { reason: "a convolution of it gives what stays a float".to_owned() },
            (None, Some(source)) => {
                let same = match source {
                    Source::Elements(of) => of_elements(graph, of, &activations).cloned(),
                    Source::Floats | Source::Codes => None,
                };
                match (same, known(map.value)) {
                    (Some(same), _) => same,
                    (None, Some(statistics)) => fixed(statistics, &settings, 0, None),
                    (None, None) => continue,
                }
            }
        };
        activations.insert(map.value, activation.clone());
        let layers = map.takers.iter().map(|conv| sites::name(graph, *conv).to_owned()).collect();
        plan.push(PlannedInput { value: graph.value(map.value).name.clone(), layers, layer_loss: None, activation });
    }
    plan
}

/// What becomes of the value whose elements a value has.
fn of_elements<'a>(
    graph: &Graph,
    mut of: ValueId,
    activations: &'a HashMap<ValueId, Activation>,
) -> Option<&'a Activation> {
    loop {
        match activations.get(&of) {
            Some(activation) => return Some(activation),
            None => of = moved(&graph.producer(of)?.op)?,
        }
    }
}

/// Why a convolution stays a float.
fn kept(graph: &Graph, id: NodeId, settings: &Settings) -> Option<String> {
    let node = graph.node(id);
    let names = [convolution(graph, node)?.weight, node.outputs[0]].map(|value| graph.value(value));
    let exception = settings.keep.float(|named| named.any(names.into_iter()));
    exception.map(|exception| exception.reason.clone()).or_else(|| settings.not_finite.get(&names[0].name).cloned())
}

/// The plan of the weights of convolutions where nothing measured what these take: codes, and products of floats.
pub(in crate::quantize) fn planned_weights(graph: &Graph, settings: &Settings) -> Vec<PlannedWeight> {
    let mut planned: Vec<(ValueId, PlannedWeight)> = Vec::new();
    for (id, node) in graph.nodes().filter(|_| settings.weights && settings.codes_of_maps().is_some()) {
        let Some(conv) = convolution(graph, node) else { continue };
        let result = graph.value(node.outputs[0]).name.clone();
        let reason = kept(graph, id, settings);
        if let Some((_, known)) = planned.iter_mut().find(|(weight, _)| *weight == conv.weight) {
            known.used_by.push(result);
            if let Some(reason) = reason {
                known.form = WeightForm::Float { reason };
            }
            continue;
        }
        let elements = graph.weight(conv.weight).map_or(0, Weight::elements);
        let small = || (elements < MIN_ELEMENTS).then(|| format!("a weight of {elements} elements is too small"));
        let form = match reason.or_else(small) {
            Some(reason) => WeightForm::Float { reason },
            None => WeightForm::Rows { codes: DType::I8, integers: false },
        };
        let weight = graph.value(conv.weight).name.clone();
        planned.push((conv.weight, PlannedWeight { weight, used_by: vec![result], elements, form }));
    }
    planned.into_iter().map(|(_, planned)| planned).collect()
}

/// The numbers that codes of an activation stand for.
pub(super) fn range(activation: &Activation) -> Option<Range> {
    let Activation::Static { codes, scale, zero_point, .. } = activation else { return None };
    let (least, largest) = planish_ir::weight::code_range(*codes)?;
    let number = |code: i64| (code - zero_point) as f64 * f64::from(*scale);
    Some(Range { min: number(least), max: number(largest) })
}
