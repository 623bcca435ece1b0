//! The text models of Qwen3-VL (Qwen Team 2025, arXiv:2511.21631), as `transformers/models/qwen3_vl` and `qwen3_vl_moe` have them:
//! Qwen3, and Qwen3-MoE. In texts, all coordinates of an image are the position.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::experts::{self, Mixture, Stored, Sum};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "qwen3_vl_text",
    class_prefix: "Qwen3VL",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["attention_bias", "hidden_act", "rms_norm_eps"]],
    irrelevant_keys: &[],
    gguf: None,
    build: dense,
    ..llama::ARCHITECTURE
};

pub(crate) const MIXTURE: Architecture = Architecture {
    model_type: "qwen3_vl_moe_text",
    class_prefix: "Qwen3VLMoe",
    keys: &[
        ARCHITECTURE.keys[0],
        ARCHITECTURE.keys[1],
        ARCHITECTURE.keys[2],
        ARCHITECTURE.keys[3],
        experts::DENSE_KEYS,
        &["moe_intermediate_size", "num_experts", "num_experts_per_tok"],
    ],
    older_keys: &[("num_local_experts", "num_experts")],
    // The class divides factors by their sum, whatever it says.
    irrelevant_keys: &["norm_topk_prob"],
    build: mixture,
    ..ARCHITECTURE
};

fn dense(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults {
        hidden_size: 4096,
        intermediate_size: Some(22016),
        num_attention_heads: 32,
        num_key_value_heads: Some(32),
        head_dim: Some(128),
        ..DEFAULTS
    };
    let s = read(b, &defaults)?;
    blocks::decoder(b, &s, task)
}

fn mixture(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = read(b, &DEFAULTS)?;
    let inner = b.config.size("moe_intermediate_size", 1408)?;
    let mut mixture = Mixture::read(b, &s, ("num_experts", 60), ("num_experts_per_tok", 4), inner)?;
    mixture.router.sum = Some(Sum::Plus(0.0));
    mixture.dense = experts::dense_between(b.config, &s)?;
    mixture.stored = Stored::PackedAcross { or_along: true };
    s.experts = Some(mixture);
    s.tied = true;
    blocks::decoder(b, &s, task)
}

/// The defaults of a configuration with experts.
const DEFAULTS: Defaults = Defaults {
    vocab_size: 151_936,
    max_position_embeddings: Some(128_000),
    hidden_size: 2048,
    intermediate_size: Some(5632),
    num_hidden_layers: 24,
    num_attention_heads: 16,
    num_key_value_heads: Some(16),
    ..Defaults::LLAMA
};

fn read(b: &Builder<'_>, defaults: &Defaults) -> Result<Settings, ModelError> {
    let mut s = Settings::read(b, defaults)?;
    s.read_attention_bias(b, false)?;
    s.head_norms = HeadNorms::Each;
    s.rope = rope::Defaults {
        theta: 500_000.0,
        coordinates: Some(rope::Coordinates::Interleaved([24, 20, 20])),
        ..rope::Defaults::by_coordinates()
    };
    Ok(s)
}
