//! LFM2 (Liquid AI 2025, arXiv:2511.23404), as `transformers/models/lfm2` has it: Llama with short convolutions in place of
//! attention in most layers.

use planish_ir::ValueId;
use planish_ir::ops::BinaryKind;

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config::{Config, MAX_SIZE, Size};
use crate::layers::activation::Activation;
use crate::layers::blocks::{self, Around, Defaults, FeedForward, HeadNorms, Mixer, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Convolution, Decoder};
use crate::layers::rope;
use crate::layers::windows::kinds;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "lfm2",
    class_prefix: "Lfm2",
    other_bases: &[],
    tasks: decoder::WITHOUT_LABELS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, KEYS, &[ADJUSTS, "block_ffn_dim_multiplier", "block_multiple_of"]],
    older_keys: &[("block_ff_dim", "intermediate_size"), ("tie_embedding", "tie_word_embeddings")],
    irrelevant_keys: IRRELEVANT_KEYS,
    pad_token_id: Some(0),
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

/// The keys that LFM2 with experts reads too.
pub(super) const KEYS: &[&str] = &[BIAS, TAPS, LISTED, LAYER_TYPES, "norm_eps"];

/// What published configurations say of training, and of the architecture without a choice.
pub(super) const IRRELEVANT_KEYS: &[&str] = &[
    "block_dim",
    "block_mlp_init_scale",
    "block_norm_eps",
    "block_out_init_scale",
    "block_use_swiglu",
    "block_use_xavier_init",
    "conv_dim",
    "conv_dim_out",
    "conv_use_xavier_init",
    "hidden_act",
    "num_heads",
    "theta",
    "use_pos_enc",
];

const ADJUSTS: &str = "block_auto_adjust_ff_dim";
const BIAS: &str = "conv_bias";
const TAPS: &str = "conv_L_cache";
const LISTED: &str = "full_attn_idxs";
const LAYER_TYPES: &str = "layer_types";

/// The layers that are convolutions.
const CONVOLUTION: Mixer = Mixer { module: "conv", apply: convolution };

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = read(b, [2560, 12288])?;
    s.intermediate = intermediate(b.config, s.intermediate)?;
    blocks::decoder(b, &s, task)
}

/// Reads what LFM2 and LFM2 with experts have in common; the defaults are those of features of the model and inside a feed-forward.
pub(super) fn read(b: &Builder<'_>, [hidden, inner]: [usize; 2]) -> Result<Settings, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 65536,
            max_position_embeddings: Some(128_000),
            hidden_size: hidden,
            intermediate_size: Some(inner),
            num_key_value_heads: Some(8),
            eps: ("norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.activation = Activation::SILU;
    s.names.output = "out_proj";
    s.names.head_norms = ["q_layernorm", "k_layernorm"];
    s.names.feed_forward = "feed_forward";
    s.names.final_norm = Some("embedding_norm");
    s.attention_norms = Around::before("operator_norm");
    s.feed_forward_norms = Around::before("ffn_norm");
    s.feed_forward = FeedForward::Gated { gate: "w1", up: "w3", down: "w2" };
    s.head_norms = HeadNorms::Each;
    s.rope = rope::Defaults { theta: 1_000_000.0, ..rope::Defaults::default() };
    s.mixers = mixers(b.config, s.layers)?;
    s.tied = true;
    Ok(s)
}

/// What the features inside a feed-forward come from.
const ADJUSTED: &str = "the size that `block_auto_adjust_ff_dim` makes of `intermediate_size`";

/// The features inside a feed-forward.
fn intermediate(config: &Config<'_>, given: Size) -> Result<Size, ModelError> {
    let multiple = config.size("block_multiple_of", 256)?.value;
    let factor = config.optional_positive("block_ffn_dim_multiplier", Some(1.0))?;
    if !config.boolean(ADJUSTS, true)? {
        return Ok(given);
    }
    let third = 2 * given.value / 3;
    let Some(factor) = factor else { return Ok(Size::derived(third, ADJUSTED)) };
    // A factor that leaves the integers is the largest of them.
    let size = ((factor * third as f64) as usize).checked_next_multiple_of(multiple);
    match size.filter(|size| (1..=MAX_SIZE).contains(size)) {
        Some(size) => Ok(Size::derived(size, ADJUSTED)),
        None => Err(config.error(format!(
            "`block_ffn_dim_multiplier` = {factor} makes no size from 1 to {MAX_SIZE} of {given} and `block_multiple_of` = {multiple}"
        ))),
    }
}

/// Which layers are convolutions.
fn mixers(config: &Config<'_>, layers: Size) -> Result<Vec<Option<Mixer>>, ModelError> {
    let attends = config.layer_numbers(LISTED)?;
    let is_listed = |layer: usize| attends.as_ref().is_none_or(|list| list.contains(&layer));
    let names = ["full_attention", "conv"];
    let kinds = kinds(config, LAYER_TYPES, layers, names, |layer| names[usize::from(!is_listed(layer))])?;
    Ok(kinds.into_iter().map(|kind| (kind == names[1]).then_some(CONVOLUTION)).collect())
}

/// A convolution between two gates.
fn convolution(
    b: &mut Builder<'_>,
    s: &Settings,
    decoder: &mut Decoder,
    x: ValueId,
    module: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let (bias, taps) = (b.config.boolean(BIAS, false)?, b.config.size(TAPS, 3)?);
    let all = Size::derived(3 * s.hidden.value, "3 * hidden_size");
    let projected = b.projection(x, &at("in_proj"), [all, s.hidden], bias)?;
    let [before, after, x] = b.thirds(projected, s.hidden, &at("split"))?;
    let gated = b.binary(BinaryKind::Mul, [before, x], &at("gated"))?;
    let of = Convolution { channels: s.hidden, taps, bias, silu: false };
    let convolved = decoder.convolve(b, gated, of, &at("conv"))?;
    let gated = b.binary(BinaryKind::Mul, [after, convolved], &at("mul"))?;
    b.projection(gated, &at("out_proj"), [s.hidden, s.hidden], bias)
}
