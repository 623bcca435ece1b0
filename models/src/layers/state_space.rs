//! The mixer of Mamba-2 (Dao and Gu 2024, arXiv:2405.21060), which hybrid models have too: a state space for each head, behind a
//! short convolution, with a gate.

use planish_ir::ops::{BinaryKind, LinearAttention, Real, RmsNorm, Split, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};
use serde_json::Value;

use crate::ModelError;
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::{Activation, softplus};
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::decoder::{Convolution, Decoder};
use crate::names::StateOf;

/// What the mixers of models have in common, and in what they differ.
pub(crate) struct StateSpace {
    pub(crate) hidden: Size,
    pub(crate) heads: Size,
    /// Features of a head.
    pub(crate) size: Size,
    /// Groups of heads with the same inputs and outputs of states.
    pub(crate) groups: Size,
    /// The numbers that a state has for each feature.
    pub(crate) state: Size,
    pub(crate) taps: Size,
    /// Whether the first projection has a bias.
    pub(crate) bias: bool,
    /// Whether the last one has.
    pub(crate) output_bias: bool,
    /// Whether the convolution has.
    pub(crate) convolution_bias: bool,
    /// The function after the convolution.
    pub(crate) activation: Activation,
    /// The bounds of time steps.
    pub(crate) limit: [f64; 2],
    pub(crate) norm: GatedNorm,
    /// What the gate, the inputs, the inputs and the outputs of states, and the time steps are multiplied with, and the key that says so.
    pub(crate) factors: Option<([f64; 5], &'static str)>,
}

/// The norm of what the state spaces give, and its gate.
#[derive(Clone, Copy)]
pub(crate) struct GatedNorm {
    /// How many parts are normalized, each for itself; absent where nothing is.
    pub(crate) parts: Option<Size>,
    /// Whether it is multiplied with the gate after the norm.
    pub(crate) gate_last: bool,
    pub(crate) eps: f64,
}

impl StateSpace {
    /// The features of all heads.
    pub(crate) fn inner(&self) -> Size {
        Size::derived(self.heads.value * self.size.value, "features of all heads of the state space")
    }

    /// Checks what no tensor's shape shows.
    pub(crate) fn check(self, config: &Config<'_>) -> Result<Self, ModelError> {
        if !self.heads.value.is_multiple_of(self.groups.value) {
            return Err(config.error(format!("{} is not divisible by {}", self.heads, self.groups)));
        }
        match self.norm.parts.filter(|parts| !self.inner().value.is_multiple_of(parts.value)) {
            Some(parts) => Err(config.error(format!("{} is not divisible by {parts}", self.inner()))),
            None => Ok(self),
        }
    }

    /// Adds the mixer to a module: [batch_size, sequence_length, hidden] to the same.
    pub(crate) fn apply(
        &self,
        b: &mut Builder<'_>,
        decoder: &mut Decoder,
        x: ValueId,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let (inner, of_states) = (self.inner(), self.groups.value * self.state.value);
        let channels = Size::derived(inner.value + 2 * of_states, "features of the convolution");
        let all = inner.value + channels.value + self.heads.value;
        let all = Size::derived(all, "features of the gate, the convolution and the time steps");
        let projected = b.projection(x, &at("in_proj"), [all, self.hidden], self.bias)?;
        let projected = self.multiplied(b, projected, [inner.value, of_states], &at("factors"))?;
        let [gate, x, steps] = split(b, projected, [inner.value, channels.value, self.heads.value], &at("parts"))?;

        let x = convolved(b, decoder, x, self.convolution(channels), self.activation, &at("conv1d"))?;
        let [x, into, out] = split(b, x, [inner.value, of_states, of_states], &at("inputs"))?;
        let bias = b.weight(&[&at("dt_bias")], &[self.heads])?;
        let steps = b.add(steps, bias, &at("dt.add"))?;
        let steps = softplus(b, steps, &at("dt"))?;
        let steps = self.limited(b, steps, &at("dt"))?;
        // Time does not pass while there is padding.
        let steps = decoder.without_padding(b, steps, &at("dt"))?;
        let rates = rates(b, &[self.heads], &at("A_log"))?;
        let decay = b.binary(BinaryKind::Mul, [steps, rates], &at("decay"))?;

        let heads = |b: &mut Builder<'_>, x, size: Size, name: &str| {
            let dims = [self.heads, size].map(|size| Dim::constant(size.signed()));
            b.reshape(x, [b.texts(), Dim::symbol(SEQUENCE)].into_iter().chain(dims), &at(name))
        };
        let merged = |b: &mut Builder<'_>, x, name: &str| {
            b.reshape(x, [b.texts(), Dim::symbol(SEQUENCE), inner.signed().into()], &at(name))
        };
        let by_head = heads(b, x, self.size, "heads")?;
        let steps = heads(b, steps, Size::derived(1, "one of each head"), "dt.heads")?;
        let values = b.binary(BinaryKind::Mul, [by_head, steps], &at("values.heads"))?;
        let values = merged(b, values, "values")?;
        let op = LinearAttention {
            q: out,
            k: into,
            v: values,
            decay: Some(decay),
            beta: None,
            state: None,
            heads: self.heads.value,
            key_heads: self.groups.value,
            scale: Real(1.0),
        };
        let y = decoder.attend_linearly(b, op, StateOf::Space, &at("scan"))?;
        let skip = b.weight(&[&at("D")], &[self.heads])?;
        let one = Dim::constant(1);
        let skip = b.reshape(skip, [self.heads.signed().into(), one], &at("D.heads"))?;
        let skipped = b.binary(BinaryKind::Mul, [by_head, skip], &at("skip.heads"))?;
        let skipped = merged(b, skipped, "skip")?;
        let y = b.add(y, skipped, &at("add"))?;
        let y = self.norm.apply(b, [y, gate], inner, &at("norm"))?;
        b.projection(y, &at("out_proj"), [self.hidden, inner], self.output_bias)
    }

    /// What the first projection gives, times the factors.
    fn multiplied(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        [inner, of_states]: [usize; 2],
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let Some((factors, key)) = self.factors.filter(|(factors, _)| *factors != [1.0; 5]) else { return Ok(x) };
        let sizes = [inner, inner, of_states, of_states, self.heads.value];
        let all: Vec<f64> = factors.iter().zip(sizes).flat_map(|(factor, size)| vec![*factor; size]).collect();
        let weight = Weight::numbers(DType::F32, vec![all.len()], &all);
        let weight = weight.unwrap_or_else(|| unreachable!("there are as many numbers as the shape says"));
        let weight = b.graph.add_weight(module, weight, Origin::Config(key.into()));
        b.binary(BinaryKind::Mul, [x, weight], &format!("{module}.mul"))
    }

    fn convolution(&self, channels: Size) -> Convolution {
        Convolution { channels, taps: self.taps, bias: self.convolution_bias, silu: false }
    }

    /// Time steps within the bounds.
    fn limited(&self, b: &mut Builder<'_>, mut steps: ValueId, module: &str) -> Result<ValueId, ModelError> {
        let [least, most] = self.limit;
        // None is below 0.
        if least > 0.0 {
            steps = b.with_number(BinaryKind::Max, steps, least, &format!("{module}.max"), LIMIT)?;
        }
        if most < f64::from(f32::MAX) {
            steps = b.with_number(BinaryKind::Min, steps, most, &format!("{module}.min"), LIMIT)?;
        }
        Ok(steps)
    }
}

/// The key of the bounds of time steps.
pub(crate) const LIMIT: &str = "time_step_limit";

/// The bounds of time steps: 0 and infinity where the configuration does not say. The transformers library writes infinity as an
/// object.
pub(crate) fn limit(config: &Config<'_>) -> Result<[f64; 2], ModelError> {
    let Some(value) = config.get(LIMIT) else { return Ok([0.0, f64::INFINITY]) };
    let number = |value: &Value| match value.get("__float__").and_then(Value::as_str) {
        Some("Infinity") => Some(f64::INFINITY),
        Some(_) => None,
        None => value.as_f64(),
    };
    let bounds = value.as_array().filter(|bounds| bounds.len() == 2);
    let bounds = bounds.and_then(|bounds| Some([number(&bounds[0])?, number(&bounds[1])?]));
    bounds
        .filter(|[least, most]| *least >= 0.0 && least <= most && *least <= f64::from(f32::MAX))
        .ok_or_else(|| config.unexpected(LIMIT, value, "a list of two numbers, the smaller one first, of at least 0"))
}

/// `-exp(A_log)` of a weight: how fast states decay.
pub(crate) fn rates(b: &mut Builder<'_>, shape: &[Size], name: &str) -> Result<ValueId, ModelError> {
    let log = b.weight(&[name], shape)?;
    let rates = b.emit(Unary { kind: UnaryKind::Exp, x: log }, &format!("{name}.exp"))?;
    b.emit(Unary { kind: UnaryKind::Neg, x: rates }, &format!("{name}.rates"))
}

/// A convolution and the function after it.
pub(crate) fn convolved(
    b: &mut Builder<'_>,
    decoder: &mut Decoder,
    x: ValueId,
    of: Convolution,
    activation: Activation,
    module: &str,
) -> Result<ValueId, ModelError> {
    let silu = activation == Activation::SILU;
    let x = decoder.convolve(b, x, Convolution { silu, ..of }, module)?;
    if silu { Ok(x) } else { activation.apply(b, x, &format!("{module}.act")) }
}

/// Parts of the features of [batch_size, sequence_length, features].
pub(crate) fn split<const N: usize>(
    b: &mut Builder<'_>,
    x: ValueId,
    sizes: [usize; N],
    module: &str,
) -> Result<[ValueId; N], ModelError> {
    let parts = b.emit_all(Split { x, axis: 2, sizes: sizes.to_vec() }, module)?;
    Ok(parts.try_into().unwrap_or_else(|_| unreachable!("a split has as many results as sizes")))
}

impl GatedNorm {
    /// `norm(x * silu(gate))`, or `norm(x) * silu(gate)`.
    fn apply(
        self,
        b: &mut Builder<'_>,
        [x, gate]: [ValueId; 2],
        size: Size,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let gate = Activation::SILU.apply(b, gate, &format!("{module}.gate"))?;
        let gated = |b: &mut Builder<'_>, x| b.binary(BinaryKind::Mul, [x, gate], &format!("{module}.gated"));
        let Some(parts) = self.parts else { return gated(b, x) };
        if self.gate_last {
            let normal = self.normal(b, x, [parts, size], module)?;
            return gated(b, normal);
        }
        let x = gated(b, x)?;
        self.normal(b, x, [parts, size], module)
    }

    /// The norm of each of several parts of the features.
    fn normal(
        self,
        b: &mut Builder<'_>,
        x: ValueId,
        [parts, size]: [Size; 2],
        module: &str,
    ) -> Result<ValueId, ModelError> {
        if parts.value == 1 {
            return b.rms_norm(x, module, size, self.eps);
        }
        let at = |name: &str| format!("{module}.{name}");
        let each = size.value / parts.value;
        let tokens = [b.texts(), Dim::symbol(SEQUENCE)];
        let apart = [parts.value, each].map(|size| Dim::constant(i64::try_from(size).unwrap_or(i64::MAX)));
        let x = b.reshape(x, tokens.clone().into_iter().chain(apart), &at("parts"))?;
        let weight = b.ones(&at("ones"), Size::derived(each, "features of a part"));
        let normal = b.emit(RmsNorm { x, weight, eps: Real(self.eps) }, &at("normal"))?;
        let normal = b.reshape(normal, tokens.into_iter().chain([size.signed().into()]), &at("merge"))?;
        let weight = b.weight(&[&at("weight")], &[size])?;
        b.binary(BinaryKind::Mul, [normal, weight], module)
    }
}

/// The configuration keys of models whose keys of mixers begin with `mamba_`.
pub(crate) const MAMBA_KEYS: &[&str] = &[
    "mamba_conv_bias",
    "mamba_d_conv",
    HEAD,
    "mamba_d_state",
    "mamba_expand",
    "mamba_n_groups",
    HEADS,
    "mamba_proj_bias",
    LIMIT,
];

const HEAD: &str = "mamba_d_head";
const HEADS: &str = "mamba_n_heads";

impl StateSpace {
    /// Reads a mixer whose keys begin with `mamba_`. `inner` is the number of features of all heads where it is not `mamba_expand`
    /// times `hidden`.
    pub(crate) fn read(
        config: &Config<'_>,
        hidden: Size,
        inner: Option<Size>,
        activation: Activation,
        eps: f64,
    ) -> Result<Self, ModelError> {
        let expand = config.size("mamba_expand", 2)?;
        let inner = inner.unwrap_or(Size::derived(expand.value * hidden.value, "mamba_expand * hidden_size"));
        let heads = config.size(HEADS, 128)?;
        let size = match config.get(HEAD).is_none_or(|value| value.as_str() == Some("auto")) {
            true => Size::derived(inner.value / heads.value, "features of a head of the state space"),
            false => config.size(HEAD, 1)?,
        };
        if heads.value * size.value != inner.value {
            return Err(config.error(format!("{inner}, but {heads} and {size}")));
        }
        let groups = config.size("mamba_n_groups", 1)?;
        let mixer = Self {
            hidden,
            heads,
            size,
            groups,
            state: config.size("mamba_d_state", 256)?,
            taps: config.size("mamba_d_conv", 4)?,
            bias: config.boolean("mamba_proj_bias", false)?,
            output_bias: config.boolean("mamba_proj_bias", false)?,
            convolution_bias: config.boolean("mamba_conv_bias", true)?,
            activation,
            limit: limit(config)?,
            norm: GatedNorm { parts: Some(groups), gate_last: false, eps },
            factors: None,
        };
        mixer.check(config)
    }
}
