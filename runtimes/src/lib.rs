//! Runtimes: each loads a model and runs it, or says why it cannot.
//!
//! To add one: implement [`Runtime`] and [`Session`] in a folder here and give it a line in
//! [`runtimes`].
//!
//! ```
//! use planish_eval::Tensor;
//! use planish_runtimes::{Model, ReferenceRuntime, Runtime, SessionOptions};
//!
//! let text = r#"graph "rectify" {
//!   input %x: f32[n]
//!   %y = relu(%x) : f32[n]
//!   output y = %y
//! }"#;
//! let graph = planish_ir::text::parse(text, &planish_ir::text::no_files)?;
//! let mut session = ReferenceRuntime::default().load(Model::Graph(&graph), SessionOptions::default())?;
//! let x = Tensor::new(vec![2], vec![-1f32, 1.0]).ok_or("two elements")?;
//! assert_eq!(session.run(&[("x", x)])?[0].1.as_f32(), Some(&[0.0, 1.0][..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests read what they wrote"))]

mod api;
pub mod cache_folder;
pub mod cuda;
mod driver;
mod find;
pub mod graph_file;
pub mod nvml;
pub mod ort;
mod profile;
mod reference;
pub mod tensorrt;
mod value;

use std::path::PathBuf;

pub use api::{
    Arithmetic, Description, DeviceTimes, Format, Model, NoBuilder, Port, Runtime, RuntimeError, Session,
    SessionOptions, Unavailable, check_inputs,
};
pub use profile::{NodeRun, ProfiledSession, Profiler, RunProfile};
pub use reference::{OnnxReader, ReferenceRuntime, Shared};
pub use value::{BestScores, RuntimeValue};

/// Every runtime, the reference first. The libraries are the files or folders of the shared libraries of ONNX Runtime and
/// TensorRT that the user named, if any.
#[must_use]
pub fn runtimes(ort_library: Option<PathBuf>, trt_library: Option<PathBuf>) -> Vec<Box<dyn Runtime>> {
    let ort = |provider| ort::OnnxRuntime::with(provider, ort_library.clone());
    vec![
        Box::new(ReferenceRuntime::default()),
        Box::new(ort(ort::Provider::Cpu)),
        Box::new(ort(ort::Provider::Cuda)),
        Box::new(tensorrt::TensorRt::new(trt_library)),
        Box::new(cuda::Cuda::Fused),
        Box::new(cuda::Cuda::Baseline),
        Box::new(cuda::Cuda::Emulator),
    ]
}
