//! Gemma 4 (Gemma Team 2026), the text model as `transformers/models/gemma4` has it: Gemma 3 with larger heads in layers without
//! windows, normalized values, vectors of tokens for each layer, and last layers that share keys and values.

use serde_json::{Map, Value};

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::attention::Heads;
use crate::layers::blocks::{self, Around, Defaults, EmbeddingScale, HeadNorms, LayerInputs, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder;
use crate::layers::rope::{self, Absent, Layers};
use crate::layers::windows::{self, Windows};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "gemma4_text",
    class_prefix: "Gemma4",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        windows::KEYS,
        &[
            "attention_bias",
            "attention_k_eq_v",
            BIDIRECTIONAL,
            LOGIT_CAP,
            GLOBAL_SIZE,
            GLOBAL_KEYS,
            "hidden_activation",
            LAYER_INPUTS,
            SHARED,
            OVERRIDES,
            "rms_norm_eps",
            "use_double_wide_mlp",
            LAYER_VOCABULARY,
        ],
    ],
    only: &[Only::Off("enable_moe_block")],
    irrelevant_keys: &[
        // Of mixtures of experts.
        "moe_intermediate_size",
        "num_experts",
        "top_k_experts",
    ],
    // Of layers that take keys and values of others.
    unused_tensors: &[
        ".self_attn.k_norm.weight",
        ".self_attn.k_proj.weight",
        ".self_attn.v_norm.weight",
        ".self_attn.v_proj.weight",
    ],
    gguf: None,
    build,
    pad_token_id: Some(0),
    ..llama::ARCHITECTURE
};

const BIDIRECTIONAL: &str = "use_bidirectional_attention";
const GLOBAL_KEYS: &str = "num_global_key_value_heads";
const GLOBAL_SIZE: &str = "global_head_dim";
const LAYER_INPUTS: &str = "hidden_size_per_layer_input";
const LAYER_VOCABULARY: &str = "vocab_size_per_layer_input";
const LOGIT_CAP: &str = "final_logit_softcapping";
const OVERRIDES: &str = "per_layer_config";
const SHARED: &str = "num_kv_shared_layers";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 262_144,
            max_position_embeddings: Some(131_072),
            hidden_size: 2304,
            intermediate_size: Some(9216),
            num_hidden_layers: 30,
            num_attention_heads: 8,
            num_key_value_heads: Some(4),
            head_dim: Some(256),
            activation: ("hidden_activation", "gelu_pytorch_tanh"),
            ..Defaults::LLAMA
        },
    )?;
    s.embedding_scale = EmbeddingScale::Root;
    s.attention_norms = Around::before_and_after("input_layernorm", "post_attention_layernorm");
    s.feed_forward_norms = Around::before_and_after("pre_feedforward_layernorm", "post_feedforward_layernorm");
    (s.head_norms, s.normalizes_values, s.scale) = (HeadNorms::Each, true, 1.0);
    s.read_attention_bias(b, false)?;
    s.logit_cap = b.config.optional_positive(LOGIT_CAP, None)?.map(|cap| (cap, LOGIT_CAP));
    s.layer_factor = Some("layer_scalar");
    s.tied = true;
    windows(b.config, &mut s)?;
    s.keys_are_values = b.config.boolean("attention_k_eq_v", false)?;
    heads(b, &mut s)?;
    shared(b.config, &mut s)?;
    let default = b.config.get(LAYER_INPUTS).is_none().then_some(Size::derived(256, LAYER_INPUTS));
    let vocabulary = b.config.given_size(&[LAYER_VOCABULARY])?.unwrap_or(Size::derived(262_144, LAYER_VOCABULARY));
    if let Some(size) = count(b.config, LAYER_INPUTS)?.or(default) {
        if vocabulary.value < s.vocabulary.value {
            return Err(b.config.error(format!("{vocabulary}, expected no fewer than {}", s.vocabulary)));
        }
        s.layer_inputs = Some(LayerInputs { size, vocabulary });
    }
    let given = b.config.get("rope_parameters").is_some();
    let absent = Absent::Proportional(0.25);
    let theta = if given { 10_000.0 } else { 1e6 };
    s.rope = rope::Defaults { layers: Layers::Full, theta, absent, ..rope::Defaults::default() };
    s.local_rope = Some(rope::Defaults { layers: Layers::Sliding { scaled: false }, ..rope::Defaults::default() });
    blocks::decoder(b, &s, task)
}

/// A size that may be 0, which is none.
fn count(config: &Config<'_>, key: &'static str) -> Result<Option<Size>, ModelError> {
    match config.get(key) {
        None => Ok(None),
        Some(value) if value.as_u64() == Some(0) => Ok(None),
        Some(_) => config.given_size(&[key]),
    }
}

/// Sets the windows; the last layer has none.
fn windows(config: &Config<'_>, s: &mut Settings) -> Result<(), ModelError> {
    let window = config.size("sliding_window", 512)?.value;
    let window = match config.text(BIDIRECTIONAL, "")? {
        "" | "vision" => window,
        "all" => {
            s.both_sides = Some(BIDIRECTIONAL);
            // A token sees as many on either side as half of this, and itself.
            window / 2 + 1
        }
        other => return Err(config.error(format!("`{BIDIRECTIONAL}` is \"{other}\", expected \"all\" or \"vision\""))),
    };
    let slides = Windows::read(config, s.layers, Some(window), |layer| !(layer + 1).is_multiple_of(6))?;
    let last = s.layers.value.saturating_sub(1);
    if config.get("layer_types").is_some() && slides.of(last).is_some() {
        config.warn("`layer_types` has \"sliding_attention\" for the last layer, which attends to all tokens, as in the transformers library");
    }
    s.windows = Windows::in_layers(window, (0..s.layers.value).map(|i| i < last && slides.of(i).is_some()).collect());
    Ok(())
}

/// Sets the heads of layers with windows and without: those of the layers' own settings, or else of keys for all without.
fn heads(b: &Builder<'_>, s: &mut Settings) -> Result<(), ModelError> {
    let all: Vec<usize> = (0..s.layers.value).collect();
    let (local, global): (Vec<usize>, Vec<usize>) = all.iter().partition(|layer| s.windows.of(**layer).is_some());
    let size = b.config.given_size(&[GLOBAL_SIZE])?.unwrap_or(Size::derived(512, GLOBAL_SIZE));
    let keys = b.config.given_size(&[GLOBAL_KEYS])?.filter(|_| s.keys_are_values).unwrap_or(s.heads.keys);
    let Some(value) = b.config.get(OVERRIDES) else {
        s.global_heads = Some(Heads { keys, size, ..s.heads }.check(b)?);
        return Ok(());
    };
    let overrides = value.as_object().ok_or_else(|| b.config.unexpected(OVERRIDES, value, "an object"))?;
    if let Some(other) =
        overrides.keys().find(|key| !key.parse().is_ok_and(|i: usize| i < s.layers.value && i.to_string() == **key))
    {
        return Err(b
            .config
            .error(format!("`{OVERRIDES}` has `{other}`, expected numbers of layers, of {}", s.layers)));
    }
    s.global_heads = Some(of_layers(b, s.heads, overrides, &global)?);
    s.heads = of_layers(b, s.heads, overrides, &local)?;
    Ok(())
}

/// The heads that all of some layers have.
fn of_layers(
    b: &Builder<'_>,
    heads: Heads,
    overrides: &Map<String, Value>,
    layers: &[usize],
) -> Result<Heads, ModelError> {
    let mut found: Option<Heads> = None;
    for layer in layers {
        let mut own = heads;
        let Some(settings) = overrides.get(&layer.to_string()) else {
            found = same(b, found, own, *layer)?;
            continue;
        };
        let settings = settings.as_object().ok_or_else(|| b.config.unexpected(OVERRIDES, settings, "objects"))?;
        for (key, value) in settings {
            let number = value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=MOST).contains(n));
            match (key.as_str(), number) {
                ("head_dim", Some(size)) => own.size = Size::derived(size, "head_dim of a layer"),
                ("num_key_value_heads", Some(keys)) => own.keys = Size::derived(keys, "num_key_value_heads of a layer"),
                _ => {
                    return Err(b.config.error(format!(
                        "`{OVERRIDES}.{layer}.{key}` is {value}, which is not supported: known are sizes `head_dim` and \
                         `num_key_value_heads`"
                    )));
                }
            }
        }
        found = same(b, found, own.check(b)?, *layer)?;
    }
    Ok(found.unwrap_or(heads))
}

/// The heads of layers of a kind, which have to be the same.
fn same(b: &Builder<'_>, found: Option<Heads>, own: Heads, layer: usize) -> Result<Option<Heads>, ModelError> {
    let numbers = |heads: Heads| [heads.keys.value, heads.size.value];
    match found {
        Some(other) if numbers(other) != numbers(own) => Err(b.config.error(format!(
            "`{OVERRIDES}` says that layer {layer} has other heads than a layer before it of its type, which is not supported"
        ))),
        found => Ok(found.or(Some(own))),
    }
}

/// The most features or heads of a layer.
const MOST: usize = 1 << 16;

/// Sets which layers share keys and values.
fn shared(config: &Config<'_>, s: &mut Settings) -> Result<(), ModelError> {
    s.widens_shared = config.boolean("use_double_wide_mlp", false)?;
    share(config, s, 0)
}

/// Sets which layers have no keys and values of their own, by how many these are.
pub(super) fn share(config: &Config<'_>, s: &mut Settings, default: usize) -> Result<(), ModelError> {
    let usual = Some(Size::derived(default, SHARED)).filter(|size| size.value > 0 && config.get(SHARED).is_none());
    let Some(count) = count(config, SHARED)?.or(usual) else { return Ok(()) };
    let first = s.layers.value.saturating_sub(count.value);
    s.shares_from = Some(first);
    let windows = |layer: &usize| s.windows.of(*layer).is_some();
    let own = [true, false].map(|kind| (0..first).any(|layer| windows(&layer) == kind));
    match (first..s.layers.value).find(|layer| !own[usize::from(!windows(layer))]) {
        Some(layer) => Err(config.error(format!("{count}, but no layer before has keys and values for layer {layer}"))),
        None => Ok(()),
    }
}
