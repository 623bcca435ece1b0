use std::sync::Arc;

use planish_artifact::evaluation::OutputFigures;
use planish_artifact::manifest::File;
use planish_artifact::split::Split;
use planish_ir::DType;
use planish_passes::quantize::{
    Activation, Bits, Plan, PlannedInput, PlannedWeight, Quantization, WeightForm, WeightMethod, WeightPlan,
    WeightQuantization,
};

use super::*;

/// A model whose error is the sum of what its quantized inputs add.
struct Additive {
    adds: BTreeMap<String, f64>,
    /// How many inputs each artifact had in float that was evaluated, and whether a rough figure was enough.
    evaluated: Vec<(usize, bool)>,
}

fn evaluation(error: f64) -> Evaluation {
    let (part, output) = ("model".to_owned(), "y".to_owned());
    Evaluation {
        data: File { name: "data".to_owned(), bytes: 1, blake3: None },
        split: Split::All,
        samples: 1,
        tokens: None,
        runtime: "none".to_owned(),
        embeddings: None,
        predictions: None,
        read: None,
        labels: Vec::new(),
        scores: None,
        perplexity: None,
        outputs: vec![OutputFigures { part, output, is_cache: false, relative_error: error, cosine: 1.0 - error }],
    }
}

impl Trials for Additive {
    type Made = Quantizations;

    fn make(&mut self, quantizations: Quantizations) -> Result<Quantizations> {
        Ok(quantizations)
    }

    fn evaluate(&mut self, made: &Quantizations, rough: bool) -> Result<Evaluation> {
        let inputs = || made.layers.values().flat_map(|quantization| &quantization.plan.inputs);
        let is_float = |input: &&PlannedInput| input.activation.codes().is_none();
        let weights = || made.weights.values().flat_map(|quantization| &quantization.plan.weights);
        let is_wide = |weight: &&PlannedWeight| weight.form.codes() == Some(DType::I8);
        self.evaluated.push((inputs().filter(is_float).count() + weights().filter(is_wide).count(), rough));
        let inputs = inputs().filter(|input| !is_float(input)).map(|input| self.adds[&input.value]);
        let weights = weights().filter(|weight| !is_wide(weight)).map(|weight| self.adds[&weight.weight]);
        Ok(evaluation(inputs.chain(weights).fold(0.0, |sum, added| sum + added)))
    }
}

/// Inputs of two roles in 16 layers; in each role they add in proportion to their losses.
fn model() -> (Additive, Quantizations) {
    let input = |name: &str, layer: usize| PlannedInput {
        value: format!("layer.{layer}.{name}"),
        layers: Vec::new(),
        layer_loss: Some(layer as f64 * 1e-3),
        activation: Activation::Static {
            codes: DType::U8,
            scale: 1.0,
            zero_point: 0,
            split: Vec::new(),
            smooth: Vec::new(),
        },
    };
    let inputs: Vec<PlannedInput> = (0..16).flat_map(|layer| [input("a", layer), input("b", layer)]).collect();
    // Those of one role add ten times as much for the same loss.
    let adds = |input: &PlannedInput| {
        let factor = if input.value.ends_with('a') { 1e-1 } else { 1e-2 };
        (input.value.clone(), factor * input.layer_loss.unwrap())
    };
    let adds = inputs.iter().map(adds).collect();
    let quantization = Quantization { plan: Plan { inputs, ..Plan::default() }, ..Quantization::default() };
    (
        Additive { adds, evaluated: Vec::new() },
        Quantizations { layers: [("model".to_owned(), Arc::new(quantization))].into(), ..Quantizations::default() },
    )
}

fn searched(limits: &str) -> (Result<Within<Quantizations>>, Vec<(usize, bool)>) {
    let (mut model, quantizations) = model();
    let first = evaluation(model.adds.values().sum());
    let within = keep_within(&mut model, first, &quantizations, &limits.parse().unwrap());
    (within, model.evaluated)
}

#[test]
fn the_inputs_that_add_most_stay_in_float() {
    // All add 0.0132; the first five of role a leave 0.0132 - 0.0065.
    let (within, evaluated) = searched("error=0.007");
    let within = within.unwrap();
    let inputs = &within.quantizations.layers["model"].plan.inputs;
    let floats: Vec<(&str, String)> = inputs
        .iter()
        .filter(|input| input.activation.codes().is_none())
        .map(|input| (input.value.as_str(), input.activation.to_string()))
        .collect();
    let reason = |change: &str| format!("float: chosen by --max-loss: error {change}");
    let expected = [
        ("layer.11.a", reason("0.007800 -> 0.006700")),
        ("layer.12.a", reason("0.010300 -> 0.007800 by 2 of them together")),
        ("layer.13.a", reason("0.010300 -> 0.007800 by 2 of them together")),
        ("layer.14.a", reason("0.011700 -> 0.010300")),
        ("layer.15.a", reason("0.013200 -> 0.011700")),
    ];
    assert_eq!(floats, expected);
    assert!((within.evaluation.outputs[0].relative_error - 0.0067).abs() < 1e-9);
    // Each role alone, then powers of two, then halves.
    assert_eq!(
        evaluated,
        [(16, true), (16, true), (1, false), (2, false), (4, false), (8, false), (6, false), (5, false)]
    );
}

#[test]
fn the_weights_that_add_most_for_their_size_get_8_bits() {
    // What a weight adds is a product of what its role and its layer add; those of role a have half the elements.
    let form = WeightForm::Blocks { codes: DType::I4, block: Some(32), method: WeightMethod::Gptq, reason: None };
    let weight = |layer: usize, name: &str, elements: usize| PlannedWeight {
        weight: format!("layers.{layer}.{name}"),
        used_by: Vec::new(),
        elements,
        form: form.clone(),
    };
    let weights: Vec<PlannedWeight> =
        (0..4).flat_map(|layer| [weight(layer, "a", 100), weight(layer, "b", 200)]).collect();
    let adds = |weight: &PlannedWeight| {
        let layer: f64 = weight.weight[7..8].parse().unwrap();
        (weight.weight.clone(), 1e-3 * (1.0 + layer) * if weight.elements == 100 { 3.0 } else { 4.0 })
    };
    let mut model = Additive { adds: weights.iter().map(adds).collect(), evaluated: Vec::new() };
    let quantization = WeightQuantization { plan: WeightPlan { weights }, ..WeightQuantization::default() };
    let quantizations = Quantizations {
        weights: [("model".to_owned(), Arc::new(quantization))].into(),
        weight_bits: Some(Bits::Four),
        ..Quantizations::default()
    };
    // All add 0.07. For their size, a of layers 3 and 2 add most, then b of layer 3, as a of layer 1 does.
    let first = evaluation(model.adds.values().sum());
    let within = keep_within(&mut model, first, &quantizations, &"error=0.05".parse().unwrap()).unwrap();
    let kept = within.quantizations.weights["model"].plan.weights.iter();
    let kept: Vec<(&str, String)> = kept
        .filter(|weight| weight.form.codes() == Some(DType::I8))
        .map(|weight| (weight.weight.as_str(), weight.form.to_string()))
        .collect();
    let text = |change: &str| format!("i8, blocks of 32, mse: chosen by --max-loss: error {change}");
    assert_eq!(kept, [("layers.2.a", text("0.058000 -> 0.049000")), ("layers.3.a", text("0.070000 -> 0.058000")),]);
    // Two roles and four layers alone, then 1 and 2 weights.
    let alone = [(4, true), (4, true), (6, true), (6, true), (6, true), (6, true)];
    assert_eq!(model.evaluated, [&alone[..], &[(1, false), (2, false)]].concat());
}

#[test]
fn a_step_that_makes_the_figure_worse_is_left_out() {
    let (mut model, quantizations) = model();
    // What the second one adds takes away from what the others add.
    model.adds.insert("layer.14.a".to_owned(), -1e-3);
    let first = evaluation(model.adds.values().sum());
    let within = keep_within(&mut model, first, &quantizations, &"error=0.006".parse().unwrap()).unwrap();
    assert_eq!(within.unreached, None);
    let inputs = &within.quantizations.layers["model"].plan.inputs;
    let is_float = |input: &&PlannedInput| input.activation.codes().is_none();
    let floats: Vec<&str> = inputs.iter().filter(is_float).map(|input| input.value.as_str()).collect();
    assert_eq!(floats, ["layer.11.a", "layer.12.a", "layer.13.a", "layer.15.a"]);
    assert!((within.evaluation.outputs[0].relative_error - 0.0057).abs() < 1e-9);
}

/// The last eight are divided into steps of 4, 2, 1 and 1, of which two make the figure worse.
#[test]
fn all_steps_that_make_the_figure_worse_are_left_out() {
    let (mut model, quantizations) = model();
    model.adds.insert("layer.3.a".to_owned(), -2.1e-4);
    model.adds.insert("layer.15.b".to_owned(), -2e-5);
    let first = evaluation(model.adds.values().sum());
    let within = keep_within(&mut model, first, &quantizations, &"error=0.0011".parse().unwrap()).unwrap();
    assert_eq!(within.unreached, None);
    let inputs = &within.quantizations.layers["model"].plan.inputs;
    let floats = inputs.iter().filter(|input| input.activation.codes().is_none());
    let floats: Vec<&str> = floats.map(|input| input.value.as_str()).collect();
    let expected: Vec<String> = (4..16).map(|layer| format!("layer.{layer}.a")).collect();
    let mut expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    expected.insert(11, "layer.14.b");
    assert_eq!(floats, expected);
    assert!((within.evaluation.outputs[0].relative_error - 0.98e-3).abs() < 1e-9);
    // The steps after the first of them have figures together.
    let last = inputs.iter().find(|input| input.value == "layer.14.b").unwrap();
    assert_eq!(last.activation.to_string(), "float: chosen by --max-loss: error 0.001120 -> 0.000980");
    assert_eq!(model.evaluated.iter().filter(|(_, rough)| !rough).count(), 5 + 3 + 2);
}

#[test]
fn limits_that_no_set_meets_are_unreached() {
    let (within, evaluated) = searched("error=-1");
    let within = within.unwrap();
    assert_eq!(
        within.unreached.unwrap().to_string(),
        "no set of inputs in float meets --max-loss; even with all 32 in float, error is 0.000000, at most -1 required"
    );
    assert!(evaluated.len() <= 8, "{evaluated:?}");
    assert!(within.quantizations.layers["model"].plan.inputs.iter().all(|input| input.activation.codes().is_none()));
    let (within, _) = searched("error=0");
    assert!(within.unwrap().evaluation.outputs[0].relative_error == 0.0);
}
