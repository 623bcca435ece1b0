//! AFM (Arcee 2025), as `transformers/models/arcee` has it: Llama with a feed-forward of squared ReLU without a gate.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, FeedForward, Settings};
use crate::layers::builder::Builder;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture =
    Architecture { model_type: "arcee", class_prefix: "Arcee", gguf: None, build, ..llama::ARCHITECTURE };

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            max_position_embeddings: Some(4096),
            hidden_size: 2560,
            intermediate_size: Some(18432),
            activation: ("hidden_act", "relu2"),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.feed_forward = FeedForward::Plain { up: "up_proj", down: "down_proj" };
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    blocks::decoder(b, &s, task)
}
