//! The activation function xIELU (Huang et al. 2024, arXiv:2411.13010), whose factors are weights, as `XIELUActivation` of the
//! transformers library has it.

use planish_ir::ValueId;
use planish_ir::ops::{BinaryKind, Select, Unary, UnaryKind};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;

const KEY: &str = "hidden_act";

/// `p * x * x + beta * x` where `x` is positive, and `n * (e^min(x, eps) - 1 - x) + beta * x` elsewhere, with
/// `p = softplus(alpha_p)` and `n = beta + softplus(alpha_n)`, of weights of a module.
pub(crate) fn apply(b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    use BinaryKind::{Add, Mul, Sub};
    let at = |name: &str| format!("{module}.{name}");
    let one = [Size::derived(1, "a factor")];
    let [alpha_p, alpha_n] = [b.weight(&[&at("alpha_p")], &one)?, b.weight(&[&at("alpha_n")], &one)?];
    let (beta, eps) = (number(b, &at("beta"), 0.5)?, number(b, &at("eps"), -1e-6)?);
    let p = Activation::Softplus.apply(b, alpha_p, &at("p"))?;
    let n = Activation::Softplus.apply(b, alpha_n, &at("n.softplus"))?;
    let n = b.binary(Add, [n, beta], &at("n"))?;
    let square = b.binary(Mul, [x, x], &at("square"))?;
    let positive = b.binary(Mul, [square, p], &at("positive"))?;
    let least = b.binary(BinaryKind::Min, [x, eps], &at("min"))?;
    let power = b.emit(Unary { kind: UnaryKind::Exp, x: least }, &at("exp"))?;
    let power = b.with_number(Sub, power, 1.0, &at("expm1"), KEY)?;
    let bent = b.binary(Sub, [power, x], &at("bent"))?;
    let negative = b.binary(Mul, [bent, n], &at("negative"))?;
    let condition = b.with_number(BinaryKind::Greater, x, 0.0, &at("is_positive"), KEY)?;
    let curve = b.emit(Select { condition, a: positive, b: negative }, &at("curve"))?;
    let line = b.binary(Mul, [x, beta], &at("line"))?;
    b.binary(Add, [curve, line], module)
}

/// A stored number, or the default where there is none.
fn number(b: &mut Builder<'_>, name: &str, default: f64) -> Result<ValueId, ModelError> {
    match b.tensors.contains(name) {
        true => b.weight(&[name], &[]),
        false => Ok(b.number(default, name, KEY)),
    }
}
