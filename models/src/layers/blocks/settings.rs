//! What the models of the family have in common, and in what they differ.

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::attention::Heads;
use crate::layers::builder::Builder;
use crate::layers::decoder::Positions;
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
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "vocab_size",
];

/// The defaults of a configuration.
pub(crate) struct Defaults {
    pub(crate) vocab_size: usize,
    pub(crate) max_position_embeddings: usize,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    /// As many as of queries where absent.
    pub(crate) num_key_value_heads: Option<usize>,
    /// What the heads of queries share of `hidden_size` where absent.
    pub(crate) head_dim: Option<usize>,
    /// The key of the activation function, and its name.
    pub(crate) activation: (&'static str, &'static str),
    /// The key of what norms add to the mean square or the variance, and its value.
    pub(crate) eps: (&'static str, f64),
}

impl Defaults {
    /// The values of Llama, from which related models name the differences.
    pub(crate) const LLAMA: Self = Self {
        vocab_size: 32000,
        max_position_embeddings: 2048,
        hidden_size: 4096,
        intermediate_size: 11008,
        num_hidden_layers: 32,
        num_attention_heads: 32,
        num_key_value_heads: None,
        head_dim: None,
        activation: ("hidden_act", "silu"),
        eps: ("rms_norm_eps", 1e-6),
    };
}

/// The modules that project to queries, keys and values.
#[derive(Clone, Copy)]
pub(crate) enum Projections {
    /// `q_proj`, `k_proj` and `v_proj`.
    Apart,
    /// One of this name, whose result is queries, keys and values side by side.
    Packed(&'static str),
}

/// The modules of the feed-forward.
#[derive(Clone, Copy)]
pub(crate) enum FeedForward {
    /// `down(activation(gate(x)) * up(x))`.
    Gated { gate: &'static str, up: &'static str, down: &'static str },
    /// `down(activation(a) * b)`, where `both` gives `a` and `b` side by side, or `b` and `a` where the gate is `last`.
    Packed { both: &'static str, last: bool, down: &'static str },
    /// `down(activation(up(x)))`.
    Plain { up: &'static str, down: &'static str },
}

/// The norms of queries and keys before they are rotated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadNorms {
    None,
    /// Of each head, with one weight for all heads.
    Each,
    /// Of each head, with a weight for each head and without a bias.
    Apart(HeadWeights),
    /// Of all heads as one.
    Whole,
}

/// How the weights of norms of heads are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadWeights {
    /// In one tensor, [heads, size].
    Together,
    /// Each in a module of a list `norms`.
    Listed,
}

/// The norms around attention or feed-forward, by the names of their modules in a layer.
#[derive(Clone, Copy)]
pub(crate) struct Around {
    pub(crate) before: Option<&'static str>,
    /// Of the result, before it is added to the input.
    pub(crate) after: Option<&'static str>,
    /// Of the sum of result and input.
    pub(crate) sum: Option<&'static str>,
}

impl Around {
    const NONE: Self = Self { before: None, after: None, sum: None };

    pub(crate) const fn before(name: &'static str) -> Self {
        Self { before: Some(name), ..Self::NONE }
    }

    pub(crate) const fn after(name: &'static str) -> Self {
        Self { after: Some(name), ..Self::NONE }
    }

    pub(crate) const fn before_and_after(before: &'static str, after: &'static str) -> Self {
        Self { before: Some(before), after: Some(after), ..Self::NONE }
    }

    pub(crate) const fn sum(name: &'static str) -> Self {
        Self { sum: Some(name), ..Self::NONE }
    }
}

/// The names of modules.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    pub(crate) embeddings: &'static str,
    /// The list of layers.
    pub(crate) layers: &'static str,
    pub(crate) attention: &'static str,
    /// In the attention, the projection of what it gives.
    pub(crate) output: &'static str,
    /// In the attention, the norms of queries and of keys.
    pub(crate) head_norms: [&'static str; 2],
    pub(crate) feed_forward: &'static str,
    /// The norm of what the last layer gives.
    pub(crate) final_norm: Option<&'static str>,
}

/// A number that a result is multiplied with, and the key that gives it.
pub(crate) type Factor = Option<(f64, &'static str)>;

/// What the embeddings of tokens are multiplied with.
#[derive(Clone, Copy)]
pub(crate) enum EmbeddingScale {
    None,
    /// The square root of the hidden size, which the transformers library rounds to the element type of the checkpoint.
    Root,
    Number(f64, &'static str),
}

/// A model of the family.
pub(crate) struct Settings {
    pub(crate) names: Names,
    pub(crate) vocabulary: Size,
    pub(crate) positions: Size,
    pub(crate) position_source: Positions,
    pub(crate) hidden: Size,
    pub(crate) intermediate: Size,
    pub(crate) layers: Size,
    pub(crate) heads: Heads,
    pub(crate) activation: Activation,
    pub(crate) norm: Norm,
    /// Added to the mean square or the variance in norms.
    pub(crate) eps: f64,
    pub(crate) attention_norms: Around,
    pub(crate) feed_forward_norms: Around,
    /// Whether the first layer has no norm before its attention.
    pub(crate) first_is_normal: bool,
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
    /// The factor of the products of queries and keys.
    pub(crate) scale: f64,
    /// The bound of scores.
    pub(crate) softcap: Option<f64>,
    pub(crate) windows: Windows,
    /// The key that says that a token of a decoder sees those after it too, where it does.
    pub(crate) both_sides: Option<&'static str>,
    pub(crate) rope: rope::Defaults,
    /// The rotary embedding of layers with windows, where they have one of their own.
    pub(crate) local_rope: Option<rope::Defaults>,
    /// Whether the pairs that turn are neighbours, not halves of a head.
    pub(crate) interleaved: bool,
    /// In the attention, the scores of sinks, where it has some.
    pub(crate) sinks: Option<&'static str>,
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
                layers: "layers",
                attention: "self_attn",
                output: "o_proj",
                head_norms: ["q_norm", "k_norm"],
                feed_forward: "mlp",
                final_norm: Some("norm"),
            },
            vocabulary: config.size("vocab_size", defaults.vocab_size)?,
            positions: config.size("max_position_embeddings", defaults.max_position_embeddings)?,
            position_source: Positions::Given,
            hidden,
            intermediate: config.size("intermediate_size", defaults.intermediate_size)?,
            layers: config.size("num_hidden_layers", defaults.num_hidden_layers)?,
            heads: Heads { queries, keys, size }.check(b)?,
            activation: Activation::read(config, key, activation)?,
            norm: Norm::Rms,
            eps: config.positive(defaults.eps.0, defaults.eps.1)?,
            attention_norms: Around::before("input_layernorm"),
            feed_forward_norms: Around::before("post_attention_layernorm"),
            first_is_normal: false,
            parallel: false,
            projections: Projections::Apart,
            feed_forward: FeedForward::Gated { gate: "gate_proj", up: "up_proj", down: "down_proj" },
            experts: None,
            latent: None,
            input_bias: false,
            output_bias: false,
            feed_forward_bias: false,
            down_bias: false,
            head_norms: HeadNorms::None,
            norms_rotated: false,
            clip: None,
            scale: 1.0 / (size.value as f64).sqrt(),
            softcap: None,
            windows: Windows::default(),
            both_sides: None,
            rope: rope::Defaults::default(),
            local_rope: None,
            interleaved: false,
            sinks: None,
            unrotated: Vec::new(),
            embedding_scale: EmbeddingScale::None,
            residual_factor: None,
            logit_factor: None,
            logit_cap: None,
            logit_bias: false,
            tied: false,
        })
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
