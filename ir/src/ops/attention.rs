//! Attention, and the rotation of positions into its operands.

use super::attribute::{Flag, Real};
use super::infer::{self, OVERFLOW, Types, broadcast, ensure};
use super::payload::{TypeRule, payload};
use crate::{DType, Dim, Shape, TensorType, ValueId};

payload! {
    /// Multi-head scaled dot-product attention (Vaswani et al. 2017, arXiv:1706.03762) of
    /// projected queries, keys and values: head `h` takes features `h*size .. (h+1)*size`, and
    /// `softmax(scale * q * k^T) * v` of all heads are side by side in the result. With fewer
    /// heads of keys and values than of queries, consecutive queries' heads share one (Ainslie et
    /// al. 2023, arXiv:2305.13245). Of half types too, the softmax is computed in float32.
    ///
    /// The keys are those of the past followed by the new ones, and queries are at the positions
    /// of the last ones. A key that the mask or causality
    /// leaves out takes no part, unless that leaves out every key of a query: such a query attends
    /// to all keys alike.
    Attention = "attention" {
        operands {
            /// Floats, [batch, queries, heads * size].
            q: ValueId,
            /// [batch, new keys, kv heads * size]; or as caches hold them, [batch, kv heads, keys, size].
            k: ValueId,
            /// As `k`, with a size of its own.
            v: ValueId,
            /// Booleans, [batch, keys]: which keys take part; all of them when absent.
            mask: Option<ValueId>,
            /// Floats that broadcast to [batch, heads, queries, keys], added to scaled scores; of the type of `q`,
            /// or float32, in which scores are computed where that type is shorter.
            bias: Option<ValueId>,
            /// [batch, kv heads, past keys, size].
            past_key: Option<ValueId>,
            /// As `past_key`, with the size of values.
            past_value: Option<ValueId>,
        }
        attributes {
            /// The number of heads; it divides the features.
            heads: usize,
            /// The number of heads of keys and values, which divides `heads`; as many when absent.
            kv_heads: Option<usize>,
            /// What scores are multiplied with before the softmax.
            scale: Real,
            /// Whether a query leaves out the keys after its own position. There are then as many new
            /// keys as queries; or no fewer, where `k` has all keys as caches hold them: queries are at the
            /// positions of the last keys.
            causal: Flag,
            /// A query leaves out the keys whose positions are this far from its own or farther: of those before it where
            /// attention is causal, else on both sides. There are as many keys as for causal attention.
            window: Option<usize>,
            /// Scaled scores `s` become `softcap * tanh(s / softcap)`; positive.
            softcap: Option<Real>,
            /// Whether all keys and values are results too, as caches hold them.
            present: Flag,
        }
    }
}

impl Attention {
    /// Attention of as many heads of keys and values, without any of what is optional.
    #[must_use]
    pub fn new(q: ValueId, k: ValueId, v: ValueId, heads: usize, scale: Real) -> Self {
        Self {
            q,
            k,
            v,
            mask: None,
            bias: None,
            past_key: None,
            past_value: None,
            heads,
            kv_heads: None,
            scale,
            causal: Flag(false),
            window: None,
            softcap: None,
            present: Flag(false),
        }
    }

    /// The number of heads of keys and values.
    #[must_use]
    pub fn kv_heads(&self) -> usize {
        self.kv_heads.unwrap_or(self.heads)
    }

    /// Whether a query leaves out keys by their positions.
    #[must_use]
    pub fn goes_by_position(&self) -> bool {
        self.causal.0 || self.window.is_some()
    }

    /// Whether `k` is all keys, as a cache holds them: there are no fewer than queries, as far as that is known.
    fn keys_of_cache(&self, types: &Types<'_>, keys: &Dim) -> bool {
        let known = keys.as_constant().zip(types.of(self.q).shape[1].as_constant());
        types.of(self.k).shape.rank() == 4 && self.past_key.is_none() && known.is_none_or(|(keys, q)| keys >= q)
    }
}

impl TypeRule for Attention {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let q = types.of(self.q);
        infer::float("q", q)?;
        infer::rank("q", q, 3)?;
        let heads = count(self.heads)?;
        let kv_heads = count(self.kv_heads())?;
        ensure(self.heads.is_multiple_of(self.kv_heads()), || {
            format!("{kv_heads} heads of keys do not divide {heads}")
        })?;
        let size = divide(&q.shape[2], &heads)?;

        let batch = &q.shape[0];
        let new = |what, value: ValueId| in_heads(what, types.of(value), q.dtype, batch, &kv_heads);
        let past = |what, value: Option<ValueId>| {
            value.map(|v| in_heads(what, types.of(v), q.dtype, batch, &kv_heads)).transpose()
        };
        let ([keys, key_size], [values, value_size]) = (new("k", self.k)?, new("v", self.v)?);
        ensure(keys == values && key_size == size, || {
            format!("`q`, `k` and `v` are {q}, {} and {}", types.of(self.k), types.of(self.v))
        })?;
        let total = match (past("past_key", self.past_key)?, past("past_value", self.past_value)?) {
            (None, None) => keys.clone(),
            (Some([past, a]), Some([other, b])) if past == other && a == size && b == value_size => {
                past.checked_add(&keys).ok_or(OVERFLOW)?
            }
            _ => return Err("`past_key` and `past_value` do not fit `k` and `v` or each other".to_owned()),
        };
        if let Some(mask) = self.mask {
            infer::same("mask", types.of(mask), DType::Bool, &[batch.clone(), total.clone()])?;
        }
        if let Some(bias) = self.bias {
            let (bias, scores) = (types.of(bias), Shape::new([batch, &heads, &q.shape[1], &total].map(Dim::clone)));
            let fits = [q.dtype, DType::F32].contains(&bias.dtype) && broadcast(&bias.shape, &scores)? == scores;
            ensure(fits, || format!("`bias` is {bias}, expected what broadcasts to {}{scores}", q.dtype))?;
        }
        ensure(!self.goes_by_position() || keys == q.shape[1] || self.keys_of_cache(types, &keys), || {
            format!("there are {} queries and {keys} new keys; attention by positions has as many", q.shape[1])
        })?;
        ensure(self.softcap.is_none_or(|cap| cap.0 > 0.0), || "a softcap is positive".to_owned())?;
        ensure(self.window != Some(0), || "a window is at least 1".to_owned())?;
        let features = heads.checked_mul(&value_size).ok_or(OVERFLOW)?;
        let mut results = vec![TensorType::new(q.dtype, q.shape.with_dim(2, features))];
        if self.present.0 {
            for size in [size, value_size] {
                let dims = [batch.clone(), kv_heads.clone(), total.clone(), size];
                results.push(TensorType::new(q.dtype, Shape::new(dims)));
            }
        }
        Ok(results)
    }
}

pub(super) fn count(heads: usize) -> Result<Dim, String> {
    ensure(heads > 0, || "there are no heads".to_owned())?;
    i64::try_from(heads).map(Dim::constant).map_err(|_| OVERFLOW.to_owned())
}

pub(super) fn divide(features: &Dim, heads: &Dim) -> Result<Dim, String> {
    let size = features.as_constant().and_then(|_| features.exact_div(heads));
    size.ok_or_else(|| format!("{heads} heads do not divide {features} features"))
}

/// Length and size of the heads of keys or values, in either form.
fn in_heads(what: &str, ty: &TensorType, dtype: DType, batch: &Dim, heads: &Dim) -> Result<[Dim; 2], String> {
    let fits = ty.dtype == dtype && ty.shape.first() == Some(batch);
    match &ty.shape[..] {
        [_, length, features] if fits => Ok([length.clone(), divide(features, heads)?]),
        [_, own, length, size] if fits && own == heads => Ok([length.clone(), size.clone()]),
        _ => Err(format!(
            "`{what}` is {ty}, expected {dtype}[{batch}, keys, features] or {dtype}[{batch}, {heads}, keys, size]"
        )),
    }
}

payload! {
    /// Rotary position embedding (Su et al. 2021, arXiv:2104.09864) of heads that are side by
    /// side: in the first features of each head, pairs `(a, b)` become
    /// `(a * cos - b * sin, b * cos + a * sin)`; the features after stay.
    Rotary = "rotary" {
        operands {
            /// Floats, [batch, length, heads * size].
            x: ValueId,
            /// [batch, length, pairs], or [1, length, pairs].
            cos: ValueId,
            /// As `cos`.
            sin: ValueId,
        }
        attributes {
            /// The number of heads; it divides the features.
            heads: usize,
            /// Whether pairs are neighbours, `(2i, 2i + 1)`; `(i, i + pairs)` otherwise.
            interleaved: Flag,
        }
    }
}

impl TypeRule for Rotary {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let (x, cos, sin) = (types.of(self.x), types.of(self.cos), types.of(self.sin));
        infer::float("x", x)?;
        infer::rank("x", x, 3)?;
        rotates(x, cos, sin, self.heads)?;
        Ok(vec![x.clone()])
    }
}

/// Checks that cosines and sines are those of the positions of `x`, [batch, length, heads * size].
pub(super) fn rotates(x: &TensorType, cos: &TensorType, sin: &TensorType, heads: usize) -> Result<(), String> {
    let size = divide(&x.shape[2], &count(heads)?)?;
    infer::rank("cos", cos, 3)?;
    ensure(cos == sin, || format!("`cos` is {cos} and `sin` is {sin}, expected one type"))?;
    let fits = cos.dtype == x.dtype
        && (cos.shape[0] == x.shape[0] || cos.shape[0] == Dim::constant(1))
        && cos.shape[1] == x.shape[1]
        && cos.shape[2]
            .as_constant()
            .zip(size.as_constant())
            .is_some_and(|(pairs, size)| 0 < pairs && pairs <= size / 2);
    ensure(fits, || format!("`cos` is {cos}, which does not fit `x`, {x}, in {heads} heads"))
}
