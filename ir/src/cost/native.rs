//! Operators of the graph.

use crate::ops::{Activation, Attention, Experts, GeluForm, LinearAttention, NormKind, Operations};
use crate::{Node, Op, ValueId};

use super::sizes::{Sizes, product};
use super::{Cost, Flops};

/// For each element of a softmax: maximum, difference, exponential, sum, quotient.
pub(crate) const SOFTMAX: u64 = 5;
/// For each element of a layer normalization: the sum, the difference, its square and their sum, and the products with the
/// inverse deviation and the weight, and the bias.
pub(crate) const LAYER_NORM: u64 = 7;
/// For each element of a root mean square normalization: the square, their sum, and two products.
pub(crate) const RMS_NORM: u64 = 4;
/// For each element of GELU by the error function.
pub(super) const GELU_ERF: u64 = 5;
/// For each element of GELU by the hyperbolic tangent.
pub(super) const GELU_TANH: u64 = 9;
/// For each element of SiLU: the sigmoid and a product.
pub(crate) const SILU: u64 = 2;
/// For each rotated element: two products and a sum.
pub(super) const ROTARY: u64 = 3;

/// The floating-point operations of an operator.
pub(super) fn flops(op: &Op, node: &Node, sizes: &Sizes<'_>) -> Result<Flops, String> {
    match op.row().operations {
        Operations::Each(times) => each(times, node, sizes),
        Operations::Read => match op.operands().first() {
            Some(x) => reduced(*x, sizes),
            None => Ok(Flops::default()),
        },
        Operations::Own => own(op, node, sizes),
    }
}

/// So many operations for each element of the result.
fn each(times: u64, node: &Node, sizes: &Sizes<'_>) -> Result<Flops, String> {
    Ok(Flops::others(sizes.numbers(node)?.saturating_mul(times)))
}

/// The operations of operators that have a rule of their own.
fn own(op: &Op, node: &Node, sizes: &Sizes<'_>) -> Result<Flops, String> {
    let result = || sizes.numbers(node);
    let each = |times: u64| each(times, node, sizes);
    let given = |value: Option<ValueId>| value.is_some() as u64;
    let linear = |x: ValueId, activation: Activation, added: u64| {
        let (elements, inner) = (result()?, sizes.last(x)?);
        let others = elements.saturating_mul(added + of_activation(activation));
        Ok(Flops::products(elements.saturating_mul(inner)).and(others))
    };
    match op {
        Op::Linear(op) => linear(op.x, Activation::None, given(op.bias)),
        Op::FusedLinear(op) => linear(op.x, op.activation, given(op.bias) + given(op.residual)),
        // Sums of codes become numbers by a product with the scale.
        Op::QuantizedLinear(op) => linear(op.x, op.activation, 1 + given(op.bias) + given(op.residual)),
        Op::MatMul(op) => Ok(Flops::products(result()?.saturating_mul(sizes.last(op.a)?))),
        Op::Conv(op) => {
            let (elements, filter) = (result()?, sizes.shape(op.weight)?);
            let others = elements.saturating_mul(given(op.bias));
            Ok(Flops::products(elements.saturating_mul(product(&filter[1..]))).and(others))
        }
        Op::Experts(op) => experts(op, sizes),
        Op::CausalConv(op) => {
            let (elements, taps) = (result()?, sizes.last(op.weight)?);
            let others = elements.saturating_mul(given(op.bias) + if op.silu.0 { SILU } else { 0 });
            Ok(Flops::products(elements.saturating_mul(taps)).and(others))
        }
        Op::LinearAttention(op) => recurrence(op, sizes),
        Op::AddNorm(op) => each(1 + given(op.bias) + of_norm(op.norm)),
        Op::EmbeddingNorm(op) => each(op.tables.len() as u64 - 1 + of_norm(op.norm)),
        Op::Gelu(op) => each(match op.form {
            GeluForm::Erf => GELU_ERF,
            GeluForm::Tanh => GELU_TANH,
        }),
        Op::Gated(op) => each(1 + of_activation(op.activation)),
        Op::Attention(op) => attention(op, sizes),
        Op::Rotary(op) => rotated(op.x, op.cos, op.heads, sizes),
        Op::RotaryAppend(op) => {
            let (q, k) = (rotated(op.q, op.cos, op.heads, sizes)?, rotated(op.k, op.cos, op.kv_heads, sizes)?);
            Ok(q.and(k.others))
        }
        Op::Quantize(op) => sizes.elements(op.x).map(Flops::others),
        op => Err(format!("the operations of `{}` are not counted", op.mnemonic())),
    }
}

/// What an operator costs that does so many floating-point operations.
pub(super) fn cost(op: &Op, node: &Node, flops: Flops, sizes: &Sizes<'_>) -> Result<Cost, String> {
    match op {
        Op::Reshape(_) | Op::Sizes(_) => Ok(Cost::default()),
        Op::Slice(slice) => some_of(slice.x, node, flops, sizes),
        Op::Gather(gather) => some_of(gather.x, node, flops, sizes),
        Op::Embedding(embedding) => some_of(embedding.weight, node, flops, sizes),
        Op::EmbeddingNorm(op) => sizes.cost(node, flops, |value| {
            let mut rows = op.tables.iter().zip(&op.ids).filter(|(table, _)| **table == value);
            let taken = rows.try_fold(None, |sum, (table, ids)| {
                let elements = sizes.elements(*ids)?.saturating_mul(sizes.last(*table)?);
                Ok::<_, String>(Some(elements.saturating_add(sum.unwrap_or(0))))
            })?;
            Ok(taken)
        }),
        Op::Experts(op) => {
            // Each expert is read once, if a token takes it: at most as many as are taken.
            let (all, taken) = (at(&sizes.shape(op.gate)?, 0), sizes.elements(op.indices)?);
            let stacked = [Some(op.gate), Some(op.down), op.up, op.gate_bias, op.up_bias, op.down_bias];
            sizes.cost(node, flops, |value| match stacked.contains(&Some(value)) {
                true => Ok(Some((sizes.elements(value)? / all.max(1)).saturating_mul(all.min(taken)))),
                false => Ok(None),
            })
        }
        _ => sizes.cost(node, flops, |_| Ok(None)),
    }
}

/// The operations of the experts that tokens take.
fn experts(op: &Experts, sizes: &Sizes<'_>) -> Result<Flops, String> {
    let (gate, down) = (sizes.shape(op.gate)?, sizes.shape(op.down)?);
    let given = |value: Option<ValueId>| u64::from(value.is_some());
    let (inner, out, taken) = (at(&gate, 1), at(&down, 1), sizes.elements(op.indices)?);
    let products = product(&[1 + given(op.up), inner, at(&gate, 2)]).saturating_add(inner.saturating_mul(out));
    let gated = of_activation(op.activation) + given(op.up) + given(op.gate_bias) + given(op.up_bias);
    // Each result takes part in a sum, times its score.
    let others = inner.saturating_mul(gated).saturating_add(out.saturating_mul(2 + given(op.down_bias)));
    Ok(Flops::products(products.saturating_mul(taken)).and(others.saturating_mul(taken)))
}

/// The operations of a recurrence, one token after another: each product of a key or a query with the state.
fn recurrence(op: &LinearAttention, sizes: &Sizes<'_>) -> Result<Flops, String> {
    let (q, v) = (sizes.shape(op.q)?, sizes.shape(op.v)?);
    let state = product(&[at(&q, 2) / op.key_heads.max(1) as u64, at(&v, 2)]);
    let tokens = product(&[at(&q, 0), at(&q, 1)]);
    let decays = u64::from(op.decay.is_some());
    let products = 2 + u64::from(op.beta.is_some());
    Ok(Flops::products(product(&[tokens, state, products])).and(product(&[tokens, state, decays])))
}

/// The cost of a node that reads as many elements of `x` as its first result has.
pub(super) fn some_of(x: ValueId, node: &Node, flops: Flops, sizes: &Sizes<'_>) -> Result<Cost, String> {
    let taken = node.outputs.first().map_or(Ok(0), |output| sizes.elements(*output))?;
    sizes.cost(node, flops, |value| Ok((value == x).then_some(taken)))
}

fn of_activation(activation: Activation) -> u64 {
    match activation {
        Activation::None => 0,
        Activation::GeluErf => GELU_ERF,
        Activation::GeluTanh => GELU_TANH,
        Activation::Silu => SILU,
        Activation::Relu => 1,
    }
}

fn of_norm(norm: NormKind) -> u64 {
    match norm {
        NormKind::Layer => LAYER_NORM,
        NormKind::Rms => RMS_NORM,
    }
}

/// One operation for each floating-point element of an operand.
pub(super) fn reduced(x: ValueId, sizes: &Sizes<'_>) -> Result<Flops, String> {
    let is_float = sizes.graph.type_of(x).dtype().is_some_and(|dtype| dtype.is_float());
    Ok(Flops::others(if is_float { sizes.elements(x)? } else { 0 }))
}

/// The operations of attention: `queries` is how many features all heads of all queries have, `context` how many all
/// results have, and `scores` how many scores there are, each of so many `keys`.
pub(super) fn scored(queries: u64, context: u64, keys: u64, scores: u64, each: u64) -> Flops {
    let multiply_adds = queries.saturating_add(context).saturating_mul(keys);
    Flops::products(multiply_adds).and(scores.saturating_mul(each))
}

/// For each score: its scale and the softmax.
pub(super) const SCORE: u64 = 1 + SOFTMAX;

fn attention(op: &Attention, sizes: &Sizes<'_>) -> Result<Flops, String> {
    let q = sizes.shape(op.q)?;
    let [key, value] = [op.k, op.v].map(|v| sizes.shape(v));
    let (key, value) = (key?, value?);
    let past = op.past_key.map_or(Ok(0), |past| sizes.shape(past).map(|shape| at(&shape, 2)))?;
    let keys = at(&key, key.len().saturating_sub(2)).saturating_add(past);
    // As caches hold them, values have their own size last; else all heads are side by side.
    let kv_heads = op.kv_heads().max(1) as u64;
    let size = if value.len() == 4 { at(&value, 3) } else { at(&value, 2) / kv_heads };
    let (rows, heads) = (product(&[at(&q, 0), at(&q, 1)]), op.heads as u64);
    let each = SCORE + u64::from(op.bias.is_some()) + 3 * u64::from(op.softcap.is_some());
    Ok(scored(product(&q), product(&[rows, heads, size]), keys, product(&[rows, heads, keys]), each))
}

/// A dimension; 0 where there is none.
pub(super) fn at(shape: &[u64], axis: usize) -> u64 {
    shape.get(axis).copied().unwrap_or(0)
}

fn rotated(x: ValueId, cos: ValueId, heads: usize, sizes: &Sizes<'_>) -> Result<Flops, String> {
    let (x, pairs) = (sizes.shape(x)?, sizes.last(cos)?);
    let elements = product(&[at(&x, 0), at(&x, 1), heads as u64, pairs.saturating_mul(2)]);
    Ok(Flops::others(elements.saturating_mul(ROTARY)))
}
