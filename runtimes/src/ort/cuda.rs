//! ONNX Runtime's CUDA provider.

use std::sync::{Arc, OnceLock};

use cudarc::driver::{CudaContext, CudaStream, DriverError};
use ort::ep::{CUDA, ExecutionProvider};
use ort::session::builder::SessionBuilder;

use crate::ort::Provider;
use crate::ort::library::Loaded;
use crate::{Unavailable, driver};

/// ONNX Runtime's name for the provider.
pub(super) const NAME: &str = CUDA::NAME;

/// A model of one node, `y = Abs(x)` of an f32 scalar at opset 17: what it takes to make a session.
const MODEL: &[u8] = b"\x08\x08\
    \x3a\x2a\
    \x0a\x0b\x0a\x01x\x12\x01y\x22\x03Abs\
    \x12\x01g\
    \x5a\x0b\x0a\x01x\x12\x06\x0a\x04\x08\x01\x12\x00\
    \x62\x0b\x0a\x01y\x12\x06\x0a\x04\x08\x01\x12\x00\
    \x42\x02\x10\x11";

/// Whether the library has the provider, its own libraries are there, and there is a device.
pub(super) fn check(loaded: &Loaded) -> Result<(), Unavailable> {
    static CHECKED: OnceLock<Result<(), Unavailable>> = OnceLock::new();
    CHECKED.get_or_init(|| try_device(loaded)).clone()
}

fn try_device(loaded: &Loaded) -> Result<(), Unavailable> {
    let library = format!("ONNX Runtime {} at {}", loaded.description.version, loaded.description.location);
    let unavailable = |reason, remedy: &str| Unavailable {
        runtime: Provider::Cuda.runtime(),
        reason,
        looked: Vec::new(),
        remedy: remedy.to_owned(),
    };
    if !CUDA::is_available().unwrap_or(false) {
        return Err(unavailable(
            format!("{library} is built without the CUDA provider"),
            "name the library of a GPU build with --runtime-option ort-lib=PATH or PLANISH_ORT_LIB; the Python package onnxruntime-gpu has \
             it in its folder capi",
        ));
    }
    let session = ort::session::Session::builder(&loaded.environment);
    let session =
        session.and_then(|builder| registered(builder, None)).and_then(|mut builder| builder.commit_from_memory(MODEL));
    session.map(drop).map_err(|e| {
        unavailable(
            format!("{library} cannot use a CUDA device: {}", e.to_string().trim_end()),
            "check that nvidia-smi lists a device, and that the CUDA and cuDNN libraries that this build of ONNX \
             Runtime asks for are in LD_LIBRARY_PATH",
        )
    })
}

/// Puts the provider first. float32 is computed in float32: TensorFloat-32, the provider's default, rounds
/// factors of products to 11 bits. With a stream all of the session runs in its order.
pub(super) fn registered(builder: SessionBuilder, stream: Option<&CudaStream>) -> Result<SessionBuilder, ort::Error> {
    let provider = CUDA::default().with_tf32(false);
    let provider = match stream {
        // SAFETY: the session's memory keeps the stream, and is dropped after the session.
        Some(stream) => unsafe { provider.with_compute_stream(stream.cu_stream().cast()) },
        None => provider,
    };
    Ok(builder.with_execution_providers([provider.build().error_on_failure()])?)
}

/// A stream of the first GPU for a session.
pub(super) fn stream() -> Result<Arc<CudaStream>, String> {
    let runtime = Provider::Cuda.runtime();
    driver::devices(runtime, "target `ort` runs on the processor").map_err(|missing| missing.reason)?;
    let message = |e: DriverError| e.to_string();
    let context = CudaContext::new(0).map_err(message)?;
    // SAFETY: what a stream writes is read by others only when that is done: sessions and copies wait for it.
    unsafe { context.disable_event_tracking() };
    context.new_stream().map_err(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::Search;
    use crate::ort::LIBRARY;
    use crate::ort::library;

    #[test]
    fn the_model_is_one() {
        let loaded = library::load(&Search::of_process(&LIBRARY, None)).unwrap();
        let mut builder = ort::session::Session::builder(&loaded.environment).unwrap();
        let mut session = builder.commit_from_memory(MODEL).unwrap();
        let x = ort::value::Tensor::from_array(((), vec![-2f32])).unwrap();
        let outputs = session.run(ort::inputs![x]).unwrap();
        assert_eq!(outputs[0].try_extract_tensor::<f32>().unwrap().1, [2.0]);
    }
}
