//! Keeping inputs of linear layers in float until an artifact meets limits on data that was held out.
//!
//! Errors of inputs add up, so the inputs are ordered by what each adds, and the least number of the first ones is searched
//! for that meets the limits: 1, 2, 4 and so on, then halfway between what misses and what meets. What an input adds is not
//! measured one by one: inputs of one role, whose names differ in numbers only, are quantized alone, and share what that
//! adds by the losses of their layers.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use planish_passes::quantize::{Activation, Plan};

use super::Quantizations;
use crate::evaluate::{Evaluation, Figure, Requirements};

/// The most roles that are measured. Names that say nothing of roles would take an evaluation each.
const MOST_ROLES: usize = 24;

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

/// An artifact that meets the limits.
pub struct Within<M> {
    /// The artifact.
    pub made: M,
    /// Its figures.
    pub evaluation: Evaluation,
    /// How it is quantized; inputs that are kept in float have what they buy as the reason.
    pub quantizations: Quantizations,
}

/// The limits cannot be met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no set of inputs in float meets --max-loss; with all {inputs} in float {}", .misses.join(", "))]
pub struct Unreached {
    /// How many inputs and attentions are quantized otherwise.
    pub inputs: usize,
    /// What misses its limit even then.
    pub misses: Vec<String>,
}

/// A quantized input: the part, and its place in the plan. Attentions, whose queries and keys are quantized, come behind the
/// inputs of layers.
type Input = (String, usize);

/// Keeps as few inputs in float as the limits allow, of an artifact that misses them. The first artifact and its figures are
/// those with all inputs quantized.
///
/// # Errors
/// [`Unreached`] when the limits are missed with all inputs in float; also when an artifact cannot be made or evaluated.
pub fn keep_within<T: Trials>(
    trials: &mut T,
    first: Evaluation,
    quantizations: &Quantizations,
    limits: &Requirements,
) -> Result<Within<T::Made>> {
    let order = ordered(trials, quantizations)?;
    let mut measured = BTreeMap::from([(0, first)]);
    let mut best = None;
    // `low` inputs in float miss the limits, and `high` meet them or are more than there are.
    let (mut low, mut high, mut next) = (0, order.len() + 1, 1);
    while low + 1 < high {
        let made = trials.make(kept(quantizations, &order[..next], |_| String::new()))?;
        let evaluation = trials.evaluate(&made, false)?;
        match misses(limits, &evaluation)?.is_empty() {
            true => (high, best) = (next, Some(made)),
            false => low = next,
        }
        measured.insert(next, evaluation);
        next = if best.is_some() { low.midpoint(high) } else { order.len().min(2 * next) };
    }
    let (Some(made), Some(evaluation)) = (best, measured.get(&high)) else {
        let misses = measured.get(&low).map(|evaluation| misses(limits, evaluation)).transpose()?;
        return Err(Unreached { inputs: order.len(), misses: misses.unwrap_or_default() }.into());
    };
    let reason = |rank: usize| {
        let (before, after) = (measured.range(..=rank).next_back(), measured.range(rank + 1..).next());
        let (Some((fewer, before)), Some((more, after))) = (before, after) else { return String::new() };
        let together = match more - fewer {
            1 => String::new(),
            count => format!(" by {count} inputs together"),
        };
        format!("kept by --max-loss: {}{together}", limits.change(before, after))
    };
    let quantizations = kept(quantizations, &order[..high], reason);
    Ok(Within { made, evaluation: evaluation.clone(), quantizations })
}

/// What of an evaluation misses its limit.
fn misses(limits: &Requirements, evaluation: &Evaluation) -> Result<Vec<String>> {
    limits.misses(evaluation).map_err(|reason| anyhow!(reason))
}

/// The quantizations with some inputs in float, each with a reason by its rank.
fn kept(quantizations: &Quantizations, inputs: &[Input], reason: impl Fn(usize) -> String) -> Quantizations {
    let mut kept = quantizations.clone();
    for (rank, (part, place)) in inputs.iter().enumerate() {
        let plan = kept.get_mut(part).map(|quantization| &mut Arc::make_mut(quantization).plan);
        let Some(plan) = plan else { continue };
        let float = Activation::Float { reason: reason(rank) };
        let inputs = plan.inputs.len();
        if let Some(input) = plan.inputs.get_mut(*place) {
            (input.activation, input.layer_loss) = (float, None);
        } else if let Some(attention) = plan.attention.get_mut(place - inputs) {
            (attention.queries, attention.keys) = (float.clone(), float);
            (attention.values, attention.score_loss) = (None, None);
        }
    }
    kept
}

/// The quantized inputs, those that add most to the error of the model first.
fn ordered<T: Trials>(trials: &mut T, quantizations: &Quantizations) -> Result<Vec<Input>> {
    let mut roles: BTreeMap<String, Vec<(Input, f64)>> = BTreeMap::new();
    for (part, quantization) in quantizations {
        let Plan { inputs, attention } = &quantization.plan;
        let inputs = inputs.iter().map(|input| (role(&input.value), &input.activation, input.layer_loss));
        // The result of an attention is an input too, so the role of its scores needs another name.
        let attention = attention.iter().map(|a| (role(&a.attention) + " scores", &a.queries, a.score_loss));
        for (place, (role, activation, loss)) in inputs.chain(attention).enumerate() {
            if activation.codes().is_some() {
                roles.entry(role).or_default().push(((part.clone(), place), loss.unwrap_or_default()));
            }
        }
    }
    let all: Vec<Input> = roles.values().flatten().map(|(input, _)| input.clone()).collect();
    let are_measured = (2..=MOST_ROLES).contains(&roles.len());
    let mut weighted = Vec::with_capacity(all.len());
    for inputs in roles.into_values() {
        let added = if are_measured { added(trials, quantizations, &all, &inputs)? } else { 1.0 };
        let sum: f64 = if are_measured { inputs.iter().map(|(_, loss)| loss).sum() } else { 1.0 };
        let share = |loss: f64| if sum > 0.0 { loss / sum } else { 1.0 / inputs.len() as f64 };
        weighted.extend(inputs.iter().map(|(input, loss)| (added * share(*loss), input.clone())));
    }
    weighted.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    Ok(weighted.into_iter().map(|(_, input)| input).collect())
}

/// How far some inputs alone turn the results of the model.
fn added<T: Trials>(
    trials: &mut T,
    quantizations: &Quantizations,
    all: &[Input],
    alone: &[(Input, f64)],
) -> Result<f64> {
    let alone: HashSet<&Input> = alone.iter().map(|(input, _)| input).collect();
    let others: Vec<Input> = all.iter().filter(|input| !alone.contains(input)).cloned().collect();
    let made = trials.make(kept(quantizations, &others, |_| String::new()))?;
    let evaluation = trials.evaluate(&made, true)?;
    Ok(evaluation.figure(Figure::Cosine).map_or(0.0, |cosine| {
        // A result that is no number is the worst.
        if cosine.is_nan() { f64::INFINITY } else { (1.0 - cosine).max(0.0) }
    }))
}

/// The role of an input: its name without the numbers in it.
fn role(name: &str) -> String {
    name.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use planish_ir::DType;
    use planish_passes::quantize::{PlannedInput, Quantization};

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
            let inputs = || made.values().flat_map(|quantization| &quantization.plan.inputs);
            let is_float = |input: &&PlannedInput| input.activation.codes().is_none();
            self.evaluated.push((inputs().filter(is_float).count(), rough));
            Ok(evaluation(
                inputs().filter(|input| !is_float(input)).fold(0.0, |sum, input| sum + self.adds[&input.value]),
            ))
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
        (Additive { adds, evaluated: Vec::new() }, [("model".to_owned(), Arc::new(quantization))].into())
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
        let inputs = &within.quantizations["model"].plan.inputs;
        let floats: Vec<(&str, String)> = inputs
            .iter()
            .filter(|input| input.activation.codes().is_none())
            .map(|input| (input.value.as_str(), input.activation.to_string()))
            .collect();
        let reason = |change: &str| format!("float: kept by --max-loss: error {change}");
        let expected = [
            ("layer.11.a", reason("0.007800 -> 0.006700")),
            ("layer.12.a", reason("0.010300 -> 0.007800 by 2 inputs together")),
            ("layer.13.a", reason("0.010300 -> 0.007800 by 2 inputs together")),
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
    fn limits_that_no_set_meets_are_an_error() {
        let (within, evaluated) = searched("error=-1");
        let Err(error) = within else { panic!("no error is below 0") };
        assert_eq!(
            error.to_string(),
            "no set of inputs in float meets --max-loss; with all 32 in float error is 0.000000, at most -1 required"
        );
        assert!(evaluated.len() <= 8, "{evaluated:?}");
        let (within, _) = searched("error=0");
        assert!(within.unwrap().evaluation.outputs[0].relative_error == 0.0);
    }
}
