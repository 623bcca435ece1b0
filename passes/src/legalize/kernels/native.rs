//! The operators that a runtime of this project executes: those of the graph.

use planish_ir::DType::{self, Bf16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
use planish_ir::{Graph, Type, ValueId};

use super::Signature;
use super::tables::missing;

const ANY: &[DType] = &[Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, Bf16, F32, F64];
const NUMBERS: &[DType] = &[I8, I16, I32, I64, U8, U16, U32, U64, F16, Bf16, F32, F64];
const SIGNED: &[DType] = &[I8, I16, I32, I64, F16, Bf16, F32, F64];
const FLOATS: &[DType] = &[F16, Bf16, F32, F64];
/// What layers compute in.
const COMPUTED: &[DType] = &[F16, Bf16, F32];
const INDICES: &[DType] = &[I32, I64];
const CODES: &[DType] = &[I8];

/// Operators, and the element types of the first operand; `MNEMONIC.OPERAND` where an operand has types of its own.
const ROWS: &[(&[&str], &[DType])] = &[
    (&["add", "sub", "mul", "div", "pow", "min", "max"], NUMBERS),
    (&["less", "less_or_equal", "greater", "greater_or_equal"], NUMBERS),
    (&["neg", "abs"], SIGNED),
    (&["and", "or", "not"], &[Bool]),
    (&["floor", "ceil", "exp", "log", "sqrt", "cos", "sin", "erf", "tanh", "sigmoid", "relu", "silu", "gelu"], FLOATS),
    (&["is_nan"], FLOATS),
    (&["equal", "select", "cast", "cast.result"], ANY),
    (&["reshape", "transpose", "slice", "split", "concat", "expand", "gather"], ANY),
    (&["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "cumsum"], NUMBERS),
    (&["iota"], INDICES),
    (&["sizes"], &[I64]),
    (&["embedding"], FLOATS),
    (&["linear", "matmul", "softmax", "layer_norm", "rms_norm", "attention", "rotary"], COMPUTED),
    (&["fake_quantize", "quantize"], COMPUTED),
    (&["quantized_linear"], CODES),
    (&["quantized_linear.scales"], &[F32]),
    (&["quantized_linear.bias", "quantized_linear.residual", "quantized_linear.result"], COMPUTED),
    (&["fused_linear", "gated", "add_norm", "embedding_norm", "rotary_append"], COMPUTED),
    (&["select.condition", "attention.mask"], &[Bool]),
    (&["gather.indices", "embedding.ids", "embedding_norm.ids"], INDICES),
    // Of another type where scores are computed in float32: the typing rule says which.
    (&["attention.bias"], COMPUTED),
];

/// Why the runtime has no kernel for a signature.
pub(crate) fn native(signature: &Signature<'_>, _: u32) -> Option<String> {
    missing(signature, |name| ROWS.iter().find(|(names, _)| names.contains(&name)).map(|(_, types)| *types))
}

/// Why the runtime cannot hold an input or a weight.
pub(crate) fn native_value(graph: &Graph, value: ValueId) -> Option<String> {
    match graph.type_of(value) {
        Type::Tensor(ty) if ty.dtype.is_computed() => None,
        Type::Tensor(ty) => Some(format!("no kernel takes elements of type {}", ty.dtype)),
        Type::Unranked(_) => Some("its number of dimensions is unknown".to_owned()),
        ty => Some(format!("it is {ty}, and the runtime has tensors only")),
    }
}

#[cfg(test)]
mod tests {
    use planish_ir::Op;

    use super::*;

    #[test]
    fn every_operator_of_the_graph_has_a_row_but_those_that_are_refused() {
        let without = Op::mnemonics().filter(|m| !ROWS.iter().any(|(names, _)| names.contains(m)));
        assert_eq!(without.collect::<Vec<_>>(), ["conv", "experts", "top_k", "argmax", "masked_softmax", "foreign"]);
        for name in ROWS.iter().flat_map(|(names, _)| *names) {
            let (mnemonic, operand) = name.split_once('.').unwrap_or((name, "result"));
            let operands = Op::operand_names(mnemonic).unwrap_or_else(|| panic!("{name}"));
            assert!(operand == "result" || operands.contains(&operand), "{name}");
        }
    }

    #[test]
    fn element_types_decide() {
        let reason = |mnemonic, operands: &[(&'static str, DType)], result| {
            native(&Signature { mnemonic, operands: operands.to_vec(), results: vec![result] }, 20)
        };
        assert_eq!(
            reason("attention", &[("q", F16), ("k", F16), ("v", F16), ("bias", F32), ("mask", Bool)], F16),
            None
        );
        assert_eq!(reason("linear", &[("x", F64), ("weight", F64)], F64).as_deref(), Some("no kernel for f64"));
        assert_eq!(reason("add", &[("a", F64), ("b", F64)], F64), None);
        assert_eq!(reason("embedding_norm", &[("tables", F16), ("ids", I64), ("weight", F16)], F16), None);
        let codes =
            |bias| reason("quantized_linear", &[("x", I8), ("weight", I8), ("scales", F32), ("bias", bias)], F16);
        assert_eq!((codes(F16), codes(I32).is_some()), (None, true));
    }
}
