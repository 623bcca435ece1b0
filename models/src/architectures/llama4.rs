//! Llama 4 (Meta 2025), the text model as `transformers/models/llama4` has it: experts whose inputs are multiplied with sigmoids of
//! logits, attention in chunks, and layers without a rotary embedding whose queries grow with their positions.

use crate::architecture::{Architecture, Properties};
use crate::architectures::{llama, smollm3};
use crate::checkpoint::config::{Config, Size};
use crate::layers::blocks::{self, Defaults, Growth, HeadNorms, Settings};
use crate::layers::builder::Builder;
use crate::layers::chunks::Chunks;
use crate::layers::experts::{Mixture, Router, Scoring, Shared, Stored};
use crate::layers::windows::kinds;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "llama4_text",
    class_prefix: "Llama4",
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        smollm3::UNROTATED_KEYS,
        &[
            "attention_bias",
            "attn_scale",
            "attn_temperature_tuning",
            "hidden_act",
            "num_experts_per_tok",
            "num_local_experts",
            "rms_norm_eps",
            "use_qk_norm",
            CHUNK,
            DENSE_SIZE,
            FLOOR,
            LAYER_TYPES,
            LISTED,
            STEP,
        ],
    ],
    irrelevant_keys: &[
        // Whether experts are modules of their own while a model is quantized.
        "for_llm_compressor",
        // Training.
        "router_jitter_noise",
    ],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

const CHUNK: &str = "attention_chunk_size";
const DENSE_SIZE: &str = "intermediate_size_mlp";
const FLOOR: &str = "floor_scale";
const LAYER_TYPES: &str = "layer_types";
const LISTED: &str = "moe_layers";
const STEP: &str = "interleave_moe_layer_step";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 202_048,
            max_position_embeddings: Some(131_072),
            hidden_size: 5120,
            intermediate_size: Some(8192),
            num_hidden_layers: 48,
            num_attention_heads: 40,
            num_key_value_heads: Some(8),
            head_dim: Some(128),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    let config = b.config;
    s.read_attention_bias(b, false)?;
    s.names.feed_forward = "feed_forward";
    s.rope = rope::Defaults { theta: 500_000.0, ..rope::Defaults::default() };
    s.interleaved = true;
    s.unrotated = smollm3::unrotated(config, s.layers)?;
    if config.boolean("use_qk_norm", true)? {
        s.head_norms = HeadNorms::OfRotated;
        s.norms_rotated = true;
    }
    let (beta, length) = (config.positive("attn_scale", 0.1)?, config.size(FLOOR, 8192)?.value as f64);
    if config.boolean("attn_temperature_tuning", true)? {
        s.growth = Some(Growth { beta, length, first: 1.0, of_unrotated: true });
    }
    s.chunks = chunks(config, &s)?;
    // What the configuration calls so is of experts.
    let inner = s.intermediate;
    s.intermediate = config.size(DENSE_SIZE, 16384)?;
    let mixture = Mixture::read(b, &s, ("num_local_experts", 16), ("num_experts_per_tok", 1), inner)?;
    s.experts = Some(Mixture {
        router: Router { name: "router", scoring: Scoring::SigmoidOfChosen, ..Router::SOFTMAX },
        stored: Stored::PackedAcross { or_along: false },
        scales_inputs: true,
        shared: Some(Shared { module: "shared_expert", inner, gate: None }),
        dense: dense(config, s.layers)?,
        ..mixture
    });
    blocks::decoder(b, &s, task)
}

/// The chunks of layers with a rotary embedding, or of those that a list says.
fn chunks(config: &Config<'_>, s: &Settings) -> Result<Option<Chunks>, ModelError> {
    let size = config.optional_size(CHUNK, Some(8192))?;
    let names = ["full_attention", "chunked_attention"];
    let kinds =
        kinds(config, LAYER_TYPES, s.layers, names, |layer| names[usize::from(size.is_some() && !s.unrotated[layer])])?;
    let layers: Vec<bool> = kinds.into_iter().map(|kind| kind == names[1]).collect();
    match size {
        Some(size) => Ok(Some(Chunks { size: Size::derived(size, CHUNK), layers })),
        None if layers.contains(&true) => {
            Err(config.error(format!("`{LAYER_TYPES}` has \"{}\", but `{CHUNK}` is null", names[1])))
        }
        None => Ok(None),
    }
}

/// Whether each layer has no experts: a list has the others, or every so-manieth is one.
fn dense(config: &Config<'_>, layers: Size) -> Result<Vec<bool>, ModelError> {
    let step = config.size_or(STEP, Size::derived(1, STEP))?.value;
    let listed = config.layer_numbers(LISTED)?;
    let has = |layer: usize| listed.as_ref().map_or((layer + 1).is_multiple_of(step), |list| list.contains(&layer));
    Ok((0..layers.value).map(|layer| !has(layer)).collect())
}
