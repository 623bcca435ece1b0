//! What the softmax is of.

use planish_ir::ops::{Binary, BinaryKind, MatMul, Select, Softmax, UnaryKind};
use planish_ir::{BuildError, DType, Graph, Op, Rewriter, ValueId, Weight};

use super::super::pattern::{narrowed, op, part, scalar, scaled, unary, widened};
use crate::raise::element::MASKED;

/// `softcap(scale * q * keys) + added`. Operands may be of a half type where a cast to a wider one comes behind.
pub(super) struct Scores {
    /// [batch, heads, queries, size].
    pub(super) q: ValueId,
    /// [batch, heads, size, keys].
    pub(super) keys: ValueId,
    pub(super) scale: f64,
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
            if scalar(graph, *a) == Some(0.0) && unary(graph, *condition, UnaryKind::IsNan) == Some(*b) =>
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

/// Takes scores apart, or says what is no part of scores.
pub(super) fn read(graph: &mut Rewriter<'_>, value: ValueId) -> Result<Result<Scores, String>, BuildError> {
    within(graph, value, DEPTH)
}

fn within(graph: &mut Rewriter<'_>, value: ValueId, depth: usize) -> Result<Result<Scores, String>, BuildError> {
    if depth == 0 {
        return Ok(Err(unknown(graph, value)));
    }
    let step = match op(graph, value) {
        Some(Op::MatMul(MatMul { a, b })) => {
            let scores = Scores { q: *a, keys: *b, scale: 1.0, softcap: None, added: Vec::new() };
            return Ok(Ok(scores));
        }
        Some(Op::Binary(Binary { kind: BinaryKind::Add, a, b })) => {
            let (a, b) = (*a, *b);
            let product_first = leads_to_product(graph, a, DEPTH);
            Step::Added(if product_first { [a, b] } else { [b, a] })
        }
        Some(Op::Select(Select { condition, a, b })) => {
            let (condition, a, b) = (*condition, *a, *b);
            let masked = |number: Option<f64>| number.filter(|n| *n <= MASKED);
            match (masked(scalar(graph, a)), masked(scalar(graph, b))) {
                (Some(fill), _) => Step::Filled { condition, scores: b, fill: [fill, 0.0] },
                (_, Some(fill)) => Step::Filled { condition, scores: a, fill: [0.0, fill] },
                _ => return Ok(Err(unknown(graph, value))),
            }
        }
        _ => match (widened(graph, value), scaled(graph, value)) {
            (Some(half), _) => return within(graph, half, depth - 1),
            (None, Some((x, factor))) => Step::Scaled(x, factor),
            (None, None) => return Ok(Err(unknown(graph, value))),
        },
    };
    match step {
        Step::Added([scores, added]) => {
            let mut scores = match within(graph, scores, depth - 1)? {
                Ok(scores) => scores,
                Err(reason) => return Ok(Err(reason)),
            };
            scores.added.push(added);
            Ok(Ok(scores))
        }
        Step::Filled { condition, scores, fill } => {
            let mut read = match within(graph, scores, depth - 1)? {
                Ok(read) => read,
                Err(reason) => return Ok(Err(reason)),
            };
            // Behind what replaces a score, no score is seen; neither must it be behind what is added to it.
            let dtype = match graph.ty(value).dtype {
                DType::F16 => DType::F32,
                dtype => dtype,
            };
            let fill = fill.map(|number| if number < 0.0 { number.min(REPLACING) } else { number });
            let [a, b] = fill.map(|number| graph.weight_part(Weight::scalar(dtype, number), value));
            read.added.push(part(graph, Select { condition, a, b }, value)?);
            Ok(Ok(read))
        }
        Step::Scaled(x, factor) => {
            let capped = unary(graph, x, UnaryKind::Tanh);
            let mut scores = match within(graph, capped.unwrap_or(x), depth - 1)? {
                Ok(scores) => scores,
                Err(reason) => return Ok(Err(reason)),
            };
            if !scores.added.is_empty() || scores.softcap.is_some() {
                let name = &graph.value(value).name;
                return Ok(Err(format!("`{name}` scales scores to which something was added")));
            }
            scores.scale *= factor;
            scores.softcap = capped.map(|_| factor);
            Ok(Ok(scores))
        }
    }
}

enum Step {
    /// Scores, and what is added to them.
    Added([ValueId; 2]),
    /// Scores, replaced by a number where the condition holds or does not; added is the number, or 0.
    Filled {
        condition: ValueId,
        scores: ValueId,
        fill: [f64; 2],
    },
    Scaled(ValueId, f64),
}

fn unknown(graph: &Graph, value: ValueId) -> String {
    let how = op(graph, value).map_or("given", Op::mnemonic);
    format!("`{}`, by `{how}`, is no part of how scores are computed", graph.value(value).name)
}

/// A number that stays what it is when a score is added to it, and that many of such can be added to: beside it,
/// float32 rounds scores of up to 1e22 away.
const REPLACING: f64 = -1e30;

/// How deep scores are taken apart.
const DEPTH: usize = 8;

/// Whether a value is a product of queries and keys, or a sum or a multiple of one.
fn leads_to_product(graph: &Graph, value: ValueId, depth: usize) -> bool {
    let Some(op) = op(graph, value).filter(|_| depth > 0) else { return false };
    let leads = |v: &ValueId| leads_to_product(graph, *v, depth - 1);
    match op {
        Op::MatMul(_) => true,
        Op::Binary(Binary { kind: BinaryKind::Add, a, b }) | Op::Select(Select { a, b, .. }) => leads(a) || leads(b),
        _ => {
            let inner = scaled(graph, value).map(|(x, _)| unary(graph, x, UnaryKind::Tanh).unwrap_or(x));
            inner.or_else(|| widened(graph, value)).is_some_and(|x| leads(&x))
        }
    }
}
