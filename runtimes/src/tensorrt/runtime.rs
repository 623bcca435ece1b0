//! TensorRT as a runtime.

use std::path::PathBuf;

use planish_ir::DType;

use super::library::Library;
use super::load_options::LoadOptions;
use super::session::EngineSession;
use super::{OTHER_PROFILER, RUNTIME, gpu};
use crate::{
    Arithmetic, Description, Format, Model, Profiler, Runtime, RuntimeError, Session, SessionOptions, Unavailable,
};

/// TensorRT on the first GPU.
pub struct TensorRt {
    library: Option<PathBuf>,
    options: LoadOptions,
}

impl TensorRt {
    /// TensorRT from this file or folder or, with none, from the places that [`check`](Runtime::check) names.
    #[must_use]
    pub fn new(library: Option<PathBuf>) -> Self {
        Self { library, options: LoadOptions::default() }
    }

    /// The same with other options.
    #[must_use]
    pub fn options(self, options: LoadOptions) -> Self {
        Self { options, ..self }
    }
}

impl Runtime for TensorRt {
    fn name(&self) -> &'static str {
        RUNTIME
    }

    fn check(&self) -> Result<Description, Unavailable> {
        refuse_present()?;
        let library = Library::open(self.library.clone())?;
        gpu::devices()?;
        Ok(library.description())
    }

    fn formats(&self) -> &'static [Format] {
        &[Format::ENGINE]
    }

    fn arithmetic(&self, _: DType) -> Arithmetic {
        Arithmetic::Rounded
    }

    fn load(&self, model: Model<'_>, _: SessionOptions) -> Result<Box<dyn Session>, RuntimeError> {
        let Model::File { format: Format::ENGINE, path, .. } = model else {
            return Err(model.not_taken(self.name(), "engines"));
        };
        refuse_present()?;
        let library = Library::open(self.library.clone())?;
        Ok(Box::new(EngineSession::load(library, path, &self.options)?))
    }

    fn is_on_gpu(&self) -> bool {
        true
    }

    fn saturates(&self) -> bool {
        false
    }

    fn profiler(&self) -> Result<&dyn Profiler, &'static str> {
        Err(OTHER_PROFILER)
    }
}

/// Refuses a GPU that no engine runs on, before the library is loaded. Where there is no GPU, it is said after that: a user who
/// lacks both is told of the library first.
fn refuse_present() -> Result<(), Unavailable> {
    let present = gpu::present().ok();
    present.and_then(|devices| gpu::unsupported(devices.first()?)).map_or(Ok(()), Err)
}
