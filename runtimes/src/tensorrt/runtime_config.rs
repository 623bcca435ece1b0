//! How contexts of engines are made: `IRuntimeConfig` of TensorRT-RTX.

use std::pin::Pin;

use cxx::UniquePtr;
#[cfg(not(feature = "tensorrt"))]
use trtx_sys::nvinfer1::{CudaGraphStrategy, DynamicShapesKernelSpecializationStrategy, IRuntimeConfig};
use trtx_sys::nvinfer1::{ExecutionContextAllocationStrategy, ICudaEngine, IExecutionContext};

use super::engine::Engine;
#[cfg(not(feature = "tensorrt"))]
use super::kernels::KernelCache;
use super::library::Library;
use super::load_options::LoadOptions;
#[cfg(not(feature = "tensorrt"))]
use super::{CacheFile, CacheKind, KernelSpecialization, PRODUCT};

/// The memory of a context is allocated when the context is made.
const ALLOCATION: ExecutionContextAllocationStrategy = ExecutionContextAllocationStrategy::kSTATIC;

/// The configuration of an engine's context, with the kernels that are kept for it. The context points to both, so they are
/// dropped after that; and the configuration points to the kernels.
#[cfg(not(feature = "tensorrt"))]
pub(super) struct RuntimeConfig {
    config: UniquePtr<IRuntimeConfig>,
    kernels: Option<KernelCache>,
}

#[cfg(not(feature = "tensorrt"))]
impl RuntimeConfig {
    /// The configuration for these options.
    pub(super) fn new(library: &Library, engine: &mut Engine, options: &LoadOptions) -> Result<Self, String> {
        // SAFETY: the caller of `createRuntimeConfig` owns the configuration; null is allowed.
        let mut config = unsafe { UniquePtr::from_raw(engine.engine.pin_mut().createRuntimeConfig()) };
        let Some(made) = config.as_mut() else {
            return Err(engine.logger.errors("TensorRT-RTX made no configuration of a context"));
        };
        let made = configured(made, options.kernel_specialization).map_err(|reason| engine.logger.errors(reason))?;
        let kept = options.keep_kernels.then_some(CacheKind::Kernels);
        let file = kept.and_then(|kind| CacheFile::find(kind, PRODUCT, library.version, &engine.device.name));
        let kernels = file.and_then(|file| KernelCache::new(made, file.of_engine(&engine.digest), options.warn));
        Ok(Self { config, kernels })
    }

    /// A context of the engine; null where TensorRT makes none.
    pub(super) fn context(&mut self, engine: Pin<&mut ICudaEngine>) -> UniquePtr<IExecutionContext> {
        // SAFETY: the configuration lives longer than the context, which the caller owns; null is allowed.
        unsafe { UniquePtr::from_raw(engine.createExecutionContext1(self.config.as_mut_ptr())) }
    }

    /// Keeps the kernels that were compiled.
    pub(super) fn keep(&self) {
        if let Some(kernels) = &self.kernels {
            kernels.keep();
        }
    }
}

/// Says everything that is not left to the defaults of a version. Runs are recorded by their session, not by TensorRT.
#[cfg(not(feature = "tensorrt"))]
fn configured(
    mut config: Pin<&mut IRuntimeConfig>,
    specialization: KernelSpecialization,
) -> Result<Pin<&mut IRuntimeConfig>, &'static str> {
    config.as_mut().setExecutionContextAllocationStrategy(ALLOCATION);
    config.as_mut().setDynamicShapesKernelSpecializationStrategy(match specialization {
        KernelSpecialization::Eager => DynamicShapesKernelSpecializationStrategy::kEAGER,
        KernelSpecialization::Lazy => DynamicShapesKernelSpecializationStrategy::kLAZY,
        KernelSpecialization::None => DynamicShapesKernelSpecializationStrategy::kNONE,
    });
    match config.as_mut().setCudaGraphStrategy(CudaGraphStrategy::kDISABLED) {
        true => Ok(config),
        false => Err("TensorRT-RTX did not take the choice to record no CUDA graphs by itself"),
    }
}

/// TensorRT compiles no kernels when it loads an engine, and has no choices but the memory.
#[cfg(feature = "tensorrt")]
pub(super) struct RuntimeConfig;

#[cfg(feature = "tensorrt")]
impl RuntimeConfig {
    pub(super) fn new(_: &Library, _: &mut Engine, _: &LoadOptions) -> Result<Self, String> {
        Ok(Self)
    }

    pub(super) fn context(&mut self, engine: Pin<&mut ICudaEngine>) -> UniquePtr<IExecutionContext> {
        // SAFETY: the caller owns the context; null is allowed.
        unsafe { UniquePtr::from_raw(engine.createExecutionContext(ALLOCATION)) }
    }

    pub(super) fn keep(&self) {}
}
