//! Raising the precision of inputs or weights until an artifact meets limits on data that was held out.
//!
//! Errors add up, so the candidates are ordered by what each adds, for each byte where bytes matter, and the least number of
//! the first ones is searched for that meets the limits: 1, 2, 4 and so on, then halfway between what misses and what meets.
//! What a candidate adds is not measured one by one: candidates of one role, whose names differ in numbers only, are quantized
//! alone, and share what that adds by their losses. Weights of one layer are quantized alone too, or those of a few
//! neighbouring layers of a deep model. A weight is taken to add the product of what its role and its layers add.

use std::collections::{BTreeMap, HashSet};

use anyhow::Result;

use super::candidates::{Candidate, LAYERS, Place, Quantizations};
use crate::evaluate::{Evaluation, Figure, Requirements};

/// The most groups of a kind that are measured. Names that say nothing of roles would take an evaluation each.
const MOST_GROUPS: usize = 24;

/// Makes artifacts and evaluates them.
pub trait Trials {
    /// An artifact.
    type Made;

    /// Makes an artifact of these quantizations.
    ///
    /// # Errors
    /// When that is impossible.
    fn make(&mut self, quantizations: Quantizations) -> Result<Self::Made>;

    /// Evaluates it on the data that was held out: on a few samples where a rough figure is enough.
    ///
    /// # Errors
    /// When a run fails.
    fn evaluate(&mut self, made: &Self::Made, rough: bool) -> Result<Evaluation>;
}

/// The artifact that a search ends with.
pub struct Within<M> {
    /// The artifact.
    pub made: M,
    /// Its figures.
    pub evaluation: Evaluation,
    /// How it is quantized; what is kept has what it buys as the reason.
    pub quantizations: Quantizations,
    /// Why it misses the limits, if it does: then all candidates are raised.
    pub unreached: Option<Unreached>,
}

/// The limits cannot be met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no set of {} meets --max-loss; even with all {count} {}, {}", .kinds.join(" "), .kinds[1], .misses.join(", "))]
pub struct Unreached {
    /// How many candidates there are.
    pub count: usize,
    /// What they are, in the plural, and what they become.
    pub kinds: [&'static str; 2],
    /// What misses its limit even then.
    pub misses: Vec<String>,
}

/// Raises the precision of as few candidates as the limits allow, of an artifact that misses them. The first artifact and its
/// figures are those with all of them quantized as `quantizations` says.
///
/// # Errors
/// When an artifact cannot be made or evaluated.
pub fn keep_within<T: Trials>(
    trials: &mut T,
    first: Evaluation,
    quantizations: &Quantizations,
    limits: &Requirements,
) -> Result<Within<T::Made>> {
    let order = ordered(trials, quantizations)?;
    let mut measured = BTreeMap::from([(0, first)]);
    let (mut best, mut last) = (None, None);
    // `low` raised candidates miss the limits, and `high` meet them or are more than there are.
    let (mut low, mut high, mut next) = (0, order.len() + 1, 1);
    while low + 1 < high {
        let made = trials.make(quantizations.kept(&order[..next], |_| String::new()))?;
        let evaluation = trials.evaluate(&made, false)?;
        match limits.misses(&evaluation)?.is_empty() {
            true => (high, best) = (next, Some(made)),
            false => (low, last) = (next, Some(made)),
        }
        measured.insert(next, evaluation);
        next = if best.is_some() { low.midpoint(high) } else { order.len().min(2 * next) };
    }
    let count = if best.is_some() { high } else { low };
    let made = match best.or(last) {
        Some(made) => made,
        // There is nothing to raise.
        None => trials.make(quantizations.clone())?,
    };
    let evaluation = &measured[&count];
    let misses = limits.misses(evaluation)?;
    let unreached = (!misses.is_empty()).then(|| Unreached { count, kinds: quantizations.kinds(), misses });
    let reason = |rank: usize| {
        let (before, after) = (measured.range(..=rank).next_back(), measured.range(rank + 1..).next());
        let (Some((fewer, before)), Some((more, after))) = (before, after) else { return String::new() };
        let together = match more - fewer {
            1 => String::new(),
            count => format!(" by {count} of them together"),
        };
        format!("chosen by --max-loss: {}{together}", limits.change(before, after))
    };
    let quantizations = quantizations.kept(&order[..count], reason);
    Ok(Within { made, evaluation: evaluation.clone(), quantizations, unreached })
}

/// The candidates, those that add most to the error of the model first.
fn ordered<T: Trials>(trials: &mut T, quantizations: &Quantizations) -> Result<Vec<Place>> {
    let candidates = quantizations.candidates();
    let mut weighted: Vec<(f64, &Place)> = candidates.iter().map(|of| (1.0 / of.cost, &of.place)).collect();
    for kind in 0..candidates.iter().map(|of| of.groups.len()).max().unwrap_or_default() {
        let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, of) in candidates.iter().enumerate() {
            groups.entry(&of.groups[kind]).or_default().push(i);
        }
        let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
        // Candidates come in the order of the graph, and so do neighbours.
        groups.sort_unstable();
        if kind == LAYERS {
            let together = groups.len().div_ceil(MOST_GROUPS).max(1);
            groups = groups.chunks(together).map(<[_]>::concat).collect();
        }
        let are_measured = (2..=MOST_GROUPS).contains(&groups.len());
        for group in groups {
            let losses = || group.iter().map(|i| candidates[*i].loss);
            let added = if are_measured { added(trials, quantizations, &candidates, &group)? } else { 1.0 };
            let sum: f64 = if are_measured { losses().sum() } else { 1.0 };
            for (i, loss) in group.iter().zip(losses()) {
                weighted[*i].0 *= added * if sum > 0.0 { loss / sum } else { 1.0 / group.len() as f64 };
            }
        }
    }
    weighted.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    Ok(weighted.into_iter().map(|(_, place)| place.clone()).collect())
}

/// How far some candidates alone turn the results of the model.
fn added<T: Trials>(trials: &mut T, quantizations: &Quantizations, all: &[Candidate], alone: &[usize]) -> Result<f64> {
    let alone: HashSet<&Place> = alone.iter().map(|i| &all[*i].place).collect();
    let others: Vec<Place> = all.iter().map(|of| &of.place).filter(|place| !alone.contains(place)).cloned().collect();
    let made = trials.make(quantizations.kept(&others, |_| String::new()))?;
    let evaluation = trials.evaluate(&made, true)?;
    Ok(evaluation.figure(Figure::Cosine).map_or(0.0, |cosine| {
        // A result that is no number is the worst.
        if cosine.is_nan() { f64::INFINITY } else { (1.0 - cosine).max(0.0) }
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use planish_ir::DType;
    use planish_passes::quantize::{
        Activation, Bits, Plan, PlannedInput, PlannedWeight, Quantization, WeightForm, WeightMethod, WeightPlan,
        WeightQuantization,
    };

    use super::*;
    use crate::artifact::manifest::File;
    use crate::data::Split;
    use crate::evaluate::OutputFigures;

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
            outputs: vec![OutputFigures { part, output, relative_error: error, cosine: 1.0 - error }],
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
    fn limits_that_no_set_meets_are_unreached() {
        let (within, evaluated) = searched("error=-1");
        let within = within.unwrap();
        assert_eq!(
            within.unreached.unwrap().to_string(),
            "no set of inputs in float meets --max-loss; even with all 32 in float, error is 0.000000, at most -1 required"
        );
        assert!(evaluated.len() <= 8, "{evaluated:?}");
        assert!(
            within.quantizations.layers["model"].plan.inputs.iter().all(|input| input.activation.codes().is_none())
        );
        let (within, _) = searched("error=0");
        assert!(within.unwrap().evaluation.outputs[0].relative_error == 0.0);
    }
}
