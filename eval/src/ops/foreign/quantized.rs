//! Products of quantized matrices that ONNX Runtime adds (its docs/ContribOperators.md), with results of floats.

use planish_ir::DType;

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
        _ => Ok(None),
    }
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
