//! Functions of single elements. Floats compute in `f64` and round once.

use super::{Maybe, Node, integers, of_integers, of_numbers, one};
use crate::Tensor;

pub(super) fn run(node: &Node<'_>) -> Maybe {
    let name = node.name();
    if let Some(f) = function(node) {
        let x = node.operand(0)?;
        let values: Vec<f64> = x.to_f64().into_iter().map(f).collect();
        return one(of_numbers(x.dtype(), x.shape(), &values)?);
    }
    match name {
        "IsInf" => {
            let x = node.operand(0)?;
            let (low, high) = (node.int("detect_negative", 1) == 1, node.int("detect_positive", 1) == 1);
            let is = |v: &f64| v.is_infinite() && if *v < 0.0 { low } else { high };
            let found: Vec<bool> = x.to_f64().iter().map(is).collect();
            one(super::tensor(x.shape().to_vec(), found.into())?)
        }
        "Clip" => {
            let x = node.operand(0)?;
            let bound = |at: usize| node.optional(at).and_then(|bound| bound.to_f64().first().copied());
            let (low, high) = (bound(1).unwrap_or(f64::NEG_INFINITY), bound(2).unwrap_or(f64::INFINITY));
            // What is not a number stays as it is. The upper bound counts where they cross.
            let clip = |v: f64| {
                if v < low {
                    low.min(high)
                } else if v > high {
                    high
                } else {
                    v
                }
            };
            let values: Vec<f64> = x.to_f64().into_iter().map(clip).collect();
            one(of_numbers(x.dtype(), x.shape(), &values)?)
        }
        "BitwiseNot" => {
            let x = node.operand(0)?;
            let width = x.dtype().size() * 8;
            let not = |v: i128| if x.dtype().is_unsigned() { (1 << width) - 1 - v } else { !v };
            let values: Vec<i128> = integers(x)?.into_iter().map(not).collect();
            one(of_integers(x.dtype(), x.shape().to_vec(), &values)?)
        }
        "BitCast" => {
            let x = node.operand(0)?;
            let to = node.op.results.0.first().and_then(|ty| ty.as_ref()?.dtype()).ok_or("it has no result")?;
            one(Tensor::from_bytes(to, x.shape().to_vec(), &x.to_bytes()).ok_or("the types are not of one size")?)
        }
        "Identity" | "Dropout" if node.optional(2).is_none_or(|t| t.to_f64() == [0.0]) => {
            let x = node.operand(0)?;
            let all = vec![true; x.data().len()];
            Ok(Some(vec![x.clone(), super::tensor(x.shape().to_vec(), all.into())?]))
        }
        _ => Ok(None),
    }
}

/// A function of numbers.
fn function(node: &Node<'_>) -> Option<Box<dyn Fn(f64) -> f64>> {
    let alpha = |default: f64| node.float("alpha", default);
    let exp1 = libm::expm1;
    Some(match node.name() {
        "Abs" => Box::new(f64::abs),
        "Acos" => Box::new(libm::acos),
        "Acosh" => Box::new(libm::acosh),
        "Asin" => Box::new(libm::asin),
        "Asinh" => Box::new(libm::asinh),
        "Atan" => Box::new(libm::atan),
        "Atanh" => Box::new(libm::atanh),
        "Celu" => {
            let alpha = alpha(1.0);
            Box::new(move |v| v.max(0.0) + (alpha * exp1(v / alpha)).min(0.0))
        }
        "Cosh" => Box::new(libm::cosh),
        "Elu" => {
            let alpha = alpha(1.0);
            Box::new(move |v| if v < 0.0 { alpha * exp1(v) } else { v })
        }
        "HardSigmoid" => {
            let (alpha, beta) = (alpha(0.2), node.float("beta", 0.5));
            Box::new(move |v| (alpha * v + beta).clamp(0.0, 1.0))
        }
        "HardSwish" => Box::new(|v| v * (v / 6.0 + 0.5).clamp(0.0, 1.0)),
        "LeakyRelu" => {
            let alpha = alpha(0.01);
            Box::new(move |v| if v < 0.0 { alpha * v } else { v })
        }
        "Mish" => Box::new(|v| v * libm::tanh(softplus(v))),
        "Neg" => Box::new(|v| -v),
        "Reciprocal" => Box::new(|v| 1.0 / v),
        "Relu" => Box::new(|v| if v < 0.0 { 0.0 } else { v }),
        "Round" => Box::new(f64::round_ties_even),
        "Selu" => {
            let (alpha, gamma) = (alpha(1.673_263_192_176_818_8), node.float("gamma", 1.050_701_022_148_132_3));
            Box::new(move |v| gamma * if v <= 0.0 { alpha * exp1(v) } else { v })
        }
        "Shrink" => {
            let (bias, lambda) = (node.float("bias", 0.0), node.float("lambd", 0.5));
            Box::new(move |v| match v {
                v if v < -lambda => v + bias,
                v if v > lambda => v - bias,
                _ => 0.0,
            })
        }
        "Sign" => Box::new(|v| if v == 0.0 || v.is_nan() { v } else { v.signum() }),
        "Sinh" => Box::new(libm::sinh),
        "Softplus" => Box::new(softplus),
        "Softsign" => Box::new(|v| v / (1.0 + v.abs())),
        "Swish" => {
            let alpha = alpha(1.0);
            Box::new(move |v| v / (1.0 + libm::exp(-alpha * v)))
        }
        "Tan" => Box::new(libm::tan),
        "ThresholdedRelu" => {
            let alpha = alpha(1.0);
            Box::new(move |v| if v > alpha { v } else { 0.0 })
        }
        _ => return None,
    })
}

/// `ln(1 + e^v)`.
fn softplus(v: f64) -> f64 {
    v.max(0.0) + libm::log1p(libm::exp(-v.abs()))
}
