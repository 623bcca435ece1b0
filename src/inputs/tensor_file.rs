//! Tensors in safetensors files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use planish_eval::Tensor;
use planish_ir::DType;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::files;

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

/// The tensors of a safetensors file, by name.
pub(crate) fn read(path: &Path) -> Result<Vec<(String, Tensor)>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|e| anyhow!("{} is not a safetensors file: {e}", path.display()))?;
    let one = |(name, view): (String, TensorView<'_>)| {
        let dtype = DTYPES.iter().find(|(theirs, _)| *theirs == view.dtype()).map(|(_, ours)| *ours);
        let tensor = dtype.and_then(|dtype| Tensor::from_bytes(dtype, view.shape().to_vec(), view.data()));
        match tensor {
            Some(tensor) => Ok((name, tensor)),
            None => bail!("the tensor `{name}` of {} has the unsupported type {:?}", path.display(), view.dtype()),
        }
    };
    let mut tensors = file.tensors().into_iter().map(one).collect::<Result<Vec<_>>>()?;
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(tensors)
}

/// Writes tensors as a safetensors file.
pub(crate) fn write(path: &Path, tensors: &[(String, Tensor)]) -> Result<()> {
    files::write(path, &serialized(tensors)?)
}

/// The contents of a safetensors file of these tensors.
pub(crate) fn serialized(tensors: &[(String, Tensor)]) -> Result<Vec<u8>> {
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|(_, t)| t.to_bytes()).collect();
    let mut views = BTreeMap::new();
    for ((name, tensor), bytes) in tensors.iter().zip(&bytes) {
        let dtype = DTYPES.iter().find(|(_, ours)| *ours == tensor.dtype()).map(|(theirs, _)| *theirs);
        let dtype = dtype.ok_or_else(|| anyhow!("output `{name}` has the type {}", tensor.dtype()))?;
        views.insert(name.as_str(), TensorView::new(dtype, tensor.shape().to_vec(), bytes)?);
    }
    Ok(safetensors::tensor::serialize(views, None)?)
}
