//! How the engines of an artifact are built.

use std::path::PathBuf;

use planish_runtimes::tensorrt::BuildOptions;

/// How the engines of an artifact are built.
#[derive(Clone, Debug, Default)]
pub struct EngineOptions {
    /// What the builder is told. Without capabilities engines are for those of [`DefaultGpus`](super::DefaultGpus).
    pub build: BuildOptions,
    /// The file or folder of TensorRT's shared library, where the user named one.
    pub library: Option<PathBuf>,
    /// Whether the ONNX files stay in the artifact. They stay in any case beside engines without weights.
    pub keep_onnx: bool,
}

impl EngineOptions {
    /// Whether the ONNX files stay beside the engines.
    #[must_use]
    pub fn keeps_onnx(&self) -> bool {
        self.keep_onnx || self.build.strip
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
