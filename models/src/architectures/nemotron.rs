//! Nemotron-3 8B, Nemotron-4 and Minitron (Parmar et al. 2024, arXiv:2402.16819), as `transformers/models/nemotron` has it:
//! layer normalization with weights that are stored less 1, a feed-forward with squared ReLU, and a part of each head rotated.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, FeedForward, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder::Positions;
use crate::layers::norm::Norm;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "nemotron",
    class_prefix: "Nemotron",
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["attention_bias", "hidden_act", "mlp_bias", "norm_eps"]],
    irrelevant_keys: &[],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 256_000,
            max_position_embeddings: Some(4096),
            hidden_size: 6144,
            intermediate_size: Some(24576),
            num_attention_heads: 48,
            activation: ("hidden_act", "relu2"),
            eps: ("norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    s.position_source = Positions::Counted;
    s.norm = Norm::LayerAroundOne;
    s.feed_forward = FeedForward::Plain { up: "up_proj", down: "down_proj" };
    s.rope = rope::Defaults { part: Some(0.5), ..rope::Defaults::default() };
    blocks::decoder(b, &s, task)
}
