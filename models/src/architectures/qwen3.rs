//! Qwen3 (Yang et al. 2025, arXiv:2505.09388), as `transformers/models/qwen3` has it: Llama with
//! heads of queries and keys that are normalized, and windows as Qwen2 has them.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::architectures::qwen2;
use crate::checkpoint::gguf::{self, Kind};
use crate::layers::blocks::{self, Defaults, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::windows;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "qwen3",
    class_prefix: "Qwen3",
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        windows::KEYS,
        qwen2::WINDOW_KEYS,
        &["attention_bias", "hidden_act", "rms_norm_eps"],
    ],
    irrelevant_keys: &[],
    gguf: Some(&Kind {
        name: "qwen3",
        class: "Qwen3ForCausalLM",
        pairs: false,
        configure: |c| {
            c.set("attention_bias", c.has("blk.0.attn_q.bias"));
            gguf::config::llama_with_silu(c)
        },
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
            num_key_value_heads: Some(32),
            head_dim: Some(128),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.head_norms = HeadNorms::Each;
    s.windows = qwen2::windows_from(b.config, s.layers, 28)?;
    blocks::decoder(b, &s, task)
}
