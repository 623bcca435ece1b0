//! Solar Open (Upstage 2026), as `transformers/models/solar_open` has it: Llama with the experts of DeepSeek-V3 in all layers.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{deepseek_v3, llama};
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::{decoder, experts, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "solar_open",
    class_prefix: "SolarOpen",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        experts::SUM_KEYS,
        experts::DEEPSEEK_KEYS,
        &["attention_bias", "hidden_act", "rms_norm_eps"],
    ],
    older_keys: &[("num_local_experts", "n_routed_experts")],
    only: &deepseek_v3::ONLY,
    irrelevant_keys: &[],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 196_608,
            max_position_embeddings: Some(131_072),
            // No layer has this.
            // No layer has one.
            intermediate_size: None,
            num_hidden_layers: 48,
            num_attention_heads: 64,
            num_key_value_heads: Some(8),
            head_dim: Some(128),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.input_bias = b.config.boolean("attention_bias", false)?;
    s.rope = rope::Defaults { theta: 1e6, ..rope::Defaults::default() };
    let numbers = deepseek_v3::Numbers {
        experts: Some(128),
        taken: Some(8),
        inner: 1280,
        shared: Some(1),
        groups: [1, 1],
        dense: 0,
        factor: 1.0,
        normalizes: true,
    };
    s.experts = Some(deepseek_v3::mixture(b, &s, &numbers)?);
    blocks::decoder(b, &s, task)
}
