//! Bamba (IBM, Princeton and UIUC 2024), as `transformers/models/bamba` has it: Llama with mixers of Mamba-2 in place of attention
//! in most layers.

use planish_ir::ValueId;

use crate::architecture::{Architecture, Properties};
use crate::architectures::llama;
use crate::checkpoint::config::{Config, Size};
use crate::layers::blocks::{self, Around, Defaults, Mixer, Settings};
use crate::layers::builder::Builder;
use crate::layers::decoder::{self, Decoder};
use crate::layers::rope;
use crate::layers::state_space::{self, StateSpace};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "bamba",
    class_prefix: "Bamba",
    other_bases: &[],
    tasks: decoder::WITHOUT_LABELS,
    keys: &[
        decoder::KEYS,
        rope::KEYS,
        blocks::KEYS,
        state_space::MAMBA_KEYS,
        &["attention_bias", "hidden_act", "mlp_bias", "rms_norm_eps", ATTENTION],
    ],
    irrelevant_keys: IRRELEVANT_KEYS,
    pad_token_id: Some(0),
    gguf: None,
    build,
    ..llama::ARCHITECTURE
};

/// What says how results are computed, and of training.
pub(crate) const IRRELEVANT_KEYS: &[&str] = &["mamba_chunk_size", "num_logits_to_keep", "z_loss_coefficient"];

const ATTENTION: &str = "attn_layer_indices";

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(
        b,
        &Defaults {
            vocab_size: 128_000,
            max_position_embeddings: Some(262_144),
            intermediate_size: Some(14336),
            num_key_value_heads: Some(8),
            eps: ("rms_norm_eps", 1e-5),
            ..Defaults::LLAMA
        },
    )?;
    s.read_attention_bias(b, false)?;
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    s.names.feed_forward = "feed_forward";
    s.names.final_norm = Some("final_layernorm");
    s.feed_forward_norms = Around::before("pre_ff_layernorm");
    s.rope = rope::Defaults { part: Some(0.5), ..rope::Defaults::default() };
    s.mixers = mixers(b.config, s.layers)?;
    blocks::decoder(b, &s, task)
}

/// Mixers in all layers but those that a list has.
fn mixers(config: &Config<'_>, layers: Size) -> Result<Vec<Option<Mixer>>, ModelError> {
    let attends = config.layer_numbers(ATTENTION)?.unwrap_or_default();
    let mixer = Mixer { module: "mamba", apply: mixer };
    Ok((0..layers.value).map(|layer| (!attends.contains(&layer)).then_some(mixer)).collect())
}

/// A mixer of Mamba-2.
pub(crate) fn mixer(
    b: &mut Builder<'_>,
    s: &Settings,
    decoder: &mut Decoder,
    x: ValueId,
    module: &str,
) -> Result<ValueId, ModelError> {
    StateSpace::read(b.config, s.hidden, None, s.activation, s.eps)?.apply(b, decoder, x, module)
}
