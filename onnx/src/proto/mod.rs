//! The messages of the ONNX format (onnx.proto3) that planish reads and writes, field numbers as published.
//! Fields that mean nothing to it (documentation, metadata of nodes, training) are skipped.

mod tensors;
mod types;

use bytes::Bytes;
use prost::{Enumeration, Message};

pub use tensors::{DataType, LeftBytes, SparseTensorProto, StringStringEntryProto, TensorProto};
pub use types::{
    DimensionProto, DimensionValue, ElementTypeProto, MapTypeProto, TensorShapeProto, TensorTypeProto, TypeProto,
    ValueInfoProto,
};

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
