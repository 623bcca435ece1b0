//! Qwen3.5 with experts (Qwen Team 2026), the text model as `transformers/models/qwen3_5_moe` has it.

use crate::architecture::{Architecture, Properties};
use crate::architectures::qwen3_5;
use crate::layers::blocks::{self, Defaults};
use crate::layers::builder::Builder;
use crate::layers::experts::{Mixture, Shared, Sum};
use crate::layers::{decoder, delta, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "qwen3_5_moe_text",
    class_prefix: "Qwen3_5Moe",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        delta::KEYS,
        qwen3_5::KEYS,
        &["moe_intermediate_size", "num_experts", "num_experts_per_tok", SHARED],
    ],
    build,
    ..qwen3_5::ARCHITECTURE
};

const SHARED: &str = "shared_expert_intermediate_size";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults {
        hidden_size: 2048,
        // No layer has one.
        intermediate_size: None,
        num_hidden_layers: 40,
        num_key_value_heads: Some(2),
        ..qwen3_5::DEFAULTS
    };
    let mut s = qwen3_5::read(b, &defaults, qwen3_5::APART)?;
    let inner = b.config.size("moe_intermediate_size", 512)?;
    let mut mixture = Mixture::read(b, &s, ("num_experts", 256), ("num_experts_per_tok", 8), inner)?;
    mixture.router.sum = Some(Sum::Plus(0.0));
    let shared = b.config.size(SHARED, 512)?;
    mixture.shared = Some(Shared { module: "shared_expert", inner: shared, gate: Some("shared_expert_gate") });
    s.experts = Some(mixture);
    blocks::decoder(b, &s, task)
}
