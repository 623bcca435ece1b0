//! The types of values.

use prost::{Message, Oneof};

use super::DataType;

/// Name and type of an input or output.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfoProto {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

/// A type: one of these.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// A tensor type.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
    /// A list of values of one type.
    #[prost(message, optional, boxed, tag = "4")]
    pub sequence_type: Option<Box<ElementTypeProto>>,
    /// Values by keys.
    #[prost(message, optional, boxed, tag = "5")]
    pub map_type: Option<Box<MapTypeProto>>,
    /// A sparse tensor type.
    #[prost(message, optional, tag = "8")]
    pub sparse_tensor_type: Option<TensorTypeProto>,
    /// A value or none.
    #[prost(message, optional, boxed, tag = "9")]
    pub optional_type: Option<Box<ElementTypeProto>>,
}

/// The type of what a list or an optional value holds.
#[derive(Clone, PartialEq, Message)]
pub struct ElementTypeProto {
    /// The type.
    #[prost(message, optional, boxed, tag = "1")]
    pub elem_type: Option<Box<TypeProto>>,
}

/// The types of keys and of what they stand for.
#[derive(Clone, PartialEq, Message)]
pub struct MapTypeProto {
    /// A [`DataType`].
    #[prost(enumeration = "DataType", tag = "1")]
    pub key_type: i32,
    /// The type of what keys stand for.
    #[prost(message, optional, boxed, tag = "2")]
    pub value_type: Option<Box<TypeProto>>,
}

/// A tensor type.
#[derive(Clone, PartialEq, Message)]
pub struct TensorTypeProto {
    /// A [`DataType`].
    #[prost(enumeration = "DataType", tag = "1")]
    pub elem_type: i32,
    /// Dimensions.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// A shape.
#[derive(Clone, PartialEq, Message)]
pub struct TensorShapeProto {
    /// Dimensions.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// A dimension.
#[derive(Clone, PartialEq, Message)]
pub struct DimensionProto {
    /// Its size.
    #[prost(oneof = "DimensionValue", tags = "1, 2")]
    pub value: Option<DimensionValue>,
}

/// The size of a dimension: known, or named.
#[derive(Clone, PartialEq, Eq, Oneof)]
pub enum DimensionValue {
    /// Known.
    #[prost(int64, tag = "1")]
    DimValue(i64),
    /// Named.
    #[prost(string, tag = "2")]
    DimParam(String),
}
