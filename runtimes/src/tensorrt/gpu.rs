//! GPUs for engines.

use super::{Capability, ENTERPRISE, PRODUCT, RUNTIME};
use crate::Unavailable;

pub use crate::driver::Gpu as Device;

/// The GPUs of this machine, at least one, of which the first is one that engines run on. TensorRT is called only after this
/// where it needs a GPU: without a driver some of its libraries return objects that end the process when they are used.
///
/// # Errors
/// When there is no driver or no device, and when the product has no engines for the first device.
#[cfg(feature = "trtx")]
pub fn devices() -> Result<Vec<Device>, Unavailable> {
    let devices = present()?;
    devices.first().and_then(unsupported).map_or(Ok(()), Err)?;
    Ok(devices)
}

/// The GPUs of this machine, at least one, whether engines run on them or not.
///
/// # Errors
/// When there is no driver or no device.
#[cfg(feature = "trtx")]
pub fn present() -> Result<Vec<Device>, Unavailable> {
    crate::driver::devices(RUNTIME, "--runtime ort runs the ONNX graph of an artifact that has one")
}

/// Why no engine runs on a GPU.
#[must_use]
pub fn unsupported(device: &Device) -> Option<Unavailable> {
    let Device { name, capability } = device;
    if ENTERPRISE || Capability::ALL.iter().any(|known| known.number() == *capability) {
        return None;
    }
    let decimal = |capability: u32| format!("{}.{}", capability / 10, capability % 10);
    let supported: Vec<String> = Capability::ALL.iter().map(|known| decimal(known.number())).collect();
    Some(Unavailable {
        runtime: RUNTIME,
        reason: format!(
            "{PRODUCT} does not support compute capability {}, that of {name}; it supports {}",
            decimal(*capability),
            supported.join(", ")
        ),
        looked: Vec::new(),
        remedy: INSTEAD.to_owned(),
    })
}

/// What to do with a GPU that TensorRT-RTX does not support.
pub(super) const INSTEAD: &str = "this GPU needs TensorRT, and a planish that is built for it (cargo build --release \
    --features tensorrt); targets `cuda` and `ort-cuda` run on it";

#[cfg(all(test, not(feature = "tensorrt")))]
mod tests {
    use super::*;

    #[test]
    fn gpus_without_engines_are_refused_with_what_runs_there() {
        let of = |name: &str, capability| unsupported(&Device { name: name.to_owned(), capability });
        for known in Capability::ALL {
            assert_eq!(of("NVIDIA A100", known.number()), None);
        }
        let refused = of("NVIDIA H100", 90).unwrap();
        assert_eq!(
            refused.reason,
            "TensorRT-RTX does not support compute capability 9.0, that of NVIDIA H100; it supports 7.5, 8.0, 8.6, 8.9, 12.0, \
             12.1"
        );
        assert!(refused.remedy.contains("`cuda` and `ort-cuda`") && refused.remedy.contains("needs TensorRT"));
    }
}
