//! How the engines of an artifact are built.

use std::path::PathBuf;

use planish_ir::DType;
use planish_passes::Half;
use planish_runtimes::tensorrt::{BuildOptions, ENTERPRISE};

use super::refused;
use crate::quantize::QuantizeOptions;
use crate::source::SourceModel;

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
    /// Refuses options that the builder of this program does not have, and GPUs for which it has no products of these types.
    ///
    /// # Errors
    /// The option, and what to do.
    pub fn check(&self, products: &[DType]) -> Result<(), OptionError> {
        let BuildOptions { capabilities, hardware_compatibility, version_compatible, .. } = &self.build;
        let refused = if ENTERPRISE {
            let reason = "--gpu is an option of TensorRT-RTX, and this planish was built for TensorRT, whose engines run on \
                          the GPU that builds them; --hardware-compatibility names others";
            (!capabilities.is_empty()).then(|| reason.to_owned())
        } else if hardware_compatibility.is_some() {
            let reason = "--hardware-compatibility is an option of TensorRT, and this planish was built for TensorRT-RTX, \
                          whose engines run on all GPUs of the compute capabilities that --gpu names";
            Some(reason.to_owned())
        } else if *version_compatible {
            let reason = "--version-compatible is an option of TensorRT, and this planish was built for TensorRT-RTX, which \
                          has no lean runtime to put into engines; build an engine with each version";
            Some(reason.to_owned())
        } else {
            refused(capabilities, products)
        };
        refused.map_or(Ok(()), |reason| Err(OptionError(reason)))
    }

    /// Whether the ONNX files stay beside the engines.
    #[must_use]
    pub fn keeps_onnx(&self) -> bool {
        self.keep_onnx || self.build.strip
    }
}

/// An option that the builder does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OptionError(String);

/// The element types of the products that a compiled model has in any case.
#[must_use]
pub(crate) fn products_of(quantize: Option<&QuantizeOptions>, half: Option<Half>, source: &SourceModel) -> Vec<DType> {
    let codes = quantize.map(|quantize| quantize.settings.codes);
    // Products of an ONNX graph are in the types of that graph.
    let whole = source.opset().is_none().then_some(DType::F32);
    codes.into_iter().chain(half.map(Half::dtype).or(whole)).collect()
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
