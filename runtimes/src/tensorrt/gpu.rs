//! GPUs for engines.

#[cfg(feature = "trtx")]
use crate::Unavailable;

pub use crate::driver::Gpu as Device;

/// The GPUs of this machine, at least one. TensorRT is called only behind this where it needs one: without a driver some
/// of its libraries return objects that end the process when they are used.
///
/// # Errors
/// When there is no driver or no device.
#[cfg(feature = "trtx")]
pub fn devices() -> Result<Vec<Device>, Unavailable> {
    crate::driver::devices(super::RUNTIME, "--runtime ort runs the ONNX graph of an artifact that has one")
}
