//! The messages of the ONNX format (onnx.proto3) that planish writes, field numbers as published.

use bytes::Bytes;
use prost::{Enumeration, Message, Oneof};

/// A model: a graph and the operator sets it is written in.
#[derive(Clone, PartialEq, Message)]
pub struct ModelProto {
    /// Version of the format itself.
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    /// The tool that wrote the model.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// The version of that tool.
    #[prost(string, tag = "3")]
    pub producer_version: String,
    /// The computation.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    /// The operator sets in use.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
}

/// A domain of operators and its version.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSetIdProto {
    /// Empty for the default domain.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// The opset.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// The tag of [`ModelProto::graph`].
pub const MODEL_GRAPH: u32 = 7;

/// The tag of [`GraphProto::initializer`].
pub const GRAPH_INITIALIZER: u32 = 5;

/// The tag of [`TensorProto::raw_data`].
pub const TENSOR_RAW_DATA: u32 = 9;

/// Nodes in topological order, with inputs, outputs and initializers.
#[derive(Clone, PartialEq, Message)]
pub struct GraphProto {
    /// The computation.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    /// The graph's name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Constants.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    /// Inputs.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    /// Outputs.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
}

/// An operator applied to named values.
#[derive(Clone, PartialEq, Message)]
pub struct NodeProto {
    /// Operands; an empty name stands for one left out.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Results.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// The node's name.
    #[prost(string, tag = "3")]
    pub name: String,
    /// The operator.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// Attributes.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
    /// The operator's domain; empty for the default one.
    #[prost(string, tag = "7")]
    pub domain: String,
}

/// A named attribute of a node.
#[derive(Clone, PartialEq, Message)]
pub struct AttributeProto {
    /// The attribute's name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A number, for kind `Float`.
    #[prost(float, tag = "2")]
    pub f: f32,
    /// A number, for kind `Int`.
    #[prost(int64, tag = "3")]
    pub i: i64,
    /// Text in UTF-8, for kind `String`.
    #[prost(bytes = "bytes", tag = "4")]
    pub s: Bytes,
    /// Numbers, for kind `Ints`.
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    /// Which field holds the value.
    #[prost(enumeration = "AttributeType", tag = "20")]
    pub kind: i32,
}

/// Which field of an attribute holds its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum AttributeType {
    /// None.
    Undefined = 0,
    /// `f`.
    Float = 1,
    /// `i`.
    Int = 2,
    /// `s`.
    String = 3,
    /// `ints`.
    Ints = 7,
}

/// A constant tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorProto {
    /// Dimensions.
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub dims: Vec<i64>,
    /// A [`DataType`].
    #[prost(enumeration = "DataType", tag = "2")]
    pub data_type: i32,
    /// The value it defines.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Little-endian elements, row-major.
    #[prost(bytes = "bytes", tag = "9")]
    pub raw_data: Bytes,
    /// Where the elements stand, if not here: keys `location`, `offset`, `length`.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// Whether the elements stand here (0) or in another file (1).
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

/// Element types, numbered as in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub enum DataType {
    /// None.
    Undefined = 0,
    /// binary32.
    Float = 1,
    /// Unsigned 8 bit.
    Uint8 = 2,
    /// Signed 8 bit.
    Int8 = 3,
    /// Signed 16 bit.
    Int16 = 5,
    /// Signed 32 bit.
    Int32 = 6,
    /// Signed 64 bit.
    Int64 = 7,
    /// Booleans, a byte each.
    Bool = 9,
    /// binary16.
    Float16 = 10,
    /// binary64.
    Double = 11,
    /// bfloat16.
    Bfloat16 = 16,
}

/// A key and its value.
#[derive(Clone, PartialEq, Message)]
pub struct StringStringEntryProto {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// The value.
    #[prost(string, tag = "2")]
    pub value: String,
}

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

/// A type; only tensors are written.
#[derive(Clone, PartialEq, Message)]
pub struct TypeProto {
    /// A tensor type.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
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
