//! Running parts on batches, and handing over what the observers give.

use std::collections::BTreeSet;
use std::ops::Range as Samples;

use anyhow::{Context, Result, anyhow, bail};
use planish_artifact::chain::columns;
use planish_artifact::interface_of;
use planish_artifact::manifest::{Input, PartManifest};
use planish_data::{Batch, Writing};
use planish_eval::Tensor;
use planish_ir::{Bindings, InputRole, Interface, OutputRole, PartRole};
use planish_models::names::{DECODER_INPUT_IDS, input_in_model, output_in_model};
use planish_passes::Range;
use planish_passes::calibration::RowId;
use planish_passes::observe::{Observed, observed, observed_choices, observed_tensor, scores_of};
use planish_runtimes::RuntimeValue;

use super::layout::Given;
use super::sessions::{ObservedPart, Sessions};

/// How many bytes the inputs of linear layers of one run may have. A batch that has more is run in several portions;
/// a sample that has more is run alone.
const PORTION_BYTES: u64 = 48 << 20;

/// A model's parts, one after another.
pub(super) struct Runner<'a> {
    parts: Vec<&'a PartManifest>,
    interface: Interface,
    sessions: Sessions,
    /// The names of the parts that were run.
    ran: BTreeSet<String>,
    /// How a decoder writes the texts that it reads, where the data has none.
    writing: Option<Writing>,
}

/// An input of linear layers as one run gave it.
pub(super) struct Captured {
    /// The name of the value.
    pub(super) value: String,
    /// Where it came from.
    pub(super) origin: String,
    /// The elements, float32, [.., columns].
    pub(super) tensor: RuntimeValue,
    /// What each row is; `None` for padding.
    pub(super) ids: Vec<Option<RowId>>,
}

/// The experts that tokens took in one run of a mixture.
pub(super) struct Choices {
    /// The name of what the mixture gives.
    pub(super) result: String,
    /// The name of what its experts take.
    pub(super) x: String,
    /// How many experts there are.
    pub(super) experts: usize,
    /// The experts of each row, [rows, k]. An index below 0 is one that no expert has.
    pub(super) indices: Vec<usize>,
    /// What each row is; `None` for padding.
    pub(super) ids: Vec<Option<RowId>>,
}

impl Choices {
    /// The experts of the rows that count.
    pub(super) fn kept(&self) -> impl Iterator<Item = &[usize]> {
        let taken = (self.indices.len() / self.ids.len().max(1)).max(1);
        self.ids.iter().zip(self.indices.chunks(taken)).filter_map(|(id, chosen)| id.map(|_| chosen))
    }
}

/// Takes what is observed.
pub(super) trait Sink {
    /// The ranges of values in a run of a part, in the order in which the values are computed.
    fn ranges(&mut self, part: &str, seen: Vec<Seen>);
    /// The inputs of linear layers in a run of a part, and the experts that tokens took.
    ///
    /// # Errors
    /// When they cannot be used; the run ends.
    fn inputs(&mut self, part: &str, inputs: &[Captured], choices: &[Choices]) -> Result<()>;
}

/// Some samples of a batch.
struct Portion {
    samples: Samples<usize>,
    inputs: Vec<(String, Tensor)>,
    decoder_mask: Option<Tensor>,
}

impl<'a> Runner<'a> {
    /// For the parts in the order in which one takes what others give.
    pub(super) fn new(parts: Vec<&'a PartManifest>, sessions: Sessions) -> Self {
        Self { interface: interface_of(parts.iter().copied()), parts, sessions, ran: BTreeSet::new(), writing: None }
    }

    /// Lets the decoder write the texts that it reads: batches have the first id of each.
    pub(super) fn write_texts(&mut self, writing: Option<Writing>) {
        self.writing = writing;
    }

    /// Runs a batch of the model's inputs. The first decoder of an encoder-decoder takes the first half of the
    /// decoder's tokens, that with a cache the rest.
    pub(super) fn run(&mut self, batch: Batch, sink: &mut dyn Sink) -> Result<()> {
        let portions = self.portions(&batch);
        if portions <= 1 {
            let Batch { samples, inputs, decoder_mask, .. } = batch;
            return self.run_portion(Portion { samples, inputs, decoder_mask }, sink);
        }
        let size = batch.samples.len().div_ceil(portions);
        for from in (0..batch.samples.len()).step_by(size) {
            let to = batch.samples.len().min(from + size);
            let rows = |tensor: &Tensor| rows(tensor, from, to).context("the inputs of a batch cannot be divided");
            let input = |(name, tensor): &(String, Tensor)| Ok((name.clone(), rows(tensor)?));
            let portion = Portion {
                samples: batch.samples.start + from..batch.samples.start + to,
                inputs: batch.inputs.iter().map(input).collect::<Result<_>>()?,
                decoder_mask: batch.decoder_mask.as_ref().map(rows).transpose()?,
            };
            self.run_portion(portion, sink)?;
        }
        Ok(())
    }

    /// How many portions a batch is run in. It depends on the model and the sizes of the batch alone.
    fn portions(&self, batch: &Batch) -> usize {
        let count = batch.samples.len();
        let divisible = |tensor: &Tensor| tensor.shape().first() == Some(&count);
        // Rows of a model with a fixed number of them stay together.
        let ports = self.parts.iter().flat_map(|part| &part.inputs);
        let fixed =
            ports.into_iter().any(|port| port.value.dims().first().is_none_or(|dim| dim.as_constant().is_some()));
        if fixed || count == 1 || !batch.inputs.iter().all(|(_, tensor)| divisible(tensor)) {
            return 1;
        }
        let alone = self.parts.len() == 1;
        let longest = batch.inputs.iter().filter_map(|(_, tensor)| tensor.shape().get(1)).max().copied().unwrap_or(1);
        let bytes = |part: &&PartManifest| -> u64 {
            let mut sizes = Bindings::new();
            for input in &part.inputs {
                let own = input.value.name.as_str();
                let name = if alone { own.into() } else { input_in_model(&self.interface, &part.name, own) };
                let Some((_, tensor)) = batch.inputs.iter().find(|(other, _)| *other == name) else { continue };
                let dims = input.value.dims().iter().zip(tensor.shape());
                let named = dims.filter_map(|(dim, size)| Some((dim.as_symbol()?.clone(), i64::try_from(*size).ok()?)));
                sizes.extend(named);
            }
            let layouts = self.sessions.parts.get(&part.name).into_iter().flat_map(|part| part.inputs.values());
            let elements = layouts.map(|layout| match layout.shape.evaluate(&sizes) {
                Some(shape) => shape.iter().product::<usize>() as u64,
                None => (count * longest * layout.columns.unwrap_or(1)) as u64,
            });
            4 * elements.sum::<u64>()
        };
        let most = self.parts.iter().map(bytes).max().unwrap_or(0);
        usize::try_from(most.div_ceil(PORTION_BYTES)).unwrap_or(count).clamp(1, count)
    }

    fn run_portion(&mut self, portion: Portion, sink: &mut dyn Sink) -> Result<()> {
        let Portion { samples, inputs, decoder_mask } = portion;
        let alone = self.parts.len() == 1;
        let mut rest = None;
        let mut mask = decoder_mask;
        let mut rest_mask = None;
        let mut known: Vec<(String, RuntimeValue)> = Vec::new();
        for (name, tensor) in inputs {
            let tensor = match tensor.shape() {
                [_, tokens] if !alone && name == DECODER_INPUT_IDS => {
                    let half = tokens.div_ceil(2);
                    rest = Some(columns(&tensor, half, *tokens));
                    rest_mask = mask.as_ref().map(|mask| columns(mask, half, *tokens));
                    mask = mask.map(|mask| columns(&mask, 0, half));
                    columns(&tensor, 0, half)
                }
                _ => tensor,
            };
            known.push((name, tensor.into()));
        }
        for part in &self.parts {
            if part.is_next_step() {
                let Some(ids) = rest.take().filter(|ids| !ids.shape().contains(&0)) else { continue };
                known.retain(|(name, _)| name != DECODER_INPUT_IDS);
                known.push((DECODER_INPUT_IDS.to_owned(), ids.into()));
                mask = rest_mask.take();
            }
            let running = self.sessions.parts.get_mut(&part.name).with_context(|| format!("no {}", part.name))?;
            let input = |input: &'a Input| {
                let name = input.value.name.as_str();
                let wanted = if alone { name.into() } else { input_in_model(&self.interface, &part.name, name) };
                let value = known.iter().find(|(other, _)| *other == wanted);
                Ok((name, &value.with_context(|| format!("nothing gives the input `{name}` of {}", part.name))?.1))
            };
            let first;
            let mut inputs = part.inputs.iter().map(input).collect::<Result<Vec<_>>>()?;
            if let Some(writing) = self.writing.as_ref().filter(|_| part.role == PartRole::FirstStep) {
                let (ids, kept) = written(writing, part, running, &inputs)?;
                let half = ids.shape()[1].div_ceil(2);
                let halves = |all: &Tensor| (columns(all, 0, half), columns(all, half, all.shape()[1]));
                let (of_first, of_rest) = halves(&ids);
                rest = Some(of_rest);
                let (mask_of_first, mask_of_rest) = halves(&kept);
                (mask, rest_mask) = (Some(mask_of_first), Some(mask_of_rest));
                first = RuntimeValue::from(of_first);
                let name = part.input_of(InputRole::DecoderTokenIds).map(|input| input.value.name.as_str());
                for (input, value) in &mut inputs {
                    if Some(*input) == name {
                        *value = &first;
                    }
                }
            }
            let outputs = running.session.run_values(&inputs)?;
            let given = Given { samples: samples.clone(), inputs: &inputs, decoder_mask: mask.as_ref() };
            self.ran.insert(part.name.clone());
            let own = hand_over(part, running, outputs, &given, sink)?;
            for (name, value) in own {
                let name = if alone { name } else { output_in_model(&self.interface, &part.name, &name).into_owned() };
                known.retain(|(other, _)| *other != name);
                known.push((name, value));
            }
        }
        Ok(())
    }

    /// Checks that every part was run.
    pub(super) fn check_all_ran(&self) -> Result<()> {
        match self.parts.iter().find(|part| !self.ran.contains(&part.name)) {
            None => Ok(()),
            Some(part) => bail!(
                "{} was not run: {DECODER_INPUT_IDS} have one token everywhere, and it continues from a first one",
                part.name
            ),
        }
    }
}

/// The ids of texts that a decoder writes, [rows, tokens], and which of them are tokens. `inputs` are those of the decoder, with the
/// first ids. The decoder reads each text anew for each token.
fn written(
    writing: &Writing,
    part: &PartManifest,
    running: &mut ObservedPart,
    inputs: &[(&str, &RuntimeValue)],
) -> Result<(Tensor, Tensor)> {
    let (name, logits) = (part.named(InputRole::DecoderTokenIds)?, part.given(OutputRole::Logits)?);
    let first = inputs.iter().find(|(other, _)| *other == name).and_then(|(_, value)| value.shape().first().copied());
    writing.text(first.unwrap_or(0), &mut |ids| {
        let ids = RuntimeValue::from(ids.clone());
        let own = inputs.iter().map(|(other, value)| (*other, if *other == name { &ids } else { *value }));
        let outputs = running.session.run_values(&own.collect::<Vec<_>>())?;
        let scores = outputs.iter().find(|(other, _)| *other == logits).and_then(|(_, value)| value.to_tensor());
        scores.with_context(|| format!("`{logits}` of {} cannot be read", part.name))
    })
}

/// The samples of a tensor from one on, up to another.
fn rows(tensor: &Tensor, from: usize, to: usize) -> Option<Tensor> {
    let (count, sizes) = tensor.shape().split_first()?;
    let bytes = tensor.to_bytes();
    let size = bytes.len().checked_div(*count)?;
    let shape = [to - from].into_iter().chain(sizes.iter().copied()).collect();
    Tensor::from_bytes(tensor.dtype(), shape, &bytes[from * size..to * size])
}

/// A value that is computed is not finite.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Broken(pub(super) String);

/// What the observers of a value say.
pub(super) struct Seen {
    pub(super) value: String,
    pub(super) range: Range,
    nan: bool,
}

/// Hands over what observers gave; returns what else the part gave.
fn hand_over(
    part: &PartManifest,
    running: &ObservedPart,
    outputs: Vec<(String, RuntimeValue)>,
    given: &Given<'_>,
    sink: &mut dyn Sink,
) -> Result<Vec<(String, RuntimeValue)>> {
    let mut own = Vec::new();
    let mut all: Vec<Seen> = Vec::new();
    let (mut captured, mut choices) = (Vec::new(), Vec::new());
    for (name, output) in outputs {
        if let Some(result) = observed_choices(&name) {
            choices.push(chosen(part, running, result, &output, given)?);
            continue;
        }
        if let Some(value) = observed_tensor(&name) {
            captured.push(capture(part, running, value, output, given)?);
            continue;
        }
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
    sink.ranges(&part.name, all);
    sink.inputs(&part.name, &captured, &choices)?;
    Ok(own)
}

fn capture(
    part: &PartManifest,
    running: &ObservedPart,
    value: &str,
    tensor: RuntimeValue,
    given: &Given<'_>,
) -> Result<Captured> {
    let context = || format!("`{value}` of {} cannot be read", part.name);
    let layout = running.inputs.get(value).with_context(context)?;
    let columns = tensor.shape().last().copied().unwrap_or(1).max(1);
    let elements: usize = tensor.shape().iter().product();
    let ids = layout.ids(elements / columns, given).with_context(context)?;
    let origin = running.origins.get(value).cloned().unwrap_or_else(|| "unknown origin".to_owned());
    Ok(Captured { value: value.to_owned(), origin, tensor, ids })
}

fn chosen(
    part: &PartManifest,
    running: &ObservedPart,
    result: &str,
    indices: &RuntimeValue,
    given: &Given<'_>,
) -> Result<Choices> {
    let context = || format!("the experts of `{result}` of {} cannot be read", part.name);
    let mixture = running.mixtures.get(result).with_context(context)?;
    let rows = indices.shape().split_last().map_or(1, |(_, rows)| rows.iter().product());
    let ids = mixture.indices.ids(rows, given).with_context(context)?;
    let numbers = indices.to_tensor().with_context(context)?.to_f64();
    let index = |x: f64| if x < 0.0 { usize::MAX } else { x as usize };
    let indices = numbers.into_iter().map(index).collect();
    Ok(Choices { result: result.to_owned(), x: mixture.x.clone(), experts: mixture.experts, indices, ids })
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
    let reason = format!(
        "{} is NaN as the model computes it{cause}: no precision can be chosen by that; check the checkpoint and \
         the data",
        named(broken)
    );
    Broken(reason).into()
}
