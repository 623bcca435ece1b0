//! Norms.

use planish_ir::ops::{Binary, BinaryKind, Cast, LayerNorm, Real, Reduce, ReduceKind, RmsNorm, UnaryKind};
use planish_ir::{BuildError, Graph, NodeId, Op, Rewriter, ValueId};

use super::narrow::NARROW;
use super::pattern::{binary, is_exactly, narrowed, op, part, unary, with_scalar};
use super::product::Product;
use super::{Found, Rule, run as apply};
use crate::{Example, Options, Pass, PassError, Target};

/// Raises arithmetic to norms.
pub const RAISE_NORMS: Pass = Pass {
    name: "raise-norms",
    summary: "raises x / sqrt(mean(x^2) + eps) * weight over the last axis to rms_norm, the same of x - mean(x) to \
              layer_norm, and the sum of that with a vector to its bias; the root may be divided by or its inverse \
              multiplied with, and factors stand in any order. What is normalized may be cast to a half type before it is \
              multiplied, and a norm between casts from and to a half type is raised in that type",
    numerics: "the rounding of the steps between: relative differences of a few 1e-7. What was normalized in float32 is rounded \
               to a half type once instead of before each factor, and float32 weights of a norm between casts before \
               they are multiplied: relative differences of a half type's precision",
    example: Example {
        target: Target::Onnx,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            weight @w = uniform(1) : f32[2]
            weight @two = dense([2.0]) : f32[]
            weight @eps = dense([0.5]) : f32[]
            weight @one = dense([1.0]) : f32[]
            %a = pow(%x, @two) : f32[n, 2]
            %b = reduce_mean(%a) {axes = [1], keep = true} : f32[n, 1]
            %c = add(%b, @eps) : f32[n, 1]
            %d = sqrt(%c) : f32[n, 1]
            %e = div(@one, %d) : f32[n, 1]
            %f = mul(%x, %e) : f32[n, 2]
            %y = mul(@w, %f) : f32[n, 2]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            weight @w = uniform(1) : f32[2]
            %y = rms_norm(%x, @w) {eps = 0.5} : f32[n, 2]
            output y = %y",
    },
    run,
};

fn run(graph: &mut Graph, _: &Options) -> Result<usize, PassError> {
    apply(graph, RULES)
}

/// The rules of norms. Biases are added before a cast to a half type or behind it.
pub(super) const RULES: &[&Rule] = &[&NORM, &BIAS, &NARROW, &BIAS];

/// `x / sqrt(mean(x^2) + eps) * weight`.
const NORM: Rule = Rule { name: "norm", find: norm };

fn norm(graph: &mut Rewriter<'_>, node: NodeId) -> Result<Found, BuildError> {
    let Op::Binary(Binary { kind: BinaryKind::Mul | BinaryKind::Div, .. }) = graph.node(node).op else {
        return Ok(Found::Nothing);
    };
    let output = graph.node(node).outputs[0];
    let mut product = factors(graph, output);
    let [root] = product.denominator[..] else { return Ok(Found::Nothing) };
    let Some((square, eps)) = mean_square(graph, root) else { return Ok(Found::Nothing) };
    let name = |value: ValueId| graph.value(value).name.clone();
    let Some(x) = squared(graph, square) else {
        return Ok(Found::Miss(format!("`{}`, whose mean is taken, is no square", name(square))));
    };
    let features = graph.ty(x).shape.last().cloned();
    let vector = |value: ValueId| graph.weight(value).is_some() && graph.ty(value).shape[..] == *features.as_slice();
    let weight = product.take(|factor| vector(factor).then_some(factor));
    product.denominator.clear();
    match product.multiple_of(graph, x, 1) {
        Some(factor) if is_exactly(factor, 1.0) => {}
        Some(factor) => {
            return Ok(Found::Miss(format!(
                "what is divided by `{}` is `{}` times the number {}",
                name(root),
                name(x),
                factor as f32
            )));
        }
        None => {
            return Ok(Found::Miss(format!("what is divided by `{}` is not `{}` times a vector", name(root), name(x))));
        }
    }
    let Some(weight) = weight else {
        return Ok(Found::Miss(format!("`{}` is multiplied with no vector of weights", name(output))));
    };
    let [wide, dtype] = [x, output].map(|value| graph.ty(value).dtype);
    let weight = match graph.weight(weight).map(|weight| weight.cast(wide)) {
        Some(cast) if wide != dtype => graph.weight_like(cast, weight),
        _ => weight,
    };
    let eps = Real(eps);
    let raised: Op = match centered(graph, x) {
        Some(x) => LayerNorm { x, weight, bias: None, eps }.into(),
        None => RmsNorm { x, weight, eps }.into(),
    };
    if wide == dtype {
        return Ok(Found::Match(vec![graph.emit(raised, output)?]));
    }
    let x = part(graph, raised, output)?;
    Ok(Found::Match(vec![graph.emit(Cast { x, to: dtype }, output)?]))
}

/// The factors of a value, with those of a factor that was cast to a half type.
fn factors(graph: &Graph, value: ValueId) -> Product {
    let mut outer = Product::of(graph, value);
    if !outer.denominator.is_empty() {
        return outer;
    }
    let Some(inner) = outer.take(|factor| narrowed(graph, factor)) else { return outer };
    let mut product = Product::of(graph, inner);
    product.coefficient *= outer.coefficient;
    product.numerator.extend(outer.numerator);
    product
}

/// `s` and `eps`, where a value is `sqrt(mean(s) + eps)`, the mean over the last axis.
fn mean_square(graph: &Graph, root: ValueId) -> Option<(ValueId, f64)> {
    let half = || with_scalar(graph, root, BinaryKind::Pow).filter(|(_, power)| *power == 0.5).map(|(x, _)| x);
    let sum = unary(graph, root, UnaryKind::Sqrt).or_else(half)?;
    let (mean, eps) = with_scalar(graph, sum, BinaryKind::Add)?;
    Some((mean_of(graph, mean)?, eps))
}

/// What a value is the mean of, over the last axis, which stays.
fn mean_of(graph: &Graph, value: ValueId) -> Option<ValueId> {
    match op(graph, value)? {
        Op::Reduce(Reduce { kind: ReduceKind::Mean, x, axes, keep: true })
            if axes[..] == [graph.ty(*x).shape.rank() - 1] =>
        {
            Some(*x)
        }
        _ => None,
    }
}

/// What a value is the square of.
fn squared(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let power = || with_scalar(graph, value, BinaryKind::Pow).filter(|(_, power)| *power == 2.0).map(|(x, _)| x);
    let product = || binary(graph, value, BinaryKind::Mul).filter(|[a, b]| a == b).map(|[a, _]| a);
    power().or_else(product)
}

/// What a value is less its own mean.
fn centered(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let [x, mean] = binary(graph, value, BinaryKind::Sub)?;
    (mean_of(graph, mean)? == x).then_some(x)
}

/// `layer_norm(x) + b` of a vector b.
const BIAS: Rule = Rule { name: "layer_norm", find: bias };

fn bias(graph: &mut Rewriter<'_>, node: NodeId) -> Result<Found, BuildError> {
    let Op::Binary(Binary { kind: BinaryKind::Add, a, b }) = graph.node(node).op else { return Ok(Found::Nothing) };
    let output = graph.node(node).outputs[0];
    for (normal, bias) in [(a, b), (b, a)] {
        let Some(Op::LayerNorm(norm)) = op(graph, normal) else { continue };
        if norm.bias.is_none() && graph.weight(bias).is_some() && graph.ty(bias) == graph.ty(norm.weight) {
            let norm = LayerNorm { bias: Some(bias), ..norm.clone() };
            return Ok(Found::Match(vec![graph.emit(norm, output)?]));
        }
    }
    Ok(Found::Nothing)
}
