//! Work that is recorded once and replayed as a whole, and points in the order of the work.

use std::any::Any;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, result, sys};

use super::{locked, message};
use crate::cuda::device::{Event, Recording};

/// Records the work of a thread.
///
/// What goes into a stream while it records is recorded, whoever gives it, and whoever waits for the stream breaks the
/// recording. So the stream that all share never records: recordings have one of their own, one at a time, that only the
/// thread which records gives work to.
pub(super) struct Recorder {
    stream: Arc<CudaStream>,
    one_at_a_time: Mutex<()>,
    thread: Mutex<Option<ThreadId>>,
}

impl Recorder {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, String> {
        let stream = context.new_stream().map_err(message)?;
        Ok(Self { stream, one_at_a_time: Mutex::default(), thread: Mutex::default() })
    }

    /// The stream that records the work of this thread, if it does.
    pub(super) fn stream(&self) -> Option<&Arc<CudaStream>> {
        (*locked(&self.thread) == Some(thread::current().id())).then_some(&self.stream)
    }

    /// Records the work that `give` gives, which is not done. It is replayed in the order of another stream.
    ///
    /// # Errors
    /// When `give` fails, or the driver does.
    pub(super) fn record(
        &self,
        replayed: &Arc<CudaStream>,
        give: &mut dyn FnMut() -> Result<(), String>,
    ) -> Result<Recorded, String> {
        if self.stream().is_some() {
            return Err("a recording within a recording".to_owned());
        }
        let _one_at_a_time = locked(&self.one_at_a_time);
        let context = self.stream.context();
        context.bind_to_thread().map_err(message)?;
        // Others may allocate memory meanwhile.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is there; the guard ends the recording, also if `give` panics.
        let begun = unsafe { result::stream::begin_capture(self.stream.cu_stream(), mode) };
        begun.map_err(|e| format!("the GPU's driver does not record work: {e}"))?;
        *locked(&self.thread) = Some(thread::current().id());
        let guard = Guard { recorder: self };
        let given = give();
        let graph = guard.end();
        if given.is_err() || graph.is_err() {
            // An error of the recording, which the binding keeps for its next call, is not one of later work.
            let _ = context.check_err();
        }
        if let (Err(reason), Ok(graph)) = (&given, graph) {
            // SAFETY: nothing else has the graph. Nothing can be done about an error.
            let _ = unsafe { result::graph::destroy(graph) };
            return Err(reason.clone());
        }
        given?;
        let graph = graph.map_err(|e| format!("the work was not recorded: {e}"))?;
        Recorded::new(graph, replayed.clone())
    }
}

/// Ends a recording.
struct Guard<'a> {
    recorder: &'a Recorder,
}

impl Guard<'_> {
    fn end(self) -> Result<sys::CUgraph, cudarc::driver::DriverError> {
        let recorder = self.recorder;
        std::mem::forget(self);
        recorder.end()
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if let Ok(graph) = self.recorder.end() {
            // SAFETY: nothing else has the graph. Nothing can be done about an error.
            let _ = unsafe { result::graph::destroy(graph) };
        }
    }
}

impl Recorder {
    fn end(&self) -> Result<sys::CUgraph, cudarc::driver::DriverError> {
        *locked(&self.thread) = None;
        // SAFETY: the stream is there. The binding's own function does not end the recording after some errors.
        unsafe { result::stream::end_capture(self.stream.cu_stream()) }
    }
}

/// A CUDA graph.
pub(super) struct Recorded {
    graph: sys::CUgraph,
    executable: sys::CUgraphExec,
    stream: Arc<CudaStream>,
}

impl Recorded {
    fn new(graph: sys::CUgraph, stream: Arc<CudaStream>) -> Result<Self, String> {
        if graph.is_null() {
            return Err("the driver recorded nothing".to_owned());
        }
        // SAFETY: the graph is there.
        match unsafe { result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0)) } {
            Ok(executable) => Ok(Self { graph, executable, stream }),
            Err(error) => {
                // SAFETY: nothing else has the graph.
                let _ = unsafe { result::graph::destroy(graph) };
                Err(format!("recorded work cannot be made ready: {error}"))
            }
        }
    }
}

impl Recording for Recorded {
    fn replay(&self) -> Result<(), String> {
        self.stream.context().bind_to_thread().map_err(message)?;
        // SAFETY: the graph is there, and what its work uses is its owner's.
        unsafe { result::graph::launch(self.executable, self.stream.cu_stream()) }
            .map_err(|e| format!("recorded work cannot be replayed: {e}"))
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        // Nothing can be done about errors.
        let _ = self.stream.context().bind_to_thread();
        // SAFETY: nothing uses them any more; the driver keeps what the GPU still runs.
        unsafe {
            let _ = result::graph::exec_destroy(self.executable);
            let _ = result::graph::destroy(self.graph);
        }
    }
}

/// A point in the order of a stream.
pub(super) struct Point(pub(super) CudaEvent);

impl Event for Point {
    fn since(&self, earlier: &dyn Event) -> Result<Duration, String> {
        let earlier = earlier.as_any().downcast_ref::<Self>().ok_or("the event is of another device")?;
        self.0.synchronize().map_err(message)?;
        let ms = earlier.0.elapsed_ms(&self.0).map_err(message)?;
        Ok(Duration::from_secs_f64(f64::from(ms.max(0.0)) / 1e3))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
