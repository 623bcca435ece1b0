//! The model that contestants were compiled from: the inputs at each shape, and the outputs of the reference.
//!
//! The reference interpreter runs few rows, [`DISTINCT_ROWS`]; the rows of a larger batch repeat them. So all rows of a
//! contestant's outputs are compared, and the reference takes a time that does not grow with the batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use planish_artifact::chain::Tensors;
use planish_artifact::named;
use planish_check::verify::{continued, first_tokens, per_token};
use planish_data::inputs::{
    InputError, InputSpec, Sampling, has_cache, has_sequence, interface_of, is_plain, seeded_inputs,
};
use planish_eval::Tensor;
use planish_ir::{Dim, Graph, InputRole, Interface, PartInterface, PartRole, SymbolRole};
use planish_runtimes::{Port, RuntimeError, Session};

use super::BenchOptions;
use super::document::CellShape;
use super::reference_cache::ReferenceCache;

/// The most bytes of the inputs and outputs of a run.
const MOST_BYTES: u64 = 8 << 30;

/// How many rows of a batch are different.
const DISTINCT_ROWS: usize = 2;

/// A model on the reference.
pub struct ReferenceModel {
    /// Its parts, in the order in which one takes what others give: one, or those of an
    /// encoder-decoder.
    pub parts: Vec<ReferencePart>,
    /// The most tokens in a row that it takes; absent where there is no limit.
    pub longest: Option<usize>,
    /// The inputs that the user gave, instead of seeded ones at each shape.
    pub(crate) given: Option<Vec<(String, Tensor)>>,
    /// The runs of different rows, by the number of rows and tokens.
    pub(crate) known: BTreeMap<(usize, usize), Vec<Run>>,
}

/// A part of a model on the reference.
pub struct ReferencePart {
    /// Its name.
    pub name: String,
    /// The part before any pass.
    pub session: Box<dyn Session>,
    /// The inputs of the part and their values.
    pub specs: Vec<InputSpec>,
    /// What its tensors are.
    pub(crate) interface: PartInterface,
    /// The graph of the part, to count what a run computes.
    pub(crate) graph: Option<Graph>,
    /// Where outputs of earlier benchmarks are; absent where there is no such place.
    pub(crate) cache: Option<ReferenceCache>,
}

/// What is run in some cells, one for each contestant of the part.
#[derive(Clone)]
pub(crate) struct Run {
    /// The place of the part.
    pub(crate) part: usize,
    pub(crate) shape: CellShape,
    pub(crate) inputs: Vec<(String, Tensor)>,
    /// What the reference gives, or why it gives nothing.
    pub(crate) expected: Result<Vec<(String, Tensor)>, String>,
    /// The outputs that have something for each token, and the axis of these.
    pub(crate) per_token: Vec<(String, usize)>,
    /// What the tensors of the part are.
    pub(crate) of: Arc<PartInterface>,
}

impl ReferenceModel {
    /// A model of these parts that takes at most so many tokens in a row.
    #[must_use]
    pub fn new(parts: Vec<ReferencePart>, longest: Option<usize>) -> Self {
        Self { parts, longest, given: None, known: BTreeMap::new() }
    }

    /// What is run at every batch size and sequence length that is asked for, or on the inputs that were given.
    pub(crate) fn all_runs(&mut self, options: &BenchOptions) -> Result<Vec<Run>, InputError> {
        let BenchOptions { batch: batches, sequence: asked, shapes, seed, .. } = options;
        if let (Some(inputs), [part]) = (self.given.clone(), self.parts.as_mut_slice()) {
            let input = |role: InputRole| inputs.iter().find(|(name, _)| part.interface.input(name) == role);
            let ids = input(InputRole::TokenIds).or_else(|| input(InputRole::DecoderTokenIds));
            let sizes = ids.or(inputs.first());
            let size = |axis: usize| sizes.and_then(|(_, tensor)| tensor.shape().get(axis).copied());
            let seq = size(1).filter(|_| ids.is_some());
            // Where some tokens are padding, no number of tokens is that of all rows.
            let mask = input(InputRole::Mask).and_then(|(_, mask)| mask.as_i64());
            let tokens = seq.filter(|_| mask.is_none_or(|mask| mask.iter().all(|real| *real == 1)));
            let ports = part.session.inputs().iter().map(|port| (port.name.as_str(), &port.ty.shape[..]));
            let batch = match Sampling::of_dims(ports) {
                Sampling::FirstAxis => size(0).unwrap_or(1),
                Sampling::Files => 1,
            };
            let shape = CellShape { batch, seq, part: None, tokens, past: 0 };
            return Ok(vec![part.run(0, shape, inputs)]);
        }
        let lengths = self.lengths(asked);
        let has_sequence = self.parts.iter().any(|part| has_sequence(&part.specs));
        let mut runs = Vec::new();
        for batch in batches.iter().copied().filter(|batch| *batch > 0) {
            let is_asked = |seq: usize| {
                let of_batch = shapes.iter().filter(|(rows, _)| *rows == batch);
                seq > 0 && (shapes.is_empty() || of_batch.clone().any(|(_, tokens)| *tokens == seq || !has_sequence))
            };
            for seq in lengths.iter().copied().filter(|seq| is_asked(*seq)) {
                runs.extend(self.runs(batch, seq, *seed)?);
            }
        }
        Ok(runs)
    }

    /// The sequence lengths to run of those that were asked for: one where the model takes no
    /// sequences.
    fn lengths(&self, asked: &[usize]) -> Vec<usize> {
        match self.parts.iter().any(|part| has_sequence(&part.specs)) {
            true => asked.to_vec(),
            false => vec![1],
        }
    }

    /// What is run for rows of `seq` tokens, [`CellShape`] says which.
    fn runs(&mut self, batch: usize, seq: usize, seed: u64) -> Result<Vec<Run>, InputError> {
        let distinct = if self.parts.iter().all(ReferencePart::has_rows) { DISTINCT_ROWS } else { batch };
        if !self.known.contains_key(&(distinct, seq)) {
            let runs = self.distinct_runs(distinct, seq, seed)?;
            self.known.insert((distinct, seq), runs);
        }
        let runs = self.known.get(&(distinct, seq)).into_iter().flatten();
        runs.map(|run| run.with_rows(batch)).collect()
    }

    fn distinct_runs(&mut self, batch: usize, seq: usize, seed: u64) -> Result<Vec<Run>, InputError> {
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

impl Run {
    /// The same for so many rows: the rows of this run, again and again.
    fn with_rows(&self, batch: usize) -> Result<Self, InputError> {
        if self.shape.batch == batch {
            return Ok(self.clone());
        }
        let outputs = self.expected.as_deref().unwrap_or_default();
        let times = batch as u64 / self.shape.batch.max(1) as u64;
        let largest = self.inputs.iter().chain(outputs).max_by_key(|(_, tensor)| tensor.bytes());
        let bytes: u64 = self.inputs.iter().chain(outputs).map(|(_, tensor)| tensor.bytes()).sum();
        if let Some((name, tensor)) = largest.filter(|_| bytes.saturating_mul(times) > MOST_BYTES) {
            let shape = [batch].into_iter().chain(tensor.shape().iter().skip(1).copied()).collect();
            return Err(InputError::Batch { tensor: name.clone(), dtype: tensor.dtype(), shape, limit: MOST_BYTES });
        }
        let all = |tensors: &[(String, Tensor)]| {
            tensors.iter().map(|(name, tensor)| (name.clone(), repeated(tensor, batch))).collect::<Vec<_>>()
        };
        Ok(Self {
            part: self.part,
            shape: CellShape { batch, ..self.shape.clone() },
            inputs: all(&self.inputs),
            expected: self.expected.as_ref().map(|expected| all(expected)).map_err(String::clone),
            per_token: self.per_token.clone(),
            of: Arc::clone(&self.of),
        })
    }
}

/// So many rows of a tensor, the first after the last.
fn repeated(tensor: &Tensor, rows: usize) -> Tensor {
    let row_bytes = tensor.bytes() as usize / tensor.shape().first().copied().unwrap_or(1).max(1);
    let bytes = tensor.to_bytes();
    let repeated: Vec<u8> = bytes.iter().copied().cycle().take(row_bytes * rows).collect();
    let shape = [rows].into_iter().chain(tensor.shape().iter().skip(1).copied()).collect();
    Tensor::from_bytes(tensor.dtype(), shape, &repeated).unwrap_or_else(|| tensor.clone())
}

impl ReferencePart {
    /// A part whose outputs are not kept from one benchmark to the next.
    #[must_use]
    pub fn new(name: String, session: Box<dyn Session>, specs: Vec<InputSpec>) -> Self {
        let interface = PartInterface::clone(&interface_of(&specs));
        Self { name, session, specs, interface, graph: None, cache: None }
    }

    /// Whether the first dimension of every input and output, and no other, is the number of rows.
    fn has_rows(&self) -> bool {
        let ports = || self.session.inputs().iter().chain(self.session.outputs());
        let first = |port: &Port| port.ty.shape.first().and_then(Dim::as_symbol).cloned();
        let Some(rows) = ports().next().and_then(first) else { return false };
        let is_own = |port: &Port| {
            let mut others = port.ty.shape.iter().skip(1).flat_map(Dim::symbols);
            first(port).as_ref() == Some(&rows) && others.all(|symbol| *symbol != rows)
        };
        let role = self.interface.symbol(&rows);
        role == SymbolRole::Rows && is_plain(&rows) && ports().all(is_own)
    }

    /// The outputs for some inputs.
    fn outputs(&mut self, inputs: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        let session = &mut self.session;
        let mut compute = || session.run(&named(session.as_ref(), inputs));
        match &self.cache {
            Some(cache) => cache.outputs(&self.name, inputs, &mut compute),
            None => compute(),
        }
    }

    fn run(&mut self, part: usize, shape: CellShape, inputs: Vec<(String, Tensor)>) -> Run {
        let expected = self.outputs(&inputs).map_err(|error| error.to_string());
        let per_token = per_token(self.session.as_ref(), &self.interface);
        Run { part, shape, inputs, expected, per_token, of: Arc::new(self.interface.clone()) }
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

/// A prompt, and where there is room for it the token after.
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
    let prompt = part.run(0, prompt, first_tokens(&inputs, seq, &part.interface));
    // A prompt that fails says why, and leaves nothing to continue from.
    let step = match &prompt.expected {
        Ok(given) if room => Some(part.run(0, step, continued(&inputs, seq, given, &part.interface.clone()))),
        _ => None,
    };
    Ok([prompt].into_iter().chain(step).collect())
}

/// Each part: the encoder on all tokens, the first decoder on one, and where there is room the second
/// decoder on one after as many as the encoder has.
fn encoder_decoder(
    parts: &mut [ReferencePart],
    shape: CellShape,
    seq: usize,
    room: bool,
    seed: u64,
) -> Result<Vec<Run>, InputError> {
    let all = parts.iter().map(|part| (part.name.clone(), part.interface.clone())).collect();
    let (mut known, batch) = (Tensors::new(Interface { parts: all }), shape.batch);
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
        let continues = part.interface.role == PartRole::FirstStep && room;
        let given = match continues {
            // What the next part continues from is longer.
            true => {
                let inputs = part.inputs(&known, batch, seq, seed)?;
                part.outputs(&inputs).ok()
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
