//! Activation functions.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

use planish_ir::ops::{Binary, BinaryKind, Gelu, GeluForm, Unary, UnaryKind};
use planish_ir::{Graph, NodeId, Op, Rewriter, ValueId};

use super::narrow::NARROW;
use super::pattern::{binary, is_about, is_exactly, scaled, unary, with_scalar};
use super::product::Product;
use super::{Found, NoMatch, Rule, run as apply};
use crate::{Example, ONNX, Options, Outcome, Pass, PassError};

/// Raises products to activation functions.
pub const RAISE_ACTIVATIONS: Pass = Pass {
    name: "raise-activations",
    summary: "Raises arithmetic to activation functions. x / 2 * (1 + erf(x / sqrt(2))) and x / 2 * (1 + tanh(sqrt(2 / \
              pi) * (x + 0.044715 * x^3))) become gelu. x * sigmoid(x) becomes silu, and the sigmoid may be written as \
              1 / (1 + exp(-x)). Factors may stand in any order, may multiply or divide, and may stand inside the sum \
              with erf or tanh. Powers may be written as products. An activation between casts from and to a half type \
              is raised in that type.",
    numerics: "The steps in between no longer round: relative differences of 1e-7. Constants that were shortened to \
               four digits, or rounded to a half type, are read as the numbers that they stand for.",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            weight @half = dense([0.5]) : f32[]
            weight @one = dense([1.0]) : f32[]
            weight @root = dense([1.4142135]) : f32[]
            %a = div(%x, @root) : f32[n, 2]
            %b = erf(%a) : f32[n, 2]
            %c = add(%b, @one) : f32[n, 2]
            %d = mul(%x, %c) : f32[n, 2]
            %y = mul(%d, @half) : f32[n, 2]
            output y = %y",
        after: "
            input %x: f32[n, 2]
            %y = gelu(%x) {form = erf} : f32[n, 2]
            output y = %y",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    Ok(apply(graph, RULES, options))
}

/// The rules of activation functions.
pub(super) const RULES: &[&Rule] = &[&GELU, &SILU, &NARROW];

const GELU: Rule = Rule { name: "gelu", find: gelu };

/// What `factor * (1 + f(..))` says a value is: the form of GELU, and of what, where the argument fits.
struct Gate {
    value: ValueId,
    form: GeluForm,
    /// What both summands are multiplied with, where that is the same.
    factor: Option<f64>,
    of: Option<ValueId>,
}

fn gelu(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Binary(Binary { kind: BinaryKind::Mul | BinaryKind::Div, .. }) = graph.node(node).op else {
        return Err(NoMatch::Other);
    };
    let output = graph.node(node).outputs[0];
    let mut product = Product::of(graph, output);
    let Some(gate) = product.take(|factor| gate(graph, factor)) else { return Err(NoMatch::Other) };
    let name = |value: ValueId| graph.value(value).name.clone();
    let function = if gate.form == GeluForm::Erf { "erf" } else { "tanh" };
    let Some(factor) = gate.factor else {
        return Err(NoMatch::Miss(format!("`{}` is not a multiple of 1 + {function}", name(gate.value))));
    };
    let Some(x) = gate.of else {
        return Err(NoMatch::Miss(format!("`{}` is 1 + {function} of what is not GELU's argument", name(gate.value))));
    };
    if !product.multiple_of(graph, x, 1).is_some_and(|outer| is_exactly(outer * factor, 0.5)) {
        let (gate, x) = (name(gate.value), name(x));
        let divided = if factor == 0.5 { String::new() } else { format!(" / {}", 2.0 * factor) };
        return Err(NoMatch::Miss(format!("`{gate}` is multiplied with something else than `{x}`{divided}")));
    }
    Ok(vec![graph.emit(Gelu { x, form: gate.form }, output)?])
}

fn gate(graph: &Graph, value: ValueId) -> Option<Gate> {
    let (inner, number) = with_scalar(graph, value, BinaryKind::Add)?;
    let Product { coefficient, numerator, denominator } = Product::of(graph, inner);
    let [function] = numerator[..] else { return None };
    let (form, of) = match unary(graph, function, UnaryKind::Erf) {
        Some(argument) => (GeluForm::Erf, scaled_by(graph, argument, FRAC_1_SQRT_2)),
        None => (GeluForm::Tanh, tanh_argument(graph, unary(graph, function, UnaryKind::Tanh)?)),
    };
    let factor = is_exactly(coefficient, number).then_some(number);
    denominator.is_empty().then_some(Gate { value, form, factor, of })
}

/// x, where a value is about `x * factor`.
fn scaled_by(graph: &Graph, value: ValueId, factor: f64) -> Option<ValueId> {
    scaled(graph, value).filter(|(_, found)| is_about(*found, factor, graph.ty(value).dtype)).map(|(x, _)| x)
}

const CUBIC: f64 = 0.044715;

/// x, where a value is `sqrt(2 / pi) * (x + 0.044715 * x^3)`.
fn tanh_argument(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let scale = FRAC_2_PI.sqrt();
    let dtype = graph.ty(value).dtype;
    let is = |product: &Product, number: f64, x: ValueId, n: usize| {
        product.multiple_of(graph, x, n).is_some_and(|found| is_about(found, number, dtype))
    };
    if let Some([a, b]) = scaled_by(graph, value, scale).and_then(|sum| binary(graph, sum, BinaryKind::Add)) {
        return [(a, b), (b, a)]
            .into_iter()
            .find(|(x, cube)| is(&Product::of(graph, *cube), CUBIC, *x, 3))
            .map(|p| p.0);
    }
    // The same with x taken out of the sum.
    let mut product = Product::of(graph, value);
    let square = product.take(|factor| {
        let (square, _) = with_scalar(graph, factor, BinaryKind::Add).filter(|(_, one)| *one == 1.0)?;
        Some(Product::of(graph, square))
    })?;
    let x = *product.numerator.first()?;
    (is(&product, scale, x, 1) && is(&square, CUBIC, x, 2)).then_some(x)
}

const SILU: Rule = Rule { name: "silu", find: silu };

fn silu(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let output = graph.node(node).outputs[0];
    let product = binary(graph, output, BinaryKind::Mul).and_then(|[a, b]| {
        let gates = [(a, b), (b, a)].map(|(x, gate)| sigmoid(graph, gate).map(|of| (x, of)));
        gates.into_iter().flatten().next()
    });
    let Some((x, of)) = product.or_else(|| over_sigmoid_denominator(graph, output)) else { return Err(NoMatch::Other) };
    if x == of {
        return Ok(vec![graph.emit(Unary { kind: UnaryKind::Silu, x }, output)?]);
    }
    if graph.number(x).is_some() {
        // A sigmoid.
        return Err(NoMatch::Other);
    }
    let (x, of) = (&graph.value(x).name, &graph.value(of).name);
    Err(NoMatch::Miss(format!("`{x}` is multiplied with the sigmoid of `{of}`, not its own")))
}

/// x, where a value is `sigmoid(x)`.
fn sigmoid(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let written_out = || {
        let (one, of) = over_sigmoid_denominator(graph, value)?;
        (graph.number(one)? == 1.0).then_some(of)
    };
    unary(graph, value, UnaryKind::Sigmoid).or_else(written_out)
}

/// a and x, where a value is `a / (1 + exp(-x))`.
fn over_sigmoid_denominator(graph: &Graph, value: ValueId) -> Option<(ValueId, ValueId)> {
    let [a, sum] = binary(graph, value, BinaryKind::Div)?;
    let (power, _) = with_scalar(graph, sum, BinaryKind::Add).filter(|(_, one)| *one == 1.0)?;
    let exponent = unary(graph, power, UnaryKind::Exp)?;
    let times = || scaled(graph, exponent).filter(|(_, factor)| *factor == -1.0).map(|(x, _)| x);
    Some((a, unary(graph, exponent, UnaryKind::Neg).or_else(times)?))
}
