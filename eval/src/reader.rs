//! The trait by which the interpreter reads the graphs of ONNX operators.

use std::sync::Arc;

use planish_ir::ops::Foreign;
use planish_ir::{Graph, TensorType};

use crate::Tensor;

/// Turns what operators of ONNX contain in its encoding into graphs, when the types of all operands are known.
/// An interpreter without a reader computes no operator with a graph of its own, such as `If`, and of operators that
/// the IR has in another form none that became one of ONNX because sizes were open.
pub trait Reader: Sync {
    /// A graph that an attribute of an operator contains. Its inputs are those that `body` declares, of the types
    /// `inputs`, and then the values around it that the operator uses ([`Foreign::captures`]), of the types
    /// `captured`; its outputs those of `body`, in order. An input of one element may have another number
    /// of dimensions, as `body` declares it.
    ///
    /// # Errors
    /// When it is not a graph of such inputs, or has what graphs here cannot have.
    fn body(
        &self,
        op: &Foreign,
        body: &Arc<[u8]>,
        inputs: &[TensorType],
        captured: &[TensorType],
    ) -> Result<Arc<Graph>, String>;

    /// An operator as a graph of others, now that the operands are known. Operand `I` is its input `iI`, or a
    /// weight where knowing its elements helps; the outputs are the results that [`Foreign::results`] has.
    ///
    /// # Errors
    /// When it is not an operator of such operands.
    fn operator(&self, op: &Foreign, operands: &[Option<&Tensor>]) -> Result<Graph, String>;
}
