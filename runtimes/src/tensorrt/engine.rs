//! Engines that are read from files.

use std::io;
use std::path::Path;

use cxx::UniquePtr;
use planish_files::Kind;
use trtx_sys::nvinfer1::{ICudaEngine, IRuntime};

use super::gpu::Device;
use super::library::{Library, header_version};
use super::log::Logger;
use super::{ENTERPRISE, Plan, RUNTIME, gpu};
use crate::RuntimeError;

/// An engine in the GPU's memory. The members are dropped in their order: TensorRT's objects point to those after them.
pub(super) struct Engine {
    pub(super) engine: UniquePtr<ICudaEngine>,
    _runtime: UniquePtr<IRuntime>,
    pub(super) logger: Logger,
    /// The GPU, by which TensorRT-RTX's kernels are kept.
    #[cfg_attr(feature = "tensorrt", allow(dead_code))]
    pub(super) device: Device,
    /// The digest of the file, by which its kernels are kept.
    #[cfg(not(feature = "tensorrt"))]
    pub(super) digest: blake3::Hash,
}

impl Engine {
    /// Reads an engine from a file, after the check that it fits the library and the first GPU.
    pub(super) fn load(library: &Library, path: &Path) -> Result<Self, RuntimeError> {
        let device = gpu::devices()?.swap_remove(0);
        let failed = |reason: String| failed(path, reason);
        if !ENTERPRISE {
            let plan = Plan::read(path).map_err(|e| failed(e.to_string()))?;
            plan.runs_on(library.version, Some(&device)).map_err(|e| failed(e.to_string()))?;
        }
        let bytes = planish_files::read(path, &Kind::ENGINE).map_err(|e| failed(io::Error::from(e).to_string()))?;
        let logger = Logger::new();
        // SAFETY: the function of the library, called with an `ILogger*` that lives longer than the runtime, after the check
        // that there is a GPU.
        let mut runtime = unsafe {
            let runtime = (library.create_runtime)(logger.interface(), header_version().cast_signed());
            UniquePtr::<IRuntime>::from_raw(runtime.cast())
        };
        let said = |logger: &Logger| failed(logger.errors("TensorRT gave no reason"));
        let Some(made) = runtime.as_mut() else { return Err(said(&logger)) };
        // SAFETY: TensorRT reads the bytes during the call; the caller owns the engine.
        let engine = unsafe { UniquePtr::from_raw(made.deserializeCudaEngine(bytes.as_ptr().cast(), bytes.len())) };
        match engine.is_null() {
            true => Err(said(&logger)),
            false => Ok(Self {
                engine,
                _runtime: runtime,
                logger,
                device,
                #[cfg(not(feature = "tensorrt"))]
                digest: blake3::hash(&bytes),
            }),
        }
    }
}

/// An engine was not loaded.
pub(super) fn failed(path: &Path, reason: String) -> RuntimeError {
    RuntimeError::Failed { runtime: RUNTIME, action: "load", model: path.display().to_string(), reason }
}
