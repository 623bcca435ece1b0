//! The mixer of Mamba (Gu and Dao 2023, arXiv:2312.00752), which hybrid models have too: a state space for each channel, behind a
//! short convolution, with a gate.

use planish_ir::ops::{BinaryKind, LinearAttention, Real};
use planish_ir::{Dim, ValueId};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::activation::{Activation, softplus};
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::decoder::{Convolution, Decoder};
use crate::layers::norm::Norm;
use crate::layers::state_space::{convolved, rates, split};
use crate::names::StateOf;

/// What the mixers of models have in common, and in what they differ.
pub(crate) struct Selective {
    pub(crate) hidden: Size,
    /// Channels of the state space.
    pub(crate) inner: Size,
    /// The numbers of the state of a channel.
    pub(crate) state: Size,
    /// The features that time steps are made of.
    pub(crate) rank: Size,
    pub(crate) taps: Size,
    /// Whether the projections have biases.
    pub(crate) bias: bool,
    /// Whether the convolution has.
    pub(crate) convolution_bias: bool,
    /// The function after the convolution.
    pub(crate) activation: Activation,
    /// The function of the gate.
    pub(crate) gate: Activation,
    /// The norms of time steps and of the inputs and the outputs of states, where there are some: their kind, and what they add to
    /// the mean square.
    pub(crate) norms: Option<(Norm, f64)>,
}

impl Selective {
    /// Adds the mixer to a module: [batch_size, sequence_length, hidden] to the same.
    pub(crate) fn apply(
        &self,
        b: &mut Builder<'_>,
        decoder: &mut Decoder,
        x: ValueId,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let (inner, state) = (self.inner, self.state);
        let both = Size::derived(2 * inner.value, "features of the state space and the gate");
        let projected = b.projection(x, &at("in_proj"), [both, self.hidden], self.bias)?;
        let [x, gate] = split(b, projected, [inner.value; 2], &at("parts"))?;
        let of = Convolution { channels: inner, taps: self.taps, bias: self.convolution_bias, silu: false };
        let x = convolved(b, decoder, x, of, self.activation, &at("conv1d"))?;

        let all = Size::derived(self.rank.value + 2 * state.value, "features of time steps and states");
        let projected = b.projection(x, &at("x_proj"), [all, inner], false)?;
        let sizes = [self.rank, state, state];
        let mut parts = split(b, projected, sizes.map(|size| size.value), &at("inputs"))?;
        if let Some((norm, eps)) = self.norms {
            let names = ["dt_layernorm", "b_layernorm", "c_layernorm"];
            for ((part, name), size) in parts.iter_mut().zip(names).zip(sizes) {
                *part = norm.apply(b, *part, &at(name), size, eps)?;
            }
        }
        let [steps, into, out] = parts;
        let steps = b.linear(steps, &at("dt_proj"), inner, self.rank)?;
        let steps = softplus(b, steps, &at("dt"))?;
        // Time does not pass while there is padding.
        let steps = decoder.without_padding(b, steps, &at("dt"))?;
        let rates = rates(b, &[inner, state], &at("A_log"))?;
        let tokens = [b.texts(), Dim::symbol(SEQUENCE)];
        let column = [inner.signed().into(), Dim::constant(1)];
        let by_channel = b.reshape(steps, tokens.clone().into_iter().chain(column), &at("dt.channels"))?;
        let decay = b.binary(BinaryKind::Mul, [by_channel, rates], &at("decay.channels"))?;
        let each = Dim::from(inner.signed()).checked_mul(&state.signed().into()).unwrap_or_default();
        let decay = b.reshape(decay, tokens.into_iter().chain([each]), &at("decay"))?;
        let values = b.binary(BinaryKind::Mul, [x, steps], &at("values"))?;
        let op = LinearAttention {
            q: out,
            k: into,
            v: values,
            decay: Some(decay),
            beta: None,
            state: None,
            heads: inner.value,
            key_heads: 1,
            scale: Real(1.0),
        };
        let y = decoder.attend_linearly(b, op, StateOf::Space, &at("scan"))?;
        let skip = b.weight(&[&at("D")], &[inner])?;
        let skipped = b.binary(BinaryKind::Mul, [x, skip], &at("skip"))?;
        let y = b.add(y, skipped, &at("add"))?;
        let gate = self.gate.apply(b, gate, &at("gate"))?;
        let y = b.binary(BinaryKind::Mul, [y, gate], &at("mul"))?;
        b.projection(y, &at("out_proj"), [self.hidden, inner], self.bias)
    }
}
