//! Copies between the host and the GPU.

use std::sync::Arc;

use cudarc::driver::{CudaStream, result};

use super::message;
use crate::cuda::device::{HostMemory, Memory};

/// Memory of the host that stays where it is, so that the GPU copies it without the processor.
pub(super) struct Pinned {
    start: *mut u8,
    bytes: usize,
    stream: Arc<CudaStream>,
}

// SAFETY: it is plain memory; what the GPU does with it is in the order of the stream.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub(super) fn new(stream: &Arc<CudaStream>, bytes: usize) -> Result<Self, String> {
        stream.context().bind_to_thread().map_err(message)?;
        // SAFETY: CUDA has no memory of 0 bytes; it is freed when this is dropped.
        let start = unsafe { result::malloc_host(bytes.max(1), 0) }
            .map_err(|e| format!("there are no {bytes} bytes of pinned memory: {e}"))?
            .cast::<u8>();
        // SAFETY: the memory has this size.
        unsafe { start.write_bytes(0, bytes.max(1)) };
        Ok(Self { start, bytes, stream: stream.clone() })
    }
}

impl Memory for Pinned {
    fn address(&self) -> u64 {
        self.start.expose_provenance() as u64
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

impl HostMemory for Pinned {
    fn read(&self) -> &[u8] {
        // SAFETY: the memory has this size, and was written when it was made.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    fn write(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // The GPU may still copy. Nothing can be done about an error.
        let _ = self.stream.synchronize();
        // SAFETY: it was allocated so, and nothing uses it any more.
        let _ = unsafe { result::free_host(self.start.cast()) };
    }
}
