//! Code World Model (FAIR CodeGen team 2025, arXiv:2510.02387), as `transformers/models/cwm` has it: Llama with windows in three of
//! four layers.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::rope::{Absent, Stretch};
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "cwm",
    class_prefix: "Cwm",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, windows::KEYS, &["hidden_act", "mlp_bias", "rms_norm_eps"]],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 128_256,
            max_position_embeddings: Some(131_072),
            hidden_size: 6144,
            intermediate_size: Some(21504),
            num_hidden_layers: 64,
            num_attention_heads: 48,
            num_key_value_heads: Some(8),
            head_dim: Some(128),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    let stretch = Stretch { factor: 16.0, original: 8192.0 };
    s.rope = rope::Defaults { theta: 1e6, absent: Absent::Llama3(stretch, [1.0, 4.0]), ..rope::Defaults::default() };
    let window = b.config.optional_size("sliding_window", Some(8192))?;
    s.windows = Windows::read(b.config, s.layers, window, |layer| !layer.is_multiple_of(4))?;
    blocks::decoder(b, &s, task)
}
