//! The parts of a layer that Llama and related models share: projections to queries, keys and values,
//! attention with rotary embedding, and a gated feed-forward.

use planish_ir::ops::{Binary, BinaryKind, Reshape, Split};
use planish_ir::{Dim, Shape, ValueId};

use crate::ModelError;
use crate::architecture::Interface;
use crate::checkpoint::config::Size;
use crate::layers::builder::{BATCH, Builder, SEQUENCE};
use crate::layers::decoder::{Decoder, Heads, Positions, Scores};
use crate::layers::encoder::Activation;
use crate::layers::rope::{self, Angles, Rope};
use crate::layers::windows::Windows;

/// The configuration keys that are read here, besides those of decoder.rs and rope/parameters.rs.
pub(crate) const KEYS: &[&str] = &[
    "head_dim",
    "hidden_size",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "rms_norm_eps",
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
    pub(crate) rms_norm_eps: f64,
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
        rms_norm_eps: 1e-6,
    };
}

/// How normalization treats its weight.
#[derive(Clone, Copy)]
pub(crate) enum NormWeight {
    /// The checkpoint stores the weight as it is applied.
    Plain,
    /// The checkpoint stores the weight minus 1.
    AroundOne,
}

/// The differences between the models of the family.
pub(crate) struct Settings {
    vocabulary: Size,
    positions: Size,
    pub(crate) position_source: Positions,
    pub(crate) hidden: Size,
    intermediate: Size,
    pub(crate) layers: Size,
    heads: Heads,
    pub(crate) activation: Activation,
    /// Added to the mean square in norms.
    eps: f64,
    pub(crate) norm_weight: NormWeight,
    /// Whether queries, keys and values come from one projection, and the two of the feed-forward too.
    pub(crate) packed: bool,
    /// Whether the projections to queries, keys and values have biases.
    pub(crate) input_bias: bool,
    /// Whether the projection of what attention gives has.
    pub(crate) output_bias: bool,
    /// Whether those of the feed-forward have.
    pub(crate) feed_forward_bias: bool,
    /// Whether each head of queries and keys is normalized before it is rotated.
    pub(crate) head_norms: bool,
    /// The factor of the products of queries and keys.
    pub(crate) scale: f64,
    /// The bound of scores.
    pub(crate) softcap: Option<f64>,
    pub(crate) windows: Windows,
    pub(crate) rope: rope::Defaults,
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
            vocabulary: config.size("vocab_size", defaults.vocab_size)?,
            positions: config.size("max_position_embeddings", defaults.max_position_embeddings)?,
            position_source: Positions::Given,
            hidden,
            intermediate: config.size("intermediate_size", defaults.intermediate_size)?,
            layers: config.size("num_hidden_layers", defaults.num_hidden_layers)?,
            heads: Heads { queries, keys, size }.check(b)?,
            activation: Activation::read(config, key, activation)?,
            eps: config.positive("rms_norm_eps", defaults.rms_norm_eps)?,
            norm_weight: NormWeight::Plain,
            packed: false,
            input_bias: false,
            output_bias: false,
            feed_forward_bias: false,
            head_norms: false,
            scale: 1.0 / (size.value as f64).sqrt(),
            softcap: None,
            windows: Windows::default(),
            rope: rope::Defaults::default(),
        })
    }
}

const EMBEDDINGS: &str = "embed_tokens";
const QUERY_FEATURES: &str = "num_attention_heads * head_dim";
const KEY_FEATURES: &str = "num_key_value_heads * head_dim";

/// A model that is being built: its parts add themselves to the graph in the order of the calls.
pub(crate) struct Blocks<'s> {
    s: &'s Settings,
    decoder: Decoder,
    angles: Angles,
    recompute_at: Option<usize>,
    frequencies_change_at: Option<usize>,
}

impl<'s> Blocks<'s> {
    /// Adds inputs and angles.
    pub(crate) fn new(b: &mut Builder<'_>, s: &'s Settings) -> Result<Self, ModelError> {
        let rope = Rope::read(b.config, s.heads.size, s.positions, s.rope)?;
        let decoder = Decoder::new(b, s.vocabulary, rope.longest, s.position_source, s.heads)?;
        let angles = rope.angles(b, decoder.position_ids)?;
        let recompute_at = rope.outgrown().filter(|_| s.rope.recomputes);
        Ok(Self { s, decoder, angles, recompute_at, frequencies_change_at: rope.frequencies_change_at() })
    }

    /// The embeddings of the tokens.
    pub(crate) fn embed(&self, b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
        b.embedding(self.decoder.input_ids, EMBEDDINGS, self.s.vocabulary, self.s.hidden)
    }

    /// Root mean square normalization.
    pub(crate) fn norm(&self, b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
        self.norm_of(b, x, module, self.s.hidden)
    }

    fn norm_of(&self, b: &mut Builder<'_>, x: ValueId, module: &str, size: Size) -> Result<ValueId, ModelError> {
        match self.s.norm_weight {
            NormWeight::Plain => b.rms_norm(x, module, size, self.s.eps),
            NormWeight::AroundOne => b.rms_norm_around_one(x, module, size, self.s.eps),
        }
    }

    /// The attention of the next layer.
    pub(crate) fn attention(
        &mut self,
        b: &mut Builder<'_>,
        x: ValueId,
        layer: usize,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let s = self.s;
        let at = |name: &str| format!("{module}.{name}");
        let [mut q, mut k, v] = self.projections(b, x, module)?;
        if s.head_norms {
            q = self.head_norm(b, q, s.heads.queries, &at("q_norm"))?;
            k = self.head_norm(b, k, s.heads.keys, &at("k_norm"))?;
        }
        let q = self.angles.rotate(b, q, s.heads.queries, &at("rotary_q"))?;
        let k = self.angles.rotate(b, k, s.heads.keys, &at("rotary_k"))?;
        let scores = Scores { scale: s.scale, window: s.windows.of(layer), softcap: s.softcap };
        let attended = self.decoder.attend(b, [q, k, v], scores, module)?;
        let shape = [s.hidden, self.features(s.heads.queries, QUERY_FEATURES)];
        b.projection(attended, &at("o_proj"), shape, s.output_bias)
    }

    /// The features of some heads side by side.
    fn features(&self, heads: Size, key: &'static str) -> Size {
        Size::derived(heads.value * self.s.heads.size.value, key)
    }

    /// Queries, keys and values.
    fn projections(&self, b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<[ValueId; 3], ModelError> {
        let s = self.s;
        let at = |name: &str| format!("{module}.{name}");
        let (queries, keys) =
            (self.features(s.heads.queries, QUERY_FEATURES), self.features(s.heads.keys, KEY_FEATURES));
        if !s.packed {
            let q = b.projection(x, &at("q_proj"), [queries, s.hidden], s.input_bias)?;
            let k = b.projection(x, &at("k_proj"), [keys, s.hidden], s.input_bias)?;
            let v = b.projection(x, &at("v_proj"), [keys, s.hidden], s.input_bias)?;
            return Ok([q, k, v]);
        }
        let key = "(num_attention_heads + 2 * num_key_value_heads) * head_dim";
        let all = Size::derived(queries.value + 2 * keys.value, key);
        let packed = b.projection(x, &at("qkv_proj"), [all, s.hidden], s.input_bias)?;
        let split = Split { x: packed, axis: 2, sizes: vec![queries.value, keys.value, keys.value] };
        match b.emit_all(split, &at("split"))?[..] {
            [q, k, v] => Ok([q, k, v]),
            _ => unreachable!("a split has as many results as sizes"),
        }
    }

    /// Normalization of each of some heads that are side by side.
    fn head_norm(&self, b: &mut Builder<'_>, x: ValueId, heads: Size, module: &str) -> Result<ValueId, ModelError> {
        let shape = |last: &[Size]| {
            let last = last.iter().map(|size| Dim::constant(size.signed()));
            Shape::new([Dim::symbol(BATCH), Dim::symbol(SEQUENCE)].into_iter().chain(last))
        };
        let size = self.s.heads.size;
        let apart = b.emit(Reshape { x, shape: shape(&[heads, size]) }, &format!("{module}.split"))?;
        let normal = self.norm_of(b, apart, module, size)?;
        let features = self.features(heads, QUERY_FEATURES);
        b.emit(Reshape { x: normal, shape: shape(&[features]) }, &format!("{module}.merge"))
    }

    /// `down(activation(gate(x)) * up(x))`.
    pub(crate) fn feed_forward(&self, b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
        let s = self.s;
        let at = |name: &str| format!("{module}.{name}");
        let inner = [s.intermediate, s.hidden];
        let (gate, up) = if s.packed {
            let both = Size::derived(2 * s.intermediate.value, "2 * intermediate_size");
            let packed = b.projection(x, &at("gate_up_proj"), [both, s.hidden], s.feed_forward_bias)?;
            let split = Split { x: packed, axis: 2, sizes: vec![s.intermediate.value; 2] };
            match b.emit_all(split, &at("split"))?[..] {
                [gate, up] => (gate, up),
                _ => unreachable!("a split has as many results as sizes"),
            }
        } else {
            let gate = b.projection(x, &at("gate_proj"), inner, s.feed_forward_bias)?;
            (gate, b.projection(x, &at("up_proj"), inner, s.feed_forward_bias)?)
        };
        let active = b.emit(s.activation.of(gate), &at("act_fn"))?;
        let gated = b.emit(Binary { kind: BinaryKind::Mul, a: active, b: up }, &at("mul"))?;
        b.projection(gated, &at("down_proj"), [s.hidden, s.intermediate], s.feed_forward_bias)
    }

    /// The scores of the vocabulary, where `tied` says whether they come from the embeddings by default.
    pub(crate) fn logits(&self, b: &mut Builder<'_>, x: ValueId, tied: bool) -> Result<ValueId, ModelError> {
        self.decoder.logits(b, x, self.s.hidden, &format!("{EMBEDDINGS}.weight"), tied)
    }

    /// Adds the outputs.
    pub(crate) fn finish(self, b: &mut Builder<'_>, logits: ValueId) -> Interface {
        let Self { recompute_at, frequencies_change_at, .. } = self;
        Interface { recompute_at, frequencies_change_at, ..self.decoder.finish(b, logits) }
    }
}
