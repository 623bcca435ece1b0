//! Tensors of given shapes.

use planish_ir::ops::Setting;
use planish_ir::{DType, Type};

use super::{Maybe, Node, axis, integers, of_integers, of_numbers, one, pick, signed, sizes, tensor};
use crate::{Data, Tensor};

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "ConstantOfShape" => {
            let shape = sizes("sizes", &node.integers(0)?.ok_or("it has no shape")?)?;
            let value = match node.op.setting("value") {
                Some(Setting::Tensor(dtype, shape, bytes)) => {
                    Tensor::from_bytes(*dtype, shape.clone(), bytes).ok_or("its value is malformed")?
                }
                _ => tensor(vec![1], vec![0f32].into())?,
            };
            let at = vec![None; node.count(&shape)?];
            one(pick(&value, Some(&value), shape, &at)?)
        }
        "Range" => one(range(node)?),
        "EyeLike" => {
            let x = node.operand(0)?;
            let [rows, columns] = x.shape() else {
                return Err(format!("its operand is {}, expected a matrix", x.ty()).into());
            };
            let k = node.int("k", 0);
            let on = |i: usize| signed(i % columns) - signed(i / columns) == k;
            let values: Vec<f64> = (0..rows * columns).map(|i| f64::from(u8::from(on(i)))).collect();
            one(of_numbers(result(node)?, x.shape(), &values)?)
        }
        "OneHot" => one(one_hot(node)?),
        "HannWindow" => one(window(node, &[0.5, 0.5])?),
        "HammingWindow" => one(window(node, &[25.0 / 46.0, 21.0 / 46.0])?),
        "BlackmanWindow" => one(window(node, &[0.42, 0.5, 0.08])?),
        _ => Ok(None),
    }
}

/// The element type of the first result.
pub(super) fn result(node: &Node<'_>) -> Result<DType, String> {
    let ty = node.op.results.0.first().and_then(Option::as_ref);
    Ok(ty.and_then(Type::dtype).ok_or("it has no first result")?)
}

fn range(node: &Node<'_>) -> Result<Tensor, String> {
    let [start, limit, step] = [node.operand(0)?, node.operand(1)?, node.operand(2)?];
    let dtype = start.dtype();
    if dtype.is_float() {
        let first = |t: &Tensor| t.to_f64().first().copied().ok_or("a bound is empty");
        let (start, limit, step) = (first(start)?, first(limit)?, first(step)?);
        let length = ((limit - start) / step).ceil().max(0.0);
        if !length.is_finite() {
            return Err("its length is not finite".to_owned());
        }
        let shape = [length as usize];
        let values: Vec<f64> = (0..node.count(&shape)?).map(|i| start + i as f64 * step).collect();
        return of_numbers(dtype, &shape, &values);
    }
    let first = |t: &Tensor| integers(t)?.first().copied().ok_or_else(|| "a bound is empty".to_owned());
    let (start, limit, step) = (first(start)?, first(limit)?, first(step)?);
    if step == 0 {
        return Err("its step is 0".to_owned());
    }
    let length = usize::try_from((limit - start + step - step.signum()) / step).unwrap_or(0);
    let values: Vec<i128> = (0..node.count(&[length])?).map(|i| start + i as i128 * step).collect();
    of_integers(dtype, vec![length], &values)
}

fn one_hot(node: &Node<'_>) -> Result<Tensor, String> {
    let (at, values) = (node.operand(0)?, node.operand(2)?);
    let depth = node.operand(1)?.to_f64().first().copied().ok_or("its depth is empty")? as i64;
    let shape = at.shape();
    let along = axis(node.int("axis", -1), shape.len() + 1)?;
    let mut out = shape.to_vec();
    out.insert(along, usize::try_from(depth).map_err(|_| "its depth is negative")?);
    let inner: usize = shape[along..].iter().product();
    let numbers: Vec<i64> = at.to_f64().into_iter().map(|v| v as i64).collect();
    let total = node.count(&out)?;
    let hot = |position: usize| {
        let (rest, low) = (position / inner, position % inner);
        let (outer, class) = (rest / depth as usize, signed(rest % depth as usize));
        let number = numbers[outer * inner + low];
        Some(usize::from(if number < 0 { number + depth } else { number } == class))
    };
    let picked: Vec<Option<usize>> = (0..total).map(hot).collect();
    pick(values, None, out, &picked)
}

/// `a0 - a1 cos(2 pi n / N) + a2 cos(4 pi n / N)`.
fn window(node: &Node<'_>, terms: &[f64]) -> Result<Tensor, String> {
    let size = node.integers(0)?.and_then(|s| s.first().copied()).ok_or("it has no size")?;
    let shape = sizes("sizes", &[size])?;
    let period = if node.int("periodic", 1) == 1 { size } else { size - 1 } as f64;
    let value = |n: usize| {
        let cosine = |(k, a): (usize, &f64)| {
            let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
            sign * a * libm::cos(2.0 * std::f64::consts::PI * k as f64 * n as f64 / period)
        };
        terms.iter().enumerate().map(cosine).sum::<f64>()
    };
    let values: Vec<f64> = (0..node.count(&shape)?).map(value).collect();
    let data: Data = of_numbers(result(node)?, &shape, &values)?.data().clone();
    tensor(shape, data)
}
