//! What the models of the family have in common, and in what they differ.

use planish_ir::ValueId;

use super::alternating::Alternating;
use super::forms::{
    Around, EmbeddingScale, Factor, FeedForward, Growth, HeadNorms, LayerInputs, Names, OutputGate, Places, Projections,
};
use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::attention::Heads;
use crate::layers::builder::Builder;
use crate::layers::chunks::Chunks;
use crate::layers::decoder::{Classifier, Decoder, Positions};
use crate::layers::experts::Mixture;
use crate::layers::heads::HeadSizes;
use crate::layers::latent::Latent;
use crate::layers::norm::Norm;
use crate::layers::rope;
use crate::layers::windows::Windows;

/// The configuration keys that are read here, besides that of `eps` and those of decoder.rs and rope/parameters.rs.
pub(crate) const KEYS: &[&str] = &[
    "head_dim",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
];

/// The same of models whose texts have no longest length.
pub(crate) const KEYS_WITHOUT_LENGTH: &[&str] = KEYS.split_at(KEYS.len() - 1).0;

/// The defaults of a configuration.
pub(crate) struct Defaults {
    pub(crate) vocab_size: usize,
    /// Absent where the configuration does not bound the length of texts.
    pub(crate) max_position_embeddings: Option<usize>,
    pub(crate) hidden_size: usize,
    /// Four times `hidden_size` where neither the configuration nor this says it; 0 where something else says it.
    pub(crate) intermediate_size: Option<usize>,
    /// 0 where something else says how many there are.
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    /// As many as of queries where absent.
    pub(crate) num_key_value_heads: Option<usize>,
    /// What the heads of queries share of `hidden_size` where absent.
    pub(crate) head_dim: Option<usize>,
    /// The key of the activation function, and its name.
    pub(crate) activation: (&'static str, &'static str),
    /// The activation function, where no key names it.
    pub(crate) fixed_activation: Option<Activation>,
    /// The key of what norms add to the mean square or the variance, and its value. Without a key it is always that.
    pub(crate) eps: (&'static str, f64),
}

impl Defaults {
    /// The values of Llama, from which related models name the differences.
    pub(crate) const LLAMA: Self = Self {
        vocab_size: 32000,
        max_position_embeddings: Some(2048),
        hidden_size: 4096,
        intermediate_size: Some(11008),
        num_hidden_layers: 32,
        num_attention_heads: 32,
        num_key_value_heads: None,
        head_dim: None,
        activation: ("hidden_act", "silu"),
        fixed_activation: None,
        eps: ("rms_norm_eps", 1e-6),
    };
}

/// What takes the place of attention in a layer of a decoder: a layer with a state of a fixed size.
#[derive(Clone, Copy)]
pub(crate) struct Mixer {
    /// The name of its module in the layer.
    pub(crate) module: &'static str,
    /// Adds it to a module: [batch_size, sequence_length, hidden] to the same.
    pub(crate) apply: fn(&mut Builder<'_>, &Settings, &mut Decoder, ValueId, &str) -> Result<ValueId, ModelError>,
}

/// A model of the family.
pub(crate) struct Settings {
    pub(crate) names: Names,
    pub(crate) vocabulary: Size,
    /// Absent where the configuration does not bound the length of texts.
    pub(crate) positions: Option<Size>,
    pub(crate) places: Places,
    pub(crate) position_source: Positions,
    pub(crate) hidden: Size,
    pub(crate) intermediate: Size,
    pub(crate) layers: Size,
    pub(crate) heads: Heads,
    /// The heads of layers without windows, where they are others.
    pub(crate) global_heads: Option<Heads>,
    /// Whether keys are values too in layers without windows.
    pub(crate) keys_are_values: bool,
    /// Whether values are normalized, each head without a weight.
    pub(crate) normalizes_values: bool,
    /// The first of the layers that have no keys and values of their own, where there are such: they take those of the last
    /// layer before it of their kind, with a window or without.
    pub(crate) shares_from: Option<usize>,
    /// Whether the feed-forwards of these are twice as wide.
    pub(crate) widens_shared: bool,
    pub(crate) layer_inputs: Option<LayerInputs>,
    /// How layers update several vectors of a token, where it has some.
    pub(crate) alternating: Option<Alternating>,
    /// In a layer, the factor of what it gives.
    pub(crate) layer_factor: Option<&'static str>,
    pub(crate) activation: Activation,
    pub(crate) norm: Norm,
    /// Added to the mean square or the variance in norms.
    pub(crate) eps: f64,
    pub(crate) attention_norms: Around,
    pub(crate) feed_forward_norms: Around,
    /// Whether the first layer has no norm before its attention.
    pub(crate) first_is_normal: bool,
    /// Whether results are added to the norms of inputs, not to the inputs.
    pub(crate) residual_is_normal: bool,
    /// Whether attention and feed-forward have the same input. Without a norm of its own, the feed-forward takes that of
    /// attention.
    pub(crate) parallel: bool,
    pub(crate) projections: Projections,
    pub(crate) feed_forward: FeedForward,
    /// The experts that layers have in the place of the feed-forward, where they have some.
    pub(crate) experts: Option<Mixture>,
    /// The latents that keys and values are made of, where they are.
    pub(crate) latent: Option<Latent>,
    /// Whether the projections to queries, keys and values have biases.
    pub(crate) input_bias: bool,
    pub(crate) output_gate: OutputGate,
    /// Whether the projection of what attention gives has.
    pub(crate) output_bias: bool,
    /// Whether those of the feed-forward have.
    pub(crate) feed_forward_bias: bool,
    /// Whether the last one of the feed-forward has, although others have none.
    pub(crate) down_bias: bool,
    pub(crate) head_norms: HeadNorms,
    /// Whether these follow the rotation.
    pub(crate) norms_rotated: bool,
    /// The largest size of the elements of queries, keys and values, and its key.
    pub(crate) clip: Factor,
    /// Whether keys and values are repeated for all heads of queries before a cache holds them.
    pub(crate) repeats_keys: bool,
    /// Layers that have something else in the place of attention; the layers after these have attention.
    pub(crate) mixers: Vec<Option<Mixer>>,
    /// What is added to what attention gives: another mixer of the same input.
    pub(crate) beside: Option<Mixer>,
    /// The factors of what attention takes, and of what it gives.
    pub(crate) attention_factors: [Factor; 2],
    /// The factor of gates of the feed-forward before their function, and that of what it gives.
    pub(crate) gate_factor: Factor,
    pub(crate) feed_forward_factor: Factor,
    /// The factor of the products of queries and keys.
    pub(crate) scale: f64,
    /// The bound of scores.
    pub(crate) softcap: Option<f64>,
    pub(crate) windows: Windows,
    /// Chunks of texts, where a token of some layers sees those of its chunk only.
    pub(crate) chunks: Option<Chunks>,
    /// The key that says that a token of a decoder sees those after it too, where it does.
    pub(crate) both_sides: Option<&'static str>,
    pub(crate) rope: rope::Defaults,
    /// The rotary embedding of layers with windows, where they have one of their own.
    pub(crate) local_rope: Option<rope::Defaults>,
    /// Whether the pairs that turn are neighbours, not halves of a head.
    pub(crate) interleaved: bool,
    /// Whether pairs turn against the usual direction.
    pub(crate) turns_backwards: bool,
    /// In the attention, the scores of sinks, where it has some.
    pub(crate) sinks: Option<&'static str>,
    /// How queries grow with their positions, where they do.
    pub(crate) growth: Option<Growth>,
    /// Layers whose queries and keys are not rotated.
    pub(crate) unrotated: Vec<bool>,
    pub(crate) embedding_scale: EmbeddingScale,
    /// The factor of what attention and feed-forward add to their inputs.
    pub(crate) residual_factor: Factor,
    pub(crate) logit_factor: Factor,
    /// The bound of logits, and its key.
    pub(crate) logit_cap: Factor,
    /// Whether the projection to the vocabulary has a bias.
    pub(crate) logit_bias: bool,
    /// Whether it has the weight of the embeddings where the configuration does not say.
    pub(crate) tied: bool,
    pub(crate) token_classifier: Classifier,
}

impl Settings {
    /// Reads what all have in common; the rest is as Llama has it.
    pub(crate) fn read(b: &Builder<'_>, defaults: &Defaults) -> Result<Self, ModelError> {
        const KV_HEADS: &str = "num_key_value_heads";
        let config = b.config;
        let hidden = config.size("hidden_size", defaults.hidden_size)?;
        let queries = config.size("num_attention_heads", defaults.num_attention_heads)?;
        let keys = config.optional_size(KV_HEADS, defaults.num_key_value_heads)?;
        let keys = keys.map_or(queries, |keys| Size::derived(keys, KV_HEADS));
        let size = match config.optional_size("head_dim", defaults.head_dim)? {
            Some(size) => Size::derived(size, "head_dim"),
            None if hidden.value.is_multiple_of(queries.value) => {
                Size::derived(hidden.value / queries.value, "hidden_size / num_attention_heads")
            }
            None => return Err(config.error(format!("{hidden} is not divisible by {queries}"))),
        };
        let (key, activation) = defaults.activation;
        Ok(Self {
            names: Names {
                embeddings: "embed_tokens",
                embedding_norm: None,
                layers: "layers",
                attention: "self_attn",
                output: "o_proj",
                head_norms: ["q_norm", "k_norm"],
                feed_forward: "mlp",
                final_norm: Some("norm"),
            },
            vocabulary: config.size("vocab_size", defaults.vocab_size)?,
            positions: match defaults.max_position_embeddings {
                Some(default) => Some(config.size("max_position_embeddings", default)?),
                None => None,
            },
            places: Places::Rotary,
            position_source: Positions::Given,
            hidden,
            intermediate: match defaults.intermediate_size {
                Some(0) => Size::derived(1, "intermediate_size"),
                Some(default) => config.size("intermediate_size", default)?,
                None => config.size_or("intermediate_size", Size::derived(4 * hidden.value, "4 * hidden_size"))?,
            },
            layers: match defaults.num_hidden_layers {
                0 => config.size_or("num_hidden_layers", Size::derived(1, "num_hidden_layers"))?,
                usual => config.size("num_hidden_layers", usual)?,
            },
            heads: Heads { queries, keys, size }.check(b)?,
            global_heads: None,
            keys_are_values: false,
            normalizes_values: false,
            shares_from: None,
            widens_shared: false,
            layer_inputs: None,
            alternating: None,
            layer_factor: None,
            activation: match defaults.fixed_activation {
                Some(activation) => activation,
                None => Activation::read(config, key, activation)?,
            },
            norm: Norm::Rms,
            eps: match defaults.eps {
                ("", eps) => eps,
                (key, eps) => config.positive(key, eps)?,
            },
            attention_norms: Around::before("input_layernorm"),
            feed_forward_norms: Around::before("post_attention_layernorm"),
            first_is_normal: false,
            residual_is_normal: false,
            parallel: false,
            projections: Projections::Apart,
            feed_forward: FeedForward::Gated { gate: "gate_proj", up: "up_proj", down: "down_proj" },
            experts: None,
            latent: None,
            input_bias: false,
            output_gate: OutputGate::None,
            output_bias: false,
            feed_forward_bias: false,
            down_bias: false,
            head_norms: HeadNorms::None,
            norms_rotated: false,
            clip: None,
            repeats_keys: false,
            mixers: Vec::new(),
            beside: None,
            attention_factors: [None; 2],
            gate_factor: None,
            feed_forward_factor: None,
            scale: 1.0 / (size.value as f64).sqrt(),
            softcap: None,
            windows: Windows::default(),
            chunks: None,
            both_sides: None,
            rope: rope::Defaults::default(),
            local_rope: None,
            interleaved: false,
            turns_backwards: false,
            sinks: None,
            growth: None,
            unrotated: Vec::new(),
            embedding_scale: EmbeddingScale::None,
            residual_factor: None,
            logit_factor: None,
            logit_cap: None,
            logit_bias: false,
            tied: false,
            token_classifier: Classifier::Generic,
        })
    }

    /// The heads of a layer.
    pub(crate) fn heads_of(&self, layer: usize) -> Heads {
        self.global_heads.filter(|_| self.windows.of(layer).is_none()).unwrap_or(self.heads)
    }

    /// The layer whose keys and values a layer takes, where it has none of its own.
    pub(crate) fn source_of(&self, layer: usize) -> Option<usize> {
        let first = self.shares_from.filter(|first| layer >= *first)?;
        let windows = |layer| self.windows.of(layer).is_some();
        (0..first).rev().find(|source| windows(*source) == windows(layer))
    }

    /// The features inside the feed-forward of a layer.
    pub(crate) fn intermediate_of(&self, layer: usize) -> Size {
        let wide = self.widens_shared && self.source_of(layer).is_some();
        if wide { Size::derived(2 * self.intermediate.value, "2 * intermediate_size") } else { self.intermediate }
    }

    /// Whether queries and keys of any layer turn.
    pub(crate) fn turns(&self) -> bool {
        self.unrotated.len() < self.layers.value || self.unrotated.contains(&false)
    }

    /// The sizes that heads of tasks have.
    pub(crate) fn head_sizes(&self) -> HeadSizes {
        HeadSizes { vocabulary: self.vocabulary, hidden: self.hidden, embedded: self.hidden, eps: self.eps }
    }

    /// Reads whether all projections of attention have biases.
    pub(crate) fn read_attention_bias(&mut self, b: &Builder<'_>, default: bool) -> Result<(), ModelError> {
        let bias = b.config.boolean("attention_bias", default)?;
        (self.input_bias, self.output_bias) = (bias, bias);
        Ok(())
    }
}
