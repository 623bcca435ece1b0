//! IQuest-Coder (IQuest Research 2026), as `transformers/models/iquestcoder` has it: Llama with other defaults.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config_keys::Only;
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "iquestcoder",
    class_prefix: "IQuestCoder",
    tasks: decoder::WITHOUT_LABELS,
    only: &[Only::Off("clip_qkv"), Only::Off("use_sliding_window")],
    // Of windows, which there are none of.
    irrelevant_keys: &["max_window_layers", "sliding_window"],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 76800,
            max_position_embeddings: Some(131_072),
            hidden_size: 5120,
            intermediate_size: Some(27648),
            num_hidden_layers: 80,
            num_attention_heads: 40,
            num_key_value_heads: Some(8),
            head_dim: Some(128),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    blocks::decoder(b, &s, task)
}
