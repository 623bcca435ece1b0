//! Qwen3-MoE (Yang et al. 2025, arXiv:2505.09388), as `transformers/models/qwen3_moe` has it: Qwen3 with experts.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::gguf::parts::{self, Gating};
use crate::checkpoint::gguf::{self, Kind};
use crate::layers::blocks::{self, Defaults, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::experts::{self, Mixture};
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "qwen3_moe",
    class_prefix: "Qwen3Moe",
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        experts::DENSE_KEYS,
        experts::SUM_KEYS,
        &[
            "attention_bias",
            "hidden_act",
            "moe_intermediate_size",
            "num_experts_per_tok",
            "num_local_experts",
            "rms_norm_eps",
            "sliding_window",
            "use_sliding_window",
        ],
    ],
    older_keys: &[("num_experts", "num_local_experts")],
    // Of windows in the upper layers, which this class does not have.
    irrelevant_keys: &["max_window_layers"],
    gguf: Some(&Kind {
        name: "qwen3moe",
        class: "Qwen3MoeForCausalLM",
        pairs: false,
        configure: |c| {
            c.set_model("qwen3_moe", "Qwen3MoeForCausalLM");
            gguf::config::llama_with_silu(c)?;
            c.set("attention_bias", c.has("blk.0.attn_q.bias"));
            c.set("norm_topk_prob", parts::normalizes(c, true)?);
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
            intermediate_size: Some(6144),
            num_hidden_layers: 24,
            num_key_value_heads: Some(4),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.head_norms = HeadNorms::Each;
    s.windows = Windows::everywhere(s.layers, windows::switched(b.config)?);
    let inner = b.config.size("moe_intermediate_size", 768)?;
    let mut mixture = Mixture::read(b, &s, ("num_local_experts", 128), ("num_experts_per_tok", 8), inner)?;
    mixture.router.read_sum(b.config, false)?;
    mixture.dense = experts::dense_between(b.config, &s)?;
    s.experts = Some(mixture);
    blocks::decoder(b, &s, task)
}
