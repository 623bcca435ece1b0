//! Elementwise functions of one tensor. Floats compute in `f64` and round once.

use planish_ir::ops::{Activation, Cast, Gelu, GeluForm, Unary, UnaryKind};
use rayon::prelude::*;

use super::{Call, Kernel};
use crate::element::{Element, Float, Int, with_type};
use crate::{Data, Tensor};

/// The fewest elements worth a thread.
const GRAIN: usize = 4096;

impl Kernel for Unary {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let x = call.operand(self.x);
        let data = match self.kind {
            UnaryKind::Neg => signed(x, |v| -v, |v| -v),
            UnaryKind::Abs => signed(x, f64::abs, i128::abs),
            UnaryKind::Floor => floats(x, f64::floor),
            UnaryKind::Ceil => floats(x, f64::ceil),
            UnaryKind::Exp => floats(x, libm::exp),
            UnaryKind::Log => floats(x, libm::log),
            UnaryKind::Sqrt => floats(x, f64::sqrt),
            UnaryKind::Cos => floats(x, libm::cos),
            UnaryKind::Sin => floats(x, libm::sin),
            UnaryKind::Erf => floats(x, libm::erf),
            UnaryKind::Tanh => floats(x, libm::tanh),
            UnaryKind::Sigmoid => floats(x, |v| v_over_one_plus_exp(1.0, v)),
            UnaryKind::Relu => floats(x, relu),
            UnaryKind::Silu => floats(x, |v| v_over_one_plus_exp(v, v)),
            UnaryKind::IsNan => Ok(x.to_f64().iter().map(|v| v.is_nan()).collect::<Vec<_>>().into()),
            UnaryKind::Not => bool::of(x).map(|v| v.iter().map(|b| !b).collect::<Vec<_>>().into()),
        };
        Ok(vec![data?])
    }
}

impl Kernel for Gelu {
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let x = call.operand(self.x);
        let data = match self.form {
            GeluForm::Erf => floats(x, gelu_erf),
            GeluForm::Tanh => floats(x, gelu_tanh),
        };
        Ok(vec![data?])
    }
}

/// GELU without the cancellation of `1 + erf` at large negative `x`: `1 + erf(t)` is `erfc(-t)`.
fn gelu_erf(v: f64) -> f64 {
    v / 2.0 * libm::erfc(-v * std::f64::consts::FRAC_1_SQRT_2)
}

/// The same of `1 + tanh`: `1 + tanh(t)` is `2 / (1 + e^-2t)`.
fn gelu_tanh(v: f64) -> f64 {
    let twice = 2.0 * (2.0 / std::f64::consts::PI).sqrt();
    v_over_one_plus_exp(v, twice * (v + 0.044715 * v * v * v))
}

/// The function of an activation.
pub(super) fn activated(activation: Activation, v: f64) -> f64 {
    match activation {
        Activation::None => v,
        Activation::GeluErf => gelu_erf(v),
        Activation::GeluTanh => gelu_tanh(v),
        Activation::Silu => v_over_one_plus_exp(v, v),
        Activation::Relu => relu(v),
    }
}

/// Not-a-number stays.
fn relu(v: f64) -> f64 {
    if v < 0.0 { 0.0 } else { v }
}

/// `v / (1 + e^-t)`.
fn v_over_one_plus_exp(v: f64, t: f64) -> f64 {
    v / (1.0 + libm::exp(-t))
}

impl Kernel for Cast {
    /// Integers of a wider type keep their low bits, as in ONNX; floats beyond an integer type
    /// become its nearest number, and not-a-number 0.
    fn run(&self, call: &Call<'_>) -> Result<Vec<Data>, String> {
        let x = call.operand(self.x);
        if x.dtype() == self.to {
            return Ok(vec![x.data().clone()]);
        }
        if !x.dtype().is_integer() {
            let cast = Tensor::from_f64(self.to, x.shape().to_vec(), &x.to_f64());
            let cast = cast.ok_or_else(|| format!("is not defined for {}", self.to))?;
            return Ok(vec![cast.data().clone()]);
        }
        let integers: Vec<i128> = with_type!(x.dtype(),
            float _T => Vec::new(),
            int T => T::of(x)?.iter().map(|e| e.widen()).collect(),
            bool => Vec::new());
        let each = integers.into_iter();
        Ok(vec![with_type!(self.to,
            float T => T::data(each.map(T::from_int).collect()),
            int T => T::data(each.map(T::low_bits).collect()),
            bool => bool::data(each.map(|v| v != 0).collect()))])
    }
}

/// A function of floating-point elements.
fn floats(x: &Tensor, f: impl Fn(f64) -> f64 + Sync) -> Result<Data, String> {
    with_type!(x.dtype(), float T => Ok(map::<T>(T::of(x)?, f)))
}

fn map<T: Float>(x: &[T], f: impl Fn(f64) -> f64 + Sync) -> Data {
    T::data(x.par_iter().with_min_len(GRAIN).map(|e| T::narrow(f(e.widen()))).collect())
}

/// A function of numbers that integers can leave their range by.
fn signed(x: &Tensor, float: fn(f64) -> f64, int: fn(i128) -> i128) -> Result<Data, String> {
    with_type!(x.dtype(),
        float _T => floats(x, float),
        int T => {
            let mapped: Option<_> = T::of(x)?.iter().map(|e| T::narrow(int(e.widen()))).collect();
            mapped.map(T::data).ok_or_else(|| format!("a result is out of range for {}", x.dtype()))
        },
        bool => Err("is not defined for bool".to_owned()))
}
