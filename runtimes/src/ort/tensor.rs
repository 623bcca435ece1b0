//! Tensors to and from ONNX Runtime's values.

use ort::session::SessionInputValue;
use ort::value::{DynValue, Outlet, PrimitiveTensorElementType, TensorElementType, ValueType};
use planish_eval::{Data, Tensor};
use planish_ir::DType;

use crate::{Dimension, Port};

/// The element type, or `None` where planish has none for it.
fn dtype(ty: TensorElementType) -> Option<DType> {
    match ty {
        TensorElementType::Bool => Some(DType::Bool),
        TensorElementType::Int8 => Some(DType::I8),
        TensorElementType::Int16 => Some(DType::I16),
        TensorElementType::Int32 => Some(DType::I32),
        TensorElementType::Int64 => Some(DType::I64),
        TensorElementType::Uint8 => Some(DType::U8),
        TensorElementType::Uint16 => Some(DType::U16),
        TensorElementType::Uint32 => Some(DType::U32),
        TensorElementType::Uint64 => Some(DType::U64),
        TensorElementType::Float16 => Some(DType::F16),
        TensorElementType::Bfloat16 => Some(DType::Bf16),
        TensorElementType::Float32 => Some(DType::F32),
        TensorElementType::Float64 => Some(DType::F64),
        _ => None,
    }
}

/// An input or output of a session.
pub(crate) fn port(outlet: &Outlet) -> Result<Port, String> {
    let unsupported = || format!("`{}` is a {}, which planish does not handle", outlet.name(), outlet.dtype());
    let ValueType::Tensor { ty, shape, dimension_symbols } = outlet.dtype() else {
        return Err(unsupported());
    };
    // A size the model leaves open is -1.
    let dimension = |(axis, &size): (usize, &i64)| match usize::try_from(size) {
        Ok(size) => Dimension::Fixed(size),
        Err(_) => Dimension::Symbolic(dimension_symbols.get(axis).map(ToString::to_string).unwrap_or_default()),
    };
    Ok(Port {
        name: outlet.name().to_owned(),
        dtype: dtype(*ty).ok_or_else(unsupported)?,
        dims: shape.iter().enumerate().map(dimension).collect(),
    })
}

/// A value of the runtime with a copy of the tensor's elements.
pub(crate) fn to_value(tensor: &Tensor) -> Result<SessionInputValue<'static>, ort::Error> {
    let shape = tensor.shape().to_vec();
    macro_rules! value {
        ($($variant:ident),*) => {
            match tensor.data() {
                $(Data::$variant(elements) => ort::value::Tensor::from_array((shape, elements.clone()))?.into(),)*
            }
        };
    }
    Ok(value!(Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, Bf16, F32, F64))
}

/// A tensor with a copy of the value's elements.
pub(crate) fn to_tensor(value: &DynValue) -> Result<Tensor, String> {
    let ty = value.dtype().tensor_type().and_then(dtype);
    match ty.ok_or_else(|| format!("a {}, which planish does not handle", value.dtype()))? {
        DType::Bool => extract::<bool>(value),
        DType::I8 => extract::<i8>(value),
        DType::I16 => extract::<i16>(value),
        DType::I32 => extract::<i32>(value),
        DType::I64 => extract::<i64>(value),
        DType::U8 => extract::<u8>(value),
        DType::U16 => extract::<u16>(value),
        DType::U32 => extract::<u32>(value),
        DType::U64 => extract::<u64>(value),
        DType::F16 => extract::<half::f16>(value),
        DType::Bf16 => extract::<half::bf16>(value),
        DType::F32 => extract::<f32>(value),
        DType::F64 => extract::<f64>(value),
    }
}

fn extract<T: PrimitiveTensorElementType + Clone>(value: &DynValue) -> Result<Tensor, String>
where
    Data: From<Vec<T>>,
{
    let (shape, elements) = value.try_extract_tensor::<T>().map_err(|e| e.to_string())?;
    let sizes: Option<Vec<usize>> = shape.iter().map(|&size| usize::try_from(size).ok()).collect();
    sizes.and_then(|sizes| Tensor::new(sizes, elements.to_vec())).ok_or_else(|| format!("a tensor of shape {shape}"))
}
