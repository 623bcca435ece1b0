//! A graph that is loaded on a device.

mod bound;
mod profile;
mod steps;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use planish_eval::{Tensor, bind_types};
use planish_ir::{Graph, TensorType};

use self::bound::Bound;
pub(super) use self::profile::StepProfile;
use self::steps::Steps;
use super::buffers::{self, Buffers};
use super::device::{Buffer, Device};
use super::packing::{PackedBatch, PackedSizes, Packing};
use super::program::{Caches, Program, Room, Style, Target};
use super::run::{Addresses, Prepared, given_types};
use super::tensor::{Cache, DeviceTensor};
use super::weights::Weights;
use crate::api::in_order;
use crate::value::Kept;
use crate::{DeviceTimes, Port, RuntimeError, RuntimeValue, Session};

/// The programs that are kept: those of the last shapes.
const PROGRAMS: usize = 32;
/// The fewest keys that a cache gets room for when it is copied.
const RESERVE: usize = 64;

/// A loaded graph.
pub(super) struct GraphSession {
    pub(super) runtime: &'static str,
    model: String,
    graph: Graph,
    target: Target,
    /// How batches of rows of different lengths are computed on their tokens alone.
    packing: Option<Packing>,
    device: Arc<dyn Device>,
    weights: Weights,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    programs: VecDeque<(Shapes, Rc<Prepared>)>,
    /// The memory of the buffers of all programs that are not bound.
    arena: Option<Buffer>,
    /// Whether each buffer has an allocation of its own instead.
    pub(super) separate: bool,
    bound: Option<Bound>,
    /// The programs of steps after caches.
    steps: Steps,
    /// Whether bound runs and steps are recorded.
    record: bool,
    /// How many programs were planned.
    planned: usize,
    /// Whether memory is filled with bytes that are no numbers before runs, so that reads of what nothing wrote show.
    pub(super) fill: bool,
}

/// What a program is made for.
#[derive(PartialEq)]
struct Shapes {
    inputs: Vec<Vec<usize>>,
    caches: Caches,
    packed: Option<PackedSizes>,
}

/// A packed batch whose numbers are in the memory of the device.
struct OnDevice {
    batch: PackedBatch,
    numbers: Buffer,
}

impl GraphSession {
    /// Loads a graph.
    ///
    /// # Errors
    /// When a weight cannot be read, or the device fails.
    pub(super) fn load(
        runtime: &'static str,
        model: String,
        graph: Graph,
        device: Arc<dyn Device>,
        target: Target,
        record: bool,
    ) -> Result<Self, RuntimeError> {
        let failed = |reason| RuntimeError::Failed { runtime, action: "load", model: model.clone(), reason };
        let separate = buffers::are_separate();
        let weights = Weights::load(device.as_ref(), &graph, separate).map_err(failed)?;
        let port = |name: &str, ty: &TensorType| Port { name: name.to_owned(), ty: ty.clone() };
        let inputs = graph.inputs().iter().map(|&id| port(&graph.value(id).name, graph.ty(id))).collect();
        let outputs = graph.outputs().iter().map(|output| port(&output.name, graph.ty(output.value))).collect();
        // What other runtimes are compared with computes padding as they do.
        let packing = if target.style == Style::Fused { Packing::of(&graph, &target).ok() } else { None };
        Ok(Self {
            runtime,
            model,
            graph,
            target,
            packing,
            device,
            weights,
            inputs,
            outputs,
            programs: VecDeque::new(),
            arena: None,
            separate,
            bound: None,
            steps: Steps::default(),
            record,
            planned: 0,
            fill: false,
        })
    }

    fn failed(&self, action: &'static str, reason: impl ToString) -> RuntimeError {
        RuntimeError::Failed { runtime: self.runtime, action, model: self.model.clone(), reason: reason.to_string() }
    }

    /// Whether a batch with this mask is computed without its padding.
    pub(super) fn packs(&self, mask: &Tensor) -> bool {
        self.packing.is_some() && PackedBatch::of(mask).is_some()
    }

    /// The batch without its padding, where inputs have some that can be left out: `tensor` gives the inputs that are in the
    /// memory of the host.
    fn packed<'a>(&self, tensor: impl Fn(usize) -> Option<&'a Tensor>) -> Result<Option<OnDevice>, String> {
        let mask = self.packing.as_ref().and_then(|packing| tensor(packing.mask()));
        let Some(batch) = mask.and_then(PackedBatch::of) else { return Ok(None) };
        let numbers = self.device.allocate(batch.numbers.len())?;
        self.device.upload(numbers.address(), &batch.numbers)?;
        Ok(Some(OnDevice { batch, numbers }))
    }

    /// The program for inputs, whose caches get room for more keys with a `reserve`.
    fn prepared(
        &mut self,
        inputs: &[&DeviceTensor],
        reserve: bool,
        packed: Option<PackedSizes>,
    ) -> Result<Rc<Prepared>, String> {
        let room = |(at, tensor): (usize, &&DeviceTensor)| {
            let cache = tensor.cache.as_ref()?;
            // Of a value that is given twice, one is continued.
            let before = inputs[..at].iter().filter_map(|other| other.cache.as_ref());
            let twice = before.into_iter().any(|other| Arc::ptr_eq(&other.filled, &cache.filled));
            Some(Room { capacity: cache.capacity, free: !twice && cache.is_free_after(tensor.shape[2]) })
        };
        let tokens = |tensor: &&DeviceTensor| match tensor.shape[..] {
            [_, _, keys, _] => keys,
            [_, tokens, ..] => tokens,
            _ => 0,
        };
        let longest = inputs.iter().map(tokens).max().unwrap_or(0);
        let reserve = if reserve { RESERVE.max(longest / 2) } else { 0 };
        let caches = Caches { room: inputs.iter().enumerate().map(room).collect(), reserve, ..Caches::default() };
        // A graph whose batches are packed has no cache.
        let caches = if packed.is_some() { Caches::default() } else { caches };
        let shapes = Shapes { inputs: inputs.iter().map(|tensor| tensor.shape.clone()).collect(), caches, packed };
        if let Some((_, prepared)) = self.programs.iter().find(|(other, _)| *other == shapes) {
            return Ok(prepared.clone());
        }
        let types = inputs.iter().map(|tensor| (tensor.dtype, tensor.shape.as_slice()));
        let bindings = bind_types(&self.graph, &given_types(&self.inputs, types)).map_err(|e| e.to_string())?;
        self.planned += 1;
        let program = match (&self.packing, packed) {
            (Some(packing), Some(sizes)) => Program::packed(&self.graph, &bindings, self.target, packing, sizes)?,
            _ => Program::new(&self.graph, &bindings, self.target, &shapes.caches)?,
        };
        let prepared = Rc::new(self.compiled(program)?);
        self.programs.push_front((shapes, prepared.clone()));
        self.programs.truncate(PROGRAMS);
        Ok(prepared)
    }

    /// A program with its kernels and constants on the device.
    fn compiled(&self, program: Program) -> Result<Prepared, String> {
        let kernels = self.device.prepare(&program.kernels)?;
        let constants = match program.constants.as_slice() {
            [] => None,
            bytes => {
                let memory = self.device.allocate(bytes.len())?;
                self.device.upload(memory.address(), bytes)?;
                Some(memory)
            }
        };
        Ok(Prepared { program, kernels, constants })
    }

    /// Memory for the buffers of a program.
    fn buffers(&mut self, program: &Program) -> Result<Buffers, String> {
        if self.separate {
            return Buffers::separate(self.device.as_ref(), program);
        }
        let bytes = program.memory.peak;
        if let Some(arena) = self.arena.as_ref().filter(|arena| arena.bytes() >= bytes) {
            return Ok(Buffers::Arena(arena.clone()));
        }
        // The device frees memory in the order of its work.
        self.arena = None;
        let arena = self.device.allocate(bytes)?;
        self.arena = Some(arena.clone());
        Ok(Buffers::Arena(arena))
    }

    /// Memory for the outputs of a program.
    fn outputs_for(&self, prepared: &Prepared, inputs: &[&DeviceTensor]) -> Result<Vec<DeviceTensor>, String> {
        let outputs = prepared.program.outputs.iter().map(|output| {
            let shared = output.cache.as_ref().and_then(|cache| cache.input);
            if let Some(input) = shared {
                let input = inputs[input];
                let cache = input.cache.clone();
                if let Some(cache) = &cache {
                    cache.filled.store(output.shape[2], Ordering::Relaxed);
                }
                return Ok(DeviceTensor { shape: output.shape.clone(), cache, ..input.clone() });
            }
            let cache = output.cache.as_ref().map(|cache| Cache::new(cache.capacity, output.shape[2]));
            let keys = |at: usize, size: usize| match &cache {
                Some(cache) if at == 2 => cache.capacity,
                _ => size,
            };
            let elements: usize = output.shape.iter().enumerate().map(|(at, size)| keys(at, *size)).product();
            let memory = self.device.allocate(elements * output.dtype.size())?;
            let (dtype, shape) = (output.dtype, output.shape.clone());
            Ok(DeviceTensor { device: self.device.clone(), dtype, shape, memory, cache })
        });
        outputs.collect()
    }

    /// Runs the graph.
    fn outputs_of(
        &mut self,
        inputs: &[&DeviceTensor],
        reserve: bool,
        packed: Option<&OnDevice>,
    ) -> Result<Vec<(String, DeviceTensor)>, String> {
        let prepared = self.prepared(inputs, reserve, packed.map(|packed| packed.batch.sizes))?;
        let buffers = self.buffers(&prepared.program)?;
        let outputs = self.outputs_for(&prepared, inputs)?;
        if self.fill {
            let own = outputs.iter().zip(&prepared.program.outputs);
            let own = own.filter(|(_, output)| output.cache.is_none()).map(|(tensor, _)| &tensor.memory);
            own.chain(buffers.allocations())
                .try_for_each(|memory| self.device.poison(memory.address(), memory.bytes()))?;
        }
        let addresses = Addresses {
            prepared: &prepared,
            weights: &self.weights,
            inputs: inputs.iter().map(|tensor| tensor.address()).collect(),
            outputs: outputs.iter().map(DeviceTensor::address).collect(),
            buffers: &buffers,
            packing: packed.map_or(0, |packed| packed.numbers.address()),
            words: 0,
        };
        addresses.run(self.device.as_ref())?;
        Ok(prepared.program.outputs.iter().map(|output| output.name.clone()).zip(outputs).collect())
    }

    /// Outputs as tensors, when all work is done.
    fn read(
        &self,
        outputs: impl IntoIterator<Item = (String, DeviceTensor)>,
    ) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        let tensor = |(name, value): (String, DeviceTensor)| match value.to_tensor() {
            Ok(tensor) => Ok((name, tensor)),
            Err(reason) => Err(self.failed("run", format!("the output `{name}` cannot be read: {reason}"))),
        };
        outputs.into_iter().map(tensor).collect()
    }

    fn copies(&self, inputs: &[&Tensor]) -> Result<Vec<DeviceTensor>, RuntimeError> {
        let copies = inputs.iter().map(|tensor| DeviceTensor::upload(&self.device, tensor)).collect::<Result<_, _>>();
        copies.map_err(|reason| self.failed("bind inputs of", reason))
    }
}

#[cfg(test)]
impl GraphSession {
    /// The sizes of the batches that the programs are for, the latest one first.
    pub(super) fn packed_sizes(&self) -> Vec<Option<PackedSizes>> {
        self.programs.iter().map(|(shapes, _)| shapes.packed).collect()
    }

    pub(super) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// How many programs were planned, how many steps replayed a recording, and how many kinds of steps have programs for
    /// each length.
    pub(super) fn step_counts(&self) -> (usize, usize, usize) {
        (self.planned, self.steps.replayed, self.steps.refused())
    }
}

impl Session for GraphSession {
    fn inputs(&self) -> &[Port] {
        &self.inputs
    }

    fn outputs(&self) -> &[Port] {
        &self.outputs
    }

    fn run(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        let ordered = in_order(&self.inputs, inputs).map_err(|reason| self.failed("bind inputs of", reason))?;
        let copies = self.copies(&ordered)?;
        let packed = self.packed(|at| ordered.get(at).copied()).map_err(|reason| self.failed("run", reason))?;
        let outputs = self.outputs_of(&copies.iter().collect::<Vec<_>>(), false, packed.as_ref());
        let outputs = outputs.and_then(|outputs| self.device.wait().map(|()| outputs));
        let outputs = outputs.map_err(|reason| self.failed("run", reason))?;
        self.read(outputs)
    }

    fn run_values(&mut self, inputs: &[(&str, &RuntimeValue)]) -> Result<Vec<(String, RuntimeValue)>, RuntimeError> {
        let ordered = in_order(&self.inputs, inputs).map_err(|reason| self.failed("bind inputs of", reason))?;
        // A mask that another run gave is on the device, and nothing is read from there.
        let tensor = |at: usize| match &ordered.get(at)?.0 {
            Kept::Tensor(tensor) => Some(tensor),
            _ => None,
        };
        let packed = self.packed(tensor).map_err(|reason| self.failed("run", reason))?;
        let named = |(name, value): (String, DeviceTensor)| (name, RuntimeValue(Kept::Cuda(value)));
        if packed.is_none() && self.record {
            let step = ordered.iter().map(|value| **value).collect::<Vec<&RuntimeValue>>();
            if let Some(outputs) = self.step(&step).map_err(|reason| self.failed("run", reason))? {
                return Ok(outputs.into_iter().map(named).collect());
            }
        }
        let mut values = Vec::with_capacity(ordered.len());
        for value in ordered {
            values.push(match &value.0 {
                Kept::Cuda(kept) if Arc::ptr_eq(&kept.device, &self.device) => kept.clone(),
                Kept::Tensor(tensor) => self.copies(&[tensor])?.remove(0),
                _ => return Err(self.failed("bind inputs of", "a value of another runtime was given")),
            });
        }
        let outputs = self.outputs_of(&values.iter().collect::<Vec<_>>(), true, packed.as_ref());
        let outputs = outputs.map_err(|reason| self.failed("run", reason))?;
        Ok(outputs.into_iter().map(named).collect())
    }

    fn bind(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError> {
        self.bound = None;
        let ordered = in_order(&self.inputs, inputs).map_err(|reason| self.failed("bind inputs of", reason))?;
        let copies = self.bound_copies(&ordered).map_err(|reason| self.failed("bind inputs of", reason))?;
        let packed = self.packed(|at| ordered.get(at).copied()).map_err(|reason| self.failed("run", reason))?;
        let bound = self.bound(copies, packed).map_err(|reason| self.failed("run", reason))?;
        self.bound = Some(bound);
        Ok(())
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        let bound = self.bound.as_ref().ok_or_else(|| self.failed("run", "no inputs are bound"))?;
        self.launch(bound).and_then(|()| self.device.wait()).map_err(|reason| self.failed("run", reason))
    }

    fn time_without_graph(&mut self) -> Result<Option<Duration>, RuntimeError> {
        let bound = self.bound.as_ref().ok_or_else(|| self.failed("run", "no inputs are bound"))?;
        if !bound.is_recorded() {
            return Ok(None);
        }
        let start = Instant::now();
        let ran = self.launch_each(bound).and_then(|()| self.device.wait());
        ran.map(|()| Some(start.elapsed())).map_err(|reason| self.failed("run", reason))
    }

    fn run_as_bound(&mut self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RuntimeError> {
        self.bind(inputs)?;
        let bound = self.bound.as_ref().ok_or_else(|| self.failed("run", "no inputs are bound"))?;
        let outputs = self.poison(bound).and_then(|()| self.launch(bound)).and_then(|()| self.device.wait());
        outputs.map_err(|reason| self.failed("run", reason))?;
        self.read(bound.outputs())
    }

    fn time_bound(&mut self, transfers: bool) -> Result<Option<DeviceTimes>, RuntimeError> {
        let mut bound = self.bound.take().ok_or_else(|| self.failed("run", "no inputs are bound"))?;
        let times = self.measure(&mut bound, transfers);
        self.bound = Some(bound);
        times.map_err(|reason| self.failed("run", reason))
    }

    fn timed(&mut self, transfers: bool) -> Result<(Duration, Option<DeviceTimes>), RuntimeError> {
        if let Some(mut bound) = self.bound.take_if(|_| transfers) {
            let prepared = self.prepare_transfers(&mut bound);
            self.bound = Some(bound);
            prepared.map_err(|reason| self.failed("run", reason))?;
        }
        let start = Instant::now();
        let device = self.time_bound(transfers)?;
        Ok((start.elapsed(), device))
    }
}
