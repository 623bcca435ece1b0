//! GLM-4-0414 (GLM Team 2024, arXiv:2406.12793), as `transformers/models/glm4` has it: Llama with norms before and after
//! attention and feed-forward, a packed feed-forward, and neighbours rotated in a part of each head.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::gguf::config::Form;
use crate::checkpoint::gguf::{self, Kind, Names};
use crate::layers::blocks::{self, Defaults, FeedForward, Settings};
use crate::layers::builder::Builder;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "glm4",
    class_prefix: "Glm4",
    tasks: decoder::WITHOUT_ANSWERS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["attention_bias", "hidden_act", "rms_norm_eps"]],
    irrelevant_keys: &[],
    gguf: Some(&Kind {
        name: "glm4",
        class: "Glm4ForCausalLM",
        pairs: false,
        names: GGUF_NAMES,
        configure: |c| {
            gguf::config::decoder(c, &Form::IN_PART)?;
            c.set("attention_bias", c.has("blk.0.attn_q.bias"));
            c.set("hidden_act", "silu");
            Ok(())
        },
        ..llama::GGUF
    }),
    build,
    pad_token_id: Some(151_329),
    ..llama::ARCHITECTURE
};

/// The names of tensors in GGUF files.
const GGUF_NAMES: Names = Names {
    layer: &[
        ("attn_norm", "input_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("post_attention_norm", "post_self_attn_layernorm"),
        ("ffn_norm", "post_attention_layernorm"),
        ("ffn_up", "mlp.gate_up_proj"),
        ("ffn_down", "mlp.down_proj"),
        ("post_ffw_norm", "post_mlp_layernorm"),
    ],
    ..llama::GGUF_NAMES
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = read(b)?;
    blocks::decoder(b, &s, task)
}

/// Reads what GLM has too.
pub(crate) fn read(b: &Builder<'_>) -> Result<Settings, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 151_552,
            max_position_embeddings: Some(131_072),
            intermediate_size: Some(13696),
            num_hidden_layers: 40,
            num_key_value_heads: Some(2),
            head_dim: Some(128),
            eps: ("rms_norm_eps", 1.5625e-7),
            ..Defaults::LLAMA
        },
    )?;
    s.input_bias = b.config.boolean("attention_bias", true)?;
    s.attention_norms.after = Some("post_self_attn_layernorm");
    s.feed_forward_norms.after = Some("post_mlp_layernorm");
    s.feed_forward = FeedForward::Packed { both: "gate_up_proj", last: false, down: "down_proj" };
    s.interleaved = true;
    s.rope = rope::Defaults { part: Some(0.5), ..rope::Defaults::default() };
    Ok(s)
}
