//! Gated DeltaNet (Yang et al. 2024, arXiv:2412.06464), as Qwen3-Next has it: linear attention whose states decay and whose values
//! replace what a key had, behind a short convolution, with a gate.

use planish_ir::ops::{BinaryKind, Concat, LinearAttention, Real, RmsNorm, Split, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};

use crate::ModelError;
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::{Activation, softplus};
use crate::layers::blocks::Settings;
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::decoder::{Convolution, Decoder};
use crate::layers::state_space::{convolved, rates, split};
use crate::names::StateOf;

/// The configuration keys that are read here.
pub(crate) const KEYS: &[&str] = &[
    "linear_conv_kernel_dim",
    "linear_key_head_dim",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_value_head_dim",
];

/// How queries, keys, values, gates, decays and shares are projected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Projections {
    /// `in_proj_qkv`, `in_proj_z`, `in_proj_b` and `in_proj_a`.
    Apart,
    /// `in_proj_qkvz` and `in_proj_ba`, with what belongs to a head of keys side by side.
    ByHead,
}

struct Sizes {
    taps: Size,
    /// Features of a head of keys, and of values.
    key: Size,
    value: Size,
    key_heads: Size,
    value_heads: Size,
}

impl Sizes {
    fn read(config: &Config<'_>) -> Result<Self, ModelError> {
        let sizes = Self {
            taps: config.size("linear_conv_kernel_dim", 4)?,
            key: config.size("linear_key_head_dim", 128)?,
            value: config.size("linear_value_head_dim", 128)?,
            key_heads: config.size("linear_num_key_heads", 16)?,
            value_heads: config.size("linear_num_value_heads", 32)?,
        };
        match sizes.value_heads.value.is_multiple_of(sizes.key_heads.value) {
            true => Ok(sizes),
            false => Err(config.error(format!("{} is not divisible by {}", sizes.value_heads, sizes.key_heads))),
        }
    }

    fn keys(&self) -> usize {
        self.key_heads.value * self.key.value
    }

    fn values(&self) -> usize {
        self.value_heads.value * self.value.value
    }
}

/// What the projections give: all heads side by side, and a number for each head of values.
struct Projected {
    qkv: ValueId,
    gate: ValueId,
    beta: ValueId,
    steps: ValueId,
}

/// Adds it to a module: [batch_size, sequence_length, hidden] to the same.
pub(crate) fn apply(
    b: &mut Builder<'_>,
    s: &Settings,
    projections: Projections,
    decoder: &mut Decoder,
    x: ValueId,
    module: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let sizes = Sizes::read(b.config)?;
    let Projected { qkv, gate, beta, steps } = match projections {
        Projections::Apart => apart(b, s, &sizes, x, module)?,
        Projections::ByHead => by_head(b, s, &sizes, x, module)?,
    };
    let channels = Size::derived(2 * sizes.keys() + sizes.values(), "features of queries, keys and values");
    let of = Convolution { channels, taps: sizes.taps, bias: false, silu: false };
    let qkv = convolved(b, decoder, qkv, of, s.activation, &at("conv1d"))?;
    let [q, k, v] = split(b, qkv, [sizes.keys(), sizes.keys(), sizes.values()], &at("qkv"))?;
    let q = unit(b, q, [sizes.key_heads, sizes.key], &at("q"))?;
    let k = unit(b, k, [sizes.key_heads, sizes.key], &at("k"))?;

    let beta = b.emit(Unary { kind: UnaryKind::Sigmoid, x: beta }, &at("beta"))?;
    let bias = b.weight(&[&at("dt_bias")], &[sizes.value_heads])?;
    let steps = b.add(steps, bias, &at("dt.add"))?;
    let steps = softplus(b, steps, &at("dt"))?;
    let rates = rates(b, &[sizes.value_heads], &at("A_log"))?;
    let decay = b.binary(BinaryKind::Mul, [steps, rates], &at("decay"))?;
    // Padding changes no state.
    let decay = decoder.without_padding(b, decay, &at("decay"))?;
    let beta = decoder.without_padding(b, beta, &at("beta"))?;
    let op = LinearAttention {
        q,
        k,
        v,
        decay: Some(decay),
        beta: Some(beta),
        state: None,
        heads: sizes.value_heads.value,
        key_heads: sizes.key_heads.value,
        scale: Real(1.0 / (sizes.key.value as f64).sqrt()),
    };
    let y = decoder.attend_linearly(b, op, StateOf::Attention, &at("delta"))?;
    let heads = [sizes.value_heads, sizes.value];
    let y = by_heads(b, y, heads, &at("norm.heads"))?;
    let y = b.rms_norm(y, &at("norm"), sizes.value, s.eps)?;
    let inner = Size::derived(sizes.values(), "linear_num_value_heads * linear_value_head_dim");
    let y = merged(b, y, inner.value, &at("norm.merge"))?;
    let gate = Activation::SILU.apply(b, gate, &at("gate"))?;
    let y = b.binary(BinaryKind::Mul, [y, gate], &at("mul"))?;
    b.projection(y, &at("out_proj"), [s.hidden, inner], false)
}

/// [batch_size, sequence_length, features] as [batch_size, sequence_length, heads, size].
fn by_heads(b: &mut Builder<'_>, x: ValueId, heads: [Size; 2], module: &str) -> Result<ValueId, ModelError> {
    let heads = heads.map(|size| Dim::constant(size.signed()));
    b.reshape(x, [b.texts(), Dim::symbol(SEQUENCE)].into_iter().chain(heads), module)
}

/// All heads side by side.
fn merged(b: &mut Builder<'_>, x: ValueId, size: usize, module: &str) -> Result<ValueId, ModelError> {
    let size = Dim::constant(i64::try_from(size).unwrap_or(i64::MAX));
    b.reshape(x, [b.texts(), Dim::symbol(SEQUENCE), size], module)
}

/// Heads of length 1: `x / sqrt(sum(x^2) + 1e-6)`.
fn unit(b: &mut Builder<'_>, x: ValueId, [heads, size]: [Size; 2], module: &str) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let count = size.value as f64;
    let x = by_heads(b, x, [heads, size], &at("heads"))?;
    let weight = Weight::numbers(DType::F32, vec![size.value], &vec![1.0 / count.sqrt(); size.value]);
    let weight = weight.unwrap_or_else(|| unreachable!("there are as many numbers as the shape says"));
    let weight = b.graph.add_weight(&at("one"), weight, Origin::Unknown);
    let x = b.emit(RmsNorm { x, weight, eps: Real(1e-6 / count) }, &at("unit"))?;
    merged(b, x, heads.value * size.value, module)
}

fn apart(b: &mut Builder<'_>, s: &Settings, sizes: &Sizes, x: ValueId, module: &str) -> Result<Projected, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let channels = Size::derived(2 * sizes.keys() + sizes.values(), "features of queries, keys and values");
    let values = Size::derived(sizes.values(), "linear_num_value_heads * linear_value_head_dim");
    Ok(Projected {
        qkv: b.projection(x, &at("in_proj_qkv"), [channels, s.hidden], false)?,
        gate: b.projection(x, &at("in_proj_z"), [values, s.hidden], false)?,
        beta: b.projection(x, &at("in_proj_b"), [sizes.value_heads, s.hidden], false)?,
        steps: b.projection(x, &at("in_proj_a"), [sizes.value_heads, s.hidden], false)?,
    })
}

fn by_head(
    b: &mut Builder<'_>,
    s: &Settings,
    sizes: &Sizes,
    x: ValueId,
    module: &str,
) -> Result<Projected, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let each = sizes.value_heads.value / sizes.key_heads.value;
    let (key, values) = (sizes.key.value, each * sizes.value.value);
    let of_head = Size::derived(2 * (key + values), "features of a head of keys and of its values");
    let all = Size::derived(sizes.key_heads.value * of_head.value, "features of queries, keys, values and gates");
    let projected = b.projection(x, &at("in_proj_qkvz"), [all, s.hidden], false)?;
    let projected = by_heads(b, projected, [sizes.key_heads, of_head], &at("in_proj_qkvz.heads"))?;
    let parts = Split { x: projected, axis: 3, sizes: vec![key, key, values, values] };
    let parts = b.emit_all(parts, &at("in_proj_qkvz.parts"))?;
    let [keys, all_values] = [sizes.keys(), sizes.values()];
    let mut flat = Vec::new();
    for (part, (name, size)) in parts.into_iter().zip([("q", keys), ("k", keys), ("v", all_values), ("z", all_values)])
    {
        flat.push(merged(b, part, size, &at(&format!("in_proj_qkvz.{name}")))?);
    }
    let gate = flat.pop().unwrap_or(projected);
    let qkv = b.emit(Concat { parts: flat, axis: 2 }, &at("in_proj_qkv"))?;

    let both = Size::derived(2 * sizes.value_heads.value, "2 * linear_num_value_heads");
    let projected = b.projection(x, &at("in_proj_ba"), [both, s.hidden], false)?;
    let of_head = Size::derived(2 * each, "heads of values of a head of keys");
    let projected = by_heads(b, projected, [sizes.key_heads, of_head], &at("in_proj_ba.heads"))?;
    let parts = b.emit_all(Split { x: projected, axis: 3, sizes: vec![each; 2] }, &at("in_proj_ba.parts"))?;
    let &[beta, steps] = &parts[..] else { unreachable!("a split has as many results as sizes") };
    let heads = sizes.value_heads.value;
    let (beta, steps) = (merged(b, beta, heads, &at("in_proj_ba.b"))?, merged(b, steps, heads, &at("in_proj_ba.a"))?);
    Ok(Projected { qkv, gate, beta, steps })
}
