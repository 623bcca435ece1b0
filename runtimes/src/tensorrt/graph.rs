//! Runs of an engine recorded as CUDA graphs.

use cudarc::driver::{CudaGraph, sys};

#[cfg(not(feature = "tensorrt"))]
use super::KernelSpecialization;
use super::session::EngineSession;

impl EngineSession {
    /// The launches of a run as one graph; `None`, with a warning, where they cannot be recorded. TensorRT wants a run before it
    /// is recorded.
    ///
    /// # Errors
    /// When a run fails, in front of the recording or after one that failed, and when the stream cannot leave the recording.
    pub(super) fn record(&mut self) -> Result<Option<CudaGraph>, String> {
        self.enqueue()?;
        self.gpu.wait()?;
        match self.may_record().and_then(|()| self.recorded()) {
            Ok(graph) => Ok(Some(graph)),
            Err(reason) => {
                let status = self.gpu.stream.capture_status().map_err(|e| e.to_string())?;
                if status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
                    return Err(format!("{reason}; the stream still records"));
                }
                self.enqueue()?;
                self.gpu.wait()?;
                (self.warn)(&format!(
                    "no CUDA graph of {} was recorded, and its kernels are started one by one: {reason}",
                    self.model
                ));
                Ok(None)
            }
        }
    }

    /// Whether a graph would hold the kernels of a later run, and can be recorded.
    fn may_record(&self) -> Result<(), String> {
        #[cfg(not(feature = "tensorrt"))]
        {
            if self.specialization == KernelSpecialization::Lazy {
                return Err(
                    "kernels are specialized in the background (lazy), and a graph would keep the fallback kernels; \
                            choose eager or none"
                        .to_owned(),
                );
            }
            // SAFETY: the stream lives as long as the session.
            if !unsafe { self.context.isStreamCapturable(self.gpu.stream.cu_stream().cast()) } {
                let said = self.engine.logger.errors(
                    "the engine streams its weights, or sizes or control flow depend on values in the GPU's memory",
                );
                return Err(format!("TensorRT-RTX says that the run cannot be recorded: {said}"));
            }
        }
        Ok(())
    }

    /// Records a run. Where that fails, the reason takes the errors that TensorRT wrote of it, so that no later error has them.
    fn recorded(&mut self) -> Result<CudaGraph, String> {
        let stream = self.gpu.stream.clone();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        stream.begin_capture(mode).map_err(|e| e.to_string())?;
        let enqueued = self.enqueue();
        let graph = stream.end_capture(sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
        match (enqueued, graph) {
            (Ok(()), Ok(Some(graph))) => Ok(graph),
            (Ok(()), Ok(None)) => Err(self.engine.logger.errors("the recording has no launches")),
            (Ok(()), Err(error)) => Err(self.engine.logger.errors(&error.to_string())),
            (Err(reason), _) => Err(reason),
        }
    }
}
