//! Granite 4 (IBM 2025), as `transformers/models/granitemoehybrid` has it: Granite with mixers of Mamba-2 in place of attention in
//! most layers, with experts or without.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{bamba, granitemoe, llama};
use crate::checkpoint::config::{Config, Size};
use crate::layers::blocks::{self, Defaults, EmbeddingScale, FeedForward, Mixer, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Positions};
use crate::layers::experts::{Mixture, Shared};
use crate::layers::windows::kinds;
use crate::layers::{rope, state_space};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "granitemoehybrid",
    class_prefix: "GraniteMoeHybrid",
    other_bases: &[],
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        state_space::MAMBA_KEYS,
        &[
            "attention_bias",
            "attention_multiplier",
            "embedding_multiplier",
            "hidden_act",
            "logits_scaling",
            "residual_multiplier",
            "rms_norm_eps",
            "shared_intermediate_size",
            LAYER_TYPES,
            POSITIONS,
            EXPERTS,
            TAKEN,
        ],
    ],
    renamed: granitemoe::RENAMED,
    older_keys: &[("layers_block_type", LAYER_TYPES)],
    irrelevant_keys: &[
        "mamba_chunk_size",
        // Of training.
        "init_method",
        "output_router_logits",
        "router_aux_loss_coef",
    ],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const LAYER_TYPES: &str = "layer_types";
const POSITIONS: &str = "position_embedding_type";
const EXPERTS: &str = "num_local_experts";
const TAKEN: &str = "num_experts_per_tok";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    const KEYS: [&str; 3] = ["embedding_multiplier", "residual_multiplier", "logits_scaling"];
    let mut s = Settings::read(b, &Defaults::LLAMA)?;
    s.read_attention_bias(b, false)?;
    s.scale = b.config.positive("attention_multiplier", 1.0)?;
    s.embedding_scale = EmbeddingScale::Number(b.config.positive(KEYS[0], 1.0)?, KEYS[0]);
    s.residual_factor = Some((b.config.positive(KEYS[1], 1.0)?, KEYS[1]));
    s.logit_factor = Some((1.0 / b.config.positive(KEYS[2], 1.0)?, KEYS[2]));
    let shared = b.config.size("shared_intermediate_size", 1024)?;
    s.feed_forward = FeedForward::Packed { both: "input_linear", last: false, down: "output_linear" };
    let (count, taken) = (b.config.whole(EXPERTS, 8)?, b.config.size_or(TAKEN, Size::derived(2, TAKEN))?);
    if count == 0 {
        s.names.feed_forward = "shared_mlp";
        s.intermediate = shared;
    } else {
        s.names.feed_forward = "block_sparse_moe";
        let count = Size::derived(count, EXPERTS);
        let mixture = Mixture::new(b.config, count, vec![taken; s.layers.value], s.intermediate)?;
        s.experts = Some(Mixture {
            router: granitemoe::ROUTER,
            stored: granitemoe::STORED,
            shared: Some(Shared { module: "shared_mlp", inner: shared, gate: None }),
            ..mixture
        });
    }
    if b.config.text(POSITIONS, "")? != "rope" {
        s.position_source = Positions::Unused;
        s.unrotated = vec![true; s.layers.value];
    }
    s.mixers = mixers(b.config, s.layers)?;
    blocks::decoder(b, &s, task)
}

/// Mixers in all layers but those that a list says have attention.
fn mixers(config: &Config<'_>, layers: Size) -> Result<Vec<Option<Mixer>>, ModelError> {
    // Both names of a kind occur.
    let known = ["linear_attention", "mamba", "full_attention", "attention"];
    let kinds = kinds(config, LAYER_TYPES, layers, known, |_| known[0])?;
    let mixer = Mixer { module: "mamba", apply: bamba::mixer };
    Ok(kinds.into_iter().map(|kind| known[..2].contains(&kind).then_some(mixer)).collect())
}
