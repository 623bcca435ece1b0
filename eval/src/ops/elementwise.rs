//! Elementwise functions of several tensors, with broadcast. Floats compute in `f64` and round
//! once; integers that leave their range are an error.

use planish_ir::ops::{Binary, BinaryKind, Select};

use super::{Call, Kernel};
use crate::element::{Element, Float, Int, with_type};
use crate::strided::{broadcast, walk};
use crate::{Data, Tensor};

impl Kernel for Binary {
    /// The minimum and maximum of a number and not-a-number are not-a-number.
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let (a, b) = (call.operand(self.a), call.operand(self.b));
        let shape = call.shape();
        let data = match self.kind {
            BinaryKind::Equal => with_type!(a.dtype(), any T => zip(shape, a, b, |a: T, b: T| Ok(a == b))),
            BinaryKind::Less => with_type!(a.dtype(), any T => zip(shape, a, b, less::<T>)),
            BinaryKind::Greater => with_type!(a.dtype(), any T => zip(shape, b, a, less::<T>)),
            BinaryKind::LessOrEqual => with_type!(a.dtype(), any T => zip(shape, a, b, |a: T, b: T| Ok(a <= b))),
            BinaryKind::GreaterOrEqual => with_type!(a.dtype(), any T => zip(shape, a, b, |a: T, b: T| Ok(a >= b))),
            BinaryKind::And => zip(shape, a, b, |a: bool, b: bool| Ok(a && b)),
            BinaryKind::Or => zip(shape, a, b, |a: bool, b: bool| Ok(a || b)),
            BinaryKind::Add => numbers(shape, a, b, |a, b| a + b, |a, b| Ok(a + b)),
            BinaryKind::Sub => numbers(shape, a, b, |a, b| a - b, |a, b| Ok(a - b)),
            BinaryKind::Mul => numbers(shape, a, b, |a, b| a * b, |a, b| Ok(a * b)),
            BinaryKind::Div => numbers(shape, a, b, |a, b| a / b, |a, b| a.checked_div(b).ok_or(DIVISION_BY_ZERO)),
            BinaryKind::Pow => numbers(shape, a, b, libm::pow, integer_power),
            BinaryKind::Min => numbers(shape, a, b, |a, b| pick(a < b, a, b), |a, b| Ok(a.min(b))),
            BinaryKind::Max => numbers(shape, a, b, |a, b| pick(a > b, a, b), |a, b| Ok(a.max(b))),
        };
        Ok(vec![data?])
    }
}

const OUT_OF_RANGE: &str = "a result is out of range";
const DIVISION_BY_ZERO: &str = "division by zero";

fn less<T: Element>(a: T, b: T) -> Result<bool, &'static str> {
    Ok(a < b)
}

/// `a` where it is taken or not a number, `b` elsewhere.
fn pick(take: bool, a: f64, b: f64) -> f64 {
    if take || a.is_nan() { a } else { b }
}

fn integer_power(base: i128, exponent: i128) -> Result<i128, &'static str> {
    match base {
        _ if exponent < 0 => Err("a power of an integer has a negative exponent"),
        _ if exponent == 0 => Ok(1),
        0 | 1 => Ok(base),
        -1 => Ok(if exponent % 2 == 0 { 1 } else { -1 }),
        _ => u32::try_from(exponent).ok().and_then(|e| base.checked_pow(e)).ok_or(OUT_OF_RANGE),
    }
}

/// A function of numbers, in `f64` or in integers wide enough for sums and products.
fn numbers(
    shape: &[usize],
    a: &Tensor,
    b: &Tensor,
    float: impl Fn(f64, f64) -> f64,
    int: impl Fn(i128, i128) -> Result<i128, &'static str>,
) -> Result<Data, String> {
    with_type!(a.dtype(),
        float T => zip(shape, a, b, |a: T, b: T| Ok(T::narrow(float(a.widen(), b.widen())))),
        int T => zip(shape, a, b, |a: T, b: T| {
            T::narrow(int(a.widen(), b.widen())?).ok_or(OUT_OF_RANGE)
        }),
        bool => Err("is not defined for bool".to_owned()))
}

/// A function of two tensors that broadcast to a shape.
fn zip<T: Element, R: Element>(
    shape: &[usize],
    a: &Tensor,
    b: &Tensor,
    f: impl Fn(T, T) -> Result<R, &'static str>,
) -> Result<Data, String> {
    let (x, y) = (T::of(a)?, T::of(b)?);
    let mut out = Vec::with_capacity(shape.iter().product());
    walk(shape, [&broadcast(a.shape(), shape), &broadcast(b.shape(), shape)], |run| {
        run.positions().try_for_each(|[i, j]| f(x[i], y[j]).map(|r| out.push(r)))
    })
    .map_err(|why| format!("{why}, in {}", a.dtype()))?;
    Ok(R::data(out))
}

impl Kernel for Select {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let (condition, a, b) = (call.operand(self.condition), call.operand(self.a), call.operand(self.b));
        let shape = call.shape();
        let strides = [condition, a, b].map(|t| broadcast(t.shape(), shape));
        let holds = bool::of(condition)?;
        with_type!(a.dtype(), any T => {
            let (x, y) = (T::of(a)?, T::of(b)?);
            let mut out = Vec::with_capacity(shape.iter().product());
            walk(shape, [&strides[0], &strides[1], &strides[2]], |run| {
                out.extend(run.positions().map(|[c, i, j]| if holds[c] { x[i] } else { y[j] }));
                Ok::<_, String>(())
            })?;
            Ok(vec![T::data(out)])
        })
    }
}
