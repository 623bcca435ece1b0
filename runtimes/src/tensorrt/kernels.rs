//! The kernels that TensorRT-RTX compiles when it loads an engine, kept from process to process (`IRuntimeCache`).

use std::pin::Pin;

use cxx::UniquePtr;
use trtx_sys::nvinfer1::{IHostMemory, IRuntimeCache, IRuntimeConfig};

use super::cache::CacheFile;

/// The cache of an engine. The configuration of its context points to it.
pub(super) struct KernelCache {
    cache: UniquePtr<IRuntimeCache>,
    file: CacheFile,
    /// The digest of what the file holds.
    kept: Option<blake3::Hash>,
    warn: fn(&str),
}

impl KernelCache {
    /// Has a configuration take kernels from a file, and add those that are missing there. `None` where TensorRT makes no
    /// cache.
    pub(super) fn new(config: Pin<&mut IRuntimeConfig>, file: CacheFile, warn: fn(&str)) -> Option<Self> {
        // SAFETY: the caller of `createRuntimeCache` owns the cache; null is allowed.
        let cache = unsafe { UniquePtr::from_raw(config.createRuntimeCache()) };
        let made: &IRuntimeCache = cache.as_ref()?;
        let mut kept = file.read(&warn);
        if let Some(bytes) = &kept {
            // SAFETY: TensorRT only reads the bytes, during the call.
            if !unsafe { made.deserialize(bytes.as_ptr().cast(), bytes.len()) } {
                warn("TensorRT-RTX does not take the kernels that were kept, and compiles them again");
                kept = None;
            }
        }
        let taken = config.setRuntimeCache(made);
        let kept = kept.map(|bytes| blake3::hash(&bytes));
        taken.then_some(Self { cache, file, kept, warn })
    }

    /// Writes what was compiled since the file was read, if anything was.
    pub(super) fn keep(&self) {
        let Some(cache) = self.cache.as_ref() else { return };
        // SAFETY: the caller of `serialize` owns what it returns; null is allowed.
        let memory = unsafe { UniquePtr::<IHostMemory>::from_raw(cache.serialize()) };
        let Some(memory) = memory.as_ref().filter(|memory| !memory.data().is_null()) else { return };
        // SAFETY: the memory is owned by `memory`.
        let bytes = unsafe { std::slice::from_raw_parts(memory.data().cast::<u8>(), memory.size()) };
        if self.kept == Some(blake3::hash(bytes)) {
            return;
        }
        if let Err(reason) = self.file.write(bytes) {
            (self.warn)(&format!("the kernels of the engine are not kept: {reason}"));
        }
    }
}
