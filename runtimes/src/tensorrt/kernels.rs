//! The kernels that TensorRT-RTX compiles when it loads an engine, kept from process to process (`IRuntimeCache`).

use std::pin::Pin;

use cxx::UniquePtr;
use trtx_sys::nvinfer1::{
    ExecutionContextAllocationStrategy, ICudaEngine, IExecutionContext, IHostMemory, IRuntimeCache, IRuntimeConfig,
};

use super::cache::CacheFile;

/// The cache of an engine. The configuration points to it, and the context of the engine to both, so they are dropped
/// behind that.
pub(super) struct KernelCache {
    _config: UniquePtr<IRuntimeConfig>,
    cache: UniquePtr<IRuntimeCache>,
    file: CacheFile,
    /// The digest of what the file holds.
    kept: Option<blake3::Hash>,
    warn: fn(&str),
}

impl KernelCache {
    /// A context of an engine that takes kernels from a file and compiles those that are missing. `None` where TensorRT
    /// makes none.
    pub(super) fn context(
        mut engine: Pin<&mut ICudaEngine>,
        file: CacheFile,
        warn: fn(&str),
    ) -> Option<(UniquePtr<IExecutionContext>, Self)> {
        // SAFETY: the caller of `createRuntimeConfig` owns the configuration; null is allowed.
        let mut config = unsafe { UniquePtr::from_raw(engine.as_mut().createRuntimeConfig()) };
        let mut configured: Pin<&mut IRuntimeConfig> = config.as_mut()?;
        configured.as_mut().setExecutionContextAllocationStrategy(ExecutionContextAllocationStrategy::kSTATIC);
        // SAFETY: the caller of `createRuntimeCache` owns the cache; null is allowed.
        let cache = unsafe { UniquePtr::from_raw(configured.createRuntimeCache()) };
        let made: &IRuntimeCache = cache.as_ref()?;
        let mut kept = file.read(&warn);
        if let Some(bytes) = &kept {
            // SAFETY: TensorRT only reads the bytes, during the call.
            if !unsafe { made.deserialize(bytes.as_ptr().cast(), bytes.len()) } {
                warn("TensorRT-RTX does not take the kernels that were kept, and compiles them again");
                kept = None;
            }
        }
        if !configured.as_mut().setRuntimeCache(made) {
            return None;
        }
        let configured: *mut IRuntimeConfig = config.as_mut_ptr();
        // SAFETY: the configuration lives longer than the context; the caller owns the context; null is checked.
        let context = unsafe { UniquePtr::from_raw(engine.createExecutionContext1(configured)) };
        let kept = kept.map(|bytes| blake3::hash(&bytes));
        (!context.is_null()).then_some((context, Self { _config: config, cache, file, kept, warn }))
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
