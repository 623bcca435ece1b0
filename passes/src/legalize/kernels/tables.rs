//! The kernels of each target, by the rows of operators.

use planish_ir::DType::{self, F32, I64};
use planish_ir::ops::{RESULT, Row};

use super::Signature;

/// Why ONNX has no operator for a signature.
pub(crate) fn standard(signature: &Signature, opset: u32) -> Option<String> {
    if let Some(reason) = of_any_opset(signature) {
        return Some(reason);
    }
    let (dtype, since) = signature
        .row
        .types
        .since
        .iter()
        .find(|(dtype, since)| Some(*dtype) == signature.subject() && opset < *since)?;
    Some(format!("no kernel for {dtype} before opset {since}"))
}

/// Why ONNX has no operator for a signature at any opset that is written.
pub(super) fn of_any_opset(signature: &Signature) -> Option<String> {
    missing(signature, signature.row.types.standard, own(signature.row))
}

/// Why ONNX Runtime's CPU provider has no kernel for a signature.
pub(crate) fn ort_cpu(signature: &Signature, _: u32) -> Option<String> {
    missing(signature, signature.row.types.ort, own(signature.row))
}

/// Why ONNX Runtime's CUDA provider has no kernel for a signature at an opset.
pub(crate) fn ort_cuda(signature: &Signature, opset: u32) -> Option<String> {
    let row = signature.row;
    if let Some(reason) = missing(signature, row.types.ort_cuda, own(row)) {
        return Some(reason);
    }
    let until = row.types.cuda_until.filter(|until| opset > *until)?;
    let copied = CUDA_COPIES.iter().any(|(m, dtype)| *m == row.mnemonic && Some(*dtype) == signature.subject());
    (!copied).then(|| format!("no kernel beyond opset {until}"))
}

/// The element types of operands and of the result that have their own.
pub(super) fn own(row: &'static Row) -> impl Fn(&str) -> Option<&'static [DType]> {
    |operand| row.own_types(operand)
}

/// Why there is no kernel for a signature, given the element types of the subject and, where operands and results have types
/// of their own, of these.
pub(super) fn missing(
    signature: &Signature,
    kernels: &[DType],
    own: impl Fn(&str) -> Option<&'static [DType]>,
) -> Option<String> {
    if kernels.is_empty() {
        return Some("no kernel".to_owned());
    }
    let subject = signature.subject()?;
    if !kernels.contains(&subject) {
        return Some(format!("no kernel for {subject}"));
    }
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

/// What the CPU provider runs for `ort-cuda` beyond the last opset of a CUDA kernel, its operands copied: the largest
/// position of a row, which rotary embeddings of variable base need, is one of a few bytes a token.
const CUDA_COPIES: &[(&str, DType)] = &[("reduce_max", I64), ("reduce_max", F32)];

#[cfg(test)]
mod tests {
    use planish_ir::DType::{Bf16, Bool, F16, I4, U8};
    use planish_ir::Op;

    use super::*;

    /// The line of a table of kernels for an operator of ONNX. The tables have no operators with graphs of their own.
    fn line<'a>(kernels: &'a str, row: &Row) -> Option<Vec<&'a str>> {
        let operator = if row.mnemonic == "masked_softmax" { Some("Softmax") } else { row.onnx };
        kernels.lines().map(|line| line.split(',').collect::<Vec<_>>()).find(|fields| Some(fields[0]) == operator)
    }

    /// Compares the element types of operators with a table of kernels, of the types that ONNX admits.
    fn compare(kernels: &str, types: fn(&Row) -> &'static [DType]) {
        for row in Op::rows() {
            let line = line(kernels, row);
            let has = |d: &DType| line.as_ref().is_some_and(|line| line[1].split(' ').any(|name| name == d.name()));
            let missing: Vec<&DType> = types(row).iter().filter(|d| !has(d)).collect();
            assert!(missing.is_empty(), "{} has no kernel for {missing:?}", row.mnemonic);
            let unlisted = row.types.standard.iter().filter(|d| has(d) && !types(row).contains(d));
            assert_eq!(unlisted.collect::<Vec<_>>(), Vec::<&DType>::new(), "{} has these too", row.mnemonic);
        }
    }

    #[test]
    fn the_rows_say_what_onnx_runtime_says_of_itself() {
        compare(include_str!("../../../../fixtures/ort/cpu_kernels.csv"), |row| row.types.ort);
    }

    #[test]
    fn the_rows_say_what_is_documented_of_the_cuda_provider() {
        let kernels = include_str!("../../../../fixtures/ort/cuda_kernels.csv");
        compare(kernels, |row| row.types.ort_cuda);
        for row in Op::rows() {
            let documented = line(kernels, row).and_then(|line| line[2].parse::<u32>().ok());
            assert_eq!(row.types.cuda_until, documented, "{}", row.mnemonic);
        }
    }

    #[test]
    fn every_operand_counts() {
        let reason = |mnemonic, operands: &[(&'static str, DType)], result| {
            let row = Row::of(mnemonic).unwrap();
            ort_cpu(&Signature { row, operands: operands.to_vec(), results: vec![result] }, 23)
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
        assert_eq!(reason("cast", &[("x", F32)], I4).as_deref(), Some("no kernel from f32 to i4"));
    }

    /// What has no form in ONNX has no kernel of it, and what has one is in the table of ONNX Runtime.
    #[test]
    fn operators_with_a_form_in_onnx_have_element_types() {
        for row in Op::rows() {
            let known = [row.types.standard, row.types.ort].map(|types| !types.is_empty());
            // ONNX Runtime has no collectives.
            let is_collective = matches!(row.mnemonic, "all_gather" | "all_reduce");
            assert_eq!(known, [row.onnx.is_some(), row.onnx.is_some() && !is_collective], "{}", row.mnemonic);
            let all = [row.types.ort, row.types.ort_cuda].concat();
            assert!(all.iter().all(|dtype| row.types.standard.contains(dtype)), "{}", row.mnemonic);
        }
    }
}
