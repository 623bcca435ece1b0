//! MiniMax-M2 (MiniMax 2025), as `transformers/models/minimax_m2` has it: norms of all heads of queries and keys as one, a part of
//! each head rotated, and experts that a corrected sigmoid chooses.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{llama, mixtral};
use crate::checkpoint::config_keys::Only;
use crate::layers::blocks::{self, Defaults, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::experts::{Correction, Mixture, Router, Scoring, Sum};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "minimax_m2",
    class_prefix: "MiniMaxM2",
    tasks: decoder::WITHOUT_LABELS,
    renamed: &[("block_sparse_moe.", "mlp.")],
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        &["hidden_act", "num_experts_per_tok", "num_local_experts", "rms_norm_eps", ROTARY_SIZE],
    ],
    older_keys: &[("num_experts", "num_local_experts")],
    only: &[
        Only::Text("scoring_func", "sigmoid"),
        Only::On("use_qk_norm"),
        Only::On("use_routing_bias"),
        Only::Text("qk_norm_type", "per_layer"),
    ],
    irrelevant_keys: &[
        // All layers have attention.
        "attn_type_list",
        // Of layers that predict further tokens.
        "mtp_transformer_layers",
        "num_mtp_modules",
        "use_mtp",
        // Training.
        "router_jitter_noise",
        // Of experts that all tokens take, which there are none of.
        "shared_intermediate_size",
    ],
    unused_tensors: &["mtp.", "score.", "qa_outputs."],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

/// The features of a head that turn, in published configurations.
const ROTARY_SIZE: &str = "rotary_dim";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 200_064,
            max_position_embeddings: Some(196_608),
            hidden_size: 3072,
            intermediate_size: Some(1536),
            num_hidden_layers: 62,
            num_attention_heads: 48,
            num_key_value_heads: Some(8),
            head_dim: Some(128),
            ..Defaults::LLAMA
        },
    )?;
    s.names.feed_forward = "block_sparse_moe";
    s.head_norms = HeadNorms::Whole;
    let turning = b.config.optional_size(ROTARY_SIZE, None)?.unwrap_or(s.heads.size.value);
    let part = turning as f64 / s.heads.size.value as f64;
    s.rope = rope::Defaults { theta: 5_000_000.0, part: Some(part), ..rope::Defaults::default() };
    let mixture = Mixture::read(b, &s, ("num_local_experts", 256), ("num_experts_per_tok", 8), s.intermediate)?;
    s.experts = Some(Mixture {
        router: Router {
            scoring: Scoring::Sigmoid,
            correction: Some(Correction { name: "e_score_correction_bias", is_row: false }),
            sum: Some(Sum::Plus(0.0)),
            ..Router::SOFTMAX
        },
        stored: mixtral::PROJECTIONS,
        ..mixture
    });
    blocks::decoder(b, &s, task)
}
