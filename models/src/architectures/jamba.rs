//! Jamba (AI21 2024, arXiv:2403.19887), as `transformers/models/jamba` has it: Llama without positions, with mixers of Mamba in place of
//! attention in most layers.

use planish_ir::ValueId;

use crate::architecture::{Architecture, Properties};
use crate::architectures::{llama, mamba};
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::blocks::{self, Around, Defaults, Mixer, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Decoder, Positions};
use crate::layers::experts::{Mixture, Router};
use crate::layers::norm::Norm;
use crate::layers::selective::Selective;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "jamba",
    class_prefix: "Jamba",
    other_bases: &[],
    tasks: decoder::OF_TEXTS,
    keys: &[
        decoder::KEYS,
        blocks::KEYS,
        &[
            "hidden_act",
            "mamba_conv_bias",
            "mamba_d_conv",
            "mamba_d_state",
            "mamba_expand",
            "mamba_proj_bias",
            "rms_norm_eps",
            ATTENTION[0],
            ATTENTION[1],
            EXPERT_LAYERS[0],
            EXPERT_LAYERS[1],
            EXPERTS,
            RANK,
            TAKEN,
        ],
    ],
    irrelevant_keys: &[
        "calc_logits_for_entire_prompt",
        "num_logits_to_keep",
        "sliding_window",
        "use_associative_scan",
        "use_mamba_kernels",
        "use_mambapy",
        // Of training.
        "n_ctx",
        "output_router_logits",
        "router_aux_loss_coef",
    ],
    pad_token_id: Some(0),
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const ATTENTION: [&str; 2] = ["attn_layer_offset", "attn_layer_period"];
const EXPERT_LAYERS: [&str; 2] = ["expert_layer_offset", "expert_layer_period"];
const EXPERTS: &str = "num_experts";
const TAKEN: &str = "num_experts_per_tok";
const RANK: &str = "mamba_dt_rank";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 65536,
            max_position_embeddings: Some(262_144),
            intermediate_size: Some(14336),
            num_key_value_heads: Some(8),
            ..Defaults::LLAMA
        },
    )?;
    s.names.feed_forward = "feed_forward";
    s.names.final_norm = Some("final_layernorm");
    s.feed_forward_norms = Around::before("pre_ff_layernorm");
    s.position_source = Positions::Unused;
    s.unrotated = vec![true; s.layers.value];
    s.mixers = mixers(b.config, s.layers)?;
    let count = b.config.size(EXPERTS, 16)?;
    let has_experts = every(b.config, EXPERT_LAYERS, [1, 2], s.layers)?;
    let taken = b.config.size(TAKEN, 2)?;
    // Of one expert there is no choice: it is a feed-forward.
    if count.value > 1 {
        let mixture = Mixture::new(b.config, count, vec![taken; s.layers.value], s.intermediate)?;
        s.experts = Some(Mixture {
            router: Router { name: "router", ..Router::SOFTMAX },
            dense: has_experts.into_iter().map(|has| !has).collect(),
            ..mixture
        });
    }
    blocks::decoder(b, &s, task)
}

/// Mixers in all layers but every so-manieth.
fn mixers(config: &Config<'_>, layers: Size) -> Result<Vec<Option<Mixer>>, ModelError> {
    let mixer = Mixer { module: "mamba", apply: mixer };
    let attends = every(config, ATTENTION, [4, 8], layers)?;
    Ok(attends.into_iter().map(|attends| (!attends).then_some(mixer)).collect())
}

/// Whether each layer is one of those that are a period apart, from an offset on.
fn every(
    config: &Config<'_>,
    [offset_key, period_key]: [&'static str; 2],
    [offset, period]: [usize; 2],
    layers: Size,
) -> Result<Vec<bool>, ModelError> {
    let period = config.size(period_key, period)?;
    let offset = config.whole(offset_key, offset)?;
    if offset >= period.value {
        return Err(config.error(format!("`{offset_key}` is {offset}, which is not below {period}")));
    }
    Ok((0..layers.value).map(|layer| layer % period.value == offset).collect())
}

fn mixer(
    b: &mut Builder<'_>,
    s: &Settings,
    decoder: &mut Decoder,
    x: ValueId,
    module: &str,
) -> Result<ValueId, ModelError> {
    let config = b.config;
    let expand = config.size("mamba_expand", 2)?;
    let rank = mamba::rank(config, RANK, s.hidden)?;
    let mixer = Selective {
        hidden: s.hidden,
        inner: Size::derived(expand.value * s.hidden.value, "mamba_expand * hidden_size"),
        state: config.size("mamba_d_state", 16)?,
        rank,
        taps: config.size("mamba_d_conv", 4)?,
        bias: config.boolean("mamba_proj_bias", false)?,
        convolution_bias: config.boolean("mamba_conv_bias", true)?,
        activation: s.activation,
        gate: Activation::SILU,
        norms: Some((Norm::Rms, s.eps)),
    };
    mixer.apply(b, decoder, x, module)
}
