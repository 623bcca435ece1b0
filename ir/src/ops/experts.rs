//! Mixtures of experts.

use super::attribute::Real;
use super::fused::Activation;
use super::infer::{self, Types, ensure};
use super::payload::{TypeRule, payload};
use crate::{DType, Shape, TensorType, ValueId};

payload! {
    /// Feed-forward networks of which each token takes some (Shazeer et al. 2017, arXiv:1701.06538):
    /// `sum over j of scores[j] * expert(indices[j], x)`, where the expert `e` is
    /// `down[e] * (act(gate[e] * x + gate_bias[e]) * (up[e] * x + up_bias[e] + shift)) + down_bias[e]`, without `up` only
    /// `down[e] * act(gate[e] * x + gate_bias[e]) + down_bias[e]`. What is routed where, and with which scores, other
    /// operators compute. A gate is limited to `limit` at most, and what it is multiplied with to `-limit` to `limit`
    /// before `shift` is added. With `alpha` the activation `silu` is `x * sigmoid(alpha * x)`. Mixtral and Qwen3-MoE have
    /// `silu` alone; gpt-oss has `alpha`, `limit`, `shift` and biases.
    Experts = "experts" {
        operands {
            /// Floats, [.., in].
            x: ValueId,
            /// The experts of each token: `i32` or `i64`, [.., k], with 0 <= index < experts at run time.
            indices: ValueId,
            /// The factor of each of them: [.., k].
            scores: ValueId,
            /// [experts, inner, in].
            gate: ValueId,
            /// [experts, out, inner].
            down: ValueId,
            /// [experts, inner, in].
            up: Option<ValueId>,
            /// [experts, inner].
            gate_bias: Option<ValueId>,
            /// [experts, inner]; only with `up`.
            up_bias: Option<ValueId>,
            /// [experts, out].
            down_bias: Option<ValueId>,
        }
        attributes {
            /// The function of the gate.
            activation: Activation,
            /// The factor in the sigmoid of `silu`; 1 where absent.
            alpha: Option<Real>,
            /// The largest gate, and the largest size of what it is multiplied with: more than 0.
            limit: Option<Real>,
            /// What is added to what a gate is multiplied with; only with `up`.
            shift: Option<Real>,
        }
    }
}

impl TypeRule for Experts {
    fn infer(&self, types: &Types<'_>) -> Result<Vec<TensorType>, String> {
        let (x, indices, scores) = (types.of(self.x), types.of(self.indices), types.of(self.scores));
        infer::float("x", x)?;
        let inner = infer::last("x", x)?;
        let tokens = &x.shape[..x.shape.rank() - 1];
        ensure(matches!(indices.dtype, DType::I32 | DType::I64), || {
            format!("`indices` is {indices}, expected i32 or i64")
        })?;
        let taken = infer::last("indices", indices)?;
        let routed: Vec<_> = tokens.iter().cloned().chain([taken]).collect();
        infer::same("indices", indices, indices.dtype, &routed)?;
        infer::same("scores", scores, x.dtype, &routed)?;
        let (gate, down) = (types.of(self.gate), types.of(self.down));
        infer::rank("gate", gate, 3)?;
        infer::rank("down", down, 3)?;
        let [experts, width] = [gate.shape[0].clone(), gate.shape[1].clone()];
        let out = down.shape[1].clone();
        let same = |name, value: Option<ValueId>, shape: &[crate::Dim]| {
            value.map_or(Ok(()), |value| infer::same(name, types.of(value), x.dtype, shape))
        };
        let first = [experts.clone(), width.clone(), inner];
        same("gate", Some(self.gate), &first)?;
        same("up", self.up, &first)?;
        same("down", Some(self.down), &[experts.clone(), out.clone(), width.clone()])?;
        same("gate_bias", self.gate_bias, &[experts.clone(), width.clone()])?;
        same("up_bias", self.up_bias, &[experts.clone(), width])?;
        same("down_bias", self.down_bias, &[experts, out.clone()])?;
        let gated = self.up.is_some() || self.up_bias.is_none() && self.shift.is_none();
        ensure(gated, || "`up_bias` and `shift` are for experts with `up`".to_owned())?;
        ensure(self.alpha.is_none() || self.activation == Activation::Silu, || "`alpha` is for silu".to_owned())?;
        let finite = |value: Option<Real>| value.is_none_or(|value| value.0.is_finite());
        let numbers = finite(self.alpha) && finite(self.shift) && finite(self.limit);
        ensure(numbers && self.limit.is_none_or(|limit| limit.0 > 0.0), || {
            "`alpha` or `shift` is not a number, or `limit` is not more than 0".to_owned()
        })?;
        infer::one(x.dtype, Shape::new(tokens.iter().cloned().chain([out])))
    }
}
