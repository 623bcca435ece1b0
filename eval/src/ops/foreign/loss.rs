//! Losses of classifications.

use super::{Maybe, Node, around, of_numbers};

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "NegativeLogLikelihoodLoss" => loss(node, false).map(Some),
        "SoftmaxCrossEntropyLoss" => loss(node, true).map(Some),
        _ => Ok(None),
    }
}

/// The negated scores of the labels, weighted; of log-softmax where scores are not logarithms yet.
fn loss(node: &Node<'_>, softmax: bool) -> super::Results {
    let (x, labels) = (node.operand(0)?, node.operand(1)?);
    if x.shape().len() < 2 {
        return Err(format!("{} has no classes", x.ty()).into());
    }
    let (outer, classes, inner) = around(x.shape(), 1);
    let mut scores = x.to_f64();
    if softmax {
        for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
            let at = |c: usize| (o * classes + c) * inner + i;
            let max = (0..classes).map(|c| scores[at(c)]).fold(f64::NEG_INFINITY, f64::max);
            let sum = libm::log((0..classes).map(|c| libm::exp(scores[at(c)] - max)).sum::<f64>());
            (0..classes).for_each(|c| scores[at(c)] -= max + sum);
        }
    }
    let given = node.integers(1)?.unwrap_or_default();
    if given.len() != outer * inner {
        return Err(format!("{} are not labels of {}", labels.ty(), x.ty()).into());
    }
    let weights = node.optional(2).map_or_else(|| vec![1.0; classes], |w| w.to_f64());
    let ignored = node.op.setting("ignore_index").map(|_| node.int("ignore_index", 0));
    let (mut losses, mut total) = (Vec::with_capacity(given.len()), 0.0);
    for (n, &label) in given.iter().enumerate() {
        if Some(label) == ignored {
            losses.push(0.0);
            continue;
        }
        let class = usize::try_from(label).ok().filter(|&c| c < classes.min(weights.len()));
        let class = class.ok_or_else(|| format!("the label {label} is none of {classes} classes"))?;
        losses.push(-scores[(n / inner * classes + class) * inner + n % inner] * weights[class]);
        total += weights[class];
    }
    let sum = losses.iter().sum::<f64>();
    let result = match node.text("reduction", "mean").as_str() {
        "none" => of_numbers(x.dtype(), labels.shape(), &losses)?,
        "sum" => of_numbers(x.dtype(), &[], &[sum])?,
        _ => of_numbers(x.dtype(), &[], &[sum / total])?,
    };
    Ok(vec![result, of_numbers(x.dtype(), x.shape(), &scores)?])
}
