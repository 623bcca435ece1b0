//! Layers with a state of a fixed size: what a step leaves for the next one does not grow with the text.

use super::attribute::{Flag, Real};
use super::infer::{self, OVERFLOW, Types, ensure};
use super::payload::{TypeRule, payload};
use crate::{Dim, Shape, TensorType, ValueId};

payload! {
    /// A convolution of each channel over the tokens up to each, plus the bias: with `all` as the state and `x` after
    /// each other along the tokens, `y[t, c] = sum over j of weight[c, 0, j] * all[t + j, c] + bias[c]`. The second result
    /// is the next state: the last tokens of `all`. Short convolutions of LFM2, Mamba (Gu and Dao 2023, arXiv:2312.00752)
    /// and Gated DeltaNet; ONNX's CausalConvWithState.
    CausalConv = "causal_conv" {
        operands {
            /// Floats, [batch, tokens, channels].
            x: ValueId,
            /// [channels, 1, taps], with known sizes: at least 1 tap.
            weight: ValueId,
            /// `[channels]`.
            bias: Option<ValueId>,
            /// The last inputs before the first token, the latest one last: [batch, taps - 1, channels]; zeros where absent.
            state: Option<ValueId>,
        }
        attributes {
            /// Whether results `y` become `y * sigmoid(y)`.
            silu: Flag,
        }
    }
}

impl CausalConv {
    /// The elements of a window, where the weight has known sizes.
    fn taps(weight: &TensorType) -> Option<i64> {
        weight.shape.get(2)?.as_constant().filter(|taps| *taps > 0)
    }
}

impl TypeRule for CausalConv {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let (x, weight) = (types.of(self.x), types.of(self.weight));
        infer::float("x", x)?;
        infer::rank("x", x, 3)?;
        let channels = x.shape[2].clone();
        let taps = Self::taps(weight).ok_or_else(|| format!("`weight` is {weight}, expected [channels, 1, taps]"))?;
        infer::same("weight", weight, x.dtype, &[channels.clone(), Dim::constant(1), Dim::constant(taps)])?;
        if let Some(bias) = self.bias {
            infer::same("bias", types.of(bias), x.dtype, std::slice::from_ref(&channels))?;
        }
        let state = [x.shape[0].clone(), Dim::constant(taps - 1), channels];
        if let Some(given) = self.state {
            infer::same("state", types.of(given), x.dtype, &state)?;
        }
        Ok(vec![x.clone(), TensorType::new(x.dtype, Shape::new(state))])
    }
}

payload! {
    /// Attention whose keys and values are summed up in a matrix for each head (Katharopoulos et al. 2020,
    /// arXiv:2006.16236). For each token the state `s`, [size of a key, size of a value], becomes `s = exp(decay) * s`, then
    /// `s = s + outer(k, v)`, and the result is `y = scale * s^T q`. With `beta` it is `s = s + beta * outer(k, v - s^T k)`
    /// (DeltaNet; Yang et al. 2024, arXiv:2412.06464). The second result is the last state. The state spaces of Mamba-2
    /// (Dao and Gu 2024, arXiv:2405.21060) have a decay for each head. Those of Mamba have one for each element of a key, and
    /// heads whose values have one element. ONNX's LinearAttention.
    LinearAttention = "linear_attention" {
        operands {
            /// Floats, [batch, tokens, key_heads * size of a key]: heads side by side.
            q: ValueId,
            /// As `q`.
            k: ValueId,
            /// [batch, tokens, heads * size of a value].
            v: ValueId,
            /// The logarithm of what is kept of the state: [batch, tokens, heads], or [batch, tokens, heads * size of a
            /// key]; 0 where absent.
            decay: Option<ValueId>,
            /// How much a value replaces: [batch, tokens, heads].
            beta: Option<ValueId>,
            /// The state before the first token: [batch, heads, size of a key, size of a value]; zeros where absent.
            state: Option<ValueId>,
        }
        attributes {
            /// The heads of values, and of the state: at least 1.
            heads: usize,
            /// The heads of queries and of keys: a divisor of `heads`. Each serves as many heads of values, which are next to
            /// each other.
            key_heads: usize,
            /// The factor of the results.
            scale: Real,
        }
    }
}

impl LinearAttention {
    /// Whether each element of a key has a decay of its own, of this shape.
    #[must_use]
    pub fn decays_by_element(&self, decay: &Shape) -> bool {
        decay.get(2).and_then(Dim::as_constant).and_then(|width| usize::try_from(width).ok()) != Some(self.heads)
    }
}

impl TypeRule for LinearAttention {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let (q, k, v) = (types.of(self.q), types.of(self.k), types.of(self.v));
        infer::float("q", q)?;
        infer::rank("q", q, 3)?;
        infer::rank("v", v, 3)?;
        infer::same("k", k, q.dtype, &q.shape)?;
        ensure(self.key_heads > 0 && self.heads > 0 && self.heads.is_multiple_of(self.key_heads), || {
            format!("{} heads of keys do not divide {} heads", self.key_heads, self.heads)
        })?;
        let count = |n: usize| i64::try_from(n).map(Dim::constant).map_err(|_| OVERFLOW.to_owned());
        let (heads, key_heads) = (count(self.heads)?, count(self.key_heads)?);
        let size = |name: &str, ty: &TensorType, heads: &Dim| {
            let size = ty.shape[2].exact_div(heads).filter(|size| size.as_constant().is_some());
            size.ok_or_else(|| format!("`{name}` is {ty}, expected {heads} heads of a known size"))
        };
        let (key, value) = (size("q", q, &key_heads)?, size("v", v, &heads)?);
        let [rows, tokens] = [q.shape[0].clone(), q.shape[1].clone()];
        infer::same("v", v, q.dtype, &[rows.clone(), tokens.clone(), v.shape[2].clone()])?;
        let of_tokens = |last: Dim| [rows.clone(), tokens.clone(), last];
        if let Some(decay) = self.decay.map(|decay| types.of(decay)) {
            let whole = heads.checked_mul(&key).ok_or(OVERFLOW)?;
            let each = decay.dtype == q.dtype && *decay.shape == of_tokens(whole);
            if !each {
                infer::same("decay", decay, q.dtype, &of_tokens(heads.clone()))?;
            }
        }
        if let Some(beta) = self.beta {
            infer::same("beta", types.of(beta), q.dtype, &of_tokens(heads.clone()))?;
        }
        let state = [rows.clone(), heads, key, value];
        if let Some(given) = self.state {
            infer::same("state", types.of(given), q.dtype, &state)?;
        }
        let finite = self.scale.0.is_finite();
        ensure(finite, || "`scale` is not a number".to_owned())?;
        Ok(vec![v.clone(), TensorType::new(q.dtype, Shape::new(state))])
    }
}
