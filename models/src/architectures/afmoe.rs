//! Trinity (Arcee AI 2025), as `transformers/models/afmoe` has it: gates of what attention gives, norms before and after, a rotary
//! embedding in layers with windows only, and experts that a corrected sigmoid chooses.

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config_keys::Only;
use crate::layers::blocks::{self, Around, Defaults, EmbeddingScale, HeadNorms, OutputGate, Settings};
use crate::layers::builder::Builder;
use crate::layers::experts::{self, Correction, Mixture, Router, Scoring, Shared, Sum};
use crate::layers::windows::{self, Windows};
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "afmoe",
    class_prefix: "Afmoe",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        windows::KEYS,
        &[
            "attention_bias",
            "hidden_act",
            "moe_intermediate_size",
            "num_experts",
            "num_experts_per_tok",
            "rms_norm_eps",
            DENSE,
            EVERY,
            FACTOR,
            SCALES,
            SHARED,
        ],
    ],
    only: &[
        Only::Text("score_func", "sigmoid"),
        Only::On("route_norm"),
        Only::One("n_group"),
        Only::One("topk_group"),
        Only::One("num_expert_groups"),
        Only::One("num_limited_groups"),
    ],
    irrelevant_keys: &[
        // Training.
        "load_balance_coeff",
        // How experts are computed.
        "use_grouped_mm",
    ],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const DENSE: &str = "num_dense_layers";
const EVERY: &str = "global_attn_every_n_layers";
const FACTOR: &str = "route_scale";
const SCALES: &str = "mup_enabled";
const SHARED: &str = "num_shared_experts";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 200_192,
            max_position_embeddings: Some(16384),
            hidden_size: 2048,
            intermediate_size: Some(6144),
            num_attention_heads: 16,
            head_dim: Some(128),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.attention_norms = Around::before_and_after("input_layernorm", "post_attention_layernorm");
    s.feed_forward_norms = Around::before_and_after("pre_mlp_layernorm", "post_mlp_layernorm");
    s.head_norms = HeadNorms::Each;
    s.output_gate = OutputGate::Apart("gate_proj");
    if b.config.boolean(SCALES, false)? {
        s.embedding_scale = EmbeddingScale::Number((s.hidden.value as f64).sqrt(), SCALES);
    }
    let every = b.config.size(EVERY, 4)?.value;
    let window = b.config.optional_size("sliding_window", Some(1024))?;
    s.windows = Windows::read(b.config, s.layers, window, |layer| !(layer + 1).is_multiple_of(every))?;
    s.unrotated = (0..s.layers.value).map(|layer| s.windows.of(layer).is_none()).collect();
    let inner = b.config.size("moe_intermediate_size", 1408)?;
    let mixture = Mixture::read(b, &s, ("num_experts", 64), ("num_experts_per_tok", 6), inner)?;
    s.experts = Some(Mixture {
        router: Router {
            name: "router.gate",
            scoring: Scoring::Sigmoid,
            correction: Some(Correction { name: "expert_bias", is_row: false }),
            sum: Some(Sum::Plus(1e-20)),
            factor: (b.config.positive(FACTOR, 1.0)?, FACTOR),
            ..Router::SOFTMAX
        },
        shared: experts::shared(b.config, SHARED, 2, inner)?.map(Shared::beside),
        dense: experts::dense_before(b.config, &s, DENSE, 1)?,
        ..mixture
    });
    blocks::decoder(b, &s, task)
}
