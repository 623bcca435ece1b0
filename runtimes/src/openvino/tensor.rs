//! Tensors and ports of OpenVINO, from ours and back.

use openvino::{ElementType, Node, Shape, Tensor as Inner};
use planish_eval::Tensor;
use planish_ir::{DType, Dim, Shape as SymbolicShape, TensorType};

use crate::Port;

/// The element types of both.
const TYPES: &[(DType, ElementType)] = &[
    (DType::Bool, ElementType::Boolean),
    (DType::I8, ElementType::I8),
    (DType::I16, ElementType::I16),
    (DType::I32, ElementType::I32),
    (DType::I64, ElementType::I64),
    (DType::U8, ElementType::U8),
    (DType::U16, ElementType::U16),
    (DType::U32, ElementType::U32),
    (DType::U64, ElementType::U64),
    (DType::F16, ElementType::F16),
    (DType::Bf16, ElementType::Bf16),
    (DType::F32, ElementType::F32),
    (DType::F64, ElementType::F64),
];

/// Our element type of one of OpenVINO.
fn dtype(of: ElementType) -> Result<DType, String> {
    let found = TYPES.iter().find(|(_, theirs)| *theirs == of).map(|(ours, _)| *ours);
    found.ok_or_else(|| format!("has the element type {of}, which planish does not handle there"))
}

/// An input or output of a model.
pub(super) fn port(node: &Node) -> Result<Port, String> {
    let name = node.get_name().map_err(|e| e.to_string())?;
    let shape = node.get_partial_shape().map_err(|e| e.to_string())?;
    if shape.get_rank().is_dynamic() {
        return Err(format!("`{name}` has an open number of dimensions, which planish does not handle"));
    }
    let dim = |(axis, dim): (usize, &openvino::Dimension)| match dim.is_dynamic() {
        true => Dim::symbol(&format!("{name}_dim_{axis}")),
        false => Dim::constant(dim.get_min()),
    };
    let element = node.get_element_type().map_err(|e| e.to_string())?;
    let dtype = dtype(element).map_err(|reason| format!("`{name}` {reason}"))?;
    let dims: Vec<Dim> = match shape.get_rank().get_max() {
        0 => Vec::new(),
        _ => shape.get_dimensions().iter().enumerate().map(dim).collect(),
    };
    Ok(Port { ty: TensorType::new(dtype, SymbolicShape::new(dims)), name })
}

/// A copy of a tensor in OpenVINO's memory.
pub(super) fn to_openvino(tensor: &Tensor) -> Result<Inner, String> {
    let element = TYPES.iter().find(|(ours, _)| *ours == tensor.dtype()).map(|(_, theirs)| *theirs);
    let element = element.ok_or_else(|| format!("OpenVINO has no tensors of {}", tensor.dtype()))?;
    let sizes: Vec<i64> = tensor.shape().iter().map(|size| i64::try_from(*size).unwrap_or(i64::MAX)).collect();
    let shape = Shape::new(&sizes).map_err(|e| e.to_string())?;
    let mut inner = Inner::new(element, &shape).map_err(|e| e.to_string())?;
    // Without elements there is no memory to point to.
    if !tensor.shape().contains(&0) {
        inner.get_raw_data_mut().map_err(|e| e.to_string())?.copy_from_slice(&tensor.to_bytes());
    }
    Ok(inner)
}

/// A copy of OpenVINO's tensor.
pub(super) fn from_openvino(inner: &Inner) -> Result<Tensor, String> {
    let dtype = inner.get_element_type().map_err(|e| e.to_string()).and_then(dtype)?;
    let shape = inner.get_shape().map_err(|e| e.to_string())?;
    let sizes: &[i64] = if shape.get_rank() == 0 { &[] } else { shape.get_dimensions() };
    let sizes: Vec<usize> = sizes.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect();
    let tensor = match sizes.contains(&0) {
        true => Tensor::zeros(dtype, sizes),
        false => Tensor::from_bytes(dtype, sizes, inner.get_raw_data().map_err(|e| e.to_string())?),
    };
    tensor.ok_or_else(|| "its bytes do not fit its shape".to_owned())
}
