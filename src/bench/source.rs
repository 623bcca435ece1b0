//! The model that contestants were compiled from: the inputs at each shape, and the outputs of the reference.

use planish_eval::Tensor;
use planish_runtimes::{RuntimeError, Session};

use super::document::CellShape;
use crate::chain::Tensors;
use crate::inputs::{InputError, InputSpec, has_cache, has_sequence, seeded_inputs};
use crate::verify::{continued, first_tokens, named, per_token};

/// A model on the reference.
pub struct ReferenceModel {
    /// Its parts, in the order in which one takes what others give: one, or those of an
    /// encoder-decoder.
    pub parts: Vec<ReferencePart>,
    /// The most tokens in a row that it takes; absent where there is no limit.
    pub longest: Option<usize>,
}

/// A part of a model on the reference.
pub struct ReferencePart {
    /// Its name.
    pub name: String,
    /// The part before any pass.
    pub session: Box<dyn Session>,
    /// The inputs of the part and their values.
    pub specs: Vec<InputSpec>,
}

/// What is run in some cells, one for each contestant of the part.
pub(crate) struct Run {
    /// The place of the part.
    pub(crate) part: usize,
    pub(crate) shape: CellShape,
    pub(crate) inputs: Vec<(String, Tensor)>,
    /// What the reference gives.
    pub(crate) expected: Result<Vec<(String, Tensor)>, RuntimeError>,
    /// The outputs that have something for each token, and the axis of these.
    pub(crate) per_token: Vec<(String, usize)>,
}

impl ReferenceModel {
    /// The sequence lengths to run of those that were asked for: one where the model takes no
    /// sequences.
    pub(crate) fn lengths(&self, asked: &[usize]) -> Vec<usize> {
        match self.parts.iter().any(|part| has_sequence(&part.specs)) {
            true => asked.to_vec(),
            false => vec![1],
        }
    }

    /// What is run for rows of `seq` tokens, [`CellShape`] says which.
    pub(crate) fn runs(&mut self, batch: usize, seq: usize, seed: u64) -> Result<Vec<Run>, InputError> {
        let room = self.longest.is_none_or(|longest| seq < longest);
        let shape = CellShape { batch, seq: Some(seq), part: None, tokens: Some(seq), past: 0 };
        match self.parts.as_mut_slice() {
            [part] if has_cache(&part.specs) => decoder(part, shape, seq, room, seed),
            [part] => {
                let inputs = seeded_inputs(&part.specs, batch, seq, seed, false)?;
                let shape = match has_sequence(&part.specs) {
                    true => shape,
                    false => CellShape { seq: None, tokens: None, ..shape },
                };
                Ok(vec![part.run(0, shape, inputs)])
            }
            parts => encoder_decoder(parts, shape, seq, room, seed),
        }
    }
}

impl ReferencePart {
    fn run(&mut self, part: usize, shape: CellShape, inputs: Vec<(String, Tensor)>) -> Run {
        let expected = self.session.run(&named(self.session.as_ref(), &inputs));
        Run { part, shape, inputs, expected, per_token: per_token(self.session.as_ref()) }
    }

    /// Inputs of new tokens; what earlier parts took or gave is as they have it.
    fn inputs(
        &self,
        known: &Tensors,
        batch: usize,
        tokens: usize,
        seed: u64,
    ) -> Result<Vec<(String, Tensor)>, InputError> {
        let mut inputs = seeded_inputs(&self.specs, batch, tokens, seed, false)?;
        for (name, tensor) in &mut inputs {
            if let Some(known) = known.input(&self.name, name) {
                *tensor = known.clone();
            }
        }
        Ok(inputs)
    }
}

/// A prompt, and where there is room for it the token behind.
fn decoder(
    part: &mut ReferencePart,
    shape: CellShape,
    seq: usize,
    room: bool,
    seed: u64,
) -> Result<Vec<Run>, InputError> {
    let inputs = seeded_inputs(&part.specs, shape.batch, seq + usize::from(room), seed, false)?;
    let prompt = CellShape { part: Some("prompt".to_owned()), ..shape };
    let step = CellShape { part: Some("step".to_owned()), tokens: Some(1), past: seq, ..shape };
    let prompt = part.run(0, prompt, first_tokens(&inputs, seq));
    // A prompt that fails says why, and leaves nothing to continue from.
    let step = match &prompt.expected {
        Ok(given) if room => Some(part.run(0, step, continued(&inputs, seq, given))),
        _ => None,
    };
    Ok([prompt].into_iter().chain(step).collect())
}

/// Each part: the encoder on all tokens, the first decoder on one, and where there is room the second
/// decoder on one behind as many as the encoder has.
fn encoder_decoder(
    parts: &mut [ReferencePart],
    shape: CellShape,
    seq: usize,
    room: bool,
    seed: u64,
) -> Result<Vec<Run>, InputError> {
    let (mut known, batch) = (Tensors::default(), shape.batch);
    let mut runs: Vec<Run> = Vec::new();
    for (index, part) in parts.iter_mut().enumerate() {
        let cached = has_cache(&part.specs);
        let (tokens, past) = (if index == 0 { seq } else { 1 }, if cached { seq } else { 0 });
        let seed = seed.wrapping_add(index as u64);
        if cached && !room {
            break;
        }
        let inputs = part.inputs(&known, batch, tokens, seed)?;
        let shape = CellShape { part: Some(part.name.clone()), tokens: Some(tokens), past, ..shape.clone() };
        let run = part.run(index, shape, inputs);
        let continues = !cached && index > 0 && room;
        let given = match continues {
            // What the next part continues from is longer.
            true => {
                let inputs = part.inputs(&known, batch, seq, seed)?;
                part.session.run(&named(part.session.as_ref(), &inputs)).ok()
            }
            false => run.expected.as_ref().ok().cloned(),
        };
        if index == 0 {
            known.take_inputs(&part.name, &run.inputs);
        }
        runs.push(run);
        // A part that fails says why, and leaves the others without inputs.
        let Some(given) = given else { break };
        known.take_outputs(&part.name, &given);
    }
    Ok(runs)
}
