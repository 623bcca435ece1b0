//! Attention.

mod batch;
mod cache;
mod heads;
mod mask;
mod scores;
mod unmatched;

use planish_ir::ops::{Attention, Binary, BinaryKind, Cast, MatMul, Real, Reshape, Transpose};
use planish_ir::{BuildError, DType, Graph, NodeId, Op, Rewriter, Shape, ValueId};

use super::narrow::NARROW;
use super::pattern::{rounding, unscaled, widened};
use super::{Found, NoMatch, Rule, run as apply};
use crate::build::{Builder, reshape_once, transpose_once};
use crate::{Example, Note, ONNX, Options, Outcome, Pass, PassError};
use heads::{HEADS_FIRST, KEYS_LAST, Keys};
use scores::Scores;
use unmatched::unmatched_softmaxes;

/// Raises products around a softmax to attention.
pub const RAISE_ATTENTION: Pass = Pass {
    name: "raise-attention",
    summary: "Raises softmax(scale * q * k^T + bias) * v of heads to attention. The scale may stand at the queries, \
              the keys, the scores, or several of them. Keys that heads share may be repeated. Where keys are put \
              after those of a cache, the cache becomes an operand. Numbers of -1e4 and below that are added to the \
              scores are a mask. The pass works out which conditions they depend on. Conditions on positions become \
              causality and windows, and a condition on the keys of a batch becomes the mask. Integers that the graph \
              uses as a mask are taken to be 0 or 1. Other summands stay as the bias. The softmax may be cast to \
              float32 and back. Attention between casts from and to a half type is raised in that type.",
    numerics: "Scores are scaled at another place: relative differences of 1e-7. Between casts, products no longer \
               round to the half type. A query whose keys are all left out attends to all of them alike, as where a \
               number replaces the scores. Where exporters add a number to the scores instead, such a query attends by \
               what rounding leaves of them, and gets zeros where the exporter guards against NaN. Where a mask stays \
               in the bias, such a query attends to the keys that the fewest parts of the mask leave out. These \
               queries are padding, and nothing reads their results.",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %q: f32[b, 2, s, 8]
            input %k: f32[b, 2, s, 8]
            input %v: f32[b, 2, s, 8]
            weight @scale = dense([0.5]) : f32[]
            %kt = transpose(%k) {perm = [0, 1, 3, 2]} : f32[b, 2, 8, s]
            %p = matmul(%q, %kt) : f32[b, 2, s, s]
            %s = mul(%p, @scale) : f32[b, 2, s, s]
            %w = softmax(%s) : f32[b, 2, s, s]
            %y = matmul(%w, %v) : f32[b, 2, s, 8]
            output y = %y",
        after: "
            input %q: f32[b, 2, s, 8]
            input %k: f32[b, 2, s, 8]
            input %v: f32[b, 2, s, 8]
            %q/transpose = transpose(%q) {perm = [0, 2, 1, 3]} : f32[b, s, 2, 8]
            %q/transpose/reshape = reshape(%q/transpose) {shape = [b, s, 16]} : f32[b, s, 16]
            %y = attention(%q/transpose/reshape, %k, %v) {heads = 2, scale = 0.5} : f32[b, s, 16]
            %y/reshape = reshape(%y) {shape = [b, s, 2, 8]} : f32[b, s, 2, 8]
            %y/transpose = transpose(%y/reshape) {perm = [0, 2, 1, 3]} : f32[b, 2, s, 8]
            output y = %y/transpose",
    },
    applies: |_| true,
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let mut outcome = apply(graph, RULES, options);
    let (changed, mut misses) = cache::raise(graph);
    outcome.changed += changed;
    if options.explain {
        misses.extend(unmatched_softmaxes(graph));
        outcome.notes.extend(misses.into_iter().map(Note::Missed));
    }
    Ok(outcome)
}

/// The rules of attention.
pub(super) const RULES: &[&Rule] =
    &[&batch::TRANSPOSE, &batch::VALUES, &batch::HEADS, &ATTENTION, &mask::MASK, &NARROW];

/// `softmax(scores) * v`.
const ATTENTION: Rule = Rule { name: "attention", find: attention };

fn attention(graph: &mut Rewriter<'_>, node: NodeId) -> Found {
    let Op::MatMul(MatMul { a: probabilities, b: v }) = graph.node(node).op else { return Err(NoMatch::Other) };
    let output = graph.node(node).outputs[0];
    let Some(softmax) = scores::softmax(graph, probabilities) else { return Err(NoMatch::Other) };
    let Scores { q, keys, mut scale, factors, softcap, added } = scores::read(graph, softmax)?;
    let shape = graph.ty(output).shape.clone();
    for value in [q, keys, v, output] {
        if graph.ty(value).shape.rank() != 4 {
            let found = described(graph, value);
            return Err(NoMatch::Miss(format!("{found}, which is not of batch, heads, positions and features")));
        }
    }
    let dtype = graph.ty(softmax).dtype;
    let [q, keys, v] = [q, keys, v].map(|value| widened(graph, value).unwrap_or(value));
    let rounding = rounding(graph.ty(q).dtype);
    let (mut q, factor) = unscaled(graph, q)?;
    scale *= factor;
    for factor in factors {
        q = multiplied(graph, q, factor)?;
    }
    let (keys, factor) = unscaled(graph, keys)?;
    scale *= factor;
    let keys = transpose_once(graph, keys, KEYS_LAST)?;

    let unknown = |graph: &Graph, value: ValueId| {
        NoMatch::Miss(format!("{}: the number of heads or their size is not known", described(graph, value)))
    };
    let Some([heads, size]) = heads::sizes(&graph.ty(q).shape) else { return Err(unknown(graph, q)) };
    let [k, v] = heads::unrepeated(graph, [keys, v])?;
    let Some([kv_heads, _]) = heads::sizes(&graph.ty(k).shape) else { return Err(unknown(graph, k)) };
    let Keys { past, new: [k, v] } = heads::cached(graph, k, v)?;

    let dims = graph.ty(q).shape.clone();
    let by_query = transpose_once(graph, q, HEADS_FIRST)?;
    let features = dims[1].checked_mul(&dims[3]).unwrap_or_default();
    let q = reshape_once(graph, by_query, [dims[0].clone(), dims[2].clone(), features])?;
    let mut wide = |value: ValueId| Builder::at(graph, value).cast(value, dtype);
    let [q, k, v] = [wide(q)?, wide(k)?, wide(v)?];
    let past = past.map(|[k, v]| Ok::<_, BuildError>([wide(k)?, wide(v)?])).transpose()?;
    let wide_bias = added.iter().any(|value| graph.ty(*value).dtype == DType::F32);
    let bias_dtype = if wide_bias { DType::F32 } else { dtype };
    let added = added.into_iter().map(|value| Builder::at(graph, value).cast(value, bias_dtype));
    let added = added.collect::<Result<Vec<ValueId>, BuildError>>()?;
    let attention = Attention {
        bias: sum(graph, &added)?,
        past_key: past.map(|p| p[0]),
        past_value: past.map(|p| p[1]),
        kv_heads: Some(kv_heads).filter(|kv| *kv != heads),
        softcap: softcap.map(Real),
        ..Attention::new(q, k, v, heads, Real(precise(scale, size, rounding)))
    };
    let result = graph.emit(attention, output)?;
    let to = graph.ty(output).dtype;
    let result = if to == dtype { result } else { graph.part(Cast { x: result, to }, output)? };
    let by_query = Shape::new([&shape[0], &shape[2], &shape[1], &shape[3]].map(Clone::clone));
    let split = graph.part(Reshape { x: result, shape: by_query }, output)?;
    Ok(vec![graph.part(Transpose { x: split, perm: HEADS_FIRST.to_vec() }, output)?])
}

/// A value and its type, as a message names it.
fn described(graph: &Graph, value: ValueId) -> String {
    format!("`{}` is {}", graph.value(value).name, graph.ty(value))
}

/// Queries times a factor of their scores.
fn multiplied(graph: &mut Rewriter<'_>, q: ValueId, factor: ValueId) -> Result<ValueId, NoMatch> {
    let product = graph.part(Binary { kind: BinaryKind::Mul, a: q, b: factor }, q)?;
    if graph.ty(product) == graph.ty(q) {
        return Ok(product);
    }
    let (factor, q) = (described(graph, factor), described(graph, q));
    Err(NoMatch::Miss(format!("{factor}, which scores are multiplied with, and {q}: the factor is not of the queries")))
}

/// The scale that was meant, where it was rounded: usually the inverse root of the heads' size.
fn precise(scale: f64, size: usize, rounding: f64) -> f64 {
    let usual = 1.0 / (size as f64).sqrt();
    let meant = [usual, 1.0].into_iter().find(|meant| (scale - meant).abs() <= rounding * meant);
    meant.unwrap_or(scale)
}

/// The sum of values, in order.
fn sum(graph: &mut Rewriter<'_>, values: &[ValueId]) -> Result<Option<ValueId>, BuildError> {
    let mut sum: Option<ValueId> = None;
    for &b in values {
        sum = Some(match sum {
            Some(a) => graph.part(Binary { kind: BinaryKind::Add, a, b }, a)?,
            None => b,
        });
    }
    Ok(sum)
}
