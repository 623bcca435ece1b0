//! Types and constants as ONNX writes them.

use planish_ir::weight::unpack_text;
use planish_ir::{DType, Dim, TensorType, Type};

use super::data_type;
use crate::proto::{
    DimensionProto, DimensionValue, ElementTypeProto, MapTypeProto, TensorProto, TensorShapeProto, TensorTypeProto,
    TypeProto, ValueInfoProto,
};

/// Name and type of a value; without a type where nothing is known of it.
pub(crate) fn value_info(name: &str, ty: &Type) -> ValueInfoProto {
    ValueInfoProto { name: name.to_owned(), r#type: type_proto(ty, &symbol) }
}

/// A dimension that has no known size: what it is called.
fn symbol(dim: &Dim) -> Option<DimensionValue> {
    Some(DimensionValue::DimParam(dim.to_string()))
}

fn type_proto(ty: &Type, open: &dyn Fn(&Dim) -> Option<DimensionValue>) -> Option<TypeProto> {
    // Elements of a list may each be of another size.
    let element =
        |ty: &Type| Some(Box::new(ElementTypeProto { elem_type: Some(Box::new(type_proto(ty, &|_| None)?)) }));
    Some(match ty {
        Type::Tensor(TensorType { dtype, shape }) => {
            let value = |dim: &Dim| dim.as_constant().map(DimensionValue::DimValue).or_else(|| open(dim));
            let dim = shape.iter().map(|dim| DimensionProto { value: value(dim) }).collect();
            tensor_type(*dtype, Some(TensorShapeProto { dim }))
        }
        Type::Unranked(dtype) => tensor_type(*dtype, None),
        Type::Sequence(of) => TypeProto { sequence_type: Some(element(of)?), ..TypeProto::default() },
        Type::Optional(of) => TypeProto { optional_type: Some(element(of)?), ..TypeProto::default() },
        Type::Map(key, of) => {
            let value_type = Some(Box::new(type_proto(of, &|_| None)?));
            let map = MapTypeProto { key_type: data_type(*key), value_type };
            TypeProto { map_type: Some(Box::new(map)), ..TypeProto::default() }
        }
        Type::Unknown => return None,
    })
}

fn tensor_type(dtype: DType, shape: Option<TensorShapeProto>) -> TypeProto {
    let tensor = TensorTypeProto { elem_type: data_type(dtype), shape };
    TypeProto { tensor_type: Some(tensor), ..TypeProto::default() }
}

/// A constant from its bytes as weights have them.
pub(super) fn tensor(name: &str, dtype: DType, dims: Vec<i64>, bytes: &[u8]) -> TensorProto {
    let tensor = TensorProto { dims, data_type: data_type(dtype), name: name.to_owned(), ..TensorProto::default() };
    match dtype {
        DType::String => {
            let elements = unpack_text(bytes).unwrap_or_default();
            TensorProto { string_data: elements.into_iter().map(|text| text.to_vec().into()).collect(), ..tensor }
        }
        _ => TensorProto { raw_data: bytes.to_vec().into(), ..tensor },
    }
}
