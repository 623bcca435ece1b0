//! Seed-OSS (ByteDance Seed 2025), as `transformers/models/seed_oss` has it: Llama with biases of the projections to queries,
//! keys and values.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "seed_oss",
    class_prefix: "SeedOss",
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        &["attention_bias", "attention_out_bias", "hidden_act", "mlp_bias", "rms_norm_eps"],
    ],
    irrelevant_keys: &["pretraining_tp", "residual_dropout"],
    gguf: None,
    build,
    pad_token_id: Some(1),
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 155_136,
            max_position_embeddings: Some(524_288),
            intermediate_size: Some(27648),
            num_hidden_layers: 64,
            num_attention_heads: 80,
            num_key_value_heads: Some(8),
            head_dim: Some(128),
            ..Defaults::LLAMA
        },
    )?;
    s.input_bias = b.config.boolean("attention_bias", true)?;
    s.output_bias = b.config.boolean("attention_out_bias", false)?;
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    blocks::decoder(b, &s, task)
}
