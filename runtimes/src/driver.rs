//! CUDA's driver and its devices.

use std::time::Duration;

use cudarc::driver::sys::{self, CUdevice_attribute, CUmemPool_attribute};
use cudarc::driver::{CudaContext, CudaEvent, DriverError, result};

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

/// The version of CUDA that the driver has, which is there.
pub(crate) fn version() -> (i32, i32) {
    let mut version = 0;
    // SAFETY: the driver is loaded; it writes a number.
    let _ = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    (version / 1000, version % 1000 / 10)
}

/// Has the device keep memory that is freed for later allocations of this process: by default the driver returns all of it
/// to the system whenever a stream is waited for. `false` where the device has no pool of memory.
///
/// # Errors
/// When the driver fails.
pub(crate) fn keep_pool_memory(context: &CudaContext) -> Result<bool, DriverError> {
    if !context.has_async_alloc() {
        return Ok(false);
    }
    let (attribute, mut all) = (CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX);
    // SAFETY: the device is that of a context that lives; the attribute is a number of 64 bits.
    unsafe {
        let pool = result::device::get_mem_pool(context.cu_device())?;
        result::mem_pool::set_attribute(pool, attribute, (&raw mut all).cast())?;
    }
    Ok(true)
}

/// How NVIDIA's tools name the first GPU, e.g. `GPU-6ecc1c2d-...`; `None` where there is none.
pub(crate) fn first_uuid() -> Option<String> {
    devices("", "").ok()?;
    let bytes = result::device::get_uuid(result::device::get(0).ok()?).ok()?.bytes;
    let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| &hex[part]);
    Some(format!("GPU-{}", parts.join("-")))
}

/// The time of the GPU between two points in its work, once both are reached.
pub(crate) fn elapsed(begin: &CudaEvent, end: &CudaEvent) -> Result<Duration, DriverError> {
    begin.elapsed_ms(end).map(|ms| Duration::from_secs_f64(f64::from(ms.max(0.0)) / 1e3))
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
