//! Operators of ONNX that the IR has no counterpart of.

use planish_ir::ops::Foreign;

use super::{Call, Kernel};
use crate::Data;

impl Kernel for Foreign {
    fn run(&self, _: &Call<'_>) -> Result<Vec<Data>, String> {
        Err(format!("`{}` of {} is not computed by the reference interpreter", self.op.0, self.domain.0))
    }
}
