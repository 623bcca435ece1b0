//! The operators of ONNX that TensorRT takes, and the element types of each.

use planish_ir::DType::{self, Bf16, Bool, F4E2M1, F8E4M3FN, F16, F32, I4, I8, I32, I64, U8};

/// Operators of the same element types.
pub(super) struct Group {
    /// Their names in ONNX, with a space between.
    pub(super) operators: &'static str,
    /// The element types of the operand that [`subject`] names.
    pub(super) types: &'static [DType],
}

const FLOATS: &[DType] = &[F16, Bf16, F32];
const NUMBERS: &[DType] = &[I32, I64, F16, Bf16, F32];
const COMPUTED: &[DType] = &[Bool, I32, I64, F16, Bf16, F32];
/// Elements of 8 bits are moved, and converted to types that are computed in.
const MOVED: &[DType] = &[Bool, I8, I32, I64, F16, Bf16, F32];
const CONVERTED: &[DType] = &[Bool, I8, I32, I64, U8, F16, Bf16, F32];
const INTEGERS: &[DType] = &[I32, I64];

/// The element types of values, constants included.
pub(super) const HELD: &[DType] = &[Bool, I8, I32, I64, U8, F16, Bf16, F32, F8E4M3FN, I4, F4E2M1];

/// The element types of quantized values.
pub(super) const QUANTIZED: &[DType] = &[I8, F8E4M3FN, I4, F4E2M1];

/// The element types of the operators in the Scan of linear attention.
pub(super) const SCANNED: &[DType] = FLOATS;

/// The element types of collectives, which TensorRT alone has as nodes of ONNX.
pub(super) const COLLECTIVES: &[DType] = FLOATS;

/// What TensorRT takes. A test compares it with fixtures/trt/parser.csv.
pub(super) const GROUPS: &[Group] = &[
    Group {
        operators: "Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Log Reciprocal Round Sin Sinh Sqrt \
                    Tan Tanh",
        types: FLOATS,
    },
    Group {
        operators: "Elu Gelu HardSigmoid LeakyRelu PRelu Selu Sigmoid Softplus Softsign Swish ThresholdedRelu",
        types: FLOATS,
    },
    Group {
        operators: "BatchNormalization GroupNormalization Hardmax InstanceNormalization LRN LayerNormalization \
                    LogSoftmax RMSNormalization Softmax",
        types: FLOATS,
    },
    Group {
        operators: "AveragePool Conv Einsum Gemm GlobalAveragePool GlobalMaxPool GridSample MatMul MaxPool Resize \
                    RotaryEmbedding TensorScatter",
        types: FLOATS,
    },
    Group {
        operators: "Dropout IsInf IsNaN Mean QuantizeLinear ReduceL2 ReduceLogSum ReduceLogSumExp STFT Sum",
        types: FLOATS,
    },
    Group {
        operators: "ConvTranspose GRU GlobalLpPool HardSwish LpNormalization LpPool Mish RNN RandomNormal \
                    RandomNormalLike RandomUniform RandomUniformLike",
        types: &[F16, F32],
    },
    Group { operators: "Celu MeanVarianceNormalization", types: &[F32] },
    Group {
        operators: "Abs Add ArgMax ArgMin Clip CumSum Div Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul \
                    Neg Pow ReduceL1 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Sign Sub \
                    TopK",
        types: NUMBERS,
    },
    Group { operators: "Shrink", types: &[I32, I64, F16, F32] },
    Group { operators: "BlackmanWindow HammingWindow HannWindow Range", types: INTEGERS },
    Group { operators: "Attention LSTM", types: FLOATS },
    Group { operators: "Relu", types: &[I64, F16, Bf16, F32] },
    Group { operators: "And Not Or Xor", types: &[Bool] },
    Group { operators: "ConstantOfShape Equal Pad", types: COMPUTED },
    Group { operators: "DepthToSpace SpaceToDepth", types: &[I8, I32, I64, F16, Bf16, F32] },
    Group {
        operators: "Concat Expand EyeLike Flatten Gather GatherElements GatherND OneHot Reshape ReverseSequence \
                    ScatterElements ScatterND Slice Split Squeeze Tile Transpose Trilu Unsqueeze Where",
        types: MOVED,
    },
    Group { operators: "Cast CastLike Identity Shape Size", types: CONVERTED },
    Group { operators: "DequantizeLinear", types: QUANTIZED },
];

/// The operand whose element type decides, by its position; the first where an operator is not here. `None` is the
/// result.
pub(super) fn subject(operator: &str) -> Option<usize> {
    match operator {
        "Where" => Some(1),
        "OneHot" => Some(2),
        "ConstantOfShape" | "EyeLike" | "RandomNormal" | "RandomUniform" => None,
        _ => Some(0),
    }
}

/// Operands that TensorRT reads when it builds an engine: names of operators, the position, the name of the operand.
pub(super) const CONSTANTS: &[(&str, usize, &str)] = &[
    (
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum \
         ReduceSumSquare Squeeze Unsqueeze",
        1,
        "axes",
    ),
    ("Dropout", 2, "training_mode"),
    ("STFT", 1, "frame_step"),
    ("STFT", 2, "window"),
];
