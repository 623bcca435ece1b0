//! Norms.

mod root;
mod spread;

use planish_ir::ops::{Binary, BinaryKind, Cast, LayerNorm, Real, RmsNorm, Unary, UnaryKind};
use planish_ir::{DType, Graph, NodeId, Op, Rewriter, ValueId, Weight};

use super::narrow::NARROW;
use super::pattern::{binary, is_exactly, narrowed, op};
use super::product::Product;
use super::{Found, NoMatch, Rule, run as apply};
use crate::{Example, ONNX, Options, Outcome, Pass, PassError};
pub(crate) use root::root_of_squares;
use root::{Root, averaged, mean_of, squared};

/// Raises arithmetic to norms.
pub const RAISE_NORMS: Pass = Pass {
    name: "raise-norms",
    summary: "Raises arithmetic to norms over the last axis. x / sqrt(mean(x^2) + eps) * weight becomes rms_norm. The \
              same of x - mean(x) becomes layer_norm, and a vector that is added becomes its bias. mean(x) - x is the \
              negation of that, and a negated norm has a negated weight. x may be divided by the root or multiplied with its inverse, and factors may stand in any order. A norm without a weight \
              gets a weight of ones. x and its mean may be scaled apart: x * (weight / root) + (bias - mean(x) * \
              (weight / root)). The normalized value may be cast to a half type before it is multiplied. A norm \
              between casts from and to a half type is raised in that type.",
    numerics: "The steps in between no longer round: relative differences of a few 1e-7. Where x and its mean are \
               scaled apart, the differences are a few 1e-7 of the mean. A value that was normalized in float32 rounds \
               to a half type once, instead of before each factor. The float32 weights of a norm between casts round \
               before they are multiplied. Both cause relative differences of a half type's precision.",
    example: Example {
        target: &ONNX,
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
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    Ok(apply(graph, RULES, options))
}

/// The rules of norms. What is multiplied with a vector is a norm with a weight, what is left is one without.
/// Biases are added before a cast to a half type or after it.
pub(super) const RULES: &[&Rule] = &[&REVERSED, &WEIGHTED, &spread::SPREAD, &UNWEIGHTED, &BIAS, &NARROW, &BIAS];

/// `mean(x) - x`, which becomes `-(x - mean(x))`: ONNX Runtime makes a norm of either as if it were `x - mean(x)`, and the
/// negation in between keeps it from that.
const REVERSED: Rule = Rule { name: "layer_norm", find: reversed };

fn reversed(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Binary(Binary { kind: BinaryKind::Sub, a, b }) = graph.node(node).op else { return Err(NoMatch::Other) };
    if averaged(graph, a).is_none_or(|mean| mean.x != b) {
        return Err(NoMatch::Other);
    }
    let output = graph.node(node).outputs[0];
    let x = graph.part(Binary { kind: BinaryKind::Sub, a: b, b: a }, output)?;
    Ok(vec![graph.emit(Unary { kind: UnaryKind::Neg, x }, output)?])
}

/// `x / sqrt(mean(x^2) + eps) * weight`.
const WEIGHTED: Rule = Rule { name: "norm", find: |graph, node| norm(graph, node, true) };

/// `x / sqrt(mean(x^2) + eps)`.
const UNWEIGHTED: Rule = Rule { name: "norm", find: |graph, node| norm(graph, node, false) };

fn norm(graph: &mut Rewriter<'_>, node: NodeId, weighted: bool) -> Found {
    let Op::Binary(Binary { kind: BinaryKind::Mul | BinaryKind::Div, .. }) = graph.node(node).op else {
        return Err(NoMatch::Other);
    };
    let output = graph.node(node).outputs[0];
    let mut product = factors(graph, output);
    let Some(root) = Root::taken(graph, &mut product) else { return Err(NoMatch::Other) };
    let square = match root.square(graph) {
        Ok(square) => square,
        Err(reason) => return Err(NoMatch::Miss(reason)),
    };
    let name = |value: ValueId| graph.value(value).name.clone();
    let Some(x) = squared(graph, square) else {
        return Err(NoMatch::Miss(format!("`{}`, whose mean is taken, is not a square", name(square))));
    };
    let weight = product.take(|factor| vector(graph, factor, x).then_some(factor));
    let sign = match product.multiple_of(graph, x, 1) {
        Some(factor) if is_exactly(factor.abs(), 1.0) => factor.signum(),
        Some(factor) => {
            return Err(NoMatch::Miss(format!(
                "what is divided by `{}` is `{}` times the number {}",
                name(root.value),
                name(x),
                factor as f32
            )));
        }
        None if spread::is_part(graph, &product, x) => return Err(NoMatch::Other),
        None => {
            let (root, x) = (name(root.value), name(x));
            return Err(NoMatch::Miss(format!("what is divided by `{root}` is not `{x}` times a vector")));
        }
    };
    let [wide, dtype] = [x, output].map(|value| graph.ty(value).dtype);
    let is_filled = weight.is_none();
    let weight = match weight.map(|weight| (weight, graph.weight(weight).and_then(|weight| weight.cast(wide)))) {
        Some((weight, Some(cast))) if wide != dtype => graph.weight_like(cast, weight),
        Some((weight, _)) => weight,
        None if weighted => return Err(NoMatch::Other),
        None => match filled(graph, x, sign, output) {
            Some(ones) => ones,
            None => return Err(NoMatch::Miss(format!("the features of `{}` are not known", graph.value(x).name))),
        },
    };
    let weight = match graph.weight(weight).filter(|_| sign < 0.0 && !is_filled) {
        Some(given) => match negated(given) {
            Some(turned) => graph.weight_part(turned, weight),
            None => return Err(NoMatch::Miss(format!("`{}` cannot be negated", graph.value(weight).name))),
        },
        None => weight,
    };
    let eps = Real(root.eps);
    let raised: Op = match centered(graph, x) {
        Some([x, _]) => LayerNorm { x, weight, bias: None, eps }.into(),
        None => RmsNorm { x, weight, eps }.into(),
    };
    if wide == dtype {
        return Ok(vec![graph.emit(raised, output)?]);
    }
    let x = graph.part(raised, output)?;
    Ok(vec![graph.emit(Cast { x, to: dtype }, output)?])
}

/// The factors of a value, with those of a factor that was cast to a half type.
fn factors(graph: &Graph, value: ValueId) -> Product {
    let mut outer = Product::of(graph, value);
    if Root::is_in(graph, &outer) {
        return outer;
    }
    let Some(inner) = outer.take(|factor| narrowed(graph, factor)) else { return outer };
    let mut product = Product::of(graph, inner);
    product.coefficient *= outer.coefficient;
    product.numerator.extend(outer.numerator);
    product
}

/// Whether a value is a weight with an element for each feature of x.
fn vector(graph: &Graph, value: ValueId, x: ValueId) -> bool {
    let features = graph.ty(x).shape.last();
    graph.weight(value).is_some()
        && features.is_some_and(|last| graph.ty(value).shape[..] == *std::slice::from_ref(last))
}

/// A weight that has this number for each feature of x.
fn filled(graph: &mut Rewriter<'_>, x: ValueId, number: f64, like: ValueId) -> Option<ValueId> {
    let ty = graph.ty(x);
    let features = usize::try_from(ty.shape.last()?.as_constant()?).ok().filter(|features| *features > 0)?;
    let filled = Weight::scalar(ty.dtype, number).reshape(&[1])?.pad(&[features], number)?;
    Some(graph.weight_part(filled, like))
}

/// A vector of the opposite sign.
fn negated(weight: &Weight) -> Option<Weight> {
    let features = weight.shape().first()?;
    weight.scale(0, &Weight::scalar(DType::F64, -1.0).reshape(&[1])?.pad(&[*features], -1.0)?)
}

/// x and the mean, where a value is x less its own mean.
fn centered(graph: &Graph, value: ValueId) -> Option<[ValueId; 2]> {
    let [x, mean] = binary(graph, value, BinaryKind::Sub)?;
    (mean_of(graph, mean)? == x).then_some([x, mean])
}

/// `layer_norm(x) + b` of a vector b.
const BIAS: Rule = Rule { name: "layer_norm", find: bias };

fn bias(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Binary(Binary { kind: BinaryKind::Add, a, b }) = graph.node(node).op else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    for (normal, bias) in [(a, b), (b, a)] {
        let Some(Op::LayerNorm(norm)) = op(graph, normal) else { continue };
        if norm.bias.is_none() && graph.weight(bias).is_some() && graph.ty(bias) == graph.ty(norm.weight) {
            let norm = LayerNorm { bias: Some(bias), ..norm.clone() };
            return Ok(vec![graph.emit(norm, output)?]);
        }
    }
    Err(NoMatch::Other)
}
