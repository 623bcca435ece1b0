//! In place of TensorRT in a program that was built without it.

use std::path::PathBuf;

use planish_ir::DType;

use super::{LoadOptions, OTHER_PROFILER, RUNTIME};
use crate::{
    Arithmetic, Description, Format, Model, NoBuilder, Profiler, Runtime, RuntimeError, Session, SessionOptions,
    Unavailable,
};

/// TensorRT, which this program was built without.
pub struct TensorRt;

impl TensorRt {
    /// It is unavailable whatever library is named.
    #[must_use]
    pub fn new(_: Option<PathBuf>) -> Self {
        Self
    }

    /// The same with other options.
    #[must_use]
    pub fn options(self, _: LoadOptions) -> Self {
        self
    }
}

/// Why nothing of TensorRT can be used here.
#[must_use]
pub fn built_without() -> Unavailable {
    Unavailable {
        runtime: RUNTIME,
        reason: "this planish was built without TensorRT".to_owned(),
        looked: Vec::new(),
        remedy: "build one with it in a clone of planish: make deps && cargo install --path . --features tensorrt-rtx"
            .to_owned(),
    }
}

/// What builds engines.
///
/// # Errors
/// Always: this program has no TensorRT.
pub fn builder(_: Option<PathBuf>) -> Result<Description, NoBuilder> {
    Err(NoBuilder(built_without()))
}

impl Runtime for TensorRt {
    fn name(&self) -> &'static str {
        RUNTIME
    }

    fn check(&self) -> Result<Description, Unavailable> {
        Err(built_without())
    }

    fn formats(&self) -> &'static [Format] {
        &[Format::ENGINE]
    }

    fn arithmetic(&self, _: DType) -> Arithmetic {
        Arithmetic::Rounded
    }

    fn load(&self, _: Model<'_>, _: SessionOptions) -> Result<Box<dyn Session>, RuntimeError> {
        Err(built_without().into())
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
