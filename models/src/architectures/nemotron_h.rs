//! Nemotron-H (NVIDIA 2025, arXiv:2504.03624), as `transformers/models/nemotron_h` has it: layers of one mixer of Mamba-2, one
//! attention without positions, or one feed-forward each.

use planish_ir::ValueId;

use crate::architecture::{Architecture, Properties};
use crate::architectures::{deepseek_v3, llama};
use crate::checkpoint::config::{Config, Size, is_off};
use crate::layers::activation::Activation;
use crate::layers::blocks::{self, Around, Defaults, FeedForward, Mixer, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Decoder, Positions};
use crate::layers::experts::{Latent, Mixture, Shared, Stored};
use crate::layers::state_space::{GatedNorm, StateSpace};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "nemotron_h",
    class_prefix: "NemotronH",
    base: "backbone",
    other_bases: &["model"],
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        blocks::KEYS,
        &[
            "conv_kernel",
            "layer_norm_epsilon",
            "mamba_head_dim",
            "mamba_hidden_act",
            "mamba_num_heads",
            "mlp_bias",
            "mlp_hidden_act",
            "n_groups",
            "ssm_state_size",
            "time_step_min",
            "use_bias",
            "use_conv_bias",
            LAYER_TYPES,
            PATTERN,
        ],
        OF_EXPERTS,
    ],
    older_keys: &[
        ("layer_types", LAYER_TYPES),
        ("mamba_conv_bias", "use_conv_bias"),
        ("mamba_d_conv", "conv_kernel"),
        ("mamba_dt_min", "time_step_min"),
        ("mamba_n_groups", "n_groups"),
        ("num_local_experts", EXPERTS),
    ],
    irrelevant_keys: &[
        // Attention has no bias, whatever it says.
        "attention_bias",
        "chunk_size",
        "expand",
        "hidden_dropout",
        "mamba_chunk_size",
        "mamba_dt_init_floor",
        "mamba_dt_limit",
        "mamba_dt_max",
        "mamba_expand",
        "mamba_proj_bias",
        "mamba_ssm_cache_dtype",
        "num_logits_to_keep",
        "rescale_prenorm_residual",
        "residual_in_fp32",
        "rms_norm_eps",
        "sliding_window",
        "time_step_floor",
        "time_step_limit",
        "time_step_max",
        "use_mamba_kernels",
        // Whether a device computes the experts of all tokens beside the others.
        "moe_shared_expert_overlap",
        // There is one feed-forward of all tokens, whatever it says.
        "n_shared_experts",
        // Of the prediction of several tokens.
        "mtp_hybrid_override_pattern",
        "mtp_layers_block_type",
        "num_nextn_predict_layers",
    ],
    unused_tensors: &["mtp."],
    pad_token_id: Some(0),
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

/// How many experts layers with some have.
const EXPERTS: &str = "n_routed_experts";
/// The features that experts take and give, where they are not those of the model.
const LATENT: &str = "moe_latent_size";
/// Those inside the feed-forward that all tokens take.
const SHARED: &str = "moe_shared_expert_intermediate_size";
const LAYER_TYPES: &str = "layers_block_type";
const PATTERN: &str = "hybrid_override_pattern";

/// The keys of experts.
const OF_EXPERTS: &[&str] = &[
    "moe_intermediate_size",
    "n_group",
    "norm_topk_prob",
    "num_experts_per_tok",
    "routed_scaling_factor",
    "topk_group",
    EXPERTS,
    LATENT,
    SHARED,
];

/// What a layer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Space,
    Attention,
    Forward,
    Experts,
}

impl Kind {
    /// What takes the place of attention.
    fn mixer(self) -> Option<Mixer> {
        const MODULE: &str = "mixer";
        match self {
            Kind::Attention => None,
            Kind::Space => Some(Mixer { module: MODULE, apply: space }),
            Kind::Forward => Some(Mixer { module: MODULE, apply: forward }),
            Kind::Experts => Some(Mixer { module: MODULE, apply: mixture }),
        }
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 131_072,
            max_position_embeddings: Some(4096),
            intermediate_size: Some(21504),
            num_hidden_layers: 0,
            num_key_value_heads: Some(8),
            head_dim: Some(128),
            activation: ("mlp_hidden_act", "relu2"),
            eps: ("layer_norm_epsilon", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.names.embeddings = "embeddings";
    s.names.attention = "mixer";
    s.names.final_norm = Some("norm_f");
    s.attention_norms = Around::before("norm");
    s.feed_forward = FeedForward::None;
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    s.position_source = Positions::Unused;
    let kinds = kinds(b.config)?;
    s.mixers = kinds.iter().map(|kind| kind.mixer()).collect();
    if let Some(given) = b.config.given_size(&["num_hidden_layers"])?.filter(|given| given.value != s.mixers.len()) {
        b.config.warn(format!("{given}, but the list of what each layer is has {}, which counts", s.mixers.len()));
    }
    s.layers = Size::derived(s.mixers.len(), "the layers of the pattern");
    s.experts = match kinds.contains(&Kind::Experts) {
        true => Some(experts_of(b.config, &s)?),
        false => {
            // What is said of experts that no layer has does not count.
            for key in OF_EXPERTS {
                let _ = b.config.get(key);
            }
            None
        }
    };
    s.unrotated = vec![true; s.layers.value];
    blocks::decoder(b, &s, task)
}

/// What each layer is: as a list says, or a text with a letter for each.
fn kinds(config: &Config<'_>) -> Result<Vec<Kind>, ModelError> {
    let kind = |key: &str, name: &str| match name {
        "linear_attention" | "mamba" | "M" => Ok(Kind::Space),
        "full_attention" | "attention" | "*" => Ok(Kind::Attention),
        "mlp" | "-" => Ok(Kind::Forward),
        "moe" | "E" => Ok(Kind::Experts),
        _ => Err(config.error(format!(
            "`{key}` has \"{name}\", expected a mixer of Mamba-2 (\"linear_attention\", \"mamba\" or M), attention \
             (\"full_attention\", \"attention\" or *), a feed-forward (\"mlp\" or -) or experts (\"moe\" or E)"
        ))),
    };
    let pattern = config.text(PATTERN, "")?;
    if let Some(value) = config.get(LAYER_TYPES).filter(|value| !is_off(value)) {
        let names = value.as_array().and_then(|list| list.iter().map(serde_json::Value::as_str).collect());
        let names: Vec<&str> = names.ok_or_else(|| config.unexpected(LAYER_TYPES, value, "a list of texts"))?;
        return names.into_iter().map(|name| kind(LAYER_TYPES, name)).collect();
    }
    if pattern.is_empty() {
        return Err(config.error(format!("`{LAYER_TYPES}` is missing: it says what each layer is")));
    }
    pattern.chars().map(|letter| kind(PATTERN, letter.to_string().as_str())).collect()
}

fn space(
    b: &mut Builder<'_>,
    s: &Settings,
    decoder: &mut Decoder,
    x: ValueId,
    module: &str,
) -> Result<ValueId, ModelError> {
    let config = b.config;
    let (groups, bias) = (config.size("n_groups", 8)?, config.boolean("use_bias", false)?);
    let mixer = StateSpace {
        hidden: s.hidden,
        heads: config.size("mamba_num_heads", 128)?,
        size: config.size("mamba_head_dim", 64)?,
        groups,
        state: config.size("ssm_state_size", 128)?,
        taps: config.size("conv_kernel", 4)?,
        bias,
        output_bias: bias,
        convolution_bias: config.boolean("use_conv_bias", true)?,
        activation: Activation::read(config, "mamba_hidden_act", "silu")?,
        limit: [config.positive("time_step_min", 0.001)?, f64::INFINITY],
        norm: GatedNorm { parts: Some(groups), gate_last: false, eps: s.eps },
        factors: None,
    };
    mixer.check(config)?.apply(b, decoder, x, module)
}

fn forward(
    b: &mut Builder<'_>,
    s: &Settings,
    _: &mut Decoder,
    x: ValueId,
    module: &str,
) -> Result<ValueId, ModelError> {
    plain(b, s, x, s.intermediate, module)
}

/// A feed-forward of so many features.
fn plain(b: &mut Builder<'_>, s: &Settings, x: ValueId, size: Size, module: &str) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let inner = b.projection(x, &at("up_proj"), [size, s.hidden], s.feed_forward_bias)?;
    let inner = s.activation.apply(b, inner, &at("act_fn"))?;
    b.projection(inner, &at("down_proj"), [s.hidden, size], s.feed_forward_bias)
}

/// The experts of layers with some: those of DeepSeek-V3 without gates.
fn experts_of(config: &Config<'_>, s: &Settings) -> Result<Mixture, ModelError> {
    // No layer need have any, so what is missing is not told.
    let size = |key, default| config.size_or(key, Size::derived(default, key));
    let inner = size("moe_intermediate_size", 7688)?;
    let (count, taken) = (size(EXPERTS, 8)?, size("num_experts_per_tok", 2)?);
    let mixture = Mixture::new(config, count, vec![taken; s.layers.value], inner)?;
    let numbers = deepseek_v3::Numbers { groups: [1, 1], factor: 1.0, normalizes: true, ..deepseek_v3::Numbers::NONE };
    let latent = config.optional_size(LATENT, None)?;
    let shared = size(SHARED, 7688)?;
    Ok(Mixture {
        router: deepseek_v3::router(config, &mixture, &numbers)?,
        activation_key: "mlp_hidden_act",
        stored: Stored::Plain(["up_proj", "down_proj"]),
        shared: Some(Shared::beside(shared)),
        latent: latent.map(|size| Latent {
            size: Size::derived(size, LATENT),
            down: "fc1_latent_proj",
            up: "fc2_latent_proj",
        }),
        ..mixture
    })
}

/// Experts, and a feed-forward that all tokens take.
fn mixture(
    b: &mut Builder<'_>,
    s: &Settings,
    _: &mut Decoder,
    x: ValueId,
    module: &str,
) -> Result<ValueId, ModelError> {
    let (Some(mixture), Some(shared)) = (&s.experts, s.experts.as_ref().and_then(|mixture| mixture.shared)) else {
        unreachable!("the experts were read")
    };
    let routed = mixture.routed(b, s, x, 0, module)?;
    let common = plain(b, s, x, shared.inner, &format!("{module}.{}", shared.module))?;
    b.add(routed, common, &format!("{module}.sum"))
}
