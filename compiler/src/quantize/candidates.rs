//! What a search for the precision of a model may change.

use std::collections::BTreeMap;
use std::sync::Arc;

use planish_ir::DType;
use planish_passes::quantize::{Activation, Bits, Plan, Quantization, WeightForm, WeightMethod, WeightQuantization};

/// How a model is quantized, by the names of its parts.
#[derive(Clone, Debug, Default)]
pub struct Quantizations {
    /// How linear layers are quantized; empty where they are not.
    pub layers: BTreeMap<String, Arc<Quantization>>,
    /// How weights alone are quantized; empty where they are not.
    pub weights: BTreeMap<String, Arc<WeightQuantization>>,
    /// The bits that --int4 or --int8-weights asks for. With 4 bits, a search gives 8 bits to weights of 4; with 8 bits, it
    /// makes floats of weights.
    pub weight_bits: Option<Bits>,
}

/// Where the plans have a candidate: by the part, and the place in its plan. Attentions, whose queries and keys are
/// quantized, come after the inputs of layers, tables and weights of recurrent layers and convolutions after these, and feature maps last.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The input of layers.
    Input(String, usize),
    /// A weight.
    Weight(String, usize),
}

/// Why a search gave something more precision. What it bought comes after it.
pub const BY_LIMITS: &str = "chosen by --max-loss";

/// The kind of the groups that are layers.
pub const LAYERS: usize = 1;

/// What is quantized, and may have more precision.
pub struct Candidate {
    /// Where the plans have it.
    pub place: Place,
    /// The groups that it is measured with: its role, and for a weight its layer.
    pub groups: Vec<String>,
    /// What quantization does to it, next to others of a group.
    pub loss: f64,
    /// What more precision costs, next to others.
    pub cost: f64,
}

impl Quantizations {
    /// What may have more precision: quantized inputs and attentions may be floats. Weights of 4 bits may have 8 where 4
    /// bits are asked for; else quantized weights may be floats.
    pub fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for (part, quantization) in &self.layers {
            let Plan { inputs, attention, weights, maps } = &quantization.plan;
            let first_weight = inputs.len() + attention.len();
            let layers = || quantization.plan.inputs.iter().flat_map(|input| &input.layers);
            let inputs = inputs.iter().map(|input| (role(&input.value), &input.activation, input.layer_loss));
            // The result of an attention is an input too, so the role of its scores needs another name.
            let attention = attention.iter().map(|a| (role(&a.attention) + " scores", &a.queries, a.score_loss));
            for (at, (role, activation, loss)) in inputs.chain(attention).enumerate() {
                if activation.codes().is_some() {
                    let place = Place::Input(part.clone(), at);
                    candidates.push(Candidate { place, groups: vec![role], loss: loss.unwrap_or_default(), cost: 1.0 });
                }
            }
            let first_map = first_weight + weights.len();
            for (at, map) in maps.iter().enumerate() {
                if map.activation.codes().is_some() && !map.layers.is_empty() {
                    let place = Place::Input(part.clone(), first_map + at);
                    let (groups, loss) = (vec![role(&map.value)], map.layer_loss.unwrap_or_default());
                    candidates.push(Candidate { place, groups, loss, cost: 1.0 });
                }
            }
            for (at, planned) in weights.iter().enumerate() {
                // A table that a layer shares is a float where the input of the layer is.
                let is_shared = layers().any(|layer| planned.used_by.contains(layer));
                if planned.form.codes().is_some() && !is_shared {
                    let place = Place::Input(part.clone(), first_weight + at);
                    candidates.push(Candidate { place, groups: vec![role(&planned.weight)], loss: 0.0, cost: 1.0 });
                }
            }
        }
        for (part, quantization) in &self.weights {
            for (at, planned) in quantization.plan.weights.iter().enumerate() {
                let most = if self.weight_bits == Some(Bits::Four) { 4 } else { 8 };
                if planned.form.codes().is_some_and(|codes| codes.bits() <= most) {
                    candidates.push(Candidate {
                        place: Place::Weight(part.clone(), at),
                        groups: vec![role(&planned.weight), layer(part, &planned.weight)],
                        loss: 1.0,
                        cost: planned.elements.max(1) as f64,
                    });
                }
            }
        }
        candidates
    }

    /// What candidates are, in the plural, and what they become with more precision.
    pub fn kinds(&self) -> [&'static str; 2] {
        match self.weight_bits {
            None => ["inputs", "in float"],
            Some(Bits::Four) => ["weights", "of 8 bits"],
            Some(_) => ["weights", "in float"],
        }
    }

    /// With more precision for some candidates, each with a reason by its rank.
    pub fn kept(&self, places: &[Place], reason: impl Fn(usize) -> String) -> Self {
        let mut kept = self.clone();
        for (rank, place) in places.iter().enumerate() {
            match place {
                Place::Input(part, at) => {
                    if let Some(quantization) = kept.layers.get_mut(part) {
                        keep_input(&mut Arc::make_mut(quantization).plan, *at, reason(rank));
                    }
                }
                Place::Weight(part, at) => {
                    if let Some(quantization) = kept.weights.get_mut(part) {
                        let takes_8_bits = self.weight_bits == Some(Bits::Four);
                        keep_weight(Arc::make_mut(quantization), *at, takes_8_bits, reason(rank));
                    }
                }
            }
        }
        kept
    }
}

fn keep_input(plan: &mut Plan, at: usize, reason: String) {
    let (inputs, attentions) = (plan.inputs.len(), plan.attention.len());
    let first_map = inputs + attentions + plan.weights.len();
    if at < inputs {
        plan.keep_input(at, reason);
    } else if let Some(map) = at.checked_sub(first_map).and_then(|at| plan.maps.get_mut(at)) {
        (map.activation, map.layer_loss) = (Activation::Float { reason }, None);
    } else if let Some(planned) = at.checked_sub(inputs + attentions).and_then(|at| plan.weights.get_mut(at)) {
        planned.form = WeightForm::Float { reason };
    } else if let Some(attention) = plan.attention.get_mut(at - inputs) {
        let float = Activation::Float { reason };
        (attention.queries, attention.keys, attention.score_loss) = (float.clone(), float, None);
    }
}

/// Gives a weight 8 bits or, unless it `takes_8_bits`, floats.
fn keep_weight(quantization: &mut WeightQuantization, at: usize, takes_8_bits: bool, reason: String) {
    let Some(planned) = quantization.plan.weights.get_mut(at) else { return };
    let wider = match planned.form.codes() {
        Some(DType::I4) if takes_8_bits => Some(DType::I8),
        Some(DType::U4) if takes_8_bits => Some(DType::U8),
        _ => None,
    };
    // Codes of 4 bits that data chose are not those of 8.
    quantization.chosen.remove(&planned.weight);
    planned.form = match (wider, &planned.form) {
        (Some(codes), WeightForm::Blocks { block, method, reason: before, .. }) => {
            let method = if *method == WeightMethod::Gptq { WeightMethod::Mse } else { *method };
            WeightForm::Blocks { codes, block: *block, method, reason: Some(joined(before.as_deref(), reason)) }
        }
        (_, form) => WeightForm::Float { reason: joined(form.reason(), reason) },
    };
}

/// A reason after the one that an option gave before.
fn joined(before: Option<&str>, reason: String) -> String {
    before.map_or(reason.clone(), |before| format!("{before}; {reason}"))
}

/// The role of an input or a weight: its name without the numbers in it.
fn role(name: &str) -> String {
    name.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// The layer of a weight: its part, and its name up to the first number.
fn layer(part: &str, name: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit();
    let Some(start) = name.find(is_digit) else { return part.to_owned() };
    let end = name[start..].find(|c| !is_digit(c)).map_or(name.len(), |digits| start + digits);
    format!("{part}/{}", &name[..end])
}
