//! Runs on inputs that stay on the device, as benchmarks time them.

use std::rc::Rc;
use std::time::{Duration, Instant};

use planish_eval::Tensor;

use super::{GraphSession, OnDevice};
use crate::DeviceTimes;
use crate::cuda::buffers::Buffers;
use crate::cuda::device::{Buffer, Event, HostMemory, Recording};
use crate::cuda::plan::pasts;
use crate::cuda::run::{Addresses, Prepared};
use crate::cuda::tensor::DeviceTensor;

/// What `run_bound` runs.
pub(super) struct Bound {
    pub(super) prepared: Rc<Prepared>,
    pub(super) inputs: Vec<DeviceTensor>,
    packed: Option<OnDevice>,
    outputs: Vec<DeviceTensor>,
    buffers: Buffers,
    recording: Option<Box<dyn Recording>>,
    /// The time that the host took to start the last run that was measured.
    enqueue: Duration,
    /// Once runs with transfers are measured.
    host: Option<HostCopies>,
}

/// The memory of inputs and outputs in that of the host, each beside that of the device.
struct HostCopies {
    inputs: Vec<(Box<dyn HostMemory>, Buffer)>,
    outputs: Vec<(Box<dyn HostMemory>, Buffer)>,
}

impl Bound {
    pub(super) fn is_recorded(&self) -> bool {
        self.recording.is_some()
    }

    /// The outputs by their names.
    pub(super) fn outputs(&self) -> impl Iterator<Item = (String, DeviceTensor)> {
        let names = self.prepared.program.outputs.iter().map(|output| output.name.clone());
        names.zip(self.outputs.iter().cloned())
    }
}

impl GraphSession {
    /// Copies of inputs that are run more than once. Caches have room for the keys of the run after their own, where each
    /// run writes them again.
    pub(super) fn bound_copies(&self, inputs: &[&Tensor]) -> Result<Vec<DeviceTensor>, String> {
        let pasts = pasts(&self.graph);
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
        self.launch_each(bound)
    }

    /// The same without a recording.
    pub(super) fn launch_each(&self, bound: &Bound) -> Result<(), String> {
        self.addresses(bound).run(self.device.as_ref())
    }

    /// The addresses of the bound run.
    pub(super) fn addresses<'a>(&'a self, bound: &'a Bound) -> Addresses<'a> {
        Addresses {
            prepared: &bound.prepared,
            weights: &self.weights,
            inputs: bound.inputs.iter().map(DeviceTensor::address).collect(),
            outputs: bound.outputs.iter().map(DeviceTensor::address).collect(),
            buffers: &bound.buffers,
            packing: bound.packed.as_ref().map_or(0, |packed| packed.numbers.address()),
            words: 0,
        }
    }

    /// Fills what the bound run writes with bytes that are no numbers: its buffers, its outputs, and in the memory of caches
    /// that it continues the place of the new keys and values.
    pub(super) fn poison(&self, bound: &Bound) -> Result<(), String> {
        let buffers = bound.buffers.allocations();
        buffers.iter().try_for_each(|memory| self.device.poison(memory.address(), memory.bytes()))?;
        for (tensor, output) in bound.outputs.iter().zip(&bound.prepared.program.outputs) {
            match output.cache.as_ref().and_then(|cache| cache.input) {
                Some(past) => tensor.poison_after(bound.inputs[past].shape[2])?,
                None => self.device.poison(tensor.memory.address(), tensor.memory.bytes())?,
            }
        }
        Ok(())
    }

    pub(super) fn bound(&mut self, inputs: Vec<DeviceTensor>, packed: Option<OnDevice>) -> Result<Bound, String> {
        let views: Vec<&DeviceTensor> = inputs.iter().collect();
        let prepared = self.prepared(&views, false, packed.as_ref().map(|packed| packed.batch.sizes))?;
        let buffers = self.buffers(&prepared.program)?;
        let outputs = self.outputs_for(&prepared, &views)?;
        let mut bound =
            Bound { prepared, inputs, packed, outputs, buffers, recording: None, enqueue: Duration::ZERO, host: None };
        // A run before the recording chooses the algorithms of products.
        self.launch(&bound)?;
        self.device.wait()?;
        if self.record {
            let recording = self.device.record(&mut || self.launch_each(&bound));
            let recording =
                recording.map_err(|reason| format!("{reason}; --runtime-option cuda-graph=false records no run"))?;
            bound.recording = recording;
        }
        Ok(bound)
    }

    /// Makes what runs with transfers copy from and to, once.
    pub(super) fn prepare_transfers(&self, bound: &mut Bound) -> Result<(), String> {
        if bound.host.is_some() {
            return Ok(());
        }
        let device = self.device.as_ref();
        let copied = |memory: &Buffer| {
            let host = device.pinned(memory.bytes())?;
            device.copy(host.address(), memory.address(), memory.bytes())?;
            Ok::<_, String>((host, memory.clone()))
        };
        let packed = bound.packed.as_ref().map(|packed| &packed.numbers);
        let inputs = bound.inputs.iter().map(|tensor| &tensor.memory).chain(packed);
        let inputs = inputs.map(copied).collect::<Result<_, _>>()?;
        let outputs = bound.outputs.iter().map(|tensor| copied(&tensor.memory)).collect::<Result<_, _>>()?;
        device.wait()?;
        bound.host = Some(HostCopies { inputs, outputs });
        Ok(())
    }

    /// Runs once on what is bound, and takes the times. With `transfers` the memory of inputs is copied from that of the host
    /// in front of the run, and the memory of outputs to it after the run; the room of caches is part of both.
    pub(super) fn measure(&self, bound: &mut Bound, transfers: bool) -> Result<Option<DeviceTimes>, String> {
        let device = self.device.as_ref();
        if transfers {
            self.prepare_transfers(bound)?;
        }
        // While the device is busy in front of the first event, the host starts the replay. Kernels that are started one by one
        // run while the host starts the next ones, which a busy device would delay.
        let begin = if bound.is_recorded() { device.start(bound.enqueue)? } else { device.event()? };
        let Some(begin) = begin else {
            self.launch(bound)?;
            device.wait()?;
            return Ok(None);
        };
        let event = || device.event()?.ok_or_else(|| "the device has no clock".to_owned());
        let copies = bound.host.as_ref().filter(|_| transfers);
        for (host, memory) in copies.into_iter().flat_map(|copies| &copies.inputs) {
            device.copy(memory.address(), host.address(), memory.bytes())?;
        }
        let taken = event()?;
        let start = Instant::now();
        self.launch(bound)?;
        let enqueue = start.elapsed();
        bound.enqueue = enqueue;
        let computed = event()?;
        for (host, memory) in copies.into_iter().flat_map(|copies| &copies.outputs) {
            device.copy(host.address(), memory.address(), memory.bytes())?;
        }
        let end = event()?;
        device.wait()?;
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
