//! DeepSeek-V3 and R1 (DeepSeek-AI 2024, arXiv:2412.19437), as `transformers/models/deepseek_v3` has them: DeepSeek-V2 with
//! another router. Layers that predict further tokens are left out.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config::Config;
use crate::checkpoint::config_keys::Only;
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::experts::{self, Correction, GroupScore, Groups, Mixture, Router, Scoring, Shared, Sum};
use crate::layers::latent::{self, Latent, Pairs};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "deepseek_v3",
    class_prefix: "DeepseekV3",
    tasks: decoder::WITHOUT_ANSWERS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        latent::KEYS,
        experts::SUM_KEYS,
        experts::DEEPSEEK_KEYS,
        &["hidden_act", "rms_norm_eps", "rope_interleave"],
    ],
    older_keys: &[("num_local_experts", "n_routed_experts")],
    only: &[Only::One("moe_layer_freq"), ONLY[0], ONLY[1]],
    irrelevant_keys: &[
        // The sum of two sizes that are read.
        "qk_head_dim",
        // Of layers that predict further tokens.
        "num_mtp_layers",
        "num_nextn_predict_layers",
        // Training.
        "aux_loss_alpha",
        "ep_size",
        "seq_aux",
        // Cuts products into pieces, as they were trained: same result.
        "pretraining_tp",
    ],
    // Frequencies that old checkpoints store, a layer that predicts further tokens, then heads of other tasks.
    unused_tensors: &[".rotary_emb.inv_freq", "layers.61.", "score.", "qa_outputs."],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

/// What the router of the class is, where the authors' configurations say it.
pub(super) const ONLY: [Only; 2] = [Only::Text("scoring_func", "sigmoid"), Only::Text("topk_method", "noaux_tc")];

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults {
        vocab_size: 129_280,
        max_position_embeddings: Some(4096),
        hidden_size: 7168,
        intermediate_size: Some(18432),
        num_hidden_layers: 61,
        num_attention_heads: 128,
        ..Defaults::LLAMA
    };
    let sizes = latent::Defaults { queries: Some(1536), rank: 512, still: 128, turning: 64, values: Some(128) };
    let mut s = attention(b, defaults, &sizes)?;
    s.experts = Some(mixture(
        b,
        &s,
        &Numbers {
            experts: Some(256),
            taken: Some(8),
            inner: 2048,
            shared: Some(1),
            groups: [8, 4],
            dense: 3,
            factor: 2.5,
            normalizes: true,
        },
    )?);
    blocks::decoder(b, &s, task)
}

/// Reads all but the experts of DeepSeek-V3 and its kin.
pub(super) fn attention(b: &Builder<'_>, defaults: Defaults, sizes: &latent::Defaults) -> Result<Settings, ModelError> {
    // Heads are of other sizes than this, which the features that turn take the place of.
    let mut s = Settings::read(b, &Defaults { head_dim: Some(sizes.turning), ..defaults })?;
    let pairs = if b.config.boolean("rope_interleave", true)? { Pairs::NeighboursAsHalves } else { Pairs::Halves };
    s.latent = Some(Latent::read(b, &mut s, sizes, pairs)?);
    Ok(s)
}

/// What the configuration says of experts, where it does not.
pub(super) struct Numbers {
    pub(super) experts: Option<usize>,
    pub(super) taken: Option<usize>,
    pub(super) inner: usize,
    pub(super) shared: Option<usize>,
    /// Groups, and how many are taken.
    pub(super) groups: [usize; 2],
    /// Layers without experts.
    pub(super) dense: usize,
    pub(super) factor: f64,
    pub(super) normalizes: bool,
}

impl Numbers {
    /// Numbers of a model that reads its own.
    pub(super) const NONE: Self = Self {
        experts: None,
        taken: None,
        inner: 1,
        shared: None,
        groups: [1, 1],
        dense: 0,
        factor: 1.0,
        normalizes: false,
    };
}

/// The experts of DeepSeek-V3 and its kin: scores are sigmoids, to which a number for each expert is added for the choice alone, and
/// the best groups are those with the largest sums of two.
pub(super) fn mixture(b: &Builder<'_>, s: &Settings, defaults: &Numbers) -> Result<Mixture, ModelError> {
    let config = b.config;
    let number = |key, default: Option<usize>| match default {
        Some(default) => config.size(key, default),
        None => experts::required(config, key),
    };
    let inner = config.size("moe_intermediate_size", defaults.inner)?;
    let (count, taken) =
        (number("n_routed_experts", defaults.experts)?, number("num_experts_per_tok", defaults.taken)?);
    let mut mixture = Mixture::new(config, count, vec![taken; s.layers.value], inner)?;
    mixture.dense = experts::dense_before(config, s, "first_k_dense_replace", defaults.dense)?;
    let shared = match defaults.shared {
        Some(default) => experts::shared(config, "n_shared_experts", default, inner)?,
        None => Some(experts::times(experts::required(config, "n_shared_experts")?, inner)),
    };
    mixture.shared = shared.map(Shared::beside);
    mixture.router = router(config, &mixture, defaults)?;
    Ok(mixture)
}

/// The router of DeepSeek-V3 and its kin.
pub(super) fn router(config: &Config<'_>, mixture: &Mixture, defaults: &Numbers) -> Result<Router, ModelError> {
    let [groups, taken] = defaults.groups;
    let groups = [config.optional_size("n_group", Some(groups))?, config.optional_size("topk_group", Some(taken))?];
    Ok(Router {
        scoring: Scoring::Sigmoid,
        correction: Some(Correction { name: "gate.e_score_correction_bias", is_row: false }),
        groups: Groups::of(config, mixture, groups, GroupScore::TwoBest)?,
        sum: config.boolean("norm_topk_prob", defaults.normalizes)?.then_some(Sum::Plus(1e-20)),
        factor: experts::factor(config, defaults.factor)?,
        ..Router::SOFTMAX
    })
}
