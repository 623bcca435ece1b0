//! CUDA's driver and its devices.

use cudarc::driver::sys::{self, CUdevice_attribute};
use cudarc::driver::{DriverError, result};

use super::RUNTIME;
use super::gpu::Device;
use crate::Unavailable;

/// The GPUs of this machine, at least one. TensorRT is called only behind this where it needs one: without a driver some
/// of its libraries return objects that end the process when they are used.
///
/// # Errors
/// When there is no driver or no device.
pub fn devices() -> Result<Vec<Device>, Unavailable> {
    let unavailable = |reason: String, remedy: &str| Unavailable {
        runtime: RUNTIME,
        reason,
        looked: Vec::new(),
        remedy: remedy.to_owned(),
    };
    // SAFETY: loading libcuda runs its constructors; it is the driver of this machine.
    if !unsafe { sys::is_culib_present() } {
        let reason = "there is no CUDA driver: libcuda.so is not there".to_owned();
        return Err(unavailable(
            reason,
            "run it on a machine with an NVIDIA GPU and its driver; --runtime ort runs the ONNX graph of an artifact that has one",
        ));
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

fn device(index: i32) -> Result<Device, DriverError> {
    let device = result::device::get(index)?;
    let attribute = |attribute| {
        // SAFETY: the device is one that the driver has just named.
        unsafe { result::device::get_attribute(device, attribute) }
    };
    let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(Device { name: result::device::get_name(device)?, capability: (major * 10 + minor).try_into().unwrap_or(0) })
}
