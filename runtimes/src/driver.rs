//! CUDA's driver and its devices.

use std::sync::Arc;

use cudarc::driver::sys::{self, CUdevice_attribute};
use cudarc::driver::{CudaContext, DriverError, result};

use crate::Unavailable;

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its name, e.g. `NVIDIA GeForce RTX 4090`.
    pub name: String,
    /// Its compute capability, e.g. 89.
    pub capability: u32,
}

/// The GPUs of this machine, at least one. `otherwise` says what else the user of the runtime can do without one.
///
/// # Errors
/// When there is no driver or no device.
pub(crate) fn devices(runtime: &'static str, otherwise: &str) -> Result<Vec<Gpu>, Unavailable> {
    let unavailable =
        |reason: String, remedy: &str| Unavailable { runtime, reason, looked: Vec::new(), remedy: remedy.to_owned() };
    // SAFETY: loading libcuda runs its constructors; it is the driver of this machine.
    if !unsafe { sys::is_culib_present() } {
        let reason = "there is no CUDA driver: libcuda.so is not there".to_owned();
        let remedy = format!("run it on a machine with an NVIDIA GPU and its driver; {otherwise}");
        return Err(unavailable(reason, &remedy));
    }
    let failed = |e: DriverError| {
        let reason = format!("the CUDA driver does not work: {e}");
        unavailable(reason, "see whether `nvidia-smi` lists the GPU")
    };
    result::init().map_err(failed)?;
    let count = result::device::get_count().map_err(failed)?;
    let found = (0..count).map(device).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    match found.is_empty() {
        true => Err(unavailable("the CUDA driver has no device".to_owned(), "see whether `nvidia-smi` lists the GPU")),
        false => Ok(found),
    }
}

/// Lets a device keep memory that is freed in the order of a stream, for the next allocation. Without this, the driver
/// returns it to the system whenever something waits for a stream. The memory is the process's until it ends.
///
/// # Errors
/// What the driver said.
pub(crate) fn keep_freed_memory(context: &Arc<CudaContext>) -> Result<(), String> {
    if !context.has_async_alloc() {
        return Ok(());
    }
    let failed = |e: DriverError| format!("the pool of memory cannot be set: {e}");
    let mut pool = std::ptr::null_mut();
    let mut threshold = u64::MAX;
    let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    // SAFETY: the device is there; the driver writes the handle of its pool, and the attribute is a number of 64 bits.
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&raw mut pool, context.cu_device()).result().map_err(failed)?;
        sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut threshold).cast()).result().map_err(failed)
    }
}

/// The version of CUDA that the driver has, which is there.
pub(crate) fn version() -> (i32, i32) {
    let mut version = 0;
    // SAFETY: the driver is loaded; it writes a number.
    let _ = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    (version / 1000, version % 1000 / 10)
}

fn device(index: i32) -> Result<Gpu, DriverError> {
    let device = result::device::get(index)?;
    let attribute = |attribute| {
        // SAFETY: the device is one that the driver has just named.
        unsafe { result::device::get_attribute(device, attribute) }
    };
    let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(Gpu { name: result::device::get_name(device)?, capability: (major * 10 + minor).try_into().unwrap_or(0) })
}
