//! Products of quantized matrices that ONNX Runtime adds (its docs/ContribOperators.md), with results of floats.

use planish_ir::DType;
use planish_ir::ops::Setting;
use planish_ir::weight::code_range;

use super::norm::scale;
use super::quantize::{Dynamic, product};
use super::{Maybe, Node, of_integers, of_numbers, one};
use crate::Tensor;

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "MatMulIntegerToFloat" => {
            let factor = node.operand(2)?;
            let codes = Codes { codes: node.operand(0)?, zero: node.optional(4) };
            one(floats(node, codes, factor, [1, 3, 5, 6])?)
        }
        "DynamicQuantizeMatMul" => {
            let x = node.operand(0)?;
            let Dynamic { codes, scale, zero } = Dynamic::of(&x.to_f64());
            let codes = of_integers(DType::U8, x.shape().to_vec(), &codes)?;
            let zero = of_integers(DType::U8, Vec::new(), &[zero])?;
            let factor = of_numbers(DType::F32, &[], &[scale.into()])?;
            one(floats(node, Codes { codes: &codes, zero: Some(&zero) }, &factor, [1, 2, 3, 4])?)
        }
        "QGemm" => one(gemm(node)?),
        _ => Ok(None),
    }
}

/// The product of quantized matrices, plus a bias that counts in the product of both scales; quantized where a scale is
/// given for that.
fn gemm(node: &Node<'_>) -> Result<Tensor, String> {
    let set = |name| matches!(node.op.setting(name), Some(Setting::Int(1)));
    if set("transA") || set("transB") || node.float("alpha", 1.0) != 1.0 {
        return Err("only a plain product is computed".to_owned());
    }
    let (shape, sums) = product(node, node.operand(0)?, Some(node.operand(2)?), node.operand(3)?, node.optional(5))?;
    let mut values: Vec<f64> = sums.into_iter().map(|sum| sum as f64).collect();
    if let Some(bias) = node.optional(6) {
        scale(&mut values, &shape, bias, |v, b| v + b)?;
    }
    for by in [node.operand(1)?, node.operand(4)?] {
        scale(&mut values, &shape, by, |v, s| v * s)?;
    }
    let Some(by) = node.optional(7) else { return of_numbers(DType::F32, &shape, &values) };
    let zero = node.operand(8)?;
    scale(&mut values, &shape, by, |v, s| (v / s).round_ties_even())?;
    scale(&mut values, &shape, zero, |v, z| v + z)?;
    let (least, largest) = code_range(zero.dtype()).ok_or("its zero point has no codes")?;
    let codes: Vec<i128> = values.into_iter().map(|v| i128::from((v as i64).clamp(least, largest))).collect();
    of_integers(zero.dtype(), shape, &codes)
}

/// A quantized matrix.
struct Codes<'a> {
    codes: &'a Tensor,
    zero: Option<&'a Tensor>,
}

/// The product of `a` and the second matrix, times the scales of both, plus the bias. The numbers are the operands of the
/// second matrix, its scales, its zero points and the bias.
fn floats(
    node: &Node<'_>,
    a: Codes<'_>,
    factor: &Tensor,
    [b, scales, zeros, bias]: [usize; 4],
) -> Result<Tensor, String> {
    let (shape, sums) = product(node, a.codes, a.zero, node.operand(b)?, node.optional(zeros))?;
    if let Some(wide) = [a.codes, node.operand(b)?].iter().find(|codes| codes.dtype().bits() != 8) {
        return Err(format!("{} is not of codes of 8 bits", wide.ty()));
    }
    let scales = node.operand(scales)?;
    let mut values: Vec<f64> = sums.into_iter().map(|sum| sum as f64).collect();
    for by in [factor, scales] {
        scale(&mut values, &shape, by, |v, s| v * s)?;
    }
    if let Some(bias) = node.optional(bias) {
        scale(&mut values, &shape, bias, |v, b| v + b)?;
    }
    of_numbers(scales.dtype(), &shape, &values)
}
