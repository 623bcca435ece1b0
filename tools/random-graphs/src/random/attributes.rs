//! Attributes, types and constants of ONNX.

use planish_eval::Tensor;
use planish_ir::DType;
use planish_onnx::proto::{
    AttributeProto, AttributeType, DataType, DimensionProto, DimensionValue, GraphProto, NodeProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto { name: name.to_owned(), kind: kind.into(), ..AttributeProto::default() }
}

/// A number.
pub(crate) fn float(name: &str, f: f32) -> AttributeProto {
    AttributeProto { f, ..attribute(name, AttributeType::Float) }
}

/// An integer.
pub(crate) fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { i, ..attribute(name, AttributeType::Int) }
}

/// Integers.
pub(crate) fn ints(name: &str, ints: &[i64]) -> AttributeProto {
    AttributeProto { ints: ints.to_vec(), ..attribute(name, AttributeType::Ints) }
}

/// A text.
pub(crate) fn text(name: &str, value: &str) -> AttributeProto {
    AttributeProto { s: value.to_owned().into(), ..attribute(name, AttributeType::String) }
}

/// A tensor.
pub(crate) fn tensor(name: &str, value: &Tensor) -> AttributeProto {
    AttributeProto { t: Some(constant("", value)), ..attribute(name, AttributeType::Tensor) }
}

/// A graph.
pub(crate) fn graph(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(graph), ..attribute(name, AttributeType::Graph) }
}

/// The number of an element type.
pub(crate) fn elements(dtype: DType) -> DataType {
    match dtype {
        DType::Bool => DataType::Bool,
        DType::I8 => DataType::Int8,
        DType::I16 => DataType::Int16,
        DType::I32 => DataType::Int32,
        DType::I64 => DataType::Int64,
        DType::U8 => DataType::Uint8,
        DType::U16 => DataType::Uint16,
        DType::U32 => DataType::Uint32,
        DType::U64 => DataType::Uint64,
        DType::F16 => DataType::Float16,
        DType::Bf16 => DataType::Bfloat16,
        DType::F32 => DataType::Float,
        DType::F64 => DataType::Double,
        _ => DataType::Undefined,
    }
}

/// An element type as an attribute `to`.
pub(crate) fn to(dtype: DType) -> AttributeProto {
    int("to", i32::from(elements(dtype)).into())
}

/// A size as ONNX writes it.
pub(crate) fn size(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A constant.
pub(crate) fn constant(name: &str, value: &Tensor) -> TensorProto {
    TensorProto {
        name: name.to_owned(),
        dims: value.shape().iter().copied().map(size).collect(),
        data_type: elements(value.dtype()).into(),
        raw_data: value.to_bytes().into(),
        ..TensorProto::default()
    }
}

/// A value of a type, with sizes that are known or named, or with none where nothing is said of them.
pub(crate) fn typed(name: &str, dtype: DType, dims: Option<Vec<DimensionValue>>) -> ValueInfoProto {
    let dim = |value| DimensionProto { value: Some(value) };
    let shape = dims.map(|dims| TensorShapeProto { dim: dims.into_iter().map(dim).collect() });
    let tensor = TensorTypeProto { elem_type: elements(dtype).into(), shape };
    let ty = TypeProto { tensor_type: Some(tensor), ..TypeProto::default() };
    ValueInfoProto { name: name.to_owned(), r#type: Some(ty) }
}

/// A node.
pub(crate) fn node(op: &str, inputs: &[&str], outputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    NodeProto {
        op_type: op.to_owned(),
        input: names(inputs),
        output: names(outputs),
        attribute,
        ..NodeProto::default()
    }
}
