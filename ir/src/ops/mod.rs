//! The closed set of operators: one payload struct an operator (or family of operators that differ in a kind), one file a
//! group. [`Op`] is the enum of them all, and the table below has a [`Row`] of facts for each.
//!
//! To add an operator: a `payload!` in the file of its group with a `TypeRule`, a variant with its row in `operators!`
//! below, and its semantics in `eval`; the compiler then lists what is missing.

mod arith;
mod attention;
mod attribute;
mod collective;
mod conv;
mod experts;
mod foreign;
mod fused;
mod infer;
mod kinds;
mod nn;
mod op;
mod order;
mod payload;
mod quantize;
mod row;
mod states;
mod tensor;

pub use arith::{Binary, BinaryKind, Cast, CumSum, Reduce, ReduceKind, Select, Unary, UnaryKind};
pub use attention::{Attention, Rotary};
pub use attribute::{Attribute, Flag, Real};
pub use collective::{AllGather, AllReduce};
pub use conv::Conv;
pub use experts::Experts;
pub use foreign::{Foreign, Inner, InnerOperators, Results, Setting, SettingForm, Settings, Text};
pub use fused::{Activation, AddNorm, EmbeddingNorm, FusedLinear, Gated, MAX_TABLES, NormKind, RotaryAppend};
pub use infer::{Types, broadcast};
pub use nn::{Embedding, Gelu, GeluForm, LayerNorm, Linear, MaskedSoftmax, MatMul, RmsNorm, Softmax};
pub use order::{ArgMax, TopK};
pub use payload::{Field, Operand, Payload, Schema, TypeRule};
pub use quantize::{Columns, FakeQuantize, Quantize, QuantizedLinear};
pub use row::{ElementTypes, Kind, Magnitude, Operations, Precision, RESULT, Row};
pub use states::{CausalConv, LinearAttention};
pub use tensor::{Concat, Expand, Gather, Iota, Reshape, Sizes, Slice, Split, Transpose};

use op::{Rows, operators};
use payload::{ParseArguments, PrintArguments};
pub(crate) use payload::{payload_parse, payload_text};
use row::{
    ANY, ARITHMETIC, BOOLEANS, COLLECTIVE, COMPARISON, COMPUTED, EXTREME, FLOATS, FUNCTION, FUNCTION_WITHOUT_BF16,
    INDICES, LAYER, MOVED, NONE, NUMBERS, OF_LAYERS, SIGNED, SMALLEST, SUM, SUMMED_BY_CPU, WIDE, WITHOUT_BF16, all,
};

use crate::DType::{Bf16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
use crate::cost::{LAYER_NORM, RMS_NORM, SILU, SOFTMAX};
use crate::{Dim, Type, ValueId};

// A variant with its rows: the mnemonic, the operator of ONNX, the kind, what half precision makes of it, how large results
// are, floating-point operations, and the element types by target; see `Row`.
operators! { $
    /// One of the elementwise functions of one tensor.
    Unary {
        "neg": Some("Neg"), Plain, Half, Any, Each(1), ElementTypes { ort: &[I8, I16, I32, I64, F32, F64], ..all(SIGNED) };
        "abs": Some("Abs"), Plain, Half, Any, Each(1), ElementTypes { native: SIGNED, ..ARITHMETIC };
        "floor": Some("Floor"), Plain, Half, Any, Each(1), FUNCTION_WITHOUT_BF16;
        "ceil": Some("Ceil"), Plain, Half, Any, Each(1), FUNCTION_WITHOUT_BF16;
        "exp": Some("Exp"), Plain, Single, Any, Each(1), FUNCTION;
        "log": Some("Log"), Plain, Single, Any, Each(1), FUNCTION_WITHOUT_BF16;
        "sqrt": Some("Sqrt"), Plain, Single, Any, Each(1), FUNCTION;
        "cos": Some("Cos"), Plain, Single, Bounded, Each(1), ElementTypes { cuda_until: Some(21), ..FUNCTION_WITHOUT_BF16 };
        "sin": Some("Sin"), Plain, Single, Bounded, Each(1), ElementTypes { cuda_until: Some(21), ..FUNCTION_WITHOUT_BF16 };
        "erf": Some("Erf"), Plain, Single, Bounded, Each(1), ElementTypes { ort: &[F32], ..FUNCTION };
        "tanh": Some("Tanh"), Plain, Half, Bounded, Each(1), FUNCTION;
        "sigmoid": Some("Sigmoid"), Plain, Half, Bounded, Each(1), FUNCTION;
        "relu": Some("Relu"), Plain, Half, Any, Each(1), FUNCTION;
        "silu": None, Plain, Half, Any, Each(SILU), ElementTypes { native: FLOATS, ..NONE };
        "not": Some("Not"), Plain, Half, Any, Each(1), all(BOOLEANS);
        "is_nan": Some("IsNaN"), Plain, Half, Any, Each(1), ElementTypes { ort: WITHOUT_BF16, ..all(FLOATS) };
    }
    /// One of the elementwise functions of two tensors, with broadcast.
    Binary {
        "add": Some("Add"), Plain, Half, Any, Each(1), ARITHMETIC;
        "sub": Some("Sub"), Plain, Half, Any, Each(1), ARITHMETIC;
        "mul": Some("Mul"), Plain, Half, Any, Each(1), ARITHMETIC;
        "div": Some("Div"), Plain, Half, Any, Each(1), ARITHMETIC;
        "pow": Some("Pow"), Plain, Single, Any, Each(1), ElementTypes {
            standard: &[I32, I64, F16, Bf16, F32, F64],
            ort: SUMMED_BY_CPU,
            ort_cuda: &[I32, I64, F16, Bf16, F32, F64],
            ..all(NUMBERS)
        };
        "min": Some("Min"), Plain, Half, Any, Each(1), EXTREME;
        "max": Some("Max"), Plain, Half, Any, Each(1), EXTREME;
        "equal": Some("Equal"), Plain, Half, Any, Each(1), ElementTypes {
            ort: &[Bool, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64],
            ort_cuda: &[Bool, I32, I64, U32, U64, F16, F32, F64],
            cuda_until: Some(18),
            ..MOVED
        };
        "less": Some("Less"), Plain, Half, Any, Each(1), COMPARISON;
        "less_or_equal": Some("LessOrEqual"), Plain, Half, Any, Each(1), COMPARISON;
        "greater": Some("Greater"), Plain, Half, Any, Each(1), COMPARISON;
        "greater_or_equal": Some("GreaterOrEqual"), Plain, Half, Any, Each(1), COMPARISON;
        "and": Some("And"), Plain, Half, Any, Each(1), all(BOOLEANS);
        "or": Some("Or"), Plain, Half, Any, Each(1), all(BOOLEANS);
    }
    /// Elementwise choice between two tensors.
    Select {
        "select": Some("Where"), Plain, Half, Any, Each(0), ElementTypes {
            ort: &[I8, I32, I64, U8, U32, F32, F64],
            ort_cuda: &[I32, I64, U8, F16, Bf16, F32, F64],
            own: &[("condition", BOOLEANS)],
            ..MOVED
        };
    }
    /// Conversion of elements.
    Cast {
        "cast": Some("Cast"), Plain, Single, Any, Each(0), ElementTypes {
            cuda_until: Some(23),
            own: &[(RESULT, ANY)],
            ..MOVED
        };
    }
    /// Sum, mean or maximum over axes.
    Reduce {
        "reduce_sum": Some("ReduceSum"), Plain, Single, Any, Read, ElementTypes {
            ort_cuda: &[I32, I64, F16, Bf16, F32, F64],
            ..SUM
        };
        "reduce_mean": Some("ReduceMean"), Plain, Single, Any, Read, ElementTypes { ort_cuda: &[I32, F16, F32, F64], ..SUM };
        "reduce_max": Some("ReduceMax"), Plain, Half, Any, Read, ElementTypes {
            ort_cuda: &[I32, I64, F16, F32, F64],
            ..SMALLEST
        };
        "reduce_min": Some("ReduceMin"), Plain, Half, Any, Read, ElementTypes {
            ort_cuda: &[I8, I32, I64, U8, F16, F32, F64],
            ..SMALLEST
        };
    }
    /// Running sum along an axis.
    CumSum {
        "cumsum": Some("CumSum"), Plain, Single, Any, Read, SUM;
    }
    /// The same elements under another shape.
    Reshape {
        "reshape": Some("Reshape"), Plain, Half, Any, Each(0), ElementTypes { cuda_until: Some(23), ..MOVED };
    }
    /// Dimensions permuted.
    Transpose {
        "transpose": Some("Transpose"), Plain, Half, Any, Each(0), ElementTypes { cuda_until: Some(23), ..MOVED };
    }
    /// A range of one axis.
    Slice {
        "slice": Some("Slice"), Plain, Half, Any, Each(0), MOVED;
    }
    /// One axis cut into parts.
    Split {
        "split": Some("Split"), Plain, Half, Any, Each(0), MOVED;
    }
    /// Tensors after each other.
    Concat {
        "concat": Some("Concat"), Plain, Half, Any, Each(0), MOVED;
    }
    /// Broadcast to a shape.
    Expand {
        "expand": Some("Expand"), Plain, Half, Any, Each(0), ElementTypes {
            ort: &[Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, F32, F64],
            ..MOVED
        };
    }
    /// Slices of a tensor picked by indices.
    Gather {
        "gather": Some("Gather"), Lookup, Half, Any, Each(0), ElementTypes { own: &[("indices", INDICES)], ..MOVED };
    }
    /// Consecutive integers along an axis.
    Iota {
        "iota": Some("Range"), Plain, Single, Any, Each(0), ElementTypes { native: INDICES, ..all(&[I64]) };
    }
    /// Dimensions as a vector.
    Sizes {
        "sizes": Some("Identity"), Plain, Half, Any, Each(0), ElementTypes { cuda_until: Some(20), ..all(&[I64]) };
    }
    /// Product with a weight as stored, [out, in], plus bias.
    Linear {
        "linear": Some("Gemm"), Product, Half, Bounded, Own, LAYER;
    }
    /// Batched matrix product.
    MatMul {
        "matmul": Some("MatMul"), Product, Half, Bounded, Own, LAYER;
    }
    /// Convolution over spatial axes.
    Conv {
        "conv": Some("Conv"), Product, Half, Bounded, Own, ElementTypes {
            standard: FLOATS,
            since: &[(Bf16, 22)],
            ort: &[F32],
            ort_cuda: WITHOUT_BF16,
            ..NONE
        };
    }
    /// Feed-forward networks of which each token takes some.
    Experts {
        "experts": None, Product, Half, Bounded, Own, ElementTypes { own: &[("indices", INDICES)], ..NONE };
    }
    /// A convolution of each channel over the tokens up to each, with a state.
    CausalConv {
        "causal_conv": None, Plain, Half, Bounded, Own, NONE;
    }
    /// Attention whose keys and values are summed up in a state.
    LinearAttention {
        // Rounding the state at each token adds up.
        "linear_attention": Some("Scan"), Plain, Single, Bounded, Own, ElementTypes {
            standard: WIDE,
            ort: WIDE,
            ort_cuda: WIDE,
            cuda_until: Some(20),
            ..NONE
        };
    }
    /// The largest elements along an axis, and where they are.
    TopK {
        // Which elements are the largest would depend on rounding.
        "top_k": Some("TopK"), Plain, Single, Operand, Read, ElementTypes {
            standard: NUMBERS,
            since: &[(Bf16, 24)],
            ort: &[I8, I16, I32, I64, U8, F32, F64],
            ort_cuda: &[I32, I64, F16, F32, F64],
            cuda_until: Some(23),
            ..NONE
        };
    }
    /// Where the largest element along an axis is.
    ArgMax {
        "argmax": Some("ArgMax"), Plain, Half, Any, Read, ElementTypes {
            standard: NUMBERS,
            ort: &[I8, I32, I64, U8, F32, F64],
            ort_cuda: WITHOUT_BF16,
            ..NONE
        };
    }
    /// Softmax along the last axis.
    Softmax {
        "softmax": Some("Softmax"), Plain, Single, Bounded, Each(SOFTMAX), LAYER;
    }
    /// Softmax of a sum with a mask, or without it.
    MaskedSoftmax {
        "masked_softmax": Some("If"), Plain, Single, Bounded, Each(SOFTMAX + 1), ElementTypes {
            native: &[],
            own: &[("masked", BOOLEANS)],
            ..LAYER
        };
    }
    /// Layer normalization over the last axis.
    LayerNorm {
        "layer_norm": Some("LayerNormalization"), Plain, Half, Bounded, Each(LAYER_NORM), ElementTypes { ort: FLOATS, ..LAYER };
    }
    /// Root mean square normalization over the last axis.
    RmsNorm {
        "rms_norm": Some("RMSNormalization"), Plain, Half, Bounded, Each(RMS_NORM), ElementTypes {
            ort: WITHOUT_BF16,
            ..LAYER
        };
    }
    /// Gaussian error linear unit.
    Gelu {
        "gelu": Some("Gelu"), Plain, Half, Any, Own, ElementTypes { ort: &[F32], ..FUNCTION };
    }
    /// Rows of a table picked by ids.
    Embedding {
        "embedding": Some("Gather"), Lookup, Half, Any, Each(0), ElementTypes {
            native: FLOATS,
            own: &[("ids", INDICES)],
            ..MOVED
        };
    }
    /// Multi-head scaled dot-product attention.
    Attention {
        "attention": Some("Attention"), Product, Half, Any, Own, ElementTypes {
            ort: &[F16, F32],
            ort_cuda: COMPUTED,
            cuda_until: Some(24),
            own: &[("mask", BOOLEANS)],
            ..LAYER
        };
    }
    /// Rotary position embedding.
    Rotary {
        "rotary": None, Plain, Half, Any, Own, OF_LAYERS;
    }
    /// Elements rounded to what codes of a quantized type stand for.
    FakeQuantize {
        // Codes of the elements, and numbers of the codes.
        "fake_quantize": None, Plain, Half, Any, Each(2), OF_LAYERS;
    }
    /// Codes of elements.
    Quantize {
        "quantize": None, Plain, Half, Any, Own, OF_LAYERS;
    }
    /// A linear layer of codes, with an activation and a residual.
    QuantizedLinear {
        "quantized_linear": None, Fused, Half, Any, Own, ElementTypes {
            native: &[I8],
            own: &[("scales", &[F32]), ("bias", COMPUTED), ("residual", COMPUTED), (RESULT, COMPUTED)],
            ..NONE
        };
    }
    /// A linear layer with an activation and a residual.
    FusedLinear {
        "fused_linear": None, Fused, Half, Any, Own, OF_LAYERS;
    }
    /// The product of an activation and a tensor.
    Gated {
        "gated": None, Fused, Half, Any, Own, OF_LAYERS;
    }
    /// The norm of a sum, and the sum.
    AddNorm {
        "add_norm": None, Fused, Half, Any, Own, OF_LAYERS;
    }
    /// The norm of a sum of embeddings, and the sum.
    EmbeddingNorm {
        "embedding_norm": None, Fused, Half, Any, Own, ElementTypes { own: &[("ids", INDICES)], ..OF_LAYERS };
    }
    /// Rotary position embedding of queries and keys, after what a cache holds.
    RotaryAppend {
        "rotary_append": None, Fused, Half, Any, Own, OF_LAYERS;
    }
    /// The sum of the tensors of all ranks.
    AllReduce {
        "all_reduce": Some("DistCollective"), Plain, Half, Any, Read, COLLECTIVE;
    }
    /// The tensors of all ranks after each other.
    AllGather {
        "all_gather": Some("DistCollective"), Plain, Half, Operand, Each(0), COLLECTIVE;
    }
    /// An operator of ONNX that none of these is.
    Foreign {
        "foreign": None, PassesThrough, Single, Any, Own, NONE;
    }
}
