//! ERNIE 4.5 (Baidu 2025), as `transformers/models/ernie4_5` has it: Llama with rotation of neighbours.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::gguf::{self, Kind};
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "ernie4_5",
    class_prefix: "Ernie4_5",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["hidden_act", "rms_norm_eps", "use_bias"]],
    irrelevant_keys: &[],
    gguf: Some(&Kind {
        name: "ernie4_5",
        class: "Ernie4_5ForCausalLM",
        pairs: false,
        configure: |c| {
            c.set("use_bias", c.has("blk.0.attn_q.bias"));
            gguf::config::llama_with_silu(c)
        },
        ..llama::GGUF
    }),
    build,
    pad_token_id: Some(0),
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = read(b, &DEFAULTS)?;
    blocks::decoder(b, &s, task)
}

pub(super) const DEFAULTS: Defaults = Defaults {
    vocab_size: 103_424,
    max_position_embeddings: Some(131_072),
    hidden_size: 1024,
    intermediate_size: Some(3072),
    num_hidden_layers: 18,
    num_attention_heads: 16,
    num_key_value_heads: Some(2),
    head_dim: Some(128),
    eps: ("rms_norm_eps", 1e-5),
    ..Defaults::LLAMA
};

/// Reads what ERNIE 4.5 without experts and with them have in common.
pub(super) fn read(b: &Builder<'_>, defaults: &Defaults) -> Result<Settings, ModelError> {
    let mut s = Settings::read(b, defaults)?;
    let bias = b.config.boolean("use_bias", false)?;
    (s.input_bias, s.output_bias, s.feed_forward_bias) = (bias, bias, bias);
    s.interleaved = true;
    s.rope = rope::Defaults { theta: 500_000.0, ..rope::Defaults::default() };
    s.tied = true;
    Ok(s)
}
