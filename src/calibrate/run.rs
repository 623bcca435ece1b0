//! Running parts on batches, and folding the results of the observers.

use anyhow::{Context, Result, anyhow, bail};
use planish_eval::Tensor;
use planish_passes::observe::{Observed, observed, scores_of};
use planish_passes::{CalibrationTable, Range};
use planish_runtimes::RuntimeValue;

use super::sessions::{ObservedPart, Sessions};
use crate::artifact::manifest::{Input, PartManifest};
use crate::chain::{DECODER_WITH_PAST, columns, input_of_model, output_of_model};

/// What a decoder behind an encoder reads, by its name in the model.
const DECODER_IDS: &str = "decoder_input_ids";

/// A model's parts, one after another.
pub(super) struct Runner<'a> {
    parts: Vec<&'a PartManifest>,
    sessions: Sessions,
}

impl<'a> Runner<'a> {
    /// For the parts in the order in which one takes what others give.
    pub(super) fn new(parts: Vec<&'a PartManifest>, sessions: Sessions) -> Self {
        Self { parts, sessions }
    }

    /// Runs a batch of the model's inputs, and folds what is seen into a table. The first decoder of an
    /// encoder-decoder takes the first half of the decoder's tokens, that with a cache the rest.
    pub(super) fn run(&mut self, inputs: Vec<(String, Tensor)>, table: &mut CalibrationTable) -> Result<()> {
        let alone = self.parts.len() == 1;
        let mut rest = None;
        let mut known: Vec<(String, RuntimeValue)> = Vec::new();
        for (name, tensor) in inputs {
            let tensor = match tensor.shape() {
                [_, tokens] if !alone && name == DECODER_IDS => {
                    let half = tokens.div_ceil(2);
                    rest = Some(columns(&tensor, half, *tokens));
                    columns(&tensor, 0, half)
                }
                _ => tensor,
            };
            known.push((name, tensor.into()));
        }
        for part in &self.parts {
            if part.name == DECODER_WITH_PAST {
                let Some(ids) = rest.take().filter(|ids| !ids.shape().contains(&0)) else { continue };
                known.retain(|(name, _)| name != DECODER_IDS);
                known.push((DECODER_IDS.to_owned(), ids.into()));
            }
            let running = self.sessions.parts.get_mut(&part.name).with_context(|| format!("no {}", part.name))?;
            let input = |input: &'a Input| {
                let name = input.value.name.as_str();
                let wanted = if alone { name.into() } else { input_of_model(&part.name, name) };
                let value = known.iter().find(|(other, _)| *other == wanted);
                Ok((name, &value.with_context(|| format!("nothing gives the input `{name}` of {}", part.name))?.1))
            };
            let inputs = part.inputs.iter().map(input).collect::<Result<Vec<_>>>()?;
            let outputs = running.session.run_values(&inputs)?;
            let own = fold(part, running, outputs, table)?;
            for (name, value) in own {
                let name = if alone { name } else { output_of_model(&part.name, &name).to_owned() };
                known.retain(|(other, _)| *other != name);
                known.push((name, value));
            }
        }
        Ok(())
    }

    /// Checks that every part was run.
    pub(super) fn check_seen(&self, table: &CalibrationTable) -> Result<()> {
        match self.parts.iter().find(|part| table.part(&part.name).is_none()) {
            None => Ok(()),
            Some(part) => bail!(
                "{} was not run: {DECODER_IDS} have one token everywhere, and it continues from a first one",
                part.name
            ),
        }
    }
}

/// What the observers of a value say.
struct Seen {
    value: String,
    range: Range,
    nan: bool,
}

/// Folds what observers gave; returns what else the part gave.
fn fold(
    part: &PartManifest,
    running: &ObservedPart,
    outputs: Vec<(String, RuntimeValue)>,
    table: &mut CalibrationTable,
) -> Result<Vec<(String, RuntimeValue)>> {
    let mut own = Vec::new();
    let mut all: Vec<Seen> = Vec::new();
    for (name, output) in outputs {
        let Some((kind, value)) = observed(&name) else {
            own.push((name, output));
            continue;
        };
        let tensor = output.to_tensor().with_context(|| format!("`{name}` cannot be read"))?;
        let number = tensor.to_f64().first().copied().with_context(|| format!("`{name}` is empty"))?;
        if all.last().is_none_or(|seen| seen.value != value) {
            all.push(Seen { value: value.to_owned(), range: Range::EMPTY, nan: false });
        }
        let Some(seen) = all.last_mut() else { continue };
        match kind {
            Observed::Min => seen.range.min = number,
            Observed::Max => seen.range.max = number,
            Observed::Nan => seen.nan = number > 0.0,
        }
    }
    if let Some(broken) = all.iter().find(|seen| seen.nan) {
        return Err(not_finite(part, running, &all, broken));
    }
    all.iter().for_each(|seen| table.record(&part.name, &seen.value, seen.range));
    Ok(own)
}

/// The error on a value that is not a number. What is infinite before it may be where it comes from.
fn not_finite(part: &PartManifest, running: &ObservedPart, all: &[Seen], broken: &Seen) -> anyhow::Error {
    let named = |seen: &Seen| {
        let name = scores_of(&seen.value).unwrap_or(&seen.value);
        let origin = running.origins.get(&seen.value).or_else(|| running.origins.get(name));
        format!("`{}` of {} ({})", seen.value, part.name, origin.map_or("unknown origin", String::as_str))
    };
    if part.inputs.iter().any(|input| input.value.name == broken.value) {
        return anyhow!("the input {} contains NaN, but the data must be finite", named(broken));
    }
    let infinite = |seen: &&Seen| !seen.range.is_empty() && seen.range.magnitude() == f64::INFINITY;
    let before = all.iter().take_while(|seen| seen.value != broken.value).find(infinite);
    let cause = before.map_or_else(String::new, |seen| format!(", after {}, which is infinite", named(seen)));
    anyhow!(
        "{} is NaN as the model computes it{cause}: no precision can be chosen by that; check the checkpoint and \
         the data",
        named(broken)
    )
}
