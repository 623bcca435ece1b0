//! The forms that operators have for a target.

/// How attention appends new keys and values to those of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheForm {
    /// The results are new tensors, with a copy of the past in them.
    #[default]
    Copy,
    /// The operator writes after the past, if a program gives it one buffer for the past and for the result, with room
    /// for all keys. Given two, it copies the past. The operator is ONNX Runtime's GroupQueryAttention.
    InPlace,
    /// The same, if the operator computes every attention with a cache; a copy otherwise.
    InPlaceIfPossible,
}

/// The form of layers with a state of a fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateForm {
    /// ONNX Runtime's CausalConvWithState and LinearAttention, which its CPU provider has for float32.
    Operators,
    /// Products and sums for convolutions, and a Scan for linear attention.
    Scan,
    /// Products and sums. Linear attention with `beta` or with a decay of each element has no such form.
    Products,
}

/// The form of quantized layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantizedForm {
    /// Products of integers, as ONNX Runtime has them: u8 times i8, each with a zero point.
    IntegerProducts,
    /// Products of floats between DequantizeLinear and QuantizeLinear, which the target fuses: i8 times i8, or float8
    /// times float8, with zero points of 0.
    Pairs,
    /// The same where the target takes signed codes and zero points of 0 only: u8 with a zero point of 128 becomes i8.
    SignedPairs,
    /// Operators of the graph on codes: i8 times i8, with fixed scales and zero points of 0, and without columns that are
    /// split.
    Codes,
}

/// Where the extremes of observed values are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Directly after each value, for runtimes that run nodes in the order of the graph.
    Interleaved,
    /// At the end of the graph, the last value first, for runtimes that walk back from the last node that nothing reads
    /// and run first what they meet last.
    AtEnd,
}
