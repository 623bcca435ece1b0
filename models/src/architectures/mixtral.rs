//! Mixtral (Jiang et al. 2024, arXiv:2401.04088), as `transformers/models/mixtral` has it: Mistral with experts.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::gguf::config::Conversion;
use crate::checkpoint::gguf::parts::{self, Gating};
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::experts::{Mixture, Router, Stored, Sum};
use crate::layers::windows::Windows;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "mixtral",
    class_prefix: "Mixtral",
    renamed: &[("block_sparse_moe.", "mlp.")],
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        &["hidden_act", "num_experts_per_tok", "num_local_experts", "rms_norm_eps", "sliding_window"],
    ],
    older_keys: &[("num_experts", "num_local_experts")],
    // Training.
    irrelevant_keys: &["router_jitter_noise"],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

/// What GGUF files of Llama with experts say of it.
pub(super) fn configure_gguf(c: &mut Conversion<'_>, window: Option<u64>) -> Result<(), String> {
    c.set_model("mixtral", "MixtralForCausalLM");
    if let Some(window) = window {
        c.set("sliding_window", window);
    }
    let names = ["num_local_experts", "num_experts_per_tok", "intermediate_size"];
    parts::experts(c, names, Gating::Softmax)?;
    parts::must_normalize(c, true)
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = settings(b, &Defaults { intermediate_size: Some(14336), ..DEFAULTS })?;
    let mixture = Mixture::read(b, &s, ("num_local_experts", 8), ("num_experts_per_tok", 2), s.intermediate)?;
    s.experts = Some(Mixture {
        router: Router { sum: Some(Sum::Plus(0.0)), ..Router::SOFTMAX },
        stored: PROJECTIONS,
        ..mixture
    });
    blocks::decoder(b, &s, task)
}

/// What Mixtral and Phi-3.5-MoE have in common.
pub(super) const DEFAULTS: Defaults = Defaults {
    max_position_embeddings: Some(131_072),
    num_key_value_heads: Some(8),
    eps: ("rms_norm_eps", 1e-5),
    ..Defaults::LLAMA
};

/// The projections of experts.
pub(super) const PROJECTIONS: Stored = Stored::Modules(["w1", "w3", "w2"]);

/// Reads what Mixtral and Phi-3.5-MoE have in common, but the experts.
pub(super) fn settings(b: &Builder<'_>, defaults: &Defaults) -> Result<Settings, ModelError> {
    let mut s = Settings::read(b, defaults)?;
    s.names.feed_forward = "block_sparse_moe";
    s.rope = rope::Defaults { theta: 1_000_000.0, ..rope::Defaults::default() };
    let window = b.config.optional_size("sliding_window", None)?;
    s.windows = Windows::everywhere(s.layers, window);
    Ok(s)
}
