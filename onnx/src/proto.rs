//! The messages of the ONNX format (onnx.proto3) that planish reads and writes, field numbers as published.
//! Fields that mean nothing to it (documentation, metadata of nodes, training) are skipped.

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
    /// What its makers noted, by keys of theirs.
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
    /// Operators that the model brings, each made of others.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<FunctionProto>,
}

/// An operator made of others.
#[derive(Clone, PartialEq, Message)]
pub struct FunctionProto {
    /// The operator that it defines.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its operands.
    #[prost(string, repeated, tag = "4")]
    pub input: Vec<String>,
    /// Its results.
    #[prost(string, repeated, tag = "5")]
    pub output: Vec<String>,
    /// What it is made of.
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<NodeProto>,
    /// The operator sets that its nodes are written in.
    #[prost(message, repeated, tag = "9")]
    pub opset_import: Vec<OperatorSetIdProto>,
    /// The domain of the operator.
    #[prost(string, tag = "10")]
    pub domain: String,
    /// Attributes that have a value where a node gives none.
    #[prost(message, repeated, tag = "11")]
    pub attribute_proto: Vec<AttributeProto>,
    /// Tells apart functions of one name.
    #[prost(string, tag = "13")]
    pub overload: String,
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
/// `TensorProto.external_data`.
pub(crate) const TENSOR_EXTERNAL_DATA: u32 = 13;

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
    /// Types of values in between.
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfoProto>,
    /// Sparse constants.
    #[prost(message, repeated, tag = "15")]
    pub sparse_initializer: Vec<SparseTensorProto>,
}

/// A sparse tensor, of which only the name is read.
#[derive(Clone, PartialEq, Message)]
pub struct SparseTensorProto {
    /// The elements that are not zero; its name is the tensor's.
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
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
    /// Which of the functions of this name.
    #[prost(string, tag = "8")]
    pub overload: String,
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
    /// A tensor, for kind `Tensor`.
    #[prost(message, optional, tag = "5")]
    pub t: Option<TensorProto>,
    /// A graph, for kind `Graph`.
    #[prost(message, optional, tag = "6")]
    pub g: Option<GraphProto>,
    /// Numbers, for kind `Floats`.
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub floats: Vec<f32>,
    /// Numbers, for kind `Ints`.
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    /// A type, for kind `TypeProto`.
    #[prost(message, optional, tag = "14")]
    pub tp: Option<TypeProto>,
    /// Texts, for kind `Strings`.
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub strings: Vec<Bytes>,
    /// Which field holds the value.
    #[prost(enumeration = "AttributeType", tag = "20")]
    pub kind: i32,
    /// In a function, the attribute of the function that this one takes its value from.
    #[prost(string, tag = "21")]
    pub ref_attr_name: String,
}

/// Which field of an attribute contains its value.
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
    /// `t`.
    Tensor = 4,
    /// `g`.
    Graph = 5,
    /// `floats`.
    Floats = 6,
    /// `ints`.
    Ints = 7,
    /// `strings`.
    Strings = 8,
    /// Several tensors.
    Tensors = 9,
    /// Several graphs.
    Graphs = 10,
    /// A sparse tensor.
    SparseTensor = 11,
    /// Several sparse tensors.
    SparseTensors = 12,
    /// A type.
    TypeProto = 13,
    /// Several types.
    TypeProtos = 14,
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
    /// Elements of binary32.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// Elements of up to 32 bits, and of 16 bit floating-point types as their bits.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// Texts.
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub string_data: Vec<Bytes>,
    /// Elements of 64 bit integers.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// The value it defines.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Little-endian elements, row-major.
    #[prost(bytes = "bytes", tag = "9")]
    pub raw_data: Bytes,
    /// Elements of binary64.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// Elements of unsigned 32 and 64 bit integers.
    #[prost(uint64, repeated, tag = "11")]
    pub uint64_data: Vec<u64>,
    /// Where the elements are, if not here: keys `location`, `offset`, `length`.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// Whether the elements are here (0) or in another file (1).
    #[prost(int32, tag = "14")]
    pub data_location: i32,
    /// Not of the format: where in the file the reader left `raw_data`, which it did not read. See
    /// [`mod@crate::import`].
    #[prost(message, optional, tag = "60001")]
    pub left: Option<LeftBytes>,
}

/// A range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct LeftBytes {
    /// The first byte.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// How many.
    #[prost(uint64, tag = "2")]
    pub length: u64,
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
    /// Unsigned 16 bit.
    Uint16 = 4,
    /// Signed 16 bit.
    Int16 = 5,
    /// Signed 32 bit.
    Int32 = 6,
    /// Signed 64 bit.
    Int64 = 7,
    /// Text.
    String = 8,
    /// Booleans, a byte each.
    Bool = 9,
    /// binary16.
    Float16 = 10,
    /// binary64.
    Double = 11,
    /// Unsigned 32 bit.
    Uint32 = 12,
    /// Unsigned 64 bit.
    Uint64 = 13,
    /// Pairs of binary32.
    Complex64 = 14,
    /// Pairs of binary64.
    Complex128 = 15,
    /// bfloat16.
    Bfloat16 = 16,
    /// Float8, finite, for weights and activations.
    Float8e4m3fn = 17,
    /// The same, without a negative zero.
    Float8e4m3fnuz = 18,
    /// Float8 of a wider range.
    Float8e5m2 = 19,
    /// The same, without a negative zero.
    Float8e5m2fnuz = 20,
    /// Unsigned 4 bit, two a byte.
    Uint4 = 21,
    /// Signed 4 bit, two a byte.
    Int4 = 22,
    /// 4 bit floating-point, two a byte.
    Float4e2m1 = 23,
    /// Powers of two: scales.
    Float8e8m0 = 24,
    /// Unsigned 2 bit, four a byte.
    Uint2 = 25,
    /// Signed 2 bit, four a byte.
    Int2 = 26,
    /// 6 bit floating-point of 2 exponent bits, four in three bytes.
    Float6e2m3 = 27,
    /// 6 bit floating-point of 3 exponent bits, four in three bytes.
    Float6e3m2 = 28,
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
