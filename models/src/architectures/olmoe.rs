//! OLMoE (Muennighoff et al. 2024, arXiv:2409.02060), as `transformers/models/olmoe` has it: Llama with experts, norms of queries
//! and keys as a whole, and a limit of queries, keys and values.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::gguf::parts::{self, Gating};
use crate::checkpoint::gguf::{self, Kind};
use crate::layers::blocks::{self, Defaults, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::experts::{self, Mixture};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "olmoe",
    class_prefix: "Olmoe",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        experts::SUM_KEYS,
        &["attention_bias", "hidden_act", "num_experts", "num_experts_per_tok", "rms_norm_eps", CLIP],
    ],
    older_keys: &[("num_local_experts", "num_experts")],
    irrelevant_keys: &[],
    gguf: Some(&Kind {
        name: "olmoe",
        class: "OlmoeForCausalLM",
        pairs: false,
        configure: |c| {
            gguf::config::llama_with_silu(c)?;
            c.set("norm_topk_prob", parts::normalizes(c, false)?);
            parts::copy(c, "attention.clamp_kqv", CLIP)?;
            parts::experts(c, ["num_experts", "num_experts_per_tok", "intermediate_size"], Gating::Softmax)
        },
        ..llama::GGUF
    }),
    build,
    pad_token_id: Some(1),
    ..llama::ARCHITECTURE
};

const CLIP: &str = "clip_qkv";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 50304,
            max_position_embeddings: Some(4096),
            hidden_size: 2048,
            intermediate_size: Some(2048),
            num_hidden_layers: 16,
            num_attention_heads: 16,
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.head_norms = HeadNorms::Whole;
    s.clip = b.config.optional_positive(CLIP, None)?.map(|most| (most, CLIP));
    let mut mixture = Mixture::read(b, &s, ("num_experts", 64), ("num_experts_per_tok", 8), s.intermediate)?;
    mixture.router.read_sum(b.config, false)?;
    s.experts = Some(mixture);
    blocks::decoder(b, &s, task)
}
