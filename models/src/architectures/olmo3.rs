//! OLMo 3 (OLMo Team 2025), as `transformers/models/olmo3` has it: OLMo 2 with windows in three of four layers, whose rotary
//! embedding is not scaled.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::architectures::olmo2;
use crate::layers::blocks::{self, Defaults};
use crate::layers::builder::Builder;
use crate::layers::rope::Layers;
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "olmo3",
    class_prefix: "Olmo3",
    tasks: decoder::OF_TEXTS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, windows::KEYS, &["attention_bias", "hidden_act", "rms_norm_eps"]],
    irrelevant_keys: &[],
    gguf: None,
    build,
    pad_token_id: Some(1),
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults { vocab_size: 50304, eps: ("rms_norm_eps", 1e-5), ..Defaults::LLAMA };
    let mut s = olmo2::read(b, &defaults)?;
    let window = b.config.optional_size("sliding_window", Some(4096))?;
    s.windows = Windows::read(b.config, s.layers, window, |layer| !(layer + 1).is_multiple_of(4))?;
    s.rope = rope::Defaults { layers: Layers::Full, theta: 500_000.0, ..rope::Defaults::default() };
    s.local_rope = Some(rope::Defaults { layers: Layers::Sliding { scaled: false }, ..s.rope });
    blocks::decoder(b, &s, task)
}
