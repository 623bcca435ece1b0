//! The tensors of one quantized layer.

use std::sync::Arc;

use planish_ir::weight::StoredRange;
use planish_ir::{DType, Weight, WeightSource};

use crate::checkpoint::Checkpoint;
use crate::{ModelError, WeightFile};

/// The most bytes of a tensor that is read while a graph is built.
const MAX_READ_BYTES: u64 = 64 << 20;

/// The types of scales.
pub(crate) const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::Bf16];

/// One quantized layer: its tensors by the endings of their names. It keeps a record of those that were taken.
pub(crate) struct Layer<'a> {
    checkpoint: &'a Checkpoint,
    /// The stored name of the module.
    module: &'a str,
    taken: Vec<String>,
}

impl<'a> Layer<'a> {
    /// The layer of a module, by its stored name.
    pub(crate) fn new(checkpoint: &'a Checkpoint, module: &'a str) -> Self {
        Self { checkpoint, module, taken: Vec::new() }
    }

    /// The names of the tensors that were taken.
    pub(crate) fn into_taken(self) -> Vec<String> {
        self.taken
    }

    fn name(&self, ending: &str) -> String {
        format!("{}{ending}", self.module)
    }

    /// Marks a tensor as taken that says nothing that others do not.
    pub(crate) fn skip(&mut self, ending: &str) {
        self.taken.push(self.name(ending));
    }

    /// The tensor with an ending, if it is there; its elements are of one of these types.
    pub(crate) fn find(&mut self, ending: &str, types: &[DType]) -> Result<Option<Weight>, ModelError> {
        let name = self.name(ending);
        let Some((file, tensor)) = self.checkpoint.tensor(&name) else { return Ok(None) };
        let Some(dtype) = tensor.element_type().filter(|dtype| types.contains(dtype)) else {
            let types: Vec<String> = types.iter().map(|dtype| dtype.to_string().to_uppercase()).collect();
            return Err(self.error(ending, format!("elements are {}, expected {}", tensor.dtype, types.join(" or "))));
        };
        let source: Arc<dyn WeightSource> = Arc::<WeightFile>::clone(file);
        let weight = Weight::stored(dtype, tensor.shape.clone(), StoredRange { source, offset: tensor.offset });
        let weight = weight.ok_or_else(|| self.error(ending, "its size does not fit 64 bits".to_owned()))?;
        self.taken.push(name);
        Ok(Some(weight))
    }

    /// The tensor with an ending.
    pub(crate) fn tensor(&mut self, ending: &str, types: &[DType]) -> Result<Weight, ModelError> {
        self.find(ending, types)?.ok_or_else(|| self.missing(ending))
    }

    /// The error for a tensor that is not there.
    pub(crate) fn missing(&self, ending: &str) -> ModelError {
        ModelError::MissingTensor {
            name: self.name(ending),
            path: self.checkpoint.weights_path().to_owned(),
            hint: format!("; the layer `{}` is quantized, and needs it", self.module),
        }
    }

    /// The tensor with an ending as a matrix.
    pub(crate) fn matrix(&mut self, ending: &str, types: &[DType]) -> Result<(Weight, [usize; 2]), ModelError> {
        let weight = self.tensor(ending, types)?;
        match *weight.shape() {
            [rows, columns] if rows > 0 && columns > 0 => Ok((weight, [rows, columns])),
            _ => Err(self.error(ending, format!("the shape is {:?}, expected a matrix", weight.shape()))),
        }
    }

    /// The tensor with an ending, of a shape that a message explains.
    pub(crate) fn shaped(
        &mut self,
        ending: &str,
        types: &[DType],
        shape: &[usize],
        why: &str,
    ) -> Result<Weight, ModelError> {
        let weight = self.tensor(ending, types)?;
        self.check_shape(ending, &weight, shape, why)?;
        Ok(weight)
    }

    /// Refuses another shape of a tensor.
    pub(crate) fn check_shape(
        &self,
        ending: &str,
        weight: &Weight,
        shape: &[usize],
        why: &str,
    ) -> Result<(), ModelError> {
        match weight.shape() == shape {
            true => Ok(()),
            false => Err(self.error(ending, format!("the shape is {:?}, expected {shape:?} ({why})", weight.shape()))),
        }
    }

    /// The bytes of a tensor that decides how others are read.
    pub(crate) fn read(&self, ending: &str, weight: &Weight) -> Result<Vec<u8>, ModelError> {
        if weight.bytes() > MAX_READ_BYTES {
            return Err(
                self.error(ending, format!("{} bytes are too many; the limit is {MAX_READ_BYTES}", weight.bytes()))
            );
        }
        weight.read().map_err(|error| self.error(ending, error.to_string()))
    }

    /// The numbers of a tensor of 32 bit integers.
    pub(crate) fn read_indices(&self, ending: &str, weight: &Weight) -> Result<Vec<i32>, ModelError> {
        Ok(self.read(ending, weight)?.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes)).collect())
    }

    /// An error about a tensor.
    pub(crate) fn error(&self, ending: &str, message: String) -> ModelError {
        let name = self.name(ending);
        let path = self.checkpoint.tensor(&name).map_or(self.checkpoint.weights_path(), |(file, _)| file.path());
        ModelError::Tensor { path: path.to_owned(), name, message }
    }
}
