//! Functions of several tensors, element by element, shapes broadcast.

use planish_ir::DType;

use super::{Maybe, Node, integers, of_integers, of_numbers, one};
use crate::Tensor;
use crate::strided::{broadcast, walk};

pub(super) fn run(node: &Node<'_>) -> Maybe {
    let pair = || -> Result<(&Tensor, &Tensor), String> { Ok((node.operand(0)?, node.operand(1)?)) };
    match node.name() {
        "Mod" => {
            let (a, b) = pair()?;
            if a.dtype().is_float() {
                let sign_of_divisor = node.int("fmod", 0) == 0;
                return floats(node, a, b, a.dtype(), |a, b| {
                    let rest = libm::fmod(a, b);
                    match sign_of_divisor {
                        true if rest == 0.0 => rest.copysign(b),
                        true if (rest < 0.0) != (b < 0.0) => rest + b,
                        _ => rest,
                    }
                });
            }
            let truncated = node.int("fmod", 0) == 1;
            whole(node, a, b, |a, b| {
                let rest = a.checked_rem(b).ok_or("division by zero")?;
                Ok(if !truncated && rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest })
            })
        }
        "Pow" => {
            let (a, b) = pair()?;
            floats(node, a, b, a.dtype(), libm::pow)
        }
        "PRelu" => {
            let (x, slope) = pair()?;
            floats(node, x, slope, x.dtype(), |x, slope| if x < 0.0 { slope * x } else { x })
        }
        "BitwiseAnd" => whole(node, pair()?.0, pair()?.1, |a, b| Ok(a & b)),
        "BitwiseOr" => whole(node, pair()?.0, pair()?.1, |a, b| Ok(a | b)),
        "BitwiseXor" | "Xor" => whole(node, pair()?.0, pair()?.1, |a, b| Ok(a ^ b)),
        "BitShift" => {
            let (a, b) = pair()?;
            let (bits, left) = (a.dtype().bits(), node.text("direction", "") == "LEFT");
            let is_signed = matches!(a.dtype(), DType::I8 | DType::I16 | DType::I32 | DType::I64);
            whole(node, a, b, |a, by| {
                Ok(match u32::try_from(by).ok().filter(|&by| (by as usize) < bits) {
                    // Only the sign is left.
                    None => i128::from(a < 0 && !left).wrapping_neg(),
                    Some(by) if left => {
                        let kept = (a << by) & ((1 << bits) - 1);
                        if is_signed && kept >> (bits - 1) == 1 { kept - (1 << bits) } else { kept }
                    }
                    Some(by) => a >> by,
                })
            })
        }
        "Mean" => {
            let first = node.operand(0)?;
            let mut sum = (first.shape().to_vec(), first.to_f64());
            for index in 1..node.operands.len() {
                let next = node.operand(index)?;
                sum = zip(node, (&sum.0, &sum.1), (next.shape(), &next.to_f64()), |a, b| Ok(a + b))?;
            }
            let number = node.operands.len() as f64;
            let mean: Vec<f64> = sum.1.into_iter().map(|v| v / number).collect();
            one(of_numbers(first.dtype(), &sum.0, &mean)?)
        }
        _ => Ok(None),
    }
}

fn floats(node: &Node<'_>, a: &Tensor, b: &Tensor, dtype: DType, f: impl Fn(f64, f64) -> f64) -> Maybe {
    let (shape, values) = zip(node, (a.shape(), &a.to_f64()), (b.shape(), &b.to_f64()), |a, b| Ok(f(a, b)))?;
    one(of_numbers(dtype, &shape, &values)?)
}

fn whole(node: &Node<'_>, a: &Tensor, b: &Tensor, f: impl Fn(i128, i128) -> Result<i128, &'static str>) -> Maybe {
    let (shape, values) = zip(node, (a.shape(), &integers(a)?), (b.shape(), &integers(b)?), f)?;
    one(of_integers(a.dtype(), shape, &values)?)
}

/// A function of two lists of elements under shapes that broadcast.
fn zip<T: Copy>(
    node: &Node<'_>,
    (left, x): (&[usize], &[T]),
    (right, y): (&[usize], &[T]),
    f: impl Fn(T, T) -> Result<T, &'static str>,
) -> Result<(Vec<usize>, Vec<T>), String> {
    let shape = broadcast_shape(left, right)?;
    let mut out = Vec::with_capacity(node.count(&shape)?);
    walk(&shape, [&broadcast(left, &shape), &broadcast(right, &shape)], |run| {
        run.positions().try_for_each(|[i, j]| f(x[i], y[j]).map(|r| out.push(r)))
    })?;
    Ok((shape, out))
}

/// What two shapes broadcast to.
pub(super) fn broadcast_shape(a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
    let rank = a.len().max(b.len());
    let size = |shape: &[usize], i: usize| (i + shape.len()).checked_sub(rank).map_or(1, |k| shape[k]);
    let one = |i: usize| match (size(a, i), size(b, i)) {
        (x, y) if x == y || y == 1 => Ok(x),
        (1, y) => Ok(y),
        _ => Err(format!("{a:?} and {b:?} do not broadcast")),
    };
    (0..rank).map(one).collect()
}
