//! Types as ONNX writes them.

use planish_ir::{DType, Type};

use super::symbols::Symbols;
use super::tensors::dtype;
use crate::proto::{DataType, TypeProto};

/// A declared type; dimensions without a size are symbols named after `value`. `Ok(None)` where the declaration says
/// nothing.
///
/// # Errors
/// When it is of a kind, or of elements, that graphs do not have.
pub(super) fn read(symbols: &mut Symbols, ty: &TypeProto, value: &str) -> Result<Option<Type>, String> {
    if let Some(tensor) = &ty.tensor_type {
        if tensor.elem_type == i32::from(DataType::Undefined) {
            return Ok(None);
        }
        let dtype = dtype(tensor.elem_type)?;
        let shape = symbols.shape(ty, value)?;
        return Ok(Some(match shape {
            Some(shape) => planish_ir::TensorType::new(dtype, shape).into(),
            None => Type::Unranked(dtype),
        }));
    }
    let mut inside = |ty: Option<&TypeProto>| -> Result<Box<Type>, String> {
        let of = ty.map(|ty| read(symbols, ty, value)).transpose()?.flatten();
        Ok(Box::new(of.unwrap_or(Type::Unknown)))
    };
    Ok(Some(if let Some(list) = &ty.sequence_type {
        Type::Sequence(inside(list.elem_type.as_deref())?)
    } else if let Some(optional) = &ty.optional_type {
        Type::Optional(inside(optional.elem_type.as_deref())?)
    } else if let Some(map) = &ty.map_type {
        Type::Map(key(map.key_type)?, inside(map.value_type.as_deref())?)
    } else if ty.sparse_tensor_type.is_some() {
        return Err("it is a sparse tensor, which is not supported".to_owned());
    } else {
        return Ok(None);
    }))
}

fn key(number: i32) -> Result<DType, String> {
    dtype(number).map_err(|e| format!("its keys: {e}"))
}
