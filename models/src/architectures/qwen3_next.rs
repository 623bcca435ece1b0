//! Qwen3-Next (Qwen Team 2025), as `transformers/models/qwen3_next` has it: Qwen3.5 with experts.

use planish_ir::ValueId;

use crate::architecture::{Architecture, Properties};
use crate::architectures::qwen3_5;
use crate::layers::blocks::{self, Defaults, Mixer, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Decoder};
use crate::layers::delta::{self, Projections};
use crate::layers::experts::{self, Mixture, Shared};
use crate::layers::rope;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "qwen3_next",
    class_prefix: "Qwen3Next",
    tasks: decoder::TASKS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        delta::KEYS,
        experts::DENSE_KEYS,
        experts::SUM_KEYS,
        qwen3_5::KEYS,
        &["moe_intermediate_size", "num_experts", "num_experts_per_tok", "shared_expert_intermediate_size"],
    ],
    irrelevant_keys: &["attn_output_gate", "mamba_ssm_dtype", "output_router_logits", "router_aux_loss_coef"],
    build,
    ..qwen3_5::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults {
        vocab_size: 151_936,
        max_position_embeddings: Some(32768),
        hidden_size: 2048,
        intermediate_size: Some(5632),
        num_hidden_layers: 48,
        num_attention_heads: 16,
        num_key_value_heads: Some(2),
        head_dim: Some(256),
        ..Defaults::LLAMA
    };
    let mut s = qwen3_5::read(b, &defaults, Mixer { module: "linear_attn", apply: by_head })?;
    let inner = b.config.size("moe_intermediate_size", 512)?;
    let mut mixture = Mixture::read(b, &s, ("num_experts", 512), ("num_experts_per_tok", 10), inner)?;
    mixture.router.read_sum(b.config, true)?;
    mixture.dense = experts::dense_between(b.config, &s)?;
    let shared = b.config.size("shared_expert_intermediate_size", 512)?;
    mixture.shared = Some(Shared { module: "shared_expert", inner: shared, gate: Some("shared_expert_gate") });
    s.experts = Some(mixture);
    blocks::decoder(b, &s, task)
}

fn by_head(
    b: &mut Builder<'_>,
    s: &Settings,
    decoder: &mut Decoder,
    x: ValueId,
    module: &str,
) -> Result<ValueId, ModelError> {
    delta::apply(b, s, Projections::ByHead, decoder, x, module)
}
