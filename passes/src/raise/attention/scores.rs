//! The operand of the softmax: scores.

use planish_ir::ops::{Binary, BinaryKind, MatMul, Select, Softmax, UnaryKind};
use planish_ir::{DType, Dim, Graph, Op, Rewriter, ValueId, Weight};

use super::super::NoMatch;
use super::super::pattern::{narrowed, op, scaled, unary, widened};
use super::batch::{leading, pushed_through};
use crate::raise::element::MASKED;

/// `softcap(scale * factors * q * keys) + added`. Operands may be of a half type where a cast to a wider one comes
/// after.
pub(super) struct Scores {
    /// [batch, heads, queries, size].
    pub(super) q: ValueId,
    /// [batch, heads, size, keys].
    pub(super) keys: ValueId,
    pub(super) scale: f64,
    /// What scores of a head, or of a query, are multiplied with: [.., 1].
    pub(super) factors: Vec<ValueId>,
    pub(super) softcap: Option<f64>,
    /// Of the scores' type, or float32.
    pub(super) added: Vec<ValueId>,
}

/// The operand of the softmax that gives probabilities, which may be cast to a half type. What is not a number may be made 0: that comes
/// from queries that every key is left out for.
pub(super) fn softmax(graph: &Graph, probabilities: ValueId) -> Option<ValueId> {
    let probabilities = narrowed(graph, probabilities).unwrap_or(probabilities);
    let guarded = match op(graph, probabilities)? {
        Op::Select(Select { condition, a, b })
            if graph.number(*a) == Some(0.0) && unary(graph, *condition, UnaryKind::IsNan) == Some(*b) =>
        {
            *b
        }
        _ => probabilities,
    };
    match op(graph, guarded)? {
        Op::Softmax(Softmax { x }) => Some(*x),
        _ => None,
    }
}

/// Takes scores apart, or says what is not a part of scores.
pub(super) fn read(graph: &mut Rewriter<'_>, value: ValueId) -> Result<Scores, NoMatch> {
    within(graph, value, DEPTH)
}

fn within(graph: &mut Rewriter<'_>, value: ValueId, depth: usize) -> Result<Scores, NoMatch> {
    if depth == 0 {
        return Err(unknown(graph, value));
    }
    if let Some(of) = widened(graph, value) {
        return within(graph, of, depth - 1);
    }
    if let Some((x, factor)) = scaled(graph, value) {
        let capped = unary(graph, x, UnaryKind::Tanh);
        let scores = within(graph, capped.unwrap_or(x), depth - 1)?;
        if capped.is_some() {
            return Ok(Scores { softcap: Some(factor), scale: scores.scale * factor, ..plain(scores, graph, value)? });
        }
        return times(scores, factor, graph, value);
    }
    match op(graph, value).cloned() {
        Some(Op::MatMul(MatMul { a, b })) => {
            Ok(Scores { q: a, keys: b, scale: 1.0, factors: Vec::new(), softcap: None, added: Vec::new() })
        }
        Some(Op::Binary(Binary { kind: BinaryKind::Add, a, b })) => {
            let [scores, added] = product_first(graph, a, b);
            let mut scores = within(graph, scores, depth - 1)?;
            scores.added.push(added);
            Ok(scores)
        }
        Some(Op::Binary(Binary { kind: BinaryKind::Mul, a, b })) => {
            let [scores, factor] = product_first(graph, a, b);
            if graph.ty(factor).shape.last() != Some(&Dim::constant(1)) {
                let (name, factor, ty) = (name(graph, value), name(graph, factor), graph.ty(factor));
                let reason = format!(
                    "`{name}` is a product with `{factor}`, {ty}, which is not a factor of all scores of a query, [.., 1]"
                );
                return Err(NoMatch::Miss(reason));
            }
            let mut scores = plain(within(graph, scores, depth - 1)?, graph, value)?;
            scores.factors.push(factor);
            Ok(scores)
        }
        Some(Op::Select(Select { condition, a, b })) => {
            let masked = |value: ValueId| graph.number(value).filter(|n| *n <= MASKED);
            let (scores, fill) = match (masked(a), masked(b)) {
                (Some(fill), _) => (b, [fill, 0.0]),
                (_, Some(fill)) => (a, [0.0, fill]),
                _ => return Err(unknown(graph, value)),
            };
            let mut scores = within(graph, scores, depth - 1)?;
            // After what replaces a score, no score is seen; neither must it be after what is added to it.
            let dtype = match graph.ty(value).dtype {
                DType::F16 => DType::F32,
                dtype => dtype,
            };
            let fill = fill.map(|number| if number < 0.0 { number.min(REPLACING) } else { number });
            let [a, b] = fill.map(|number| graph.weight_part(Weight::scalar(dtype, number), value));
            scores.added.push(graph.part(Select { condition, a, b }, value)?);
            Ok(scores)
        }
        Some(Op::Reshape(_)) => match pushed_through(graph, value)? {
            Some(pushed) => within(graph, pushed, depth - 1),
            None => Err(unknown(graph, value)),
        },
        _ => Err(unknown(graph, value)),
    }
}

/// A multiple of scores, and so of what was added to them.
fn times(mut scores: Scores, factor: f64, graph: &mut Rewriter<'_>, value: ValueId) -> Result<Scores, NoMatch> {
    if scores.softcap.is_some() {
        return plain(scores, graph, value);
    }
    scores.scale *= factor;
    for added in &mut scores.added {
        let factor = graph.weight_part(Weight::scalar(graph.ty(*added).dtype, factor), value);
        *added = graph.part(Binary { kind: BinaryKind::Mul, a: *added, b: factor }, value)?;
    }
    Ok(scores)
}

/// Scores of which nothing but a multiple was taken yet.
fn plain(scores: Scores, graph: &Graph, value: ValueId) -> Result<Scores, NoMatch> {
    if scores.added.is_empty() && scores.softcap.is_none() {
        return Ok(scores);
    }
    Err(NoMatch::Miss(format!(
        "`{}` scales or caps scores that were capped, or to which something was added",
        name(graph, value)
    )))
}

fn name(graph: &Graph, value: ValueId) -> &str {
    &graph.value(value).name
}

fn unknown(graph: &Graph, value: ValueId) -> NoMatch {
    let name = name(graph, value);
    NoMatch::Miss(match op(graph, value) {
        Some(op) => format!("`{name}`, which {} computes, is not a step from queries and keys to scores", op.kind()),
        None => format!("`{name}` is given, and is not a product of queries and keys"),
    })
}

/// A number that stays what it is when a score is added to it, and that many of such can be added to: beside it,
/// float32 rounds scores of up to 1e22 away.
const REPLACING: f64 = -1e30;

/// How deep scores are taken apart.
const DEPTH: usize = 12;

/// The two operands, the one that leads to the product of queries and keys first.
fn product_first(graph: &Graph, a: ValueId, b: ValueId) -> [ValueId; 2] {
    if leads_to_product(graph, a, DEPTH) { [a, b] } else { [b, a] }
}

/// Whether a value is a product of queries and keys, or a sum or a multiple of one.
fn leads_to_product(graph: &Graph, value: ValueId, depth: usize) -> bool {
    let Some(op) = op(graph, value).filter(|_| depth > 0) else { return false };
    let leads = |v: &ValueId| leads_to_product(graph, *v, depth - 1);
    if let Some((x, _)) = scaled(graph, value) {
        return leads(&unary(graph, x, UnaryKind::Tanh).unwrap_or(x));
    }
    match op {
        Op::MatMul(_) => true,
        Op::Binary(Binary { kind: BinaryKind::Add | BinaryKind::Mul, a, b }) | Op::Select(Select { a, b, .. }) => {
            leads(a) || leads(b)
        }
        Op::Reshape(_) => leading(graph, value).is_some_and(|(x, _)| leads(&x)),
        _ => widened(graph, value).is_some_and(|x| leads(&x)),
    }
}
