//! Helium (Kyutai 2025), as `transformers/models/helium` has it: Llama with rotation of neighbours.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "helium",
    class_prefix: "Helium",
    tasks: decoder::WITHOUT_ANSWERS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["attention_bias", "hidden_act", "mlp_bias", "rms_norm_eps"]],
    irrelevant_keys: &[],
    gguf: None,
    build,
    pad_token_id: Some(3),
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 48000,
            max_position_embeddings: Some(4096),
            hidden_size: 2560,
            intermediate_size: Some(7040),
            num_hidden_layers: 24,
            num_attention_heads: 20,
            num_key_value_heads: Some(20),
            head_dim: Some(128),
            eps: ("rms_norm_eps", 1e-8),
            ..Defaults::LLAMA
        },
    )?;
    s.input_bias = b.config.boolean("attention_bias", false)?;
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    s.interleaved = true;
    s.rope = rope::Defaults { theta: 100_000.0, ..rope::Defaults::default() };
    blocks::decoder(b, &s, task)
}
