//! Granite 3 with experts (IBM 2024), as `transformers/models/granitemoe` has it.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{granite, llama};
use crate::checkpoint::gguf::config::Conversion;
use crate::checkpoint::gguf::parts::{self, Gating};
use crate::checkpoint::gguf::{Kind, Names};
use crate::layers::blocks::{self, Settings};
use crate::layers::builder::Builder;
use crate::layers::experts::{Mixture, Router, Scoring, Stored};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "granitemoe",
    class_prefix: "GraniteMoe",
    tasks: decoder::WITHOUT_LABELS,
    renamed: RENAMED,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, granite::KEYS, &["num_experts_per_tok", "num_local_experts"]],
    irrelevant_keys: &[],
    gguf: Some(&Kind {
        name: "granitemoe",
        class: "GraniteMoeForCausalLM",
        names: GGUF_NAMES,
        configure: configure_gguf,
        ..llama::GGUF
    }),
    build,
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
        ("ffn_norm", "post_attention_layernorm"),
        ("ffn_gate_inp", "block_sparse_moe.router.layer"),
        ("ffn_gate_exps", "block_sparse_moe.experts.gate_proj"),
        ("ffn_up_exps", "block_sparse_moe.experts.up_proj"),
        ("ffn_down_exps", "block_sparse_moe.experts.down_proj"),
    ],
    ..llama::GGUF_NAMES
};

fn configure_gguf(c: &mut Conversion<'_>) -> Result<(), String> {
    if c.size_or_none("expert_shared_feed_forward_length")?.is_some() {
        return Err(c.unexpected(
            "expert_shared_feed_forward_length",
            "0: experts for all tokens are not supported in GGUF files",
        ));
    }
    granite::configure_gguf(c)?;
    parts::must_normalize(c, true)?;
    parts::experts(c, ["num_local_experts", "num_experts_per_tok", "intermediate_size"], Gating::Softmax)
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = granite::read(b)?;
    s.names.feed_forward = "block_sparse_moe";
    s.experts = Some(mixture(b, &s)?);
    blocks::decoder(b, &s, task)
}

/// The names of tensors in transformers 5. What all tokens take is beside the experts.
pub(super) const RENAMED: &[(&str, &str)] = &[
    ("block_sparse_moe.shared_mlp.", "shared_mlp."),
    ("block_sparse_moe.input_linear.weight", "block_sparse_moe.experts.gate_up_proj"),
    ("block_sparse_moe.output_linear.weight", "block_sparse_moe.experts.down_proj"),
    ("router.layer.", "router."),
];

/// The experts of Granite with experts and its kin.
pub(super) fn mixture(b: &Builder<'_>, s: &Settings) -> Result<Mixture, ModelError> {
    let mixture = Mixture::read(b, s, ("num_local_experts", 8), ("num_experts_per_tok", 2), s.intermediate)?;
    Ok(Mixture { router: ROUTER, stored: STORED, ..mixture })
}

pub(super) const ROUTER: Router = Router { name: "router.layer", scoring: Scoring::SoftmaxOfChosen, ..Router::SOFTMAX };

pub(super) const STORED: Stored = Stored::Packed(["input_linear.weight", "output_linear.weight"]);
