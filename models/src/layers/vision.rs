//! The layers of transformers over patches of images and of the text models beside them: norms before attention and
//! feed-forward, with factors of what they give in some.

use planish_ir::ValueId;
use planish_ir::ops::{Attention, BinaryKind, Flag, Real, Split};

use crate::ModelError;
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::rope::Angles;

/// The keys that [`Layers::read`] reads, but those of biases.
pub(crate) const KEYS: &[&str] =
    &["hidden_act", "hidden_size", "intermediate_size", "layer_norm_eps", "num_attention_heads", "num_hidden_layers"];

/// The same, but the size of the feed-forward.
pub(crate) const KEYS_OF_RATIO: &[&str] =
    &["hidden_act", "hidden_size", "layer_norm_eps", "num_attention_heads", "num_hidden_layers"];

/// The names of the modules of a layer.
pub(crate) struct Names {
    /// The list of layers.
    pub(crate) layers: &'static str,
    pub(crate) attention_norm: &'static str,
    /// Queries, keys and values.
    pub(crate) qkv: [&'static str; 3],
    /// The projection of what attention gives.
    pub(crate) output: &'static str,
    pub(crate) output_norm: &'static str,
    /// The two layers of the feed-forward.
    pub(crate) up: &'static str,
    pub(crate) down: &'static str,
    /// The factors of what attention and feed-forward give, as whole names of tensors of [hidden].
    pub(crate) factors: Option<[&'static str; 2]>,
}

impl Names {
    /// Those of ViT.
    pub(crate) const VIT: Self = Self {
        layers: "encoder.layer",
        attention_norm: "layernorm_before",
        qkv: ["attention.attention.query", "attention.attention.key", "attention.attention.value"],
        output: "attention.output.dense",
        output_norm: "layernorm_after",
        up: "intermediate.dense",
        down: "output.dense",
        factors: None,
    };
}

/// What transformers 5 calls the modules of a layer of [`Names::VIT`].
pub(crate) const RENAMED: &[(&str, &str)] = &[
    ("encoder.layer.", "layers."),
    ("attention.attention.query", "attention.q_proj"),
    ("attention.attention.key", "attention.k_proj"),
    ("attention.attention.value", "attention.v_proj"),
    ("attention.output.dense", "attention.o_proj"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
];

/// How a feed-forward is gated.
#[derive(Clone, Copy)]
pub(crate) enum Gate {
    None,
    /// By a projection of its own.
    Apart(&'static str),
    /// By the first half of the features of the first layer.
    Packed,
}

/// All layers.
pub(crate) struct Layers {
    pub(crate) hidden: Size,
    pub(crate) intermediate: Size,
    pub(crate) heads: Size,
    pub(crate) count: Size,
    pub(crate) activation: Activation,
    /// Added to the variance in layer normalization.
    pub(crate) eps: f64,
    /// Whether queries, keys and values have biases.
    pub(crate) qkv_bias: [bool; 3],
    pub(crate) output_bias: bool,
    pub(crate) feed_forward_bias: bool,
    pub(crate) gate: Gate,
    pub(crate) names: &'static Names,
}

/// What attention takes besides queries, keys and values.
#[derive(Clone, Copy, Default)]
pub(crate) struct Context {
    /// bool[batch_size, tokens].
    pub(crate) mask: Option<ValueId>,
    pub(crate) causal: bool,
    /// What is added to scores.
    pub(crate) bias: Option<ValueId>,
    pub(crate) angles: Option<Angles>,
}

/// The sizes that a configuration without them has.
pub(crate) struct Defaults {
    pub(crate) hidden: usize,
    pub(crate) intermediate: usize,
    pub(crate) heads: usize,
    pub(crate) layers: usize,
    pub(crate) activation: &'static str,
    pub(crate) eps: f64,
}

impl Defaults {
    /// Those of ViT.
    pub(crate) const VIT: Self =
        Self { hidden: 768, intermediate: 3072, heads: 12, layers: 12, activation: "gelu", eps: 1e-12 };
}

impl Layers {
    /// Reads a configuration with `intermediate_size`.
    pub(crate) fn read(config: &Config<'_>, d: &Defaults, names: &'static Names) -> Result<Self, ModelError> {
        let intermediate = config.size("intermediate_size", d.intermediate)?;
        Self::of(config, d, names, intermediate)
    }

    /// Reads a configuration whose feed-forward has so many features.
    pub(crate) fn of(
        config: &Config<'_>,
        d: &Defaults,
        names: &'static Names,
        intermediate: Size,
    ) -> Result<Self, ModelError> {
        let s = Self {
            hidden: config.size("hidden_size", d.hidden)?,
            intermediate,
            heads: config.size("num_attention_heads", d.heads)?,
            count: config.size("num_hidden_layers", d.layers)?,
            activation: Activation::read(config, "hidden_act", d.activation)?,
            eps: config.positive("layer_norm_eps", d.eps)?,
            qkv_bias: [true; 3],
            output_bias: true,
            feed_forward_bias: true,
            gate: Gate::None,
            names,
        };
        if !s.hidden.value.is_multiple_of(s.heads.value) {
            return Err(config.error(format!("{} is not divisible by {}", s.hidden, s.heads)));
        }
        Ok(s)
    }

    /// Features of a head.
    pub(crate) fn head_size(&self) -> usize {
        self.hidden.value / self.heads.value
    }

    /// All layers: [batch_size, tokens, hidden] to the same.
    pub(crate) fn apply(&self, b: &mut Builder<'_>, x: ValueId, context: Context) -> Result<ValueId, ModelError> {
        (0..self.count.value).try_fold(x, |x, i| self.layer(b, i, x, context))
    }

    /// What the first layer takes, and what each of the first `count` layers gives.
    pub(crate) fn states(&self, b: &mut Builder<'_>, x: ValueId, count: usize) -> Result<Vec<ValueId>, ModelError> {
        let mut states = vec![x];
        for index in 0..count {
            let Some(last) = states.last() else { unreachable!("there is one to begin with") };
            states.push(self.layer(b, index, *last, Context::default())?);
        }
        for index in count..self.count.value {
            b.tensors.leave(&format!("{}.{index}", self.names.layers));
        }
        Ok(states)
    }

    /// One layer.
    pub(crate) fn layer(
        &self,
        b: &mut Builder<'_>,
        index: usize,
        x: ValueId,
        context: Context,
    ) -> Result<ValueId, ModelError> {
        let (s, names) = (self, self.names);
        let path = format!("{}.{index}", names.layers);
        let at = |name: &str| format!("{path}.{name}");
        let square = [s.hidden, s.hidden];
        let factor = |i: usize| names.factors.map(|factors| at(factors[i]));
        let normal = b.layer_norm(x, &at(names.attention_norm), s.hidden, s.eps)?;
        let mut qkv = [normal; 3];
        for ((value, name), bias) in qkv.iter_mut().zip(names.qkv).zip(s.qkv_bias) {
            *value = b.projection(normal, &at(name), square, bias)?;
        }
        let [mut q, mut k, v] = qkv;
        if let Some(angles) = context.angles {
            q = angles.rotate(b, q, s.heads, false, &at("rotary_q"))?;
            k = angles.rotate(b, k, s.heads, false, &at("rotary_k"))?;
        }
        let scale = Real(1.0 / (s.head_size() as f64).sqrt());
        let Context { mask, causal, bias, .. } = context;
        let attention = Attention { mask, bias, causal: Flag(causal), ..Attention::new(q, k, v, s.heads.value, scale) };
        let attended = b.emit(attention, &at("attention.attention"))?;
        let projected = b.projection(attended, &at(names.output), square, s.output_bias)?;
        let projected = s.scaled(b, projected, factor(0))?;
        let x = b.add(projected, x, &at("attention.add"))?;

        let normal = b.layer_norm(x, &at(names.output_norm), s.hidden, s.eps)?;
        let down = s.feed_forward(b, normal, &path)?;
        let down = s.scaled(b, down, factor(1))?;
        b.add(down, x, &at("add"))
    }

    /// A value by a weight of its features, where there is one.
    fn scaled(&self, b: &mut Builder<'_>, x: ValueId, factor: Option<String>) -> Result<ValueId, ModelError> {
        let Some(name) = factor else { return Ok(x) };
        let weight = b.weight(&[&name], &[self.hidden])?;
        b.binary(BinaryKind::Mul, [x, weight], &format!("{name}.mul"))
    }

    /// The feed-forward of the layer of a path.
    fn feed_forward(&self, b: &mut Builder<'_>, x: ValueId, path: &str) -> Result<ValueId, ModelError> {
        let (s, names, bias) = (self, self.names, self.feed_forward_bias);
        let at = |name: &str| format!("{path}.{name}");
        let active = match s.gate {
            Gate::None => {
                let up = b.projection(x, &at(names.up), [s.intermediate, s.hidden], bias)?;
                s.activation.apply(b, up, &at("activation"))?
            }
            Gate::Apart(gate) => {
                let gate = b.projection(x, &at(gate), [s.intermediate, s.hidden], bias)?;
                let up = b.projection(x, &at(names.up), [s.intermediate, s.hidden], bias)?;
                let active = s.activation.apply(b, gate, &at("activation"))?;
                b.binary(BinaryKind::Mul, [active, up], &at("gated"))?
            }
            Gate::Packed => {
                let both = Size::derived(2 * s.intermediate.value, "gate and features of the feed-forward");
                let packed = b.projection(x, &at(names.up), [both, s.hidden], bias)?;
                let halves = Split { x: packed, axis: 2, sizes: vec![s.intermediate.value; 2] };
                let [gate, up] = b.emit_all(halves, &at("halves"))?[..] else {
                    unreachable!("a split has as many results as sizes")
                };
                let active = s.activation.apply(b, gate, &at("activation"))?;
                b.binary(BinaryKind::Mul, [active, up], &at("gated"))?
            }
        };
        b.projection(active, &at(names.down), [s.hidden, s.intermediate], bias)
    }
}
