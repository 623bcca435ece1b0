//! OpenVINO on processors, from a shared library that is found when it is first needed.

mod library;
mod session;
mod tensor;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use planish_ir::DType;

use crate::find::{Search, SharedLibrary};
use crate::{Arithmetic, Description, Format, Model, Profiler, Runtime, RuntimeError, Session, SessionOptions};
use crate::{Unavailable, openvino::session::OpenVinoSession};

/// The name of the runtime.
pub const RUNTIME: &str = "openvino";

/// The environment variable that names the file or folder of OpenVINO's shared library.
pub const LIBRARY_VARIABLE: &str = "PLANISH_OPENVINO_LIB";

/// OpenVINO's library for C. The other libraries that it loads lie beside it.
pub(crate) static LIBRARY: SharedLibrary = SharedLibrary {
    product: "OpenVINO",
    option: "--runtime-option openvino-lib",
    variable: LIBRARY_VARIABLE,
    file: "libopenvino_c.so",
    folder: "openvino",
    packages: &["openvino/libs"],
    system: &["libopenvino_c.so"],
};

/// The type that OpenVINO computes products in where a model says float32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InferencePrecision {
    /// float32, also where the processor multiplies bfloat16.
    #[default]
    F32,
    /// bfloat16 where the processor has instructions for it, and float32 elsewhere.
    Bf16,
}

impl InferencePrecision {
    /// The value of OpenVINO's property `INFERENCE_PRECISION_HINT`.
    fn hint(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
        }
    }
}

impl fmt::Display for InferencePrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.hint())
    }
}

impl FromStr for InferencePrecision {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::F32, Self::Bf16];
        all.into_iter().find(|precision| precision.hint() == text).ok_or_else(|| "expected f32 or bf16".to_owned())
    }
}

/// OpenVINO's plugin for processors.
///
/// A process loads one OpenVINO: the library that the first check or load finds stays.
pub struct OpenVino {
    library: Option<PathBuf>,
    precision: InferencePrecision,
}

impl OpenVino {
    /// OpenVINO from this file or folder, or, with none, from the places that [`check`](Runtime::check) names. It computes in
    /// float32.
    #[must_use]
    pub fn new(library: Option<PathBuf>) -> Self {
        Self { library, precision: InferencePrecision::default() }
    }

    /// The same with another type of products.
    #[must_use]
    pub fn precision(self, precision: InferencePrecision) -> Self {
        Self { precision, ..self }
    }

    fn loaded(&self) -> Result<&'static Description, Unavailable> {
        library::load(&Search::of_process(&LIBRARY, self.library.clone()))
    }
}

impl Runtime for OpenVino {
    fn name(&self) -> &'static str {
        RUNTIME
    }

    fn check(&self) -> Result<Description, Unavailable> {
        self.loaded().cloned()
    }

    fn formats(&self) -> &'static [Format] {
        &[Format::ONNX]
    }

    fn arithmetic(&self, dtype: DType) -> Arithmetic {
        match dtype {
            // The plugin computes half types in float32 where the hint says so.
            DType::F16 | DType::Bf16 => Arithmetic::Wider,
            _ => Arithmetic::Rounded,
        }
    }

    fn load(&self, model: Model<'_>, options: SessionOptions) -> Result<Box<dyn Session>, RuntimeError> {
        self.loaded()?;
        let Model::File { format: Format::ONNX, path, .. } = model else {
            return Err(model.not_taken(RUNTIME, "ONNX files; graphs run on `reference`"));
        };
        Ok(Box::new(OpenVinoSession::load(path, options.threads, self.precision)?))
    }

    fn is_on_gpu(&self) -> bool {
        false
    }

    fn saturates(&self) -> bool {
        false
    }

    fn profiler(&self) -> Result<&dyn Profiler, &'static str> {
        Err("OpenVINO's benchmark_app, of its Python package, prints the times of nodes with -pc")
    }
}
