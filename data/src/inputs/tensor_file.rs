//! Tensors in safetensors files.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use planish_artifact::files;
use planish_eval::Tensor;
use planish_ir::{DType, WeightSource};
use planish_models::{ModelError, StoredTensor, WeightFile};
use safetensors::tensor::{Dtype, TensorView};

/// The element types that both sides have.
const DTYPES: &[(Dtype, DType)] = &[
    (Dtype::BOOL, DType::Bool),
    (Dtype::I8, DType::I8),
    (Dtype::I16, DType::I16),
    (Dtype::I32, DType::I32),
    (Dtype::I64, DType::I64),
    (Dtype::U8, DType::U8),
    (Dtype::U16, DType::U16),
    (Dtype::U32, DType::U32),
    (Dtype::U64, DType::U64),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::Bf16),
    (Dtype::F32, DType::F32),
    (Dtype::F64, DType::F64),
];

/// The most bytes of tensors that are read of a file: inputs and outputs of a run.
const MOST_BYTES: u64 = 16 << 30;

/// The tensors of a safetensors file, by name.
///
/// # Errors
/// When it cannot be read, has a type that graphs do not have, or has more than is read into memory.
pub fn read(path: &Path) -> Result<Vec<(String, Tensor)>> {
    read_rows(path, usize::MAX, MOST_BYTES)
}

/// A safetensors file, whose header was checked.
///
/// # Errors
/// When it cannot be read, or is none.
pub(crate) fn open(path: &Path) -> Result<WeightFile> {
    WeightFile::open(path).map_err(|error| match error {
        ModelError::File { message, .. } => anyhow!("{} is not a safetensors file: {message}", path.display()),
        error => error.into(),
    })
}

/// The same, of each tensor so many rows along the first axis at most, and so many bytes in all.
pub(crate) fn read_rows(path: &Path, rows: usize, limit: u64) -> Result<Vec<(String, Tensor)>> {
    let file = open(path)?;
    // The header was checked: the file has these bytes.
    let taken = |tensor: &StoredTensor| -> (Vec<usize>, u64) {
        let mut shape = tensor.shape.clone();
        let Some(first) = shape.first_mut().filter(|first| **first > rows) else { return (shape, tensor.bytes) };
        let bytes = tensor.bytes / *first as u64 * rows as u64;
        *first = rows;
        (shape, bytes)
    };
    let all: u64 = file.tensors().values().map(|tensor| taken(tensor).1).sum();
    if all > limit {
        bail!(
            "the tensors of {} have {all} bytes, and {limit} are the most that is read into memory; give fewer samples or \
             smaller tensors",
            path.display()
        );
    }
    let one = |(name, tensor): (&String, &StoredTensor)| {
        let (shape, bytes) = taken(tensor);
        let known = tensor.element_type().filter(|dtype| DTYPES.iter().any(|(_, ours)| ours == dtype));
        let Some(dtype) = known else {
            bail!("the tensor `{name}` of {} has the unsupported type {}", path.display(), tensor.dtype)
        };
        let mut buffer = vec![0; usize::try_from(bytes)?];
        file.read_at(tensor.offset, &mut buffer).with_context(|| format!("cannot read {}", path.display()))?;
        let tensor = Tensor::from_bytes(dtype, shape, &buffer);
        Ok((name.clone(), tensor.with_context(|| format!("`{name}` of {} is not a tensor", path.display()))?))
    };
    file.tensors().iter().map(one).collect()
}

/// Writes tensors as a safetensors file.
pub fn write(path: &Path, tensors: &[(String, Tensor)]) -> Result<()> {
    files::write(path, &serialized(tensors)?)
}

/// The contents of a safetensors file of these tensors.
pub fn serialized(tensors: &[(String, Tensor)]) -> Result<Vec<u8>> {
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|(_, t)| t.to_bytes()).collect();
    let mut views = BTreeMap::new();
    for ((name, tensor), bytes) in tensors.iter().zip(&bytes) {
        let dtype = DTYPES.iter().find(|(_, ours)| *ours == tensor.dtype()).map(|(theirs, _)| *theirs);
        let dtype = dtype.ok_or_else(|| anyhow!("output `{name}` has the type {}", tensor.dtype()))?;
        views.insert(name.as_str(), TensorView::new(dtype, tensor.shape().to_vec(), bytes)?);
    }
    Ok(safetensors::tensor::serialize(views, None)?)
}
