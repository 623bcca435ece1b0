//! Layer normalization whose scale is multiplied with x and its mean apart, as TensorFlow has it.

use planish_ir::ops::{Binary, BinaryKind, LayerNorm, Real};
use planish_ir::{BuildError, Graph, NodeId, Op, Rewriter, ValueId};

use super::super::pattern::{binary, is_exactly};
use super::super::product::Product;
use super::super::{Found, Rule};
use super::root::{Root, squared};
use super::{centered, vector};

/// `x * scale + (bias - mean(x) * scale)`, where the scale is `weight / sqrt(mean((x - mean(x))^2) + eps)`.
pub(super) const SPREAD: Rule = Rule { name: "layer_norm", find: spread };

fn spread(graph: &mut Rewriter<'_>, node: NodeId) -> Result<Found, BuildError> {
    let Op::Binary(Binary { kind, a, b }) = graph.node(node).op else { return Ok(Found::Nothing) };
    let output = graph.node(node).outputs[0];
    let less = |value| binary(graph, value, BinaryKind::Sub);
    let (scaled, [bias, shift]) = match (kind, less(a), less(b)) {
        (BinaryKind::Add, _, Some(parts)) if scale(graph, a).is_some() => (a, parts),
        (BinaryKind::Add, Some(parts), _) => (b, parts),
        _ => return Ok(Found::Nothing),
    };
    let (Some((root, of_x)), Some((again, of_mean))) = (scale(graph, scaled), scale(graph, shift)) else {
        return Ok(Found::Nothing);
    };
    let Some([x, mean]) = root.square(graph).ok().and_then(|s| centered(graph, squared(graph, s)?)) else {
        return Ok(Found::Nothing);
    };
    let ([weight, same], [factor, factor_of_mean]) = {
        let mut products = [of_x, of_mean];
        let weights = products.each_mut().map(|product| product.take(|v| vector(graph, v, x).then_some(v)));
        let [of_x, of_mean] = products;
        (weights, [of_x.multiple_of(graph, x, 1), of_mean.multiple_of(graph, mean, 1)])
    };
    let name = |value: ValueId| &graph.value(value).name;
    let is_one = |factor: Option<f64>| factor.is_some_and(|factor| is_exactly(factor, 1.0));
    let weight = match weight {
        Some(weight)
            if again.value == root.value && same == Some(weight) && is_one(factor) && is_one(factor_of_mean) =>
        {
            weight
        }
        _ => {
            let (scaled, shift, x) = (name(scaled), name(shift), name(x));
            return Ok(Found::Miss(format!("`{shift}` is not to the mean of `{x}` what `{scaled}` is to `{x}`")));
        }
    };
    if !vector(graph, bias, x) {
        let reason = format!("`{}`, to which `{}` is added, is no vector of weights", name(bias), name(scaled));
        return Ok(Found::Miss(reason));
    }
    Ok(Found::Match(vec![graph.emit(LayerNorm { x, weight, bias: Some(bias), eps: Real(root.eps) }, output)?]))
}

/// The root that a product is divided by, and what is divided.
fn scale(graph: &Graph, value: ValueId) -> Option<(Root, Product)> {
    let mut product = Product::of(graph, value);
    Some((Root::taken(graph, &mut product)?, product))
}

/// Whether a product without the weight is a number, what was centered, or its mean: [`SPREAD`] says what else is
/// missing.
pub(super) fn is_part(graph: &Graph, product: &Product, x: ValueId) -> bool {
    let is = |part: ValueId| product.multiple_of(graph, part, 1).is_some();
    product.numerator.is_empty() || centered(graph, x).is_some_and(|parts| parts.into_iter().any(is))
}
