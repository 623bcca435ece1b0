//! ONNX Runtime on its CPU provider, from a shared library that is found when it is first needed.

mod find;
mod library;
mod session;
mod tensor;

use std::path::PathBuf;

pub use find::LIBRARY_VARIABLE;
pub(crate) use tensor::OrtValue;

use crate::ort::find::Search;
use crate::{Description, Model, Runtime, RuntimeError, Session, SessionOptions, Unavailable};

pub(crate) const NAME: &str = "ort";

/// Optimizers of ONNX Runtime that make a graph planish compiled slower:
/// `SkipLayerNormalization` runs behind `Add` and `LayerNormalization` on the CPU provider.
pub const DISABLED_FOR_COMPILED: &[&str] = &["SkipLayerNormFusion"];

/// ONNX Runtime's CPU provider.
///
/// A process loads one ONNX Runtime: the library that the first check or load finds stays.
pub struct OnnxRuntime {
    library: Option<PathBuf>,
}

impl OnnxRuntime {
    /// ONNX Runtime from this file or folder, or, with none, from the places that
    /// [`check`](Runtime::check) names.
    #[must_use]
    pub fn new(library: Option<PathBuf>) -> Self {
        Self { library }
    }
}

impl Runtime for OnnxRuntime {
    fn name(&self) -> &'static str {
        NAME
    }

    fn check(&self) -> Result<Description, Unavailable> {
        library::load(&Search::of_process(self.library.clone())).map(|loaded| loaded.description.clone())
    }

    fn load(&self, model: Model<'_>, options: &SessionOptions) -> Result<Box<dyn Session>, RuntimeError> {
        let loaded = library::load(&Search::of_process(self.library.clone()))?;
        let Model::Onnx(path) = model else {
            return Err(RuntimeError::Failed {
                runtime: NAME,
                action: "load",
                model: model.to_string(),
                reason: "it takes ONNX files; a graph runs on `reference` or is exported first".to_owned(),
            });
        };
        Ok(Box::new(session::OrtSession::load(&loaded.environment, path, options)?))
    }
}
