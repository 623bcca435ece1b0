//! Runs on inputs that stay on the device, as benchmarks time them.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use planish_eval::Tensor;
use planish_ir::Op;

use super::{GraphSession, OnDevice};
use crate::DeviceTimes;
use crate::cuda::device::{Buffer, Event, Recording};
use crate::cuda::run::{Addresses, Prepared};
use crate::cuda::tensor::DeviceTensor;

/// What `run_bound` runs.
pub(super) struct Bound {
    prepared: Rc<Prepared>,
    inputs: Vec<DeviceTensor>,
    packed: Option<OnDevice>,
    outputs: Vec<DeviceTensor>,
    arena: Buffer,
    recording: Option<Box<dyn Recording>>,
    /// How long the host took to give the run before to the device.
    enqueue: Cell<Duration>,
}

impl GraphSession {
    /// Copies of inputs that are run more than once. Caches have room for the keys of the run behind their own, where each
    /// run writes them again.
    pub(super) fn bound_copies(&self, inputs: &[&Tensor]) -> Result<Vec<DeviceTensor>, String> {
        let mut pasts = vec![false; inputs.len()];
        for (_, node) in self.graph.nodes() {
            let operands = match &node.op {
                Op::Attention(p) => [p.past_key, p.past_value],
                Op::RotaryAppend(p) => [p.past_key, p.past_value],
                _ => continue,
            };
            for value in operands.into_iter().flatten() {
                if let Some(at) = self.graph.inputs().iter().position(|input| *input == value) {
                    pasts[at] = true;
                }
            }
        }
        // No input has more tokens than this.
        let tokens = |tensor: &&&Tensor| tensor.shape().get(1).copied().unwrap_or(0);
        let new = inputs.iter().zip(&pasts).filter(|(_, past)| !**past).map(|(tensor, _)| tensor);
        let most = new.map(|tensor| tokens(&tensor)).max().unwrap_or(0);
        let copy = |(tensor, past): (&&Tensor, &bool)| match past {
            true => {
                DeviceTensor::upload_cache(&self.device, tensor, tensor.shape().get(2).map_or(0, |keys| keys + most))
            }
            false => DeviceTensor::upload(&self.device, tensor),
        };
        inputs.iter().zip(&pasts).map(copy).collect()
    }

    /// Gives the bound run to the device.
    pub(super) fn launch(&self, bound: &Bound) -> Result<(), String> {
        if let Some(recording) = &bound.recording {
            return recording.replay();
        }
        let inputs: Vec<&DeviceTensor> = bound.inputs.iter().collect();
        Addresses {
            prepared: &bound.prepared,
            weights: &self.weights,
            inputs: &inputs,
            outputs: &bound.outputs,
            arena: bound.arena.address(),
            packing: bound.packed.as_ref().map(|packed| &packed.numbers),
        }
        .run(self.device.as_ref())
    }

    pub(super) fn bound(&mut self, inputs: Vec<DeviceTensor>, packed: Option<OnDevice>) -> Result<Bound, String> {
        let views: Vec<&DeviceTensor> = inputs.iter().collect();
        let prepared = self.prepared(&views, false, packed.as_ref().map(|packed| packed.batch.sizes))?;
        let arena = self.arena(prepared.program.memory.peak)?;
        let outputs = self.outputs_for(&prepared, &views)?;
        let mut bound = Bound { prepared, inputs, packed, outputs, arena, recording: None, enqueue: Cell::default() };
        // A run before the recording chooses the algorithms of products.
        self.launch(&bound)?;
        self.device.wait()?;
        if self.record {
            let recording = self.device.record(&mut || self.launch(&bound))?;
            bound.recording = recording;
        }
        Ok(bound)
    }

    /// Runs once on what is bound, and takes the times.
    pub(super) fn measure(&self, bound: &Bound, transfers: bool) -> Result<Option<DeviceTimes>, String> {
        let Some(begin) = self.device.event()? else {
            self.launch(bound)?;
            self.device.wait()?;
            return Ok(None);
        };
        let event = || self.device.event()?.ok_or_else(|| "the device has no clock".to_owned());
        let copied = |from: &[DeviceTensor]| from.iter().map(DeviceTensor::to_bytes).collect::<Result<Vec<_>, _>>();
        let host = if transfers { copied(&bound.inputs)? } else { Vec::new() };
        // The device is kept busy while the host gives a run in many parts, or a copy.
        let busy = if bound.recording.is_some() && !transfers { Duration::ZERO } else { bound.enqueue.get() };
        let given = Instant::now();
        let begin = self.device.start(busy)?.unwrap_or(begin);
        for (tensor, bytes) in bound.inputs.iter().zip(&host) {
            tensor.fill(bytes)?;
        }
        if let Some(packed) = bound.packed.as_ref().filter(|_| transfers) {
            self.device.upload(packed.numbers.address(), &packed.batch.numbers)?;
        }
        let taken = event()?;
        let start = Instant::now();
        self.launch(bound)?;
        let enqueue = start.elapsed();
        bound.enqueue.set(given.elapsed());
        let computed = event()?;
        if transfers {
            copied(&bound.outputs)?;
        }
        let end = event()?;
        let between = |a: &dyn Event, b: &dyn Event| b.since(a);
        let compute = between(taken.as_ref(), computed.as_ref())?;
        let transfer = |time: Result<Duration, String>| if transfers { time.map(Some) } else { Ok(None) };
        Ok(Some(DeviceTimes {
            enqueue,
            compute,
            to_device: transfer(between(begin.as_ref(), taken.as_ref()))?,
            to_host: transfer(between(computed.as_ref(), end.as_ref()))?,
            graph: bound.recording.is_some(),
        }))
    }
}
