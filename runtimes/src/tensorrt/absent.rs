//! In place of TensorRT in a program that was built without it.

use std::path::PathBuf;

use planish_ir::DType;

use super::RUNTIME;
use crate::{Arithmetic, Description, Format, Model, Runtime, RuntimeError, Session, SessionOptions, Unavailable};

/// TensorRT, which this program was built without.
pub struct TensorRt;

impl TensorRt {
    /// It is unavailable whatever library is named.
    #[must_use]
    pub fn new(_: Option<PathBuf>) -> Self {
        Self
    }
}

fn unavailable() -> Unavailable {
    Unavailable {
        runtime: RUNTIME,
        reason: "this planish was built without TensorRT".to_owned(),
        looked: Vec::new(),
        remedy: "build one with it: cargo build --release --features tensorrt-rtx".to_owned(),
    }
}

impl Runtime for TensorRt {
    fn name(&self) -> &'static str {
        RUNTIME
    }

    fn check(&self) -> Result<Description, Unavailable> {
        Err(unavailable())
    }

    fn formats(&self) -> &'static [Format] {
        &[Format::ENGINE]
    }

    fn arithmetic(&self, _: DType) -> Arithmetic {
        Arithmetic::Rounded
    }

    fn load(&self, _: Model<'_>, _: SessionOptions) -> Result<Box<dyn Session>, RuntimeError> {
        Err(unavailable().into())
    }
}
