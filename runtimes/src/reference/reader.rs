//! What the interpreter has read again when it runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use planish_eval::{Reader, Tensor};
use planish_ir::ops::{Foreign, InnerOperators};
use planish_ir::{Graph, TensorType, Weight};
use planish_onnx::{KnownOperand, read_body, read_operator};

/// Operands of integers with up to so many elements are known when an operator is read: shapes, axes, indices.
const KNOWN_ELEMENTS: usize = 1024;

/// Reads what operators contain in ONNX's encoding by the rules of the import, and keeps the graphs that it read last.
#[derive(Default)]
pub struct OnnxReader {
    bodies: Mutex<HashMap<Arc<[u8]>, Read>>,
}

/// What a graph was read as, and from what besides its bytes.
struct Read {
    key: Key,
    graph: Arc<Graph>,
}

#[derive(PartialEq)]
struct Key {
    inputs: Vec<TensorType>,
    captured: Vec<TensorType>,
    captures: Vec<String>,
    version: usize,
    inner: InnerOperators,
}

impl Reader for OnnxReader {
    fn body(
        &self,
        op: &Foreign,
        body: &Arc<[u8]>,
        inputs: &[TensorType],
        captured: &[TensorType],
    ) -> Result<Arc<Graph>, String> {
        let key = Key {
            inputs: inputs.to_vec(),
            captured: captured.to_vec(),
            captures: op.captures.iter().map(|name| name.0.clone()).collect(),
            version: op.version,
            inner: op.inner.clone(),
        };
        let bodies = || self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = bodies().get(body).filter(|read| read.key == key) {
            return Ok(Arc::clone(&read.graph));
        }
        let graph = Arc::new(read_body(op, body, inputs, captured)?);
        // One for each body: a loop whose sizes grow would fill memory with graphs.
        bodies().insert(Arc::clone(body), Read { key, graph: Arc::clone(&graph) });
        Ok(graph)
    }

    fn operator(&self, op: &Foreign, operands: &[Option<&Tensor>]) -> Result<Graph, String> {
        let operand = |tensor: &Tensor| {
            let is_known = !tensor.dtype().is_float() && tensor.data().len() <= KNOWN_ELEMENTS;
            let weight = || Weight::inline(tensor.dtype(), tensor.shape().to_vec(), tensor.to_bytes());
            KnownOperand { ty: tensor.ty(), elements: if is_known { weight() } else { None } }
        };
        let operands: Vec<_> = operands.iter().map(|tensor| tensor.map(operand)).collect();
        Ok(read_operator(op, &operands)?)
    }
}
