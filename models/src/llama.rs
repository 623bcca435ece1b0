//! Llama (Touvron et al. 2023, arXiv:2302.13971), as `transformers/models/llama` has it, and the
//! layers that its kin share with it.

use planish_ir::ValueId;
use planish_ir::ops::{Binary, BinaryKind, Split};
use serde_json::Value;

use crate::builder::Builder;
use crate::config::{Config, Size};
use crate::decoder::{Decoder, Heads};
use crate::encoder::Activation;
use crate::registry::{Architecture, Interface};
use crate::rope::Angles;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "llama",
    class_prefix: "Llama",
    base: "model",
    tasks: &[Task::TextGeneration],
    // Cuts products into pieces, as they were trained: same result.
    irrelevant_keys: &["pretraining_tp"],
    unused_tensors: UNUSED_TENSORS,
    build,
};

/// Frequencies that old checkpoints store, then heads of other tasks.
pub(crate) const UNUSED_TENSORS: &[&str] = &[".rotary_emb.inv_freq", "rotary_emb.inv_freq", "score.", "qa_outputs."];

fn build(b: &mut Builder<'_>, _: Task) -> Result<Interface, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 32000,
            max_position_embeddings: 2048,
            hidden_size: 4096,
            intermediate_size: 11008,
            rms_norm_eps: 1e-6,
        },
    )?;
    let bias = b.config.boolean("attention_bias", false)?;
    (s.input_bias, s.output_bias) = (bias, bias);
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    decoder(b, &s)
}

/// What a configuration that does not say means.
pub(crate) struct Defaults {
    pub(crate) vocab_size: usize,
    pub(crate) max_position_embeddings: usize,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) rms_norm_eps: f64,
}

/// What tells one of the family from another.
pub(crate) struct Settings {
    vocabulary: Size,
    positions: Size,
    hidden: Size,
    intermediate: Size,
    pub(crate) layers: Size,
    heads: Heads,
    activation: Activation,
    /// Added to the mean square in norms.
    eps: f64,
    /// Whether queries, keys and values come from one projection, and the two of the feed-forward too.
    pub(crate) packed: bool,
    /// Whether the projections to queries, keys and values have biases.
    pub(crate) input_bias: bool,
    /// Whether the projection of what attention gives has.
    pub(crate) output_bias: bool,
    /// Whether those of the feed-forward have.
    pub(crate) feed_forward_bias: bool,
    pub(crate) windows: Windows,
}

impl Settings {
    /// Reads what all have in common; nothing is packed, nothing has a bias, no window slides.
    pub(crate) fn read(b: &Builder<'_>, defaults: &Defaults) -> Result<Self, ModelError> {
        let config = b.config;
        let hidden = config.size("hidden_size", defaults.hidden_size)?;
        let queries = config.size("num_attention_heads", 32)?;
        let keys = config.size_or("num_key_value_heads", queries)?;
        let size = match config.optional_size("head_dim", None)? {
            Some(size) => Size::derived(size, "head_dim"),
            None if hidden.value.is_multiple_of(queries.value) => {
                Size::derived(hidden.value / queries.value, "hidden_size / num_attention_heads")
            }
            None => return Err(config.error(format!("{hidden} is not divisible by {queries}"))),
        };
        Ok(Self {
            vocabulary: config.size("vocab_size", defaults.vocab_size)?,
            positions: config.size("max_position_embeddings", defaults.max_position_embeddings)?,
            hidden,
            intermediate: config.size("intermediate_size", defaults.intermediate_size)?,
            layers: config.size("num_hidden_layers", 32)?,
            heads: Heads { queries, keys, size }.check(b)?,
            activation: Activation::read(config, "hidden_act", "silu")?,
            eps: config.positive("rms_norm_eps", defaults.rms_norm_eps)?,
            packed: false,
            input_bias: false,
            output_bias: false,
            feed_forward_bias: false,
            windows: Windows::default(),
        })
    }
}

/// Which layers attend to the latest keys only, and how many these are.
#[derive(Default)]
pub(crate) struct Windows {
    size: Option<usize>,
    /// The first layer with a window, where the configuration does not list layers.
    from: usize,
    /// Whether each layer has one.
    listed: Option<Vec<bool>>,
}

impl Windows {
    /// Windows of a size, from a layer on unless `layer_types` lists which layers have one.
    pub(crate) fn read(
        config: &Config<'_>,
        layers: Size,
        size: Option<usize>,
        from: usize,
    ) -> Result<Self, ModelError> {
        const LISTED: &str = "layer_types";
        let listed = match config.get(LISTED) {
            None => None,
            Some(value) => {
                let slides = |kind: &Value| match kind.as_str() {
                    Some("full_attention") => Ok(false),
                    Some("sliding_attention") if size.is_some() => Ok(true),
                    _ => Err(config.error(format!(
                        "`{LISTED}` has {kind}, expected \"full_attention\", or \"sliding_attention\" where \
                         `sliding_window` says how many keys"
                    ))),
                };
                let kinds = value.as_array().ok_or_else(|| config.unexpected(LISTED, value, "a list"))?;
                let listed = kinds.iter().map(slides).collect::<Result<Vec<bool>, _>>()?;
                if listed.len() != layers.value {
                    return Err(config.error(format!("`{LISTED}` lists {} layers, but {layers}", listed.len())));
                }
                Some(listed)
            }
        };
        Ok(Self { size, from, listed })
    }

    fn of(&self, layer: usize) -> Option<usize> {
        let slides = match &self.listed {
            Some(listed) => listed.get(layer).copied().unwrap_or(false),
            None => layer >= self.from,
        };
        self.size.filter(|_| slides)
    }
}

/// The whole model.
pub(crate) fn decoder(b: &mut Builder<'_>, s: &Settings) -> Result<Interface, ModelError> {
    const EMBEDDINGS: &str = "embed_tokens";
    let mut decoder = Decoder::new(b, s.vocabulary, s.positions, s.heads)?;
    let angles = Angles::new(b, decoder.position_ids, s.heads.size)?;
    let mut x = b.embedding(decoder.input_ids, EMBEDDINGS, s.vocabulary, s.hidden)?;
    for layer in 0..s.layers.value {
        let at = |name: &str| format!("layers.{layer}.{name}");
        let normal = b.rms_norm(x, &at("input_layernorm"), s.hidden, s.eps)?;
        let [q, k, v] = projections(b, s, normal, &at("self_attn"))?;
        let q = angles.rotate(b, q, s.heads.queries, &at("self_attn.rotary_q"))?;
        let k = angles.rotate(b, k, s.heads.keys, &at("self_attn.rotary_k"))?;
        let scale = 1.0 / (s.heads.size.value as f64).sqrt();
        let attended = decoder.attend(b, [q, k, v], scale, s.windows.of(layer), &at("self_attn"))?;
        let shape = [s.hidden, features(s.heads.queries, s, QUERIES)];
        let projected = b.projection(attended, &at("self_attn.o_proj"), shape, s.output_bias)?;
        x = b.add(projected, x, &at("self_attn.add"))?;

        let normal = b.rms_norm(x, &at("post_attention_layernorm"), s.hidden, s.eps)?;
        let gated = feed_forward(b, s, normal, &at("mlp"))?;
        x = b.add(gated, x, &at("mlp.add"))?;
    }
    let x = b.rms_norm(x, "norm", s.hidden, s.eps)?;
    decoder.finish(b, x, s.hidden, &format!("{EMBEDDINGS}.weight"), false)
}

const QUERIES: &str = "num_attention_heads * head_dim";
const KEYS: &str = "num_key_value_heads * head_dim";

/// The features of some heads side by side.
fn features(heads: Size, s: &Settings, key: &'static str) -> Size {
    Size::derived(heads.value * s.heads.size.value, key)
}

/// Queries, keys and values.
fn projections(b: &mut Builder<'_>, s: &Settings, x: ValueId, module: &str) -> Result<[ValueId; 3], ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let (queries, keys) = (features(s.heads.queries, s, QUERIES), features(s.heads.keys, s, KEYS));
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

/// `down(activation(gate(x)) * up(x))`.
fn feed_forward(b: &mut Builder<'_>, s: &Settings, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
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
