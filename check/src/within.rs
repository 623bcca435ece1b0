//! Raising the precision of inputs or weights until an artifact meets limits on data that was held out.
//!
//! Errors add up, so the candidates are ordered by what each adds, for each byte where bytes matter, and the least number of
//! the first ones is searched for that meets the limits: 1, 2, 4 and so on, then halfway between what misses and what meets.
//! A step that brings the figures no nearer to the limits is left out.
//! What a candidate adds is not measured one by one: candidates of one role, whose names differ in numbers only, are quantized
//! alone, and share what that adds by their losses. Weights of one layer are quantized alone too, or those of a few
//! neighbouring layers of a deep model. A weight is taken to add the product of what its role and its layers add.

use std::collections::{BTreeMap, HashSet};

use anyhow::Result;
use planish_artifact::evaluation::{Evaluation, Figure, Requirements};
use planish_compiler::quantize::{BY_LIMITS, Candidate, LAYERS, Place, Quantizations};

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

/// Candidates that were raised together, and the figures before and after.
struct Step {
    places: Vec<Place>,
    before: Evaluation,
    after: Evaluation,
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
    let mut search = Search { trials, quantizations, limits, steps: Vec::new() };
    let (mut current, mut last, mut skipped) = (first, None, Vec::new());
    let mut tried = 0;
    while tried < order.len() {
        let next = order.len().min((2 * tried).max(1));
        let places = &order[tried..next];
        let (made, after) = search.tried(places)?;
        if limits.misses(&after)?.is_empty() {
            return search.narrowed(places, current, (made, after));
        }
        tried = next;
        if limits.excess(&after) < limits.excess(&current) {
            search.steps.push(Step { places: places.to_vec(), before: current, after: after.clone() });
            (current, last) = (after, Some(made));
        } else {
            skipped.extend_from_slice(places);
        }
    }
    if !skipped.is_empty() {
        // What helps nothing after some candidates may help after all of them.
        let (made, after) = search.tried(&skipped)?;
        if limits.misses(&after)?.is_empty() {
            return search.narrowed(&skipped, current, (made, after));
        }
        search.steps.push(Step { places: skipped, before: current, after: after.clone() });
        (current, last) = (after, Some(made));
    }
    let made = match last {
        Some(made) => made,
        // There is nothing to raise.
        None => search.trials.make(quantizations.clone())?,
    };
    let misses = limits.misses(&current)?;
    let unreached = Some(Unreached { count: order.len(), kinds: quantizations.kinds(), misses });
    Ok(search.end(made, current, unreached.filter(|unreached| !unreached.misses.is_empty())))
}

/// The steps that helped.
struct Search<'a, T> {
    trials: &'a mut T,
    quantizations: &'a Quantizations,
    limits: &'a Requirements,
    steps: Vec<Step>,
}

impl<T: Trials> Search<'_, T> {
    /// An artifact with the candidates of all steps and further ones raised.
    fn tried(&mut self, more: &[Place]) -> Result<(T::Made, Evaluation)> {
        let raised = self.steps.iter().flat_map(|step| &step.places).chain(more);
        let raised: Vec<Place> = raised.cloned().collect();
        let made = self.trials.make(self.quantizations.kept(&raised, |_| BY_LIMITS.to_owned()))?;
        let evaluation = self.trials.evaluate(&made, false)?;
        Ok((made, evaluation))
    }

    /// Ends with the least number of the first candidates that meet the limits, all of which do.
    fn narrowed(
        mut self,
        places: &[Place],
        before: Evaluation,
        (mut made, after): (T::Made, Evaluation),
    ) -> Result<Within<T::Made>> {
        let mut measured = BTreeMap::from([(0, before), (places.len(), after)]);
        // `low` of them miss the limits, and `high` meet them.
        let (mut low, mut high) = (0, places.len());
        while low + 1 < high {
            let next = low.midpoint(high);
            let (other, evaluation) = self.tried(&places[..next])?;
            match self.limits.misses(&evaluation)?.is_empty() {
                true => (high, made) = (next, other),
                false => low = next,
            }
            measured.insert(next, evaluation);
        }
        let figures: Vec<(usize, Evaluation)> = measured.into_iter().filter(|(count, _)| *count <= high).collect();
        for pair in figures.windows(2) {
            let [(from, before), (to, after)] = pair else { continue };
            let (before, after) = (before.clone(), after.clone());
            self.steps.push(Step { places: places[*from..*to].to_vec(), before, after });
        }
        let mut evaluation = match figures.into_iter().next_back() {
            Some((_, evaluation)) => evaluation,
            None => self.trials.evaluate(&made, false)?,
        };
        // A step that made the figures worse goes, where the others meet the limits without it. What the figures of the steps
        // after it were before, they are no more.
        let mut changed: Option<(usize, Evaluation)> = None;
        let limits = self.limits;
        let harms = |step: &Step| limits.excess(&step.after) >= limits.excess(&step.before);
        while let Some(at) = self.steps.iter().position(harms) {
            let harmful = self.steps.remove(at);
            let (other, after) = self.tried(&[])?;
            if !self.limits.misses(&after)?.is_empty() {
                self.steps.insert(at, harmful);
                break;
            }
            (made, evaluation) = (other, after);
            changed.get_or_insert((at, harmful.before));
        }
        if let Some((at, before)) = changed {
            let places: Vec<Place> = self.steps.split_off(at).into_iter().flat_map(|step| step.places).collect();
            self.steps.push(Step { places, before, after: evaluation.clone() });
        }
        Ok(self.end(made, evaluation, None))
    }

    fn end(self, made: T::Made, evaluation: Evaluation, unreached: Option<Unreached>) -> Within<T::Made> {
        let (mut places, mut reasons) = (Vec::new(), Vec::new());
        for Step { places: own, before, after } in &self.steps {
            let together = match own.len() {
                1 => String::new(),
                count => format!(" by {count} of them together"),
            };
            let reason = format!("{BY_LIMITS}: {}{together}", self.limits.change(before, after));
            reasons.extend(own.iter().map(|_| reason.clone()));
            places.extend(own.iter().cloned());
        }
        let quantizations = self.quantizations.kept(&places, |rank| reasons.get(rank).cloned().unwrap_or_default());
        Within { made, evaluation, quantizations, unreached }
    }
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
mod tests;
