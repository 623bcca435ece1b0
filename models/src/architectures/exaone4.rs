//! EXAONE 4.0 (LG AI Research 2025, arXiv:2507.11407), as `transformers/models/exaone4` has it: Llama with norms after
//! attention and feed-forward and of each head of queries and keys, and, where there are windows, a rotary embedding in
//! layers with one only.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{llama, olmo2};
use crate::checkpoint::gguf::parts;
use crate::checkpoint::gguf::{self, Kind};
use crate::layers::blocks::{self, Around, Defaults, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "exaone4",
    class_prefix: "Exaone4",
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, windows::KEYS, &["hidden_act", "rms_norm_eps", PATTERN]],
    irrelevant_keys: &[],
    gguf: Some(&Kind {
        name: "exaone4",
        class: "Exaone4ForCausalLM",
        pairs: false,
        names: olmo2::GGUF_NAMES,
        configure: |c| {
            let sizes = gguf::config::llama(c)?;
            c.set("hidden_act", "silu");
            parts::windows(c, sizes.window, sizes.layers)
        },
        ..llama::GGUF
    }),
    build,
    ..llama::ARCHITECTURE
};

pub(super) const PATTERN: &str = "sliding_window_pattern";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = read(b, 2048)?;
    s.attention_norms = Around::after("post_attention_layernorm");
    s.feed_forward_norms = Around::after("post_feedforward_layernorm");
    blocks::decoder(b, &s, task)
}

/// Reads what EXAONE 4 and K-EXAONE have in common, with the default of the longest text.
pub(crate) fn read(b: &Builder<'_>, longest: usize) -> Result<Settings, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 102_400,
            max_position_embeddings: Some(longest),
            intermediate_size: Some(16384),
            num_key_value_heads: Some(32),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.head_norms = HeadNorms::Each;
    let window = b.config.optional_size("sliding_window", Some(4096))?;
    // Where layers are listed, the pattern may be a text.
    let listed = b.config.get(PATTERN).is_none() || b.config.get("layer_types").is_some();
    let every = if listed { 4 } else { b.config.size(PATTERN, 4)?.value };
    s.windows = Windows::read(b.config, s.layers, window, |layer| !(layer + 1).is_multiple_of(every))?;
    if window.is_some() {
        s.unrotated = (0..s.layers.value).map(|layer| s.windows.of(layer).is_none()).collect();
    }
    Ok(s)
}
