//! Which operator of ONNX each operator of the IR is.

use std::str::FromStr;

/// The mnemonics of the IR and the operators of the default domain that they are written as. The import reads the kinds of
/// [`planish_ir::ops`] by it too. An operator that the lowering replaces for every target has no row.
const OPERATORS: &[(&str, &str)] = &[
    ("neg", "Neg"),
    ("abs", "Abs"),
    ("floor", "Floor"),
    ("ceil", "Ceil"),
    ("exp", "Exp"),
    ("log", "Log"),
    ("sqrt", "Sqrt"),
    ("cos", "Cos"),
    ("sin", "Sin"),
    ("erf", "Erf"),
    ("tanh", "Tanh"),
    ("sigmoid", "Sigmoid"),
    ("relu", "Relu"),
    ("not", "Not"),
    ("is_nan", "IsNaN"),
    ("add", "Add"),
    ("sub", "Sub"),
    ("mul", "Mul"),
    ("div", "Div"),
    ("pow", "Pow"),
    ("min", "Min"),
    ("max", "Max"),
    ("equal", "Equal"),
    ("less", "Less"),
    ("less_or_equal", "LessOrEqual"),
    ("greater", "Greater"),
    ("greater_or_equal", "GreaterOrEqual"),
    ("and", "And"),
    ("or", "Or"),
    ("select", "Where"),
    ("cast", "Cast"),
    ("reduce_sum", "ReduceSum"),
    ("reduce_mean", "ReduceMean"),
    ("reduce_max", "ReduceMax"),
    ("reduce_min", "ReduceMin"),
    ("cumsum", "CumSum"),
    ("reshape", "Reshape"),
    ("transpose", "Transpose"),
    ("slice", "Slice"),
    ("split", "Split"),
    ("concat", "Concat"),
    ("expand", "Expand"),
    ("gather", "Gather"),
    ("iota", "Range"),
    ("sizes", "Identity"),
    ("linear", "Gemm"),
    ("matmul", "MatMul"),
    ("conv", "Conv"),
    ("top_k", "TopK"),
    ("argmax", "ArgMax"),
    ("softmax", "Softmax"),
    ("masked_softmax", "If"),
    ("layer_norm", "LayerNormalization"),
    ("rms_norm", "RMSNormalization"),
    ("gelu", "Gelu"),
    ("embedding", "Gather"),
    ("attention", "Attention"),
];

/// The operator of ONNX that a mnemonic is written as.
#[must_use]
pub fn operator(mnemonic: &str) -> Option<&'static str> {
    OPERATORS.iter().find(|(m, _)| *m == mnemonic).map(|(_, operator)| *operator)
}

/// The kind that an operator of ONNX is, such as `BinaryKind::Add` for `Add`.
pub(crate) fn kind<K: FromStr>(operator: &str) -> Option<K> {
    OPERATORS.iter().find(|(_, o)| *o == operator)?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use planish_ir::Op;

    use super::*;

    #[test]
    fn every_operator_has_a_row_but_those_that_are_always_lowered() {
        let without = Op::mnemonics().filter(|mnemonic| operator(mnemonic).is_none());
        let lowered = ["silu", "experts", "rotary", "fake_quantize"];
        let native =
            ["quantize", "quantized_linear", "fused_linear", "gated", "add_norm", "embedding_norm", "rotary_append"];
        assert!(without.eq([&lowered[..], &native, &["foreign"]].concat()));
        let unknown = OPERATORS.iter().filter(|(mnemonic, _)| !Op::mnemonics().any(|m| m == *mnemonic));
        assert_eq!(unknown.collect::<Vec<_>>(), [&("", ""); 0]);
    }
}
