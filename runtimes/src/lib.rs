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
pub mod openvino;
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
pub use reference::{OnnxReader, ReferenceRuntime, Sharded};
pub use value::{BestScores, RuntimeValue};

/// The files or folders of shared libraries that the user named, if any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Libraries {
    /// That of ONNX Runtime.
    pub ort: Option<PathBuf>,
    /// That of TensorRT.
    pub trt: Option<PathBuf>,
    /// That of OpenVINO.
    pub openvino: Option<PathBuf>,
}

/// Every runtime, the reference first.
#[must_use]
pub fn runtimes(libraries: Libraries) -> Vec<Box<dyn Runtime>> {
    let Libraries { ort: ort_library, trt, openvino } = libraries;
    let ort = |provider| ort::OnnxRuntime::with(provider, ort_library.clone());
    vec![
        Box::new(ReferenceRuntime::default()),
        Box::new(ort(ort::Provider::Cpu)),
        Box::new(ort(ort::Provider::Cuda)),
        Box::new(openvino::OpenVino::new(openvino)),
        Box::new(tensorrt::TensorRt::new(trt)),
        Box::new(cuda::Cuda::Fused),
        Box::new(cuda::Cuda::Baseline),
        Box::new(cuda::Cuda::Emulator),
    ]
}
