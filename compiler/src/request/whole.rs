//! A compilation from a request to an artifact in its place, for programs that use planish as a library.

use std::path::PathBuf;

use anyhow::{Result, bail};
use planish_artifact::Artifact;
use planish_artifact::backend::{LOCAL, RuntimeSettings};
use planish_artifact::package::RuntimePackage;
use planish_artifact::recipe::Recipe;
use planish_data::DataOptions;
use planish_ir::Graph;
use planish_onnx::{ImportOptions, Placement};

use super::{Prepared, Request, RequestObserver, backend, prepare};
use crate::calibrate::CalibrationObserver;
use crate::compile::{Observer, compile};
use crate::engine::EngineOptions;
use crate::quantize::QuantizeProgress;

/// Sees a compilation and shows nothing of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn warning(&self, _: &str) {}
    fn note(&self, _: &str) {}
    fn graph(&self, _: &str, _: &Graph) {}
    fn quantizing(&self, _: &QuantizeProgress) {}
    fn begin_writing(&self, _: u64) {}
    fn written(&self, _: u64) {}
    fn end_writing(&self) {}
}

impl CalibrationObserver for Silent {
    fn warning(&self, _: &str) {}
    fn progress(&self, _: usize, _: usize) {}
}

impl RequestObserver for Silent {
    fn warning(&self, _: &str) {}
    fn note(&self, _: &str) {}
    fn calibration(&self) -> Box<dyn CalibrationObserver> {
        Box::new(Self)
    }
}

impl Request {
    /// A request for what `planish compile MODEL` gives: an artifact in the precision of the model, for ONNX Runtime on processors, in the usual
    /// folder. The model is a path: names of the hub are for the command line.
    #[must_use]
    pub fn new(model: impl Into<PathBuf>) -> Self {
        Self {
            model: model.into(),
            hub: None,
            output: None,
            recipe: Recipe::default(),
            backend: LOCAL,
            task: None,
            adapters: Vec::new(),
            opset: None,
            tensor_parallel: None,
            placement: Placement::Copy,
            package: RuntimePackage::default(),
            pipeline: None,
            variant: None,
            fusion: true,
            strict: false,
            force: false,
            explain_fusion: false,
            verify_passes: false,
            writes: true,
            runs: false,
            import: ImportOptions::default(),
            profiles: Vec::new(),
            engine: EngineOptions::default(),
            calibrate: None,
            data: DataOptions::default(),
            threads: None,
            settings: RuntimeSettings::default(),
        }
    }

    /// With what a recipe asks for: the target and the precision.
    ///
    /// # Errors
    /// When there is no such target.
    pub fn with(self, recipe: Recipe) -> Result<Self> {
        Ok(Self { backend: backend(&recipe)?, recipe, ..self })
    }

    /// Compiles the model and puts the artifact in its place.
    ///
    /// # Errors
    /// Those of [`prepare`] and of [`compile`], and for a target with engines, which the command line builds.
    pub fn compile(&self, observer: &(impl RequestObserver + Observer)) -> Result<Artifact> {
        if self.backend.engines.is_some() {
            bail!("target {} has engines, which `planish compile` builds; choose another target", self.backend.target);
        }
        let Prepared { source, options, folders } = prepare(self, observer)?;
        let mut compiled = compile(&source, folders.first(), &options, observer)?;
        folders.settle(&mut compiled, &source)?;
        Artifact::open(&compiled.publish()?.folder)
    }
}
