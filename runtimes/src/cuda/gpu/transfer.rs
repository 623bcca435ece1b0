//! Copies between the host and the GPU, through pinned memory.
//!
//! The driver copies pageable memory through pinned memory of its own, one part after another, and on systems where the GPU
//! reads the host's memory may read it after the call returned. Here bytes are copied to a ring of pinned memory, from
//! where the GPU takes them while the host goes on.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaStream, result, sys};

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

/// The bytes of the ring, and the most that one copy takes of it.
const RING: usize = 16 << 20;
const PART: usize = 4 << 20;

/// Pinned memory that copies take one after another, and again from the start.
#[derive(Default)]
pub(super) struct Ring {
    memory: Option<Pinned>,
    next: usize,
    /// What the GPU may still use, the oldest first.
    used: VecDeque<(Range<usize>, CudaEvent)>,
}

impl Ring {
    /// Copies bytes to the GPU. They may be freed when this returns.
    pub(super) fn upload(&mut self, stream: &Arc<CudaStream>, to: u64, bytes: &[u8]) -> Result<(), String> {
        let mut to = to;
        for part in bytes.chunks(PART) {
            let place = self.take(stream, part.len())?;
            let memory = self.memory(stream)?;
            memory.write()[place.clone()].copy_from_slice(part);
            let from = memory.address() + place.start as u64;
            copy(stream, to, from, part.len())?;
            self.mark(stream, place)?;
            to += part.len() as u64;
        }
        Ok(())
    }

    /// Copies bytes from the GPU when the work before is done.
    pub(super) fn download(&mut self, stream: &Arc<CudaStream>, from: u64, to: &mut [u8]) -> Result<(), String> {
        // While the host copies one part, the GPU copies the next one.
        let mut copied: Option<(Range<usize>, &mut [u8])> = None;
        let mut from = from;
        for part in to.chunks_mut(PART) {
            let place = self.take(stream, part.len())?;
            let at = self.memory(stream)?.address() + place.start as u64;
            copy(stream, at, from, part.len())?;
            self.mark(stream, place.clone())?;
            from += part.len() as u64;
            if let Some(before) = copied.replace((place, part)) {
                self.finish(stream, before)?;
            }
        }
        copied.map_or(Ok(()), |last| self.finish(stream, last))
    }

    /// Copies what has come to the ring to where it belongs.
    fn finish(&mut self, stream: &Arc<CudaStream>, (place, to): (Range<usize>, &mut [u8])) -> Result<(), String> {
        if let Some((_, event)) = self.used.iter().find(|(used, _)| *used == place) {
            event.synchronize().map_err(message)?;
        }
        to.copy_from_slice(&self.memory(stream)?.read()[place]);
        Ok(())
    }

    fn memory(&mut self, stream: &Arc<CudaStream>) -> Result<&mut Pinned, String> {
        match &mut self.memory {
            Some(memory) => Ok(memory),
            none => Ok(none.insert(Pinned::new(stream, RING)?)),
        }
    }

    /// The next place with this many bytes, when the GPU does not use it any more.
    fn take(&mut self, stream: &Arc<CudaStream>, bytes: usize) -> Result<Range<usize>, String> {
        stream.context().bind_to_thread().map_err(message)?;
        let start = if self.next + bytes > RING { 0 } else { self.next };
        let place = start..start + bytes;
        let overlaps = |used: &Range<usize>| used.start < place.end && place.start < used.end;
        while self.used.iter().any(|(used, _)| overlaps(used)) {
            let Some((_, event)) = self.used.pop_front() else { break };
            event.synchronize().map_err(message)?;
        }
        // Where places begin, copies are fast.
        self.next = place.end.next_multiple_of(512);
        Ok(place)
    }

    fn mark(&mut self, stream: &Arc<CudaStream>, place: Range<usize>) -> Result<(), String> {
        while self.used.front().is_some_and(|(_, event)| event.is_complete()) {
            self.used.pop_front();
        }
        self.used.push_back((place, stream.record_event(None).map_err(message)?));
        Ok(())
    }
}

/// Copies between memory of the GPU and pinned memory, or within either.
pub(super) fn copy(stream: &CudaStream, to: u64, from: u64, bytes: usize) -> Result<(), String> {
    // SAFETY: callers name memory with these bytes; addresses of both kinds are of one space.
    unsafe { sys::cuMemcpyAsync(to, from, bytes, stream.cu_stream()) }.result().map_err(message)
}
