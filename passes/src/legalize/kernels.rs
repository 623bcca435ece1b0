//! What each target has kernels for, and the check that nothing else is left.

use planish_ir::DType::{self, Bf16, Bool, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
use planish_ir::ops::Foreign;
use planish_ir::{Graph, Op, ValueId};

use super::{attention, mask};
use crate::{Example, Options, Pass, PassError, Target};

/// Checks that the target has a kernel for every operator and its element type.
pub const CHECK_KERNELS: Pass = Pass {
    name: "check-kernels",
    summary: "checks that the target has a kernel for every operator and the element type it works on; lists all that \
              it has none for",
    numerics: "none",
    example: Example {
        target: Target::Onnx,
        fusion: true,
        before: "
            input %x: f32[n]
            %y = relu(%x) : f32[n]
            output y = %y",
        after: "
            input %x: f32[n]
            %y = relu(%x) : f32[n]
            output y = %y",
    },
    run,
};

/// Operators that come down to one ONNX operator, and the element types that ...
struct Row {
    mnemonics: &'static [&'static str],
    /// ... ONNX admits at opset 17 and later (onnx/docs/Operators.md),
    standard: &'static [DType],
    /// ... ONNX Runtime 1.31.1 has CPU kernels for (fixtures/ort/cpu_kernels.csv, which a test
    /// compares).
    ort: &'static [DType],
}

const ANY: &[DType] = &[Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, Bf16, F32, F64];
const FLOATS: &[DType] = &[F16, Bf16, F32, F64];
const NUMBERS: &[DType] = &[I8, I16, I32, I64, U8, U16, U32, U64, F16, Bf16, F32, F64];
const WITHOUT_HALVES: &[DType] = &[I8, I16, I32, I64, U8, U16, U32, U64, F32, F64];

const TABLE: &[Row] = &[
    Row { mnemonics: &["add", "sub", "mul", "div"], standard: NUMBERS, ort: WITHOUT_HALVES },
    Row { mnemonics: &["pow"], standard: &[I32, I64, F16, Bf16, F32, F64], ort: &[I32, I64, F32, F64] },
    Row { mnemonics: &["min", "max"], standard: NUMBERS, ort: &[I8, I32, I64, U8, U32, U64, F16, F32, F64] },
    Row { mnemonics: &["equal"], standard: ANY, ort: &[Bool, I8, I16, I32, I64, U8, U16, U32, U64, F32, F64] },
    Row {
        mnemonics: &["less", "greater", "less_or_equal", "greater_or_equal"],
        standard: NUMBERS,
        ort: WITHOUT_HALVES,
    },
    Row { mnemonics: &["and", "or", "not"], standard: &[Bool], ort: &[Bool] },
    Row {
        mnemonics: &["neg"],
        standard: &[I8, I16, I32, I64, F16, Bf16, F32, F64],
        ort: &[I8, I16, I32, I64, F32, F64],
    },
    Row { mnemonics: &["abs"], standard: NUMBERS, ort: WITHOUT_HALVES },
    Row {
        mnemonics: &["exp", "log", "sqrt", "tanh", "sigmoid", "relu", "floor", "ceil"],
        standard: FLOATS,
        ort: &[F32, F64],
    },
    Row { mnemonics: &["cos", "sin"], standard: FLOATS, ort: &[F32, F64] },
    Row { mnemonics: &["erf", "gelu"], standard: FLOATS, ort: &[F32] },
    Row { mnemonics: &["select"], standard: ANY, ort: &[I8, I32, I64, U8, U32, F32, F64] },
    Row {
        mnemonics: &["cast", "reshape", "transpose", "slice", "split", "concat", "gather", "embedding"],
        standard: ANY,
        ort: ANY,
    },
    Row { mnemonics: &["expand"], standard: ANY, ort: &[Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, F32, F64] },
    Row {
        mnemonics: &["reduce_sum", "reduce_mean"],
        standard: &[I32, I64, U32, U64, F16, Bf16, F32, F64],
        ort: &[I32, I64, F32, F64],
    },
    Row {
        mnemonics: &["reduce_max", "reduce_min"],
        standard: &[I8, I32, I64, U8, U32, U64, F16, Bf16, F32, F64],
        ort: &[I8, I32, I64, U8, F32, F64],
    },
    Row { mnemonics: &["cumsum"], standard: &[I32, I64, U32, U64, F16, Bf16, F32, F64], ort: &[I32, I64, F32, F64] },
    Row { mnemonics: &["iota", "sizes"], standard: &[I64], ort: &[I64] },
    Row { mnemonics: &["is_nan"], standard: FLOATS, ort: &[F16, F32, F64] },
    Row { mnemonics: &["linear", "matmul", "softmax"], standard: FLOATS, ort: &[F32, F64] },
    Row { mnemonics: &["layer_norm"], standard: FLOATS, ort: FLOATS },
    Row { mnemonics: &["attention"], standard: FLOATS, ort: &[F16, F32] },
    Row { mnemonics: &["rms_norm"], standard: FLOATS, ort: &[F16, F32, F64] },
];

fn run(graph: &mut Graph, options: &Options) -> Result<usize, PassError> {
    let operators: Vec<String> = graph
        .nodes()
        .filter_map(|(_, node)| {
            let reason = missing(graph, &node.op, node.outputs[0], options.target)?;
            let value = graph.value(node.outputs[0]);
            Some(format!("\n  `{}` at `{}` ({}): {reason}", node.op.mnemonic(), value.name, value.origin))
        })
        .collect();
    if operators.is_empty() {
        return Ok(0);
    }
    Err(PassError::Unsupported { target: options.target, opset: options.opset, operators })
}

/// Why the target cannot run an operator.
fn missing(graph: &Graph, op: &Op, result: ValueId, target: Target) -> Option<String> {
    if let Op::Foreign(foreign) = op {
        return missing_foreign(foreign, target);
    }
    let Some(row) = TABLE.iter().find(|row| row.mnemonics.contains(&op.mnemonic())) else {
        return Some("no kernel".to_owned());
    };
    let subject = match op {
        Op::Attention(p) if mask::is_needed(p) || !attention::has_operator(p) => return Some("no kernel".to_owned()),
        Op::Select(p) => p.a,
        _ => op.operands().first().copied().unwrap_or(result),
    };
    let dtype = graph.ty(subject).dtype;
    let kernels = match target {
        Target::Onnx => row.standard,
        Target::Ort => row.ort,
    };
    (!kernels.contains(&dtype)).then(|| format!("no kernel for {dtype}"))
}

/// Why the target cannot run an operator that passes through, or one in its graphs. Those of the default domain are the
/// export's to check: they are what they are at the opset that it writes.
fn missing_foreign(foreign: &Foreign, target: Target) -> Option<String> {
    let domains: &[&str] = match target {
        Target::Onnx => &[Foreign::STANDARD],
        Target::Ort => &[Foreign::STANDARD, "ai.onnx.ml", "ai.onnx.preview", "com.microsoft"],
    };
    let inner = foreign.inner.0.iter().map(|inner| (&inner.op, &inner.domain));
    let (op, domain) = std::iter::once((&foreign.op.0, &foreign.domain.0))
        .chain(inner)
        .find(|(_, domain)| !domains.contains(&domain.as_str()))?;
    Some(format!("operator {op} of the domain {domain}: target {target} has those of {}", domains.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ONNX operators that the mnemonics come down to.
    const OPERATORS: &[(&str, &str)] = &[
        ("select", "Where"),
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
        ("layer_norm", "LayerNormalization"),
        ("rms_norm", "RMSNormalization"),
    ];

    #[test]
    fn the_table_says_what_onnx_runtime_says_of_itself() {
        let kernels = include_str!("../../../fixtures/ort/cpu_kernels.csv");
        for row in TABLE {
            for &mnemonic in row.mnemonics {
                let operator =
                    OPERATORS.iter().find(|(m, _)| *m == mnemonic).map_or(mnemonic, |(_, operator)| operator);
                let of_operator = |line: &&str| line.split(',').next().unwrap().eq_ignore_ascii_case(operator);
                let line = kernels.lines().find(of_operator).unwrap_or_else(|| panic!("no kernel of {operator}"));
                let has = |d: &DType| line.split(',').nth(1).unwrap().split(' ').any(|name| name == d.name());
                let missing: Vec<&DType> = row.ort.iter().filter(|d| !has(d)).collect();
                assert!(missing.is_empty(), "{mnemonic}: {operator} has no kernel for {missing:?}");
                let unlisted = row.standard.iter().filter(|d| has(d) && !row.ort.contains(d));
                assert_eq!(unlisted.collect::<Vec<_>>(), Vec::<&DType>::new(), "{mnemonic}: {operator} has these too");
            }
        }
    }

    #[test]
    fn every_operator_that_is_always_lowered_has_no_row() {
        let without = Op::mnemonics().filter(|m| !TABLE.iter().any(|row| row.mnemonics.contains(m)));
        assert_eq!(without.collect::<Vec<_>>(), ["silu", "rotary", "foreign"]);
    }
}
