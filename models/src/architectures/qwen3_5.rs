//! Qwen3.5 (Qwen Team 2026), the text model as `transformers/models/qwen3_5` has it: Qwen3 with Gated DeltaNet in place of
//! attention in three of four layers, and a gate after attention in the others.

use planish_ir::ValueId;

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config::{Config, Size};
use crate::layers::blocks::{self, Defaults, HeadNorms, Mixer, OutputGate, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Decoder};
use crate::layers::delta::{self, Projections};
use crate::layers::norm::Norm;
use crate::layers::rope;
use crate::layers::windows::kinds;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "qwen3_5_text",
    class_prefix: "Qwen3_5",
    other_bases: &[],
    tasks: decoder::WITHOUT_ANSWERS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, delta::KEYS, KEYS],
    irrelevant_keys: IRRELEVANT_KEYS,
    // Of the prediction of several tokens, and of images.
    unused_tensors: &[".rotary_emb.inv_freq", "rotary_emb.inv_freq", "score.", "mtp.", "visual."],
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

/// The keys that Qwen3.5 and Qwen3-Next read, besides shared ones.
pub(crate) const KEYS: &[&str] = &["attention_bias", "hidden_act", "rms_norm_eps", LAYER_TYPES, INTERVAL];

/// What published configurations say of the prediction of several tokens, and of how results are computed.
pub(crate) const IRRELEVANT_KEYS: &[&str] = &[
    "attn_output_gate",
    "mamba_ssm_dtype",
    "mlp_only_layers",
    "mtp_num_hidden_layers",
    "mtp_use_dedicated_embeddings",
];

const LAYER_TYPES: &str = "layer_types";
const INTERVAL: &str = "full_attention_interval";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = read(b, &DEFAULTS, APART)?;
    blocks::decoder(b, &s, task)
}

pub(super) const DEFAULTS: Defaults = Defaults {
    vocab_size: 248_320,
    max_position_embeddings: Some(32768),
    hidden_size: 4096,
    intermediate_size: Some(12288),
    num_attention_heads: 16,
    num_key_value_heads: Some(4),
    head_dim: Some(256),
    ..Defaults::LLAMA
};

/// Layers with linear attention.
pub(super) const APART: Mixer = Mixer { module: "linear_attn", apply: apart };

fn apart(
    b: &mut Builder<'_>,
    s: &Settings,
    decoder: &mut Decoder,
    x: ValueId,
    module: &str,
) -> Result<ValueId, ModelError> {
    delta::apply(b, s, Projections::Apart, decoder, x, module)
}

/// Reads what Qwen3.5 and Qwen3-Next have in common.
pub(crate) fn read(b: &Builder<'_>, defaults: &Defaults, mixer: Mixer) -> Result<Settings, ModelError> {
    let mut s = Settings::read(b, defaults)?;
    s.read_attention_bias(b, false)?;
    s.norm = Norm::RmsAroundOne;
    s.head_norms = HeadNorms::Each;
    s.output_gate = OutputGate::Beside;
    s.rope = rope::Defaults { part: Some(0.25), ..rope::Defaults::by_coordinates() };
    s.mixers = mixers(b.config, s.layers, mixer)?;
    Ok(s)
}

/// Which layers have linear attention: those that `layer_types` lists, or all but every fourth.
fn mixers(config: &Config<'_>, layers: Size, mixer: Mixer) -> Result<Vec<Option<Mixer>>, ModelError> {
    let every = config.size_or(INTERVAL, Size::derived(4, INTERVAL))?.value;
    let names = ["linear_attention", "full_attention"];
    let usual = |layer: usize| names[usize::from((layer + 1).is_multiple_of(every))];
    let kinds = kinds(config, LAYER_TYPES, layers, names, usual)?;
    Ok(kinds.into_iter().map(|kind| (kind == names[0]).then_some(mixer)).collect())
}
