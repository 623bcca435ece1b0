//! The forms that operators have for a target.

use planish_ir::DType;

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

/// How the rows of a matrix of tokens are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenOrder {
    /// [batch * sequence, features] everywhere.
    BatchMajor,
    /// [sequence * batch, features] up to the last attention without a cache, so that queries, keys and values are
    /// strided batches of matrices; batch-major after it.
    SequenceMajor,
}

/// The form of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttentionForm {
    /// Two products and a softmax between them, of scores for each head.
    Products,
    /// The same, but where heads share keys, the queries of a group are rows of one matrix from the first product to the
    /// second, and masks are repeated for them. TensorRT makes one kernel of that, and none where scores are reshaped
    /// between the product and the softmax ([docs/tensorrt.md](../../../docs/tensorrt.md)).
    ProductsOfGroups,
    /// One operator for an attention with a cache, from opset 23 on, where ONNX's Attention can express it. Products
    /// elsewhere.
    WholeWithCache,
    /// As [`WholeWithCache`](Self::WholeWithCache), and ONNX Runtime's MultiHeadAttention for an attention without a cache, of
    /// as many heads of keys as of queries. Tokens are batch-major then, as the operator takes them.
    MultiHead,
    /// The operator of the graph, whatever it has: a mask, a window, a cache.
    Whole,
}

/// Which linear layers of one operand are computed in one product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// None.
    None,
    /// Those that become MatMulNBits.
    Blocks,
    /// All.
    All,
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
    /// The same with inputs of u8, each with a zero point, times i8: OpenVINO's products of codes are faster with them than
    /// with inputs of i8. Its products of queries and keys are of i8 and i8.
    UnsignedPairs,
    /// The same as [`Pairs`](Self::Pairs) where the target takes signed codes and zero points of 0 only: u8 with a zero point of 128 becomes i8.
    SignedPairs,
    /// Operators of the graph on codes: i8 times i8, with fixed scales and zero points of 0, and without columns that are
    /// split.
    Codes,
}

impl QuantizedForm {
    /// The codes of queries and of keys where the product of both is computed of codes; `None` where it is one of floats.
    #[must_use]
    pub fn codes_of_scores(self) -> Option<[DType; 2]> {
        match self {
            Self::IntegerProducts => Some([DType::U8, DType::I8]),
            Self::UnsignedPairs => Some([DType::I8, DType::I8]),
            Self::Pairs | Self::SignedPairs | Self::Codes => None,
        }
    }
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
