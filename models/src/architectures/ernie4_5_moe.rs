//! ERNIE 4.5 with experts (Baidu 2025), as `transformers/models/ernie4_5_moe` has it.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{ernie4_5, llama};
use crate::checkpoint::config::Config;
use crate::checkpoint::config_keys::Only;
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::experts::{self, Correction, Mixture, Router, Shared, Sum};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "ernie4_5_moe",
    class_prefix: "Ernie4_5_Moe",
    tasks: decoder::WITHOUT_LABELS,
    renamed: &[("mlp.moe_statics.", "mlp.gate.moe_statics.")],
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        &[
            "hidden_act",
            "moe_intermediate_size",
            "moe_k",
            "moe_layer_end_index",
            "moe_layer_interval",
            "moe_layer_start_index",
            "moe_num_experts",
            "moe_num_shared_experts",
            "rms_norm_eps",
            "use_bias",
            LEAST,
        ],
    ],
    older_keys: &[("num_experts", "moe_num_experts"), ("num_experts_per_tok", "moe_k")],
    only: &[Only::Text("moe_gate", "topk"), Only::On("moe_use_aux_free")],
    irrelevant_keys: &[
        // Training.
        "moe_capacity",
        // Of layers that predict further tokens.
        "num_nextn_predict_layers",
    ],
    // Layers that predict further tokens, then heads of other tasks.
    unused_tensors: &["mtp", "score.", "qa_outputs."],
    gguf: None,
    build,
    pad_token_id: Some(0),
    ..llama::ARCHITECTURE
};

const LEAST: &str = "moe_norm_min";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = ernie4_5::read(
        b,
        &Defaults {
            hidden_size: 2560,
            intermediate_size: Some(12288),
            num_hidden_layers: 28,
            num_attention_heads: 20,
            num_key_value_heads: Some(4),
            head_dim: None,
            ..ernie4_5::DEFAULTS
        },
    )?;
    s.logit_bias = s.input_bias;
    let config = b.config;
    let inner = config.size("moe_intermediate_size", 1536)?;
    let mut mixture = Mixture::read(b, &s, ("moe_num_experts", 64), ("moe_k", 6), inner)?;
    mixture.router = Router {
        correction: Some(Correction { name: "moe_statics.e_score_correction_bias", is_row: true }),
        sum: Some(Sum::AtLeast(config.not_negative(LEAST, 1e-12)?, LEAST)),
        ..Router::SOFTMAX
    };
    mixture.shared = experts::shared(config, "moe_num_shared_experts", 2, inner)?.map(Shared::beside);
    mixture.dense = dense(config, &s)?;
    s.experts = Some(mixture);
    blocks::decoder(b, &s, task)
}

/// Whether each layer is dense: experts are in every so-manieth layer of a range.
fn dense(config: &Config<'_>, s: &Settings) -> Result<Vec<bool>, ModelError> {
    const LAST: &str = "moe_layer_end_index";
    let first = config.whole("moe_layer_start_index", 1)?;
    let last = match config.get(LAST).and_then(serde_json::Value::as_i64) {
        Some(-1) => s.layers.value - 1,
        _ => config.whole(LAST, s.layers.value - 1)?,
    };
    let step = config.given_size(&["moe_layer_interval"])?.map_or(1, |size| size.value);
    let is_dense = |layer: usize| !(layer + 1).is_multiple_of(step) || layer < first || layer > last;
    Ok((0..s.layers.value).map(is_dense).collect())
}
