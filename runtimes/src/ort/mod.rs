//! ONNX Runtime on its CPU or CUDA provider, from a shared library that is found when it is first needed.

mod cuda;
mod find;
mod library;
mod placement;
mod session;
mod tensor;

use std::path::PathBuf;

pub use find::LIBRARY_VARIABLE;
pub(crate) use tensor::OrtValue;

use crate::ort::find::Search;
use crate::ort::library::Loaded;
use crate::{Description, Model, Runtime, RuntimeError, Session, SessionOptions, Unavailable};

/// What ONNX Runtime runs a model on; its execution providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// The processor.
    Cpu,
    /// The first CUDA device. What has no kernel there runs on the processor: a session says which
    /// operators do ([`Session::elsewhere`]).
    Cuda,
}

impl Provider {
    /// The runtime's name with this provider.
    #[must_use]
    pub fn runtime(self) -> &'static str {
        match self {
            Provider::Cpu => "ort",
            Provider::Cuda => "ort-cuda",
        }
    }

    /// Optimizers of ONNX Runtime that make a graph planish compiled slower: `SkipLayerNormalization` runs
    /// behind `Add` and `LayerNormalization` on the processor. On CUDA nothing was measured yet.
    pub(crate) fn disabled_for_compiled(self) -> &'static [&'static str] {
        match self {
            Provider::Cpu => &["SkipLayerNormFusion"],
            Provider::Cuda => &[],
        }
    }
}

/// ONNX Runtime with one of its providers.
///
/// A process loads one ONNX Runtime: the library that the first check or load finds stays.
pub struct OnnxRuntime {
    library: Option<PathBuf>,
    provider: Provider,
}

impl OnnxRuntime {
    /// The CPU provider of ONNX Runtime from this file or folder, or, with none, from the places that
    /// [`check`](Runtime::check) names.
    #[must_use]
    pub fn new(library: Option<PathBuf>) -> Self {
        Self::with(Provider::Cpu, library)
    }

    /// The same of another provider.
    #[must_use]
    pub fn with(provider: Provider, library: Option<PathBuf>) -> Self {
        Self { library, provider }
    }

    /// The library, if it has the provider.
    fn loaded(&self) -> Result<&'static Loaded, Unavailable> {
        let renamed = |unavailable| Unavailable { runtime: self.name(), ..unavailable };
        let loaded = library::load(&Search::of_process(self.library.clone())).map_err(renamed)?;
        if self.provider == Provider::Cuda {
            cuda::check(loaded)?;
        }
        Ok(loaded)
    }
}

impl Runtime for OnnxRuntime {
    fn name(&self) -> &'static str {
        self.provider.runtime()
    }

    fn check(&self) -> Result<Description, Unavailable> {
        self.loaded().map(|loaded| loaded.description.clone())
    }

    fn load(&self, model: Model<'_>, options: &SessionOptions) -> Result<Box<dyn Session>, RuntimeError> {
        let loaded = self.loaded()?;
        let Model::Onnx(path) = model else {
            return Err(RuntimeError::Failed {
                runtime: self.name(),
                action: "load",
                model: model.to_string(),
                reason: "it takes ONNX files; a graph runs on `reference` or is exported first".to_owned(),
            });
        };
        Ok(Box::new(session::OrtSession::load(&loaded.environment, self.provider, path, options)?))
    }
}
