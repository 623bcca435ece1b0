//! Granite 3 with experts (IBM 2024), as `transformers/models/granitemoe` has it.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{granite, llama};
use crate::layers::blocks;
use crate::layers::builder::Builder;
use crate::layers::experts::{Mixture, Router, Scoring, Stored};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "granitemoe",
    class_prefix: "GraniteMoe",
    tasks: decoder::WITHOUT_LABELS,
    renamed: &[
        ("input_linear.weight", "experts.gate_up_proj"),
        ("output_linear.weight", "experts.down_proj"),
        ("router.layer.", "router."),
    ],
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, granite::KEYS, &["num_experts_per_tok", "num_local_experts"]],
    irrelevant_keys: &[],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = granite::read(b)?;
    s.names.feed_forward = "block_sparse_moe";
    let mixture = Mixture::read(b, &s, ("num_local_experts", 8), ("num_experts_per_tok", 2), s.intermediate)?;
    s.experts = Some(Mixture {
        router: Router { name: "router.layer", scoring: Scoring::SoftmaxOfChosen, ..Router::SOFTMAX },
        stored: Stored::Packed(["input_linear.weight", "output_linear.weight"]),
        ..mixture
    });
    blocks::decoder(b, &s, task)
}
