//! Constant tensors and their element types.

use bytes::Bytes;
use prost::{Enumeration, Message};

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

/// A sparse tensor, of which only the name is read.
#[derive(Clone, PartialEq, Message)]
pub struct SparseTensorProto {
    /// The elements that are not zero; its name is the tensor's.
    #[prost(message, optional, tag = "1")]
    pub values: Option<TensorProto>,
}
