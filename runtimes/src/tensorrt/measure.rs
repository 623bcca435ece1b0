//! The times of a run by the clock of the GPU: events around its transfers and its kernels.

use std::time::{Duration, Instant};

use cudarc::driver::{CudaEvent, DriverError, sys};

use super::session::{Bound, EngineSession};
use crate::DeviceTimes;
use crate::driver::elapsed;

/// Inputs and outputs in the host's memory.
pub(super) struct HostCopies {
    inputs: Vec<Vec<u8>>,
    outputs: Vec<Vec<u8>>,
}

impl EngineSession {
    /// Runs once on what is bound and takes the times; with `transfers` the inputs are copied to the GPU in front of it, and
    /// the outputs to the host after it.
    pub(super) fn measure(&mut self, bound: &mut Bound, transfers: bool) -> Result<DeviceTimes, String> {
        let graph = bound.graph.is_some();
        let message = |e: DriverError| e.to_string();
        if !transfers {
            let begin = self.event().map_err(message)?;
            let enqueue = self.enqueued(bound)?;
            let end = self.event().map_err(message)?;
            let compute = elapsed(&begin, &end).map_err(message)?;
            return Ok(DeviceTimes { enqueue, compute, to_device: None, to_host: None, graph });
        }
        let mut host = match bound.host.take() {
            Some(host) => host,
            None => HostCopies {
                inputs: bound
                    .inputs
                    .iter()
                    .map(|tensor| tensor.to_bytes())
                    .collect::<Result<_, _>>()
                    .map_err(message)?,
                outputs: bound.outputs.iter().map(|tensor| vec![0; tensor.bytes()]).collect(),
            },
        };
        let begin = self.event().map_err(message)?;
        for (tensor, bytes) in bound.inputs.iter_mut().zip(&host.inputs) {
            tensor.fill(bytes).map_err(message)?;
        }
        let taken = self.event().map_err(message)?;
        let enqueue = self.enqueued(bound)?;
        let computed = self.event().map_err(message)?;
        for (tensor, bytes) in bound.outputs.iter().zip(&mut host.outputs) {
            tensor.read(bytes).map_err(message)?;
        }
        let end = self.event().map_err(message)?;
        let times = [(&begin, &taken), (&taken, &computed), (&computed, &end)].map(|(a, b)| elapsed(a, b));
        bound.host = Some(host);
        let [to_device, compute, to_host] = times;
        Ok(DeviceTimes {
            enqueue,
            compute: compute.map_err(message)?,
            to_device: Some(to_device.map_err(message)?),
            to_host: Some(to_host.map_err(message)?),
            graph,
        })
    }

    /// Starts a run; returns the time that the host took for that.
    fn enqueued(&mut self, bound: &Bound) -> Result<Duration, String> {
        let start = Instant::now();
        self.launch(bound)?;
        Ok(start.elapsed())
    }

    /// A point in the work of the GPU.
    fn event(&self) -> Result<CudaEvent, DriverError> {
        self.gpu.stream.record_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT))
    }
}
