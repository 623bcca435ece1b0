//! Keeping inputs of linear layers in float until an artifact meets limits on data that was held out.
//!
//! Errors of inputs add up, so the inputs are ordered by what each adds, and the least number of the first ones is searched
//! for that meets the limits: 1, 2, 4 and so on, then halfway between what misses and what meets. What an input adds is not
//! measured one by one: inputs of one role, whose names differ in numbers only, are quantized alone, and share what that
//! adds by the losses of their layers.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use planish_passes::quantize::Activation;

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
#[error("no set of inputs in float meets --max-loss; with all {inputs} inputs in float {}", .misses.join(", "))]
pub struct Unreached {
    /// How many inputs are quantized otherwise.
    pub inputs: usize,
    /// What misses its limit even then.
    pub misses: Vec<String>,
}

/// A quantized input: the part, and its place in the plan.
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
        if let Some(input) = plan.and_then(|plan| plan.inputs.get_mut(*place)) {
            (input.activation, input.layer_loss) = (Activation::Float { reason: reason(rank) }, None);
        }
    }
    kept
}

/// The quantized inputs, those that add most to the error of the model first.
fn ordered<T: Trials>(trials: &mut T, quantizations: &Quantizations) -> Result<Vec<Input>> {
    let mut roles: BTreeMap<String, Vec<(Input, f64)>> = BTreeMap::new();
    for (part, quantization) in quantizations {
        for (place, input) in quantization.plan.inputs.iter().enumerate() {
            if input.activation.codes().is_some() {
                let of_role = roles.entry(role(&input.value)).or_default();
                of_role.push(((part.clone(), place), input.layer_loss.unwrap_or_default()));
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
    Ok(evaluation.figure(Figure::Cosine).map_or(0.0, |cosine| (1.0 - cosine).max(0.0)))
}

/// The role of an input: its name without the numbers in it.
fn role(name: &str) -> String {
    name.chars().filter(|c| !c.is_ascii_digit()).collect()
}
