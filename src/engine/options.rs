//! How the engines of an artifact are built.

use std::path::PathBuf;

use planish_ir::DType;
use planish_runtimes::tensorrt::{BuildOptions, Capability, ENTERPRISE};

/// How the engines of an artifact are built.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// What the builder is told.
    pub build: BuildOptions,
    /// The file or folder of TensorRT's shared library, where the user named one.
    pub library: Option<PathBuf>,
    /// Whether the ONNX files stay in the artifact.
    pub keep_onnx: bool,
}

impl EngineOptions {
    /// The GPUs that an engine is built for where the user named none: the present one, or all that TensorRT-RTX knows and
    /// that compute in the type of the model.
    pub(super) fn capabilities(&self, computes: DType, present: Option<u32>) -> Vec<Capability> {
        if ENTERPRISE || !self.build.capabilities.is_empty() {
            return self.build.capabilities.clone();
        }
        let present = Capability::ALL.iter().copied().find(|capability| Some(capability.number()) == present);
        match present {
            Some(present) => vec![present],
            // Turing has no bfloat16, and the builder refuses a model that has some.
            None => Capability::ALL
                .iter()
                .copied()
                .filter(|capability| computes != DType::Bf16 || *capability != Capability::Sm75)
                .collect(),
        }
    }
}

/// What a caller sees while engines are built. TensorRT calls it from any of its threads.
pub trait EngineObserver: Sync {
    /// TensorRT assumes or ignores something.
    fn warning(&self, text: &str);
    /// The engine of a part begins to be built.
    fn begin_part(&self, part: &str);
    /// A phase of the builder of so many steps begins, inside another one where `parent` is given.
    fn begin_phase(&self, phase: &str, parent: Option<&str>, steps: u32);
    /// A step of a phase is done.
    fn step(&self, phase: &str, step: u32);
    /// A phase is done.
    fn end_phase(&self, phase: &str);
    /// The engine of a part is built.
    fn end_part(&self);
}

/// Sees nothing.
impl EngineObserver for () {
    fn warning(&self, _: &str) {}
    fn begin_part(&self, _: &str) {}
    fn begin_phase(&self, _: &str, _: Option<&str>, _: u32) {}
    fn step(&self, _: &str, _: u32) {}
    fn end_phase(&self, _: &str) {}
    fn end_part(&self) {}
}
