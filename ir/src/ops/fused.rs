//! Several operators in one: what targets with kernels of their own run in place of chains of others. Nothing builds or
//! raises these but the passes that fuse. Each computes in float32 at least and rounds each result once.

use super::attention::{count, divide, rotates};
use super::attribute::{Flag, Real};
use super::infer::{self, OVERFLOW, Types, broadcast, ensure};
use super::kinds::kinds;
use super::nn::Linear;
use super::payload::{TypeRule, payload};
use crate::{DType, Shape, TensorType, ValueId};

kinds! {
    /// An elementwise function after a product.
    Activation {
        /// The number itself.
        None = "none",
        /// [`Gelu`](super::Gelu) by its definition.
        GeluErf = "gelu_erf",
        /// [`Gelu`](super::Gelu) by the hyperbolic tangent.
        GeluTanh = "gelu_tanh",
        /// `x * sigmoid(x)`.
        Silu = "silu",
        /// `max(x, 0)`.
        Relu = "relu",
    }
}

kinds! {
    /// Which normalization over the last axis.
    NormKind {
        /// [`LayerNorm`](super::LayerNorm).
        Layer = "layer",
        /// [`RmsNorm`](super::RmsNorm).
        Rms = "rms",
    }
}

payload! {
    /// `activation(x * weight^T + bias) + residual`.
    FusedLinear = "fused_linear" {
        operands {
            /// Floats, [.., in].
            x: ValueId,
            /// [out, in]; [in, out] where transposed.
            weight: ValueId,
            /// `[out]`.
            bias: Option<ValueId>,
            /// Of the type of the result.
            residual: Option<ValueId>,
        }
        attributes {
            /// Whether the weight is stored the other way round, and the product is `x * weight`.
            transposed: Flag,
            /// The function of the product and the bias.
            activation: Activation,
        }
    }
}

impl FusedLinear {
    /// A linear layer and nothing else.
    #[must_use]
    pub fn new(linear: &Linear) -> Self {
        let Linear { x, weight, bias, transposed } = *linear;
        Self { x, weight, bias, residual: None, transposed, activation: Activation::None }
    }

    /// The layer without activation and residual.
    #[must_use]
    pub fn linear(&self) -> Linear {
        Linear { x: self.x, weight: self.weight, bias: self.bias, transposed: self.transposed }
    }
}

impl TypeRule for FusedLinear {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let results = self.linear().infer(types)?;
        if let (Some(residual), Some(result)) = (self.residual, results.first()) {
            infer::same("residual", types.of(residual), result.dtype, &result.shape)?;
        }
        Ok(results)
    }
}

payload! {
    /// `activation(gate) * up`.
    Gated = "gated" {
        operands {
            /// Floats.
            gate: ValueId,
            /// Of the type of `gate`.
            up: ValueId,
        }
        attributes {
            /// The function of the gate.
            activation: Activation,
        }
    }
}

impl TypeRule for Gated {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let (gate, up) = (types.of(self.gate), types.of(self.up));
        infer::float("gate", gate)?;
        infer::same("up", up, gate.dtype, &gate.shape)?;
        Ok(vec![gate.clone()])
    }
}

payload! {
    /// The norm of a sum, and the sum, `x + bias + residual`, rounded to the type. The norm is that of the rounded sum.
    AddNorm = "add_norm" {
        operands {
            /// Floats, [.., features].
            x: ValueId,
            /// Of the type of `x`.
            residual: ValueId,
            /// What the normalized elements are multiplied with, `[features]`.
            weight: ValueId,
            /// A summand of each row, `[features]`.
            bias: Option<ValueId>,
            /// What is added to the normalized elements, `[features]`; of a layer normalization only.
            norm_bias: Option<ValueId>,
        }
        attributes {
            /// Which normalization.
            norm: NormKind,
            /// Added to the variance or the mean square.
            eps: Real,
        }
    }
}

impl TypeRule for AddNorm {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let x = types.of(self.x);
        infer::float("x", x)?;
        infer::same("residual", types.of(self.residual), x.dtype, &x.shape)?;
        normalized(x, self.norm, [("weight", Some(self.weight)), ("norm_bias", self.norm_bias)], types)?;
        if let Some(bias) = self.bias {
            infer::same("bias", types.of(bias), x.dtype, &[infer::last("x", x)?])?;
        }
        Ok(vec![x.clone(), x.clone()])
    }
}

/// Checks weight and bias of a norm of `x`.
fn normalized(
    x: &TensorType,
    norm: NormKind,
    [weight, bias]: [(&str, Option<ValueId>); 2],
    types: &Types<'_>,
) -> Result<(), String> {
    let features = [infer::last("x", x)?];
    ensure(norm == NormKind::Layer || bias.1.is_none(), || format!("an {norm} norm has no `{}`", bias.0))?;
    for (name, value) in [weight, bias] {
        if let Some(value) = value {
            infer::same(name, types.of(value), x.dtype, &features)?;
        }
    }
    Ok(())
}

/// The most tables whose rows are summed.
pub const MAX_TABLES: usize = 3;

payload! {
    /// The norm of a sum of embeddings, and the sum: that of `tables[k][ids[k]]`, in this order, where each addition
    /// rounds to the type. The norm is that of the rounded sum. Ids are in range at run time.
    EmbeddingNorm = "embedding_norm" {
        operands {
            /// 1 to 3 tables of floats, [rows, features].
            tables: Vec<ValueId>,
            /// i32 or i64, as many as tables; their shapes broadcast.
            ids: Vec<ValueId>,
            /// What the normalized elements are multiplied with, `[features]`.
            weight: ValueId,
            /// What is added to the normalized elements, `[features]`; of a layer normalization only.
            norm_bias: Option<ValueId>,
        }
        attributes {
            /// Which normalization.
            norm: NormKind,
            /// Added to the variance or the mean square.
            eps: Real,
        }
    }
}

impl TypeRule for EmbeddingNorm {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        ensure((1..=MAX_TABLES).contains(&self.tables.len()) && self.tables.len() == self.ids.len(), || {
            let (tables, ids) = (self.tables.len(), self.ids.len());
            format!("there are {tables} tables and {ids} ids, expected as many, and 1 to {MAX_TABLES}")
        })?;
        let first = types.of(self.tables[0]);
        infer::float("tables", first)?;
        let mut shape = Shape::new([]);
        for (table, ids) in self.tables.iter().zip(&self.ids) {
            let (table, ids) = (types.of(*table), types.of(*ids));
            infer::rank("tables", table, 2)?;
            ensure(table.dtype == first.dtype && table.shape[1] == first.shape[1], || {
                format!("a table is {table}, and the first is {first}")
            })?;
            ensure(matches!(ids.dtype, DType::I32 | DType::I64), || format!("`ids` is {ids}, expected i32 or i64"))?;
            shape = broadcast(&shape, &ids.shape)?;
        }
        let sum = TensorType::new(first.dtype, Shape::new(shape.iter().chain(&first.shape[1..]).cloned()));
        normalized(&sum, self.norm, [("weight", Some(self.weight)), ("norm_bias", self.norm_bias)], types)?;
        Ok(vec![sum.clone(), sum])
    }
}

payload! {
    /// Rotary position embedding of queries and keys, and the rotated keys and the values after those of the past, as
    /// caches hold them: `rotary(q)`, [batch, length, heads * size]; all keys, [batch, kv heads, past + length, size];
    /// all values, likewise with the size of values.
    RotaryAppend = "rotary_append" {
        operands {
            /// Floats, [batch, length, heads * size].
            q: ValueId,
            /// [batch, length, kv heads * size].
            k: ValueId,
            /// [batch, length, kv heads * value size].
            v: ValueId,
            /// [batch, length, pairs], or [1, length, pairs].
            cos: ValueId,
            /// As `cos`.
            sin: ValueId,
            /// [batch, kv heads, past, size].
            past_key: Option<ValueId>,
            /// [batch, kv heads, past, value size].
            past_value: Option<ValueId>,
        }
        attributes {
            /// The number of heads of queries; it divides their features.
            heads: usize,
            /// The number of heads of keys and values.
            kv_heads: usize,
            /// Whether pairs are neighbours, `(2i, 2i + 1)`; `(i, i + pairs)` otherwise.
            interleaved: Flag,
        }
    }
}

impl TypeRule for RotaryAppend {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let [q, k, v, cos, sin] = [self.q, self.k, self.v, self.cos, self.sin].map(|value| types.of(value));
        infer::float("q", q)?;
        let (heads, kv_heads) = (count(self.heads)?, count(self.kv_heads)?);
        for (name, ty) in [("q", q), ("k", k), ("v", v)] {
            infer::rank(name, ty, 3)?;
            ensure(ty.dtype == q.dtype && ty.shape[..2] == q.shape[..2], || {
                format!("`{name}` is {ty}, which does not fit `q`, {q}")
            })?;
        }
        let (size, value_size) = (divide(&k.shape[2], &kv_heads)?, divide(&v.shape[2], &kv_heads)?);
        ensure(divide(&q.shape[2], &heads)? == size, || {
            format!("`q` is {q} in {heads} heads and `k` is {k} in {kv_heads}: heads of one size are expected")
        })?;
        for (x, heads) in [(q, self.heads), (k, self.kv_heads)] {
            rotates(x, cos, sin, heads)?;
        }
        let past = match (self.past_key, self.past_value) {
            (None, None) => None,
            (Some(key), Some(value)) => {
                let (key, value) = (types.of(key), types.of(value));
                infer::rank("past_key", key, 4)?;
                let past = &key.shape[2];
                let dims = |size| [q.shape[0].clone(), kv_heads.clone(), past.clone(), size];
                infer::same("past_key", key, q.dtype, &dims(size.clone()))?;
                infer::same("past_value", value, q.dtype, &dims(value_size.clone()))?;
                Some(past.clone())
            }
            _ => return Err("one of `past_key` and `past_value` is missing".to_owned()),
        };
        let new = &q.shape[1];
        let total = past.map_or(Some(new.clone()), |past| past.checked_add(new)).ok_or(OVERFLOW)?;
        let all = |size| {
            let dims = [q.shape[0].clone(), kv_heads.clone(), total.clone(), size];
            TensorType::new(q.dtype, Shape::new(dims))
        };
        Ok(vec![q.clone(), all(size), all(value_size)])
    }
}
