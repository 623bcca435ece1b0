//! OLMo 2 (OLMo Team 2025, arXiv:2501.00656), as `transformers/models/olmo2` has it: Llama with norms after attention and
//! feed-forward, and of queries and keys as a whole.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::gguf::{self, Kind, Names};
use crate::layers::blocks::{self, Around, Defaults, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "olmo2",
    class_prefix: "Olmo2",
    tasks: decoder::OF_TEXTS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["attention_bias", "hidden_act", "rms_norm_eps"]],
    irrelevant_keys: &[],
    gguf: Some(&Kind {
        name: "olmo2",
        class: "Olmo2ForCausalLM",
        pairs: false,
        names: GGUF_NAMES,
        configure: |c| {
            if c.size_or_none("attention.sliding_window")?.is_some() {
                return Err(c.unexpected("attention.sliding_window", "0: OLMo 3 is not supported in GGUF files"));
            }
            c.set("attention_bias", c.has("blk.0.attn_q.bias"));
            gguf::config::llama_with_silu(c)
        },
        ..llama::GGUF
    }),
    build,
    pad_token_id: Some(1),
    ..llama::ARCHITECTURE
};

/// The names of tensors in GGUF files, with norms after attention and feed-forward.
pub(crate) const GGUF_NAMES: Names = Names {
    layer: &[
        ("attn_q", "self_attn.q_proj"),
        ("attn_q_norm", "self_attn.q_norm"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_k_norm", "self_attn.k_norm"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("post_attention_norm", "post_attention_layernorm"),
        ("post_ffw_norm", "post_feedforward_layernorm"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_up", "mlp.up_proj"),
        ("ffn_down", "mlp.down_proj"),
    ],
    ..llama::GGUF_NAMES
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults { vocab_size: 50304, eps: ("rms_norm_eps", 1e-5), ..Defaults::LLAMA };
    let s = read(b, &defaults)?;
    blocks::decoder(b, &s, task)
}

/// Reads what OLMo 2 and OLMo 3 have in common.
pub(crate) fn read(b: &Builder<'_>, defaults: &Defaults) -> Result<Settings, ModelError> {
    let mut s = Settings::read(b, defaults)?;
    s.read_attention_bias(b, false)?;
    s.attention_norms = Around::after("post_attention_layernorm");
    s.feed_forward_norms = Around::after("post_feedforward_layernorm");
    s.head_norms = HeadNorms::Whole;
    Ok(s)
}
