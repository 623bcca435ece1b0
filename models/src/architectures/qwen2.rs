//! Qwen2 (Yang et al. 2024, arXiv:2407.10671), as `transformers/models/qwen2` has it: Llama with
//! biases of queries, keys and values, and windows in the upper layers where they are switched on.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::gguf::{self, Kind};
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "qwen2",
    class_prefix: "Qwen2",
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, windows::KEYS, WINDOW_KEYS, &["hidden_act", "rms_norm_eps"]],
    irrelevant_keys: &[],
    gguf: Some(&Kind {
        name: "qwen2",
        class: "Qwen2ForCausalLM",
        pairs: false,
        configure: gguf::config::llama_with_silu,
        ..llama::GGUF
    }),
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 151936,
            max_position_embeddings: Some(32768),
            intermediate_size: Some(22016),
            ..Defaults::LLAMA
        },
    )?;
    s.input_bias = true;
    s.windows = windows_from(b.config, s.layers, 28)?;
    blocks::decoder(b, &s, task)
}

/// What the configuration says of windows, besides [`windows::KEYS`].
pub(crate) const WINDOW_KEYS: &[&str] = &["max_window_layers", "use_sliding_window"];

/// Windows in the upper layers, where they are switched on: those from one on, which a key gives.
pub(crate) fn windows_from(config: &Config<'_>, layers: Size, default: usize) -> Result<Windows, ModelError> {
    let window = config.optional_size("sliding_window", Some(4096))?;
    let from = config.optional_size("max_window_layers", Some(default))?.unwrap_or(0);
    let window = if config.boolean("use_sliding_window", false)? { window } else { None };
    Windows::read(config, layers, window, |layer| layer >= from)
}
