//! The kernels of each target.

use planish_ir::DType::{self, Bf16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};

use super::Signature;

/// Why ONNX has no operator for a signature.
pub(crate) fn standard(signature: &Signature<'_>, opset: u32) -> Option<String> {
    if let Some(reason) = of_any_opset(signature) {
        return Some(reason);
    }
    let of = |(m, dtype, _): &&(&str, DType, u32)| *m == signature.mnemonic && Some(*dtype) == signature.subject();
    let (_, dtype, since) = STANDARD_SINCE.iter().find(of).filter(|(.., since)| opset < *since)?;
    Some(format!("no kernel for {dtype} before opset {since}"))
}

/// Why ONNX has no operator for a signature at any opset that is written.
pub(super) fn of_any_opset(signature: &Signature<'_>) -> Option<String> {
    missing(signature, column(|row| row.standard))
}

/// Why ONNX Runtime's CPU provider has no kernel for a signature.
pub(crate) fn ort_cpu(signature: &Signature<'_>, _: u32) -> Option<String> {
    missing(signature, column(|row| row.ort))
}

/// Why ONNX Runtime's CUDA provider has no kernel for a signature at an opset.
pub(crate) fn ort_cuda(signature: &Signature<'_>, opset: u32) -> Option<String> {
    if let Some(reason) = missing(signature, column(|row| row.cuda)) {
        return Some(reason);
    }
    let (_, until) = CUDA_UNTIL.iter().find(|(m, until)| *m == signature.mnemonic && opset > *until)?;
    let copied = CUDA_COPIES.iter().any(|(m, dtype)| *m == signature.mnemonic && Some(*dtype) == signature.subject());
    (!copied).then(|| format!("no kernel beyond opset {until}"))
}

/// The element types in a column of the table by names of rows.
fn column(column: fn(&Row) -> &'static [DType]) -> impl Fn(&str) -> Option<&'static [DType]> {
    move |name| ROWS.iter().chain(OWN).find(|row| row.mnemonics.contains(&name)).map(column)
}

/// Why there is no kernel for a signature, given the element types of operators by their mnemonics and, where operands
/// and results have types of their own, of `MNEMONIC.OPERAND`.
pub(super) fn missing(signature: &Signature<'_>, types: impl Fn(&str) -> Option<&'static [DType]>) -> Option<String> {
    let Some(kernels) = types(signature.mnemonic) else { return Some("no kernel".to_owned()) };
    let subject = signature.subject()?;
    if !kernels.contains(&subject) {
        return Some(format!("no kernel for {subject}"));
    }
    let own = |name: &str| types(&format!("{}.{name}", signature.mnemonic));
    let operand = signature.operands.iter().find(|(name, dtype)| match own(name) {
        Some(own) => !own.contains(dtype),
        None => *dtype != subject,
    });
    if let Some((name, dtype)) = operand {
        return Some(format!("no kernel for {subject} with `{name}` in {dtype}"));
    }
    let result = own(RESULT).and_then(|own| signature.results.iter().find(|dtype| !own.contains(dtype)));
    result.map(|dtype| format!("no kernel from {subject} to {dtype}"))
}

/// The name of the ONNX operator that an operator comes down to, but for the case of letters.
pub(super) fn onnx_name(mnemonic: &str) -> &str {
    ONNX_NAMES.iter().find(|(m, _)| *m == mnemonic).map_or(mnemonic, |(_, operator)| operator)
}

/// Operators that come down to one ONNX operator, and the element types that ...
struct Row {
    mnemonics: &'static [&'static str],
    /// ... ONNX admits at opset 17 and later (onnx/docs/Operators.md), or from the opset of [`STANDARD_SINCE`] on,
    standard: &'static [DType],
    /// ... ONNX Runtime 1.32.0 has CPU kernels for (fixtures/ort/cpu_kernels.csv, which a test
    /// compares),
    ort: &'static [DType],
    /// ... ONNX Runtime documents CUDA kernels for (fixtures/ort/cuda_kernels.csv, likewise).
    cuda: &'static [DType],
}

/// The last opset of whose form of an operator ONNX Runtime documents a CUDA kernel, where that is before the last
/// opset that is written. A kernel that names no last version takes no later form of its operator.
const CUDA_UNTIL: &[(&str, u32)] = &[
    ("equal", 18),
    ("reduce_max", 19),
    ("reduce_min", 19),
    ("sizes", 20),
    ("cos", 21),
    ("sin", 21),
    ("cast", 23),
    ("top_k", 23),
    ("reshape", 23),
    ("transpose", 23),
    ("attention", 24),
];

/// The first opset in which ONNX admits an element type of an operator, where that is after 17.
const STANDARD_SINCE: &[(&str, DType, u32)] = &[("conv", Bf16, 22), ("top_k", Bf16, 24)];

/// What the CPU provider runs for `ort-cuda` beyond that opset, its operands copied: the largest position of a row, which
/// rotary embeddings of variable base need, is one of a few bytes a token.
const CUDA_COPIES: &[(&str, DType)] = &[("reduce_max", I64), ("reduce_max", F32)];

const ANY: &[DType] = &[Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, Bf16, F32, F64];
const FLOATS: &[DType] = &[F16, Bf16, F32, F64];
const NUMBERS: &[DType] = &[I8, I16, I32, I64, U8, U16, U32, U64, F16, Bf16, F32, F64];
const WITHOUT_HALVES: &[DType] = &[I8, I16, I32, I64, U8, U16, U32, U64, F32, F64];
const WITHOUT_BF16: &[DType] = &[F16, F32, F64];
const INDICES: &[DType] = &[I32, I64];
const COMPARED: &[DType] = &[I32, I64, U32, U64, F16, F32, F64];

const ROWS: &[Row] = &[
    Row { mnemonics: &["add", "sub", "mul", "div"], standard: NUMBERS, ort: WITHOUT_HALVES, cuda: NUMBERS },
    Row {
        mnemonics: &["pow"],
        standard: &[I32, I64, F16, Bf16, F32, F64],
        ort: &[I32, I64, F32, F64],
        cuda: &[I32, I64, F16, Bf16, F32, F64],
    },
    Row {
        mnemonics: &["min", "max"],
        standard: NUMBERS,
        ort: &[I8, I32, I64, U8, U32, U64, F16, F32, F64],
        cuda: &[I32, I64, U32, U64, F16, Bf16, F32, F64],
    },
    Row {
        mnemonics: &["equal"],
        standard: ANY,
        ort: &[Bool, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64],
        cuda: &[Bool, I32, I64, U32, U64, F16, F32, F64],
    },
    Row {
        mnemonics: &["less", "greater", "less_or_equal", "greater_or_equal"],
        standard: NUMBERS,
        ort: WITHOUT_HALVES,
        cuda: COMPARED,
    },
    Row { mnemonics: &["and", "or", "not"], standard: &[Bool], ort: &[Bool], cuda: &[Bool] },
    Row {
        mnemonics: &["neg"],
        standard: &[I8, I16, I32, I64, F16, Bf16, F32, F64],
        ort: &[I8, I16, I32, I64, F32, F64],
        cuda: &[I8, I16, I32, I64, F16, Bf16, F32, F64],
    },
    Row { mnemonics: &["abs"], standard: NUMBERS, ort: WITHOUT_HALVES, cuda: NUMBERS },
    Row { mnemonics: &["exp", "sqrt", "tanh", "sigmoid", "relu"], standard: FLOATS, ort: &[F32, F64], cuda: FLOATS },
    Row { mnemonics: &["log", "floor", "ceil", "cos", "sin"], standard: FLOATS, ort: &[F32, F64], cuda: WITHOUT_BF16 },
    Row { mnemonics: &["erf", "gelu"], standard: FLOATS, ort: &[F32], cuda: FLOATS },
    Row {
        mnemonics: &["select"],
        standard: ANY,
        ort: &[I8, I32, I64, U8, U32, F32, F64],
        cuda: &[I32, I64, U8, F16, Bf16, F32, F64],
    },
    Row {
        mnemonics: &["cast", "reshape", "transpose", "slice", "split", "concat", "gather", "embedding"],
        standard: ANY,
        ort: ANY,
        cuda: ANY,
    },
    Row {
        mnemonics: &["expand"],
        standard: ANY,
        ort: &[Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, F32, F64],
        cuda: ANY,
    },
    Row {
        mnemonics: &["reduce_sum"],
        standard: &[I32, I64, U32, U64, F16, Bf16, F32, F64],
        ort: &[I32, I64, F32, F64],
        cuda: &[I32, I64, F16, Bf16, F32, F64],
    },
    Row {
        mnemonics: &["reduce_mean"],
        standard: &[I32, I64, U32, U64, F16, Bf16, F32, F64],
        ort: &[I32, I64, F32, F64],
        cuda: &[I32, F16, F32, F64],
    },
    Row {
        mnemonics: &["reduce_max"],
        standard: &[I8, I32, I64, U8, U32, U64, F16, Bf16, F32, F64],
        ort: &[I8, I32, I64, U8, F32, F64],
        cuda: &[I32, I64, F16, F32, F64],
    },
    Row {
        mnemonics: &["reduce_min"],
        standard: &[I8, I32, I64, U8, U32, U64, F16, Bf16, F32, F64],
        ort: &[I8, I32, I64, U8, F32, F64],
        cuda: &[I8, I32, I64, U8, F16, F32, F64],
    },
    Row {
        mnemonics: &["cumsum"],
        standard: &[I32, I64, U32, U64, F16, Bf16, F32, F64],
        ort: &[I32, I64, F32, F64],
        cuda: COMPARED,
    },
    Row { mnemonics: &["iota", "sizes"], standard: &[I64], ort: &[I64], cuda: &[I64] },
    Row { mnemonics: &["is_nan"], standard: FLOATS, ort: &[F16, F32, F64], cuda: FLOATS },
    Row { mnemonics: &["conv"], standard: FLOATS, ort: &[F32], cuda: WITHOUT_BF16 },
    Row {
        mnemonics: &["top_k"],
        standard: NUMBERS,
        ort: &[I8, I16, I32, I64, U8, F32, F64],
        cuda: &[I32, I64, F16, F32, F64],
    },
    Row { mnemonics: &["argmax"], standard: NUMBERS, ort: &[I8, I32, I64, U8, F32, F64], cuda: WITHOUT_BF16 },
    Row { mnemonics: &["linear", "matmul", "softmax"], standard: FLOATS, ort: &[F32, F64], cuda: FLOATS },
    Row { mnemonics: &["masked_softmax"], standard: FLOATS, ort: &[F32, F64], cuda: FLOATS },
    Row { mnemonics: &["layer_norm"], standard: FLOATS, ort: FLOATS, cuda: FLOATS },
    Row { mnemonics: &["attention"], standard: FLOATS, ort: &[F16, F32], cuda: &[F16, Bf16, F32] },
    Row { mnemonics: &["rms_norm"], standard: FLOATS, ort: &[F16, F32, F64], cuda: FLOATS },
];

/// The name under which [`OWN`] has results.
const RESULT: &str = "result";

/// Operands and results whose element types are not the one that the operator works on: `MNEMONIC.OPERAND`. Operands
/// that are not here have that type, and results have the type that the operator gives them.
const OWN: &[Row] = &[
    Row {
        mnemonics: &["select.condition", "attention.mask", "masked_softmax.masked"],
        standard: &[Bool],
        ort: &[Bool],
        cuda: &[Bool],
    },
    Row { mnemonics: &["gather.indices", "embedding.ids"], standard: INDICES, ort: INDICES, cuda: INDICES },
    Row { mnemonics: &["cast.result"], standard: ANY, ort: ANY, cuda: ANY },
];

/// The ONNX operators of the mnemonics that are not their names.
const ONNX_NAMES: &[(&str, &str)] = &[
    ("select", "Where"),
    ("masked_softmax", "If"),
    ("embedding", "Gather"),
    ("reduce_sum", "ReduceSum"),
    ("reduce_mean", "ReduceMean"),
    ("reduce_max", "ReduceMax"),
    ("iota", "Range"),
    ("sizes", "Identity"),
    ("is_nan", "IsNaN"),
    ("less_or_equal", "LessOrEqual"),
    ("greater_or_equal", "GreaterOrEqual"),
    ("reduce_min", "ReduceMin"),
    ("linear", "Gemm"),
    ("top_k", "TopK"),
    ("layer_norm", "LayerNormalization"),
    ("rms_norm", "RMSNormalization"),
];

#[cfg(test)]
mod tests {
    use planish_ir::Op;
    use planish_onnx::operator;

    use super::*;

    /// The line of a table of kernels for a mnemonic.
    fn line<'a>(kernels: &'a str, mnemonic: &str) -> Vec<&'a str> {
        // The tables have no operators with graphs of their own.
        let mnemonic = if mnemonic == "masked_softmax" { "softmax" } else { mnemonic };
        let operator = operator(mnemonic).unwrap();
        let fields = kernels.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let mut lines = fields.filter(|fields| fields[0] == operator);
        lines.next().unwrap_or_else(|| panic!("no kernel of {operator}"))
    }

    /// Compares a column with a table of kernels, of the types that ONNX admits.
    fn compare(kernels: &str, column: fn(&Row) -> &'static [DType]) {
        for row in ROWS {
            for mnemonic in row.mnemonics {
                let line = line(kernels, mnemonic);
                let has = |d: &DType| line[1].split(' ').any(|name| name == d.name());
                let missing: Vec<&DType> = column(row).iter().filter(|d| !has(d)).collect();
                assert!(missing.is_empty(), "{mnemonic} has no kernel for {missing:?}");
                let unlisted = row.standard.iter().filter(|d| has(d) && !column(row).contains(d));
                assert_eq!(unlisted.collect::<Vec<_>>(), Vec::<&DType>::new(), "{mnemonic} has these too");
            }
        }
    }

    #[test]
    fn the_table_says_what_onnx_runtime_says_of_itself() {
        compare(include_str!("../../../../fixtures/ort/cpu_kernels.csv"), |row| row.ort);
    }

    #[test]
    fn the_table_says_what_is_documented_of_the_cuda_provider() {
        let kernels = include_str!("../../../../fixtures/ort/cuda_kernels.csv");
        compare(kernels, |row| row.cuda);
        for mnemonic in ROWS.iter().flat_map(|row| row.mnemonics) {
            let documented = line(kernels, mnemonic)[2].parse::<u32>().ok();
            let known = CUDA_UNTIL.iter().find(|(m, _)| m == mnemonic).map(|(_, until)| *until);
            assert_eq!(known, documented, "{mnemonic}");
        }
    }

    #[test]
    fn every_operand_counts() {
        let reason = |mnemonic, operands: &[(&'static str, DType)], result| {
            ort_cpu(&Signature { mnemonic, operands: operands.to_vec(), results: vec![result] }, 23)
        };
        assert_eq!(reason("matmul", &[("a", F32), ("b", F32)], F32), None);
        let message = "no kernel for f32 with `b` in f16";
        assert_eq!(reason("matmul", &[("a", F32), ("b", F16)], F32).as_deref(), Some(message));
        assert_eq!(reason("matmul", &[("a", F16), ("b", F32)], F32).as_deref(), Some("no kernel for f16"));
        assert_eq!(reason("select", &[("condition", Bool), ("a", F32), ("b", F32)], F32), None);
        assert_eq!(reason("gather", &[("x", Bf16), ("indices", I64)], Bf16), None);
        let message = "no kernel for f32 with `indices` in u8";
        assert_eq!(reason("gather", &[("x", F32), ("indices", U8)], F32).as_deref(), Some(message));
        assert_eq!(reason("cast", &[("x", F32)], Bf16), None);
        assert_eq!(reason("cast", &[("x", F32)], DType::I4).as_deref(), Some("no kernel from f32 to i4"));
    }

    /// The names of operands are those of the operators' fields.
    #[test]
    fn operands_of_their_own_type_are_operands() {
        for name in OWN.iter().flat_map(|row| row.mnemonics) {
            let (mnemonic, operand) = name.split_once('.').unwrap();
            let operands = Op::operand_names(mnemonic).unwrap();
            assert!(operand == RESULT || operands.contains(&operand), "{name}");
        }
    }

    #[test]
    fn every_operator_that_is_always_lowered_has_no_row() {
        let without = Op::mnemonics().filter(|m| !ROWS.iter().any(|row| row.mnemonics.contains(m)));
        let lowered = ["silu", "experts", "rotary", "fake_quantize", "quantize", "quantized_linear"];
        let fused = ["fused_linear", "gated", "add_norm", "embedding_norm", "rotary_append"];
        assert_eq!(without.collect::<Vec<_>>(), [&lowered[..], &fused, &["foreign"]].concat());
    }
}
