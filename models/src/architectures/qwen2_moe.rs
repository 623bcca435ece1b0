//! Qwen1.5-MoE and Qwen2-MoE (Yang et al. 2024, arXiv:2407.10671), as `transformers/models/qwen2_moe` has them: Qwen2 with
//! experts, and one that all tokens take.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::gguf::parts::{self, Gating};
use crate::checkpoint::gguf::{self, Kind};
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::experts::{self, Mixture, Shared};
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "qwen2_moe",
    class_prefix: "Qwen2Moe",
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        windows::KEYS,
        experts::DENSE_KEYS,
        experts::SUM_KEYS,
        &[
            "hidden_act",
            "max_window_layers",
            "moe_intermediate_size",
            "num_experts",
            "num_experts_per_tok",
            "qkv_bias",
            "rms_norm_eps",
            "shared_expert_intermediate_size",
            "use_sliding_window",
        ],
    ],
    irrelevant_keys: &[],
    gguf: Some(&Kind {
        name: "qwen2moe",
        class: "Qwen2MoeForCausalLM",
        pairs: false,
        configure: |c| {
            c.set_model("qwen2_moe", "Qwen2MoeForCausalLM");
            gguf::config::llama_with_silu(c)?;
            c.set("qkv_bias", c.has("blk.0.attn_q.bias"));
            c.set("norm_topk_prob", parts::normalizes(c, false)?);
            c.set("shared_expert_intermediate_size", c.required("expert_shared_feed_forward_length")?);
            parts::experts(c, ["num_experts", "num_experts_per_tok", "moe_intermediate_size"], Gating::Softmax)
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
            vocab_size: 151_936,
            max_position_embeddings: Some(32768),
            hidden_size: 2048,
            intermediate_size: Some(5632),
            num_hidden_layers: 24,
            num_attention_heads: 16,
            num_key_value_heads: Some(16),
            ..Defaults::LLAMA
        },
    )?;
    s.input_bias = b.config.boolean("qkv_bias", true)?;
    let until = b.config.whole("max_window_layers", 28)?;
    let window = windows::switched(b.config)?;
    s.windows = Windows::read(b.config, s.layers, window, |layer| layer.is_multiple_of(2) && layer < until)?;
    let inner = b.config.size("moe_intermediate_size", 1408)?;
    let mut mixture = Mixture::read(b, &s, ("num_experts", 60), ("num_experts_per_tok", 4), inner)?;
    mixture.router.read_sum(b.config, false)?;
    mixture.dense = experts::dense_between(b.config, &s)?;
    let shared = b.config.size("shared_expert_intermediate_size", 5632)?;
    mixture.shared = Some(Shared { module: "shared_expert", inner: shared, gate: Some("shared_expert_gate") });
    s.experts = Some(mixture);
    blocks::decoder(b, &s, task)
}
