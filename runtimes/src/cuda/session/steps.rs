//! Steps after a cache: one program for all lengths that the cache has room for, replayed as one recording where the same
//! memory comes again.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use planish_eval::{Tensor, bind_types};
use planish_ir::{DType, Dim};

use super::GraphSession;
use crate::RuntimeValue;
use crate::cuda::buffers::Buffers;
use crate::cuda::device::{Buffer, Device, HostMemory, Recording};
use crate::cuda::program::family::{self, FEWEST, Family, Shape, Word};
use crate::cuda::program::{Caches, Output, Room};
use crate::cuda::run::{Addresses, Prepared, given_types};
use crate::cuda::tensor::DeviceTensor;
use crate::value::Kept;

/// The families that are kept: the last ones.
const FAMILIES: usize = 16;
/// The recordings of a family that are kept: those of the last caches.
const RECORDINGS: usize = 4;
/// The caches that are remembered until they come again.
const SEEN: usize = 8;
/// What the inputs in a block are aligned to, in bytes.
const ALIGNMENT: usize = 256;

/// What a family is made for.
struct Kind {
    shape: Shape,
    /// Which inputs come from the host.
    on_host: Vec<bool>,
}

/// The families of a session.
#[derive(Default)]
pub(super) struct Steps {
    /// The last ones first. What a step was planned for once has none yet.
    families: VecDeque<(Kind, State)>,
    /// How many runs replayed a recording.
    pub(super) replayed: usize,
}

enum State {
    /// There was no such step.
    New,
    /// One step was run, by a program of its own.
    Once,
    /// The lengths have programs of their own; `plan_run` says why.
    Refused,
    Ready(Box<Ready>),
}

/// A family that is compiled, with its memory.
struct Ready {
    prepared: Prepared,
    /// The words of the launches.
    words: Vec<Word>,
    /// The keys in front of a step.
    lengths: RangeInclusive<usize>,
    /// The words of the launches, and after them the inputs that come from the host: there, pinned, and on the device.
    host: Box<dyn HostMemory>,
    block: Buffer,
    /// Where in the block each input is that comes from the host.
    slots: Vec<Option<usize>>,
    buffers: Buffers,
    /// The memory that outputs are computed in which do not continue a cache.
    outputs: Vec<Option<Buffer>>,
    /// Memory of outputs that callers had, or still have.
    given: Vec<Vec<Buffer>>,
    recordings: VecDeque<(Vec<u64>, Box<dyn Recording>)>,
    seen: VecDeque<Vec<u64>>,
}

impl Steps {
    /// How many kinds of steps came again that have a program for each length.
    #[cfg(test)]
    pub(super) fn refused(&self) -> usize {
        self.families.iter().filter(|(_, state)| matches!(state, State::Refused)).count()
    }
}

/// An input of a step.
enum Input<'a> {
    /// In the memory of the host.
    Host(&'a Tensor),
    Device(&'a DeviceTensor),
}

impl<'a> Input<'a> {
    /// A value of a run; `None` where it is of another device.
    fn of(value: &'a RuntimeValue, device: &Arc<dyn Device>) -> Option<Self> {
        match &value.0 {
            Kept::Tensor(tensor) => Some(Self::Host(tensor)),
            Kept::Cuda(kept) if Arc::ptr_eq(&kept.device, device) => Some(Self::Device(kept)),
            _ => None,
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Self::Host(tensor) => tensor.shape(),
            Self::Device(tensor) => tensor.shape(),
        }
    }

    fn dtype(&self) -> DType {
        match self {
            Self::Host(tensor) => tensor.dtype(),
            Self::Device(tensor) => tensor.dtype(),
        }
    }
}

impl GraphSession {
    /// Runs a step after a cache with room for it; `None` where it is another run, or one that has a program of its own.
    pub(super) fn step(&mut self, values: &[&RuntimeValue]) -> Result<Option<Vec<(String, DeviceTensor)>>, String> {
        let Some(inputs) = values.iter().map(|value| Input::of(value, &self.device)).collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let Some((shape, length)) = self.shape_of_step(&inputs) else { return Ok(None) };
        // What comes from the host has a place in the block that a step copies, so where inputs are is a part of the key.
        let on_host: Vec<bool> = inputs.iter().map(|input| matches!(input, Input::Host(_))).collect();
        let same = |(kind, _): &(Kind, State)| kind.shape == shape && kind.on_host == on_host;
        let known = self.steps.families.iter().position(same).and_then(|at| self.steps.families.remove(at));
        let (mut state, mut outputs) = (known.map_or(State::New, |(_, state)| state), None);
        if let State::Once = state {
            state = match self.ready(&shape, &inputs, length)? {
                Ok(ready) => State::Ready(Box::new(ready)),
                Err(_) => State::Refused,
            };
        }
        match &mut state {
            State::New => state = State::Once,
            State::Ready(ready) if ready.lengths.contains(&length) => {
                outputs = Some(self.run_step(ready, &inputs, length)?);
            }
            _ => {}
        }
        self.steps.families.push_front((Kind { shape, on_host }, state));
        self.steps.families.truncate(FAMILIES);
        Ok(outputs)
    }

    /// What a step is planned for, and how many keys are in front of it, if each of its caches has room for what it adds.
    fn shape_of_step(&self, inputs: &[Input<'_>]) -> Option<(Shape, usize)> {
        let caches: Vec<Option<&DeviceTensor>> = inputs
            .iter()
            .map(|input| match input {
                Input::Device(tensor) if tensor.cache.is_some() => Some(*tensor),
                _ => None,
            })
            .collect();
        let mut length = None;
        let mut room = Vec::with_capacity(inputs.len());
        for (at, tensor) in caches.iter().enumerate() {
            let Some((tensor, cache)) = tensor.and_then(|tensor| Some((tensor, tensor.cache.as_ref()?))) else {
                room.push(None);
                continue;
            };
            let symbol = self.inputs[at].ty.shape.get(2).and_then(Dim::as_symbol)?;
            let keys = tensor.shape[2];
            let before = caches[..at].iter().flatten().filter_map(|other| other.cache.as_ref());
            let twice = before.into_iter().any(|other| Arc::ptr_eq(&other.filled, &cache.filled));
            let other = length.as_ref().is_some_and(|other| *other != (symbol.clone(), keys));
            if twice || other || keys < FEWEST || !cache.is_free_after(keys) {
                return None;
            }
            length = Some((symbol.clone(), keys));
            room.push(Some(Room { capacity: cache.capacity, free: true }));
        }
        let (symbol, keys) = length?;
        let types = inputs.iter().map(|input| (input.dtype(), input.shape()));
        let mut bindings = bind_types(&self.graph, &given_types(&self.inputs, types)).ok()?;
        bindings.remove(&symbol);
        let added = family::added(&self.graph, &bindings, &symbol, keys)?;
        let shape = Shape { bindings, length: symbol, caches: Caches { room, ..Caches::default() }, added };
        (keys + added <= shape.capacity()).then_some((shape, keys))
    }

    /// The family of a step that is planned for `shape`; the inner error says why there is none.
    fn ready(&mut self, shape: &Shape, inputs: &[Input<'_>], length: usize) -> Result<Result<Ready, String>, String> {
        let mut of = |smallest| {
            self.planned += Family::PLANS;
            Family::of(&self.graph, shape, self.target, smallest)
        };
        // Kernels may be others for few keys.
        let family = match of(FEWEST) {
            Err(_) if length > FEWEST => of(length),
            family => family,
        };
        let family = match family {
            Ok(family) => family,
            Err(reason) => return Ok(Err(reason)),
        };
        let Family { program, words, lengths } = family;
        let mut bytes = words.len() * size_of::<u64>();
        let bindings = shape.bindings(*lengths.end());
        let mut slots = Vec::with_capacity(inputs.len());
        for (input, port) in inputs.iter().zip(&self.inputs) {
            slots.push(match input {
                Input::Device(_) => None,
                Input::Host(_) => {
                    let sizes = port.ty.shape.evaluate(&bindings).ok_or_else(|| format!("`{port}` has no sizes"))?;
                    let start = bytes.next_multiple_of(ALIGNMENT);
                    bytes = start + sizes.iter().product::<usize>() * port.ty.dtype.size();
                    Some(start)
                }
            });
        }
        let memory = |output: &Output| match output.cache {
            Some(_) => Ok(None),
            None => self.device.allocate(output.shape.iter().product::<usize>() * output.dtype.size()).map(Some),
        };
        let outputs = program.outputs.iter().map(memory).collect::<Result<Vec<_>, _>>()?;
        let buffers = self.buffers(&program)?;
        let given = program.outputs.iter().map(|_| Vec::new()).collect();
        let prepared = self.compiled(program)?;
        Ok(Ok(Ready {
            prepared,
            words,
            lengths,
            host: self.device.pinned(bytes)?,
            block: self.device.allocate(bytes)?,
            slots,
            buffers,
            outputs,
            given,
            recordings: VecDeque::new(),
            seen: VecDeque::new(),
        }))
    }

    /// Runs a step of a family.
    fn run_step(
        &mut self,
        ready: &mut Ready,
        inputs: &[Input<'_>],
        length: usize,
    ) -> Result<Vec<(String, DeviceTensor)>, String> {
        let device = self.device.clone();
        // The last run may still read what the host wrote for it.
        device.wait()?;
        let own: Vec<u64> = inputs
            .iter()
            .zip(&ready.slots)
            .map(|(input, slot)| match (input, slot) {
                (Input::Device(tensor), _) => tensor.memory.address(),
                (Input::Host(_), slot) => ready.block.address() + slot.unwrap_or(0) as u64,
            })
            .collect();
        let fixed: Vec<u64> = ready
            .outputs
            .iter()
            .zip(&ready.prepared.program.outputs)
            .map(|(memory, output)| match (memory, output.cache.as_ref().and_then(|cache| cache.input)) {
                (Some(memory), _) => memory.address(),
                (None, past) => past.map_or(0, |past| own[past]),
            })
            .collect();
        let addresses = Addresses {
            prepared: &ready.prepared,
            weights: &self.weights,
            inputs: own.clone(),
            outputs: fixed,
            buffers: &ready.buffers,
            packing: 0,
            words: ready.block.address(),
        };
        let less = ready.lengths.end() - length;
        let block = ready.host.write();
        for (word, to) in ready.words.iter().zip(block.chunks_exact_mut(size_of::<u64>())) {
            let start = word.base.map_or(0, |base| addresses.base(base));
            to.copy_from_slice(&word.at(start, less).to_le_bytes());
        }
        for (input, slot) in inputs.iter().zip(&ready.slots) {
            if let (Input::Host(tensor), Some(slot)) = (input, slot) {
                let bytes = tensor.to_bytes();
                block[*slot..][..bytes.len()].copy_from_slice(&bytes);
            }
        }
        if self.fill {
            self.poison_step(ready, inputs, length)?;
        }
        let give = || {
            device.copy(ready.block.address(), ready.host.address(), ready.host.bytes())?;
            addresses.run(device.as_ref())
        };
        match ready.recordings.iter().position(|(of, _)| *of == own) {
            Some(at) => {
                if let Some((_, recording)) = ready.recordings.get(at) {
                    recording.replay()?;
                    self.steps.replayed += 1;
                }
                ready.recordings.swap(0, at);
            }
            None => {
                give()?;
                match ready.seen.iter().position(|of| *of == own) {
                    Some(at) => {
                        ready.seen.remove(at);
                        let recording = device.record(&mut || give()).map_err(|reason| {
                            format!(
                                "a step was not recorded, and --runtime-option cuda-graph=false records none: {reason}"
                            )
                        })?;
                        if let Some(recording) = recording {
                            ready.recordings.push_front((own, recording));
                            ready.recordings.truncate(RECORDINGS);
                        }
                    }
                    None => {
                        ready.seen.push_front(own);
                        ready.seen.truncate(SEEN);
                    }
                }
            }
        }
        self.outputs_of_step(ready, inputs, length)
    }

    /// Fills what a step writes with bytes that are no numbers.
    fn poison_step(&self, ready: &Ready, inputs: &[Input<'_>], length: usize) -> Result<(), String> {
        let memory = ready.buffers.allocations().iter().chain(ready.outputs.iter().flatten());
        for memory in memory {
            self.device.poison(memory.address(), memory.bytes())?;
        }
        for output in &ready.prepared.program.outputs {
            let past = output.cache.as_ref().and_then(|cache| cache.input).map(|past| &inputs[past]);
            if let Some(Input::Device(past)) = past {
                let mut shape = output.shape.clone();
                shape[2] -= ready.lengths.end() - length;
                DeviceTensor { shape, ..(*past).clone() }.poison_after(length)?;
            }
        }
        Ok(())
    }

    /// The outputs of a step that ran: caches in the memory of the past, others as copies.
    fn outputs_of_step(
        &self,
        ready: &mut Ready,
        inputs: &[Input<'_>],
        length: usize,
    ) -> Result<Vec<(String, DeviceTensor)>, String> {
        let less = ready.lengths.end() - length;
        let mut all = Vec::with_capacity(ready.outputs.len());
        for (at, output) in ready.prepared.program.outputs.iter().enumerate() {
            let past = output.cache.as_ref().and_then(|cache| cache.input).map(|past| &inputs[past]);
            let (mut shape, dtype, device) = (output.shape.clone(), output.dtype, self.device.clone());
            let tensor = match (past, &ready.outputs[at]) {
                (Some(Input::Device(past)), _) => {
                    shape[2] -= less;
                    if let Some(cache) = &past.cache {
                        cache.filled.store(shape[2], Ordering::Relaxed);
                    }
                    DeviceTensor { shape, ..(*past).clone() }
                }
                (_, Some(computed)) => {
                    let memory = spare(&mut ready.given[at], self.device.as_ref(), computed.bytes())?;
                    self.device.copy(memory.address(), computed.address(), computed.bytes())?;
                    DeviceTensor { device, dtype, shape, memory, cache: None }
                }
                _ => return Err(format!("the output `{}` has no memory", output.name)),
            };
            all.push((output.name.clone(), tensor));
        }
        Ok(all)
    }
}

/// Memory that no caller has any more, or new one.
fn spare(given: &mut Vec<Buffer>, device: &dyn Device, bytes: usize) -> Result<Buffer, String> {
    if let Some(memory) = given.iter().find(|memory| Arc::strong_count(memory) == 1) {
        return Ok(memory.clone());
    }
    let memory = device.allocate(bytes)?;
    // What callers keep for long is theirs.
    if given.len() == SEEN {
        given.remove(0);
    }
    given.push(memory.clone());
    Ok(memory)
}
