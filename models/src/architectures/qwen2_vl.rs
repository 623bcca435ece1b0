//! The text models of Qwen2-VL and Qwen2.5-VL (Qwen Team 2024, arXiv:2409.12191), as `transformers/models/qwen2_vl` has them: Qwen2.
//! In texts, all coordinates of an image are the position.

use crate::architecture::{Architecture, Properties};
use crate::architectures::qwen2;
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "qwen2_vl_text",
    class_prefix: "Qwen2VL",
    tasks: decoder::WITHOUT_LABELS,
    gguf: None,
    build,
    ..qwen2::ARCHITECTURE
};

/// That of Qwen2.5-VL, which differs in its tower of images.
pub(crate) const QWEN2_5_VL: Architecture =
    Architecture { model_type: "qwen2_5_vl_text", class_prefix: "Qwen2_5_VL", ..ARCHITECTURE };

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 152_064,
            max_position_embeddings: Some(32768),
            hidden_size: 8192,
            intermediate_size: Some(29568),
            num_hidden_layers: 80,
            num_attention_heads: 64,
            num_key_value_heads: Some(8),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.input_bias = true;
    s.windows = qwen2::windows_from(b.config, s.layers, 80)?;
    s.rope = rope::Defaults {
        theta: 1e6,
        coordinates: Some(rope::Coordinates::InTurn([16, 24, 24])),
        ..rope::Defaults::by_coordinates()
    };
    blocks::decoder(b, &s, task)
}
