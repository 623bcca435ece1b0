//! Jais 2 (G42 2025), as `transformers/models/jais2` has it: Llama with layer normalization, biases, and a feed-forward with squared
//! ReLU.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, FeedForward, Settings};
use crate::layers::builder::Builder;
use crate::layers::norm::Norm;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "jais2",
    class_prefix: "Jais2",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["attention_bias", "hidden_act", "layer_norm_eps", "mlp_bias"]],
    irrelevant_keys: &[],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 150_272,
            max_position_embeddings: Some(8192),
            hidden_size: 3328,
            intermediate_size: Some(26624),
            num_attention_heads: 26,
            activation: ("hidden_act", "relu2"),
            eps: ("layer_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, true)?;
    s.feed_forward_bias = b.config.boolean("mlp_bias", true)?;
    s.norm = Norm::Layer { bias: true };
    s.feed_forward = FeedForward::Plain { up: "up_proj", down: "down_proj" };
    blocks::decoder(b, &s, task)
}
