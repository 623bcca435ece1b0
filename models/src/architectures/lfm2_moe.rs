//! LFM2 with experts (Liquid AI 2025, arXiv:2511.23404), as `transformers/models/lfm2_moe` has it.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{lfm2, llama, mixtral};
use crate::layers::blocks;
use crate::layers::builder::Builder;
use crate::layers::experts::{self, Correction, Mixture, Router, Scoring, Sum};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "lfm2_moe",
    class_prefix: "Lfm2Moe",
    other_bases: &[],
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        lfm2::KEYS,
        experts::SUM_KEYS,
        &["moe_intermediate_size", "num_experts", "num_experts_per_tok", "routed_scaling_factor", BIAS, DENSE],
    ],
    older_keys: &[("tie_embedding", "tie_word_embeddings")],
    irrelevant_keys: lfm2::IRRELEVANT_KEYS,
    pad_token_id: Some(0),
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const BIAS: &str = "use_expert_bias";
const DENSE: &str = "num_dense_layers";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = lfm2::read(b, [2048, 7168])?;
    let inner = b.config.size("moe_intermediate_size", 1792)?;
    let mixture = Mixture::read(b, &s, ("num_experts", 32), ("num_experts_per_tok", 4), inner)?;
    let is_corrected = b.config.boolean(BIAS, true)?;
    s.experts = Some(Mixture {
        router: Router {
            scoring: Scoring::Sigmoid,
            correction: is_corrected.then_some(Correction { name: "expert_bias", is_row: false }),
            sum: b.config.boolean(experts::SUM_KEYS[0], true)?.then_some(Sum::Plus(1e-6)),
            factor: experts::factor(b.config, 1.0)?,
            ..Router::SOFTMAX
        },
        stored: mixtral::PROJECTIONS,
        dense: experts::dense_before(b.config, &s, DENSE, 2)?,
        ..mixture
    });
    blocks::decoder(b, &s, task)
}
