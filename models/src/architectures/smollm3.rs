//! SmolLM3 (Hugging Face 2025), as `transformers/models/smollm3` has it: Llama with layers that have no rotary embedding.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::gguf::{self, Kind};
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};
use serde_json::Value;

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "smollm3",
    class_prefix: "SmolLM3",
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        windows::KEYS,
        UNROTATED_KEYS,
        &["attention_bias", "hidden_act", "mlp_bias", "rms_norm_eps", "use_sliding_window"],
    ],
    // What published configurations repeat of other models.
    irrelevant_keys: &["max_window_layers", "pretraining_tp"],
    gguf: Some(&Kind {
        name: "smollm3",
        class: "SmolLM3ForCausalLM",
        configure: |c| {
            c.set("attention_bias", c.has("blk.0.attn_q.bias"));
            c.set("mlp_bias", c.has("blk.0.ffn_up.bias"));
            // Files do not say it.
            c.set("no_rope_layer_interval", 4);
            gguf::config::llama_with_silu(c)
        },
        ..llama::GGUF
    }),
    build,
    pad_token_id: Some(128_004),
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 128_256,
            max_position_embeddings: Some(32768),
            hidden_size: 2048,
            num_hidden_layers: 36,
            num_attention_heads: 16,
            num_key_value_heads: Some(4),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    s.rope = rope::Defaults { theta: 2_000_000.0, ..rope::Defaults::default() };
    s.unrotated = unrotated(b.config, s.layers)?;
    let window = b.config.optional_size("sliding_window", None)?;
    let window = if b.config.boolean("use_sliding_window", false)? { window } else { None };
    s.windows = Windows::read(b.config, s.layers, window, |layer| s.unrotated[layer])?;
    s.tied = true;
    blocks::decoder(b, &s, task)
}

const LISTED: &str = "no_rope_layers";
const EVERY: &str = "no_rope_layer_interval";

/// The configuration keys that [`unrotated`] reads.
pub(super) const UNROTATED_KEYS: &[&str] = &[EVERY, LISTED];

/// The layers without a rotary embedding: `no_rope_layers` has a 0 for each of them, and a 1 for the others.
pub(super) fn unrotated(config: &Config<'_>, layers: Size) -> Result<Vec<bool>, ModelError> {
    let every = config.optional_size(EVERY, Some(4))?;
    let Some(value) = config.get(LISTED) else {
        let is_last = |layer: usize| every.is_some_and(|every| (layer + 1).is_multiple_of(every));
        return Ok((0..layers.value).map(is_last).collect());
    };
    let listed: Option<Vec<bool>> = value.as_array().and_then(|list| {
        let is_off = |value: &Value| value.as_u64().filter(|n| *n < 2).map(|n| n == 0);
        list.iter().map(is_off).collect()
    });
    listed
        .filter(|listed| listed.len() == layers.value)
        .ok_or_else(|| config.unexpected(LISTED, value, &format!("a list of 0 and 1 for each of {layers}")))
}
