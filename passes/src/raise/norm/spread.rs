//! Layer normalization whose scale is multiplied with x and its mean apart, as TensorFlow has it.

use planish_ir::ops::{Binary, BinaryKind, LayerNorm, Real};
use planish_ir::{Graph, NodeId, Op, Rewriter, ValueId};

use super::super::pattern::{binary, is_exactly};
use super::super::product::Product;
use super::super::{Found, NoMatch, Rule};
use super::root::{Root, squared};
use super::{centered, vector};

/// `x * scale + (bias - mean(x) * scale)`, where the scale is `weight / sqrt(mean((x - mean(x))^2) + eps)`;
/// or the same without the bias.
pub(super) const SPREAD: Rule = Rule { name: "layer_norm", find: spread };

fn spread(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::Binary(Binary { kind, a, b }) = graph.node(node).op else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    let less = |value| binary(graph, value, BinaryKind::Sub);
    let (scaled, bias, shift) = match (kind, less(a), less(b)) {
        (BinaryKind::Add, _, Some([bias, shift])) if scale(graph, a).is_some() => (a, Some(bias), shift),
        (BinaryKind::Add, Some([bias, shift]), _) => (b, Some(bias), shift),
        (BinaryKind::Sub, _, _) => (a, None, b),
        _ => return Err(NoMatch::Other),
    };
    let (Some((root, of_x)), Some((again, of_mean))) = (scale(graph, scaled), scale(graph, shift)) else {
        return Err(NoMatch::Other);
    };
    let Some([x, mean]) = root.square(graph).ok().and_then(|s| centered(graph, squared(graph, s)?)) else {
        return Err(NoMatch::Other);
    };
    let weight = |mut product: Product, part: ValueId| {
        let weight = product.take(|v| vector(graph, v, x).then_some(v))?;
        product.multiple_of(graph, part, 1).is_some_and(|factor| is_exactly(factor, 1.0)).then_some(weight)
    };
    let name = |value: ValueId| &graph.value(value).name;
    let same = weight(of_mean, mean).filter(|_| again.value == root.value);
    let Some(weight) = weight(of_x, x).filter(|weight| same == Some(*weight)) else {
        let (scaled, shift, x, root) = (name(scaled), name(shift), name(x), name(root.value));
        let reason = format!("`{scaled}` and `{shift}` are not `{x}` and its mean times the same vector over `{root}`");
        return Err(NoMatch::Miss(reason));
    };
    if let Some(bias) = bias.filter(|bias| !vector(graph, *bias, x)) {
        let reason = format!("`{}`, to which `{}` is added, is not a vector of weights", name(bias), name(scaled));
        return Err(NoMatch::Miss(reason));
    }
    Ok(vec![graph.emit(LayerNorm { x, weight, bias, eps: Real(root.eps) }, output)?])
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
