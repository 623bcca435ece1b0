//! Whether a plan that is given fits a graph and what its target computes with.

use std::collections::{HashMap, HashSet};

use planish_ir::weight::code_range;
use planish_ir::{DType, Graph, Op};

use super::sites::{Site, name, sites};
use super::tables::Tables;
use super::{Activation, Plan, PlannedAttention, PlannedInput, PlannedWeight, Settings, WeightForm, maps, recurrent};
use crate::QuantizedForm;

/// A plan does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The plan names a value twice.
    #[error("it has `{0}` twice")]
    Twice(String),
    /// The model has no such input of linear layers.
    #[error("the model has no input of linear layers `{0}`: the plan was made for another model, or edited")]
    Input(String),
    /// The model has no such feature map.
    #[error("the model has no feature map of convolutions `{0}`: the plan was made for another model, or edited")]
    Map(String),
    /// The model has no such weight.
    #[error(
        "the model has no table and no weight of a recurrent layer or a convolution `{0}`: the plan was made for another model, or edited"
    )]
    Weight(String),
    /// The model has no such attention.
    #[error("the model has no attention `{0}`: the plan was made for another model, or edited")]
    Attention(String),
    /// What an entry says is not possible.
    #[error("`{value}`: {reason}")]
    Entry {
        /// The entry.
        value: String,
        /// Why not.
        reason: String,
    },
}

impl Plan {
    /// Checks that a plan fits a graph that has been raised, and the codes and the form of quantized layers that settings
    /// have. Inputs that the plan does not have become entries that stay floats.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn check(&mut self, graph: &Graph, settings: &Settings) -> Result<(), PlanError> {
        let Settings { codes, form, .. } = *settings;
        let sites = sites(graph);
        let mut unplanned: HashMap<&str, &Site> =
            sites.iter().map(|site| (graph.value(site.value).name.as_str(), site)).collect();
        let mut seen = HashSet::new();
        for PlannedInput { value, activation, .. } in &self.inputs {
            if !seen.insert(value.clone()) {
                return Err(PlanError::Twice(value.clone()));
            }
            let site = unplanned.remove(value.as_str()).ok_or_else(|| PlanError::Input(value.clone()))?;
            let entry = |reason| PlanError::Entry { value: value.clone(), reason };
            possible(activation, codes, site.columns).map_err(entry)?;
            if form == QuantizedForm::Codes && !activation.split().is_empty() {
                return Err(entry(
                    "it has columns that are split, and this target has none: compile without".to_owned(),
                ));
            }
        }
        let is_attention = |name: &str| {
            let mut nodes = graph.nodes().filter(|(_, node)| matches!(node.op, Op::Attention(_)));
            nodes.any(|(_, node)| graph.value(node.outputs[0]).name == name)
        };
        let mut seen = HashSet::new();
        for planned in &self.attention {
            let name = &planned.attention;
            if !seen.insert(name) {
                return Err(PlanError::Twice(name.clone()));
            }
            if !is_attention(name) {
                return Err(PlanError::Attention(name.clone()));
            }
            let entry = |reason| PlanError::Entry { value: name.clone(), reason };
            let of_scores = form.codes_of_scores();
            possible_attention(planned, of_scores.unwrap_or([codes, DType::I8])).map_err(entry)?;
            if of_scores.is_none() && planned.queries.codes().is_some() {
                return Err(entry("this target computes attention in floating point".to_owned()));
            }
        }
        self.check_maps(graph, settings)?;
        self.check_weights(graph, settings)?;
        for site in sites.iter().filter(|site| unplanned.contains_key(graph.value(site.value).name.as_str())) {
            let layers = site.layers.iter().map(|layer| name(graph, *layer).to_owned()).collect();
            let activation = Activation::Float { reason: "the plan does not have it".to_owned() };
            let value = graph.value(site.value).name.clone();
            self.inputs.push(PlannedInput { value, layers, layer_loss: None, activation });
        }
        Ok(())
    }
}

impl Plan {
    /// Checks what convolutions take and give.
    fn check_maps(&self, graph: &Graph, settings: &Settings) -> Result<(), PlanError> {
        let known: HashSet<&str> =
            maps::feature_maps(graph).into_iter().map(|map| graph.value(map).name.as_str()).collect();
        let mut seen = HashSet::new();
        for PlannedInput { value, activation, .. } in &self.maps {
            if !seen.insert(value) {
                return Err(PlanError::Twice(value.clone()));
            }
            if !known.contains(value.as_str()) {
                return Err(PlanError::Map(value.clone()));
            }
            let entry = |reason: String| PlanError::Entry { value: value.clone(), reason };
            if activation.codes().is_none() {
                continue;
            }
            let codes = settings.codes_of_maps();
            let codes =
                codes.ok_or_else(|| entry("this target and these options have no convolutions of codes".to_owned()))?;
            let plain = activation.smooth().is_empty() && activation.split().is_empty();
            if matches!(activation, Activation::Dynamic { .. }) || !plain {
                return Err(entry("a feature map has a fixed scale, no `smooth` and no `split`".to_owned()));
            }
            possible(activation, codes, 0).map_err(entry)?;
        }
        Ok(())
    }

    /// Checks the tables and the weights of recurrent layers and convolutions. Those that the plan does not have become entries that stay floats.
    fn check_weights(&mut self, graph: &Graph, settings: &Settings) -> Result<(), PlanError> {
        let possible =
            Tables::of(graph, settings).planned(graph, &[]).into_iter().chain(recurrent::planned(graph, settings));
        // Convolutions that take codes are planned with what they take.
        let convolutions = if self.maps.is_empty() { maps::planned_weights(graph, settings) } else { Vec::new() };
        let mut possible: Vec<PlannedWeight> = possible.chain(convolutions).collect();
        let mut seen = HashSet::new();
        for PlannedWeight { weight, form, .. } in &self.weights {
            if !seen.insert(weight.clone()) {
                return Err(PlanError::Twice(weight.clone()));
            }
            let known = possible.iter().find(|known| known.weight == *weight);
            let known = known.ok_or_else(|| PlanError::Weight(weight.clone()))?;
            let has_integers = matches!(known.form, WeightForm::Rows { integers: true, .. });
            let reason = match form {
                WeightForm::Float { .. } => continue,
                WeightForm::Rows { codes: DType::I8, integers } if *integers <= has_integers => continue,
                WeightForm::Rows { codes: DType::I8, .. } => "this target has no products of integers with it",
                _ => "it has the form `rows` with codes of i8, or `float`",
            };
            return Err(PlanError::Entry { value: weight.clone(), reason: reason.to_owned() });
        }
        possible.retain(|known| !seen.contains(&known.weight));
        self.weights.extend(possible.into_iter().map(|known| {
            let form = WeightForm::Float { reason: "the plan does not have it".to_owned() };
            PlannedWeight { form, ..known }
        }));
        Ok(())
    }
}

/// Whether an input of so many columns can be quantized like this, to codes of a type.
fn possible(activation: &Activation, codes: DType, columns: usize) -> Result<(), String> {
    let split = activation.split();
    if !split.is_sorted() || split.last().is_some_and(|column| *column >= columns) {
        return Err(format!("`split` has columns in ascending order, below {columns}"));
    }
    let smooth = activation.smooth();
    let positive = |factor: &f32| *factor > 0.0 && factor.is_finite();
    if !(smooth.is_empty() || smooth.len() == columns && smooth.iter().all(positive)) {
        return Err(format!("`smooth` has {columns} factors that are more than 0, or none"));
    }
    match activation {
        Activation::Float { .. } => Ok(()),
        Activation::Static { codes: own, scale, zero_point, .. } => {
            let (least, largest) = code_range(codes).filter(|_| codes == DType::U8).unwrap_or((0, 0));
            if *own != codes {
                return Err(format!("it has codes of {own}, and this target and these options take {codes}"));
            }
            if !positive(scale) {
                return Err("`scale` is more than 0".to_owned());
            }
            if !(least..=largest).contains(zero_point) {
                return Err(format!("`zero_point` of {codes} is from {least} to {largest}"));
            }
            if codes == DType::F8E4M3FN && !split.is_empty() {
                return Err(format!("columns of {codes} cannot be split"));
            }
            Ok(())
        }
        Activation::Dynamic { limit, .. } => {
            if codes != DType::U8 {
                return Err(format!("its scale is that of each run, and this target takes fixed scales of {codes}"));
            }
            if limit.is_some() == split.is_empty() || limit.is_some_and(|limit| !positive(&limit)) {
                return Err("`limit` is for columns of `split`, and more than 0".to_owned());
            }
            Ok(())
        }
    }
}

/// Whether the product of queries and keys can be quantized like this: both or neither, with fixed scales.
fn possible_attention(planned: &PlannedAttention, [of_queries, of_keys]: [DType; 2]) -> Result<(), String> {
    let PlannedAttention { queries, keys, .. } = planned;
    match [queries, keys].map(|activation| activation.codes().is_some()) {
        [false, false] => return Ok(()),
        [true, true] => {}
        _ => return Err("`queries` and `keys` are both static or both float".to_owned()),
    }
    for (activation, codes) in [(queries, of_queries), (keys, of_keys)] {
        let plain = activation.smooth().is_empty() && activation.split().is_empty();
        if matches!(activation, Activation::Dynamic { .. }) || !plain {
            return Err("queries and keys have fixed scales, no `smooth` and no `split`".to_owned());
        }
        possible(activation, codes, 0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use planish_ir::text::{no_files, parse};
    use serde_json::{Value, json};

    use super::*;
    use crate::{CUDA, OPENVINO, ORT, TRT, Target};

    fn graph() -> Graph {
        let text = "graph \"g\" {
            input %x: f32[b, s, 16]
            weight @w = uniform(1) : f32[16, 16]
            weight @v = uniform(2) : f32[16, 16]
            %q = linear(%x, @w) : f32[b, s, 16]
            %a = attention(%q, %q, %q) {heads = 2, scale = 0.5} : f32[b, s, 16]
            %y = linear(%a, @v) : f32[b, s, 16]
            output y = %y
        }";
        parse(text, &no_files).unwrap()
    }

    fn checked(change: impl FnOnce(&mut Value), target: &Target) -> Result<Plan, String> {
        let mut plan = json!({
            "inputs": [
                {"value": "x", "layers": ["q"], "activation": "static", "codes": "u8", "scale": 0.1, "zero_point": 3},
                {"value": "a", "layers": ["y"], "activation": "dynamic"},
            ],
            "attention": [{
                "attention": "a",
                "queries": {"activation": "static", "codes": "u8", "scale": 0.1, "zero_point": 3},
                "keys": {"activation": "static", "codes": "i8", "scale": 0.1},
            }],
        });
        change(&mut plan);
        let mut plan: Plan = serde_json::from_value(plan).unwrap();
        plan.check(&graph(), &Settings::int8(target)).map_err(|error| error.to_string())?;
        Ok(plan)
    }

    #[test]
    fn a_plan_of_the_model_fits() {
        let plan = checked(|_| (), &ORT).unwrap();
        assert_eq!(plan.inputs.len(), 2);
        let shorter = checked(|plan| drop(plan["inputs"].as_array_mut().unwrap().pop()), &ORT).unwrap();
        assert_eq!(shorter.inputs[1].value, "a");
        assert_eq!(shorter.inputs[1].activation.to_string(), "float: the plan does not have it");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let cases: [(&str, Value, &str); 15] = [
            ("/inputs/0/value", json!("z"), "no input of linear layers `z`"),
            ("/inputs/0/value", json!("a"), "`a` twice"),
            ("/inputs/0/codes", json!("i8"), "`x`: it has codes of i8, and this target and these options take u8"),
            ("/inputs/0/scale", json!(0.0), "`scale` is more than 0"),
            ("/inputs/0/zero_point", json!(256), "`zero_point` of u8 is from 0 to 255"),
            ("/inputs/0/split", json!([16]), "`split` has columns in ascending order, below 16"),
            ("/inputs/0/split", json!([2, 1]), "ascending"),
            ("/inputs/0/smooth", json!([1.0]), "`smooth` has 16 factors"),
            ("/inputs/0/smooth", json!(vec![0.0; 16]), "more than 0"),
            ("/inputs/1/limit", json!(1.0), "`limit` is for columns of `split`"),
            ("/attention/0/attention", json!("z"), "no attention `z`"),
            ("/attention/0/keys", json!({"activation": "float", "reason": "r"}), "both static or both float"),
            ("/attention/0/keys/codes", json!("u8"), "it has codes of u8"),
            ("/attention/0/queries/smooth", json!([1.0]), "no `smooth` and no `split`"),
            ("/attention/0/keys/split", json!([0]), "no `smooth` and no `split`"),
        ];
        for (at, value, message) in cases {
            let set = |plan: &mut Value| {
                let (parent, member) = at.rsplit_once('/').unwrap();
                plan.pointer_mut(parent).unwrap()[member] = value;
            };
            let error = checked(set, &ORT).unwrap_err();
            assert!(error.contains(message), "{at}: {error}");
        }
        let error = checked(|_| (), &TRT).unwrap_err();
        assert!(error.contains("codes of u8, and this target and these options take i8"), "{error}");
        let error = checked(|_| (), &OPENVINO).unwrap_err();
        assert!(error.contains("`a`: it has codes of u8, and this target and these options take i8"), "{error}");
    }

    #[test]
    fn openvino_multiplies_signed_queries() {
        let signed = |plan: &mut Value| {
            plan["attention"][0]["queries"] = json!({"activation": "static", "codes": "i8", "scale": 0.1});
        };
        assert_eq!(checked(signed, &OPENVINO).map(|plan| plan.attention.len()), Ok(1));
    }

    /// Plans of other targets have what a target that multiplies codes itself has not.
    #[test]
    fn plans_for_operators_on_codes_are_plain() {
        let signed = |change: fn(&mut Value)| {
            let set = move |plan: &mut Value| {
                let activation = json!({"activation": "static", "codes": "i8", "scale": 0.1});
                *plan = json!({"inputs": [{"value": "x", "layers": ["q"]}], "attention": []});
                plan["inputs"][0].as_object_mut().unwrap().extend(activation.as_object().unwrap().clone());
                change(plan);
            };
            (checked(set, &TRT).map(drop), checked(set, &CUDA).map(drop))
        };
        assert_eq!(signed(|_| ()), (Ok(()), Ok(())));
        let (other, own) = signed(|plan| plan["inputs"][0]["split"] = json!([2]));
        assert_eq!((other, own.unwrap_err().contains("`x`: it has columns that are split")), (Ok(()), true));
        let (other, own) = signed(|plan| {
            let activation = json!({"activation": "static", "codes": "i8", "scale": 0.1});
            plan["attention"] = json!([{"attention": "a", "queries": activation, "keys": activation}]);
        });
        for error in [other.unwrap_err(), own.unwrap_err()] {
            assert!(error.contains("`a`: this target computes attention in floating point"), "{error}");
        }
        let error = checked(|_| (), &CUDA).unwrap_err();
        assert!(error.contains("codes of u8, and this target and these options take i8"), "{error}");
    }
}
