//! Llama (Touvron et al. 2023, arXiv:2302.13971), as `transformers/models/llama` has it, and the
//! order of layers that its kin have too.

use planish_ir::ValueId;

use crate::layers::blocks::{self, Blocks, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::{decoder, rope};
use crate::registry::{Architecture, Interface};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "llama",
    class_prefix: "Llama",
    base: "model",
    renamed: &[],
    tasks: &[Task::TextGeneration],
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["attention_bias", "hidden_act", "mlp_bias"]],
    only: &[],
    // Cuts products into pieces, as they were trained: same result.
    irrelevant_keys: &["pretraining_tp"],
    unused_tensors: UNUSED_TENSORS,
    build,
};

/// Frequencies that old checkpoints store, then heads of other tasks.
pub(crate) const UNUSED_TENSORS: &[&str] = &[".rotary_emb.inv_freq", "rotary_emb.inv_freq", "score.", "qa_outputs."];

fn build(b: &mut Builder<'_>, _: Task) -> Result<Interface, ModelError> {
    let mut s = Settings::read(b, &Defaults::LLAMA)?;
    let bias = b.config.boolean("attention_bias", false)?;
    (s.input_bias, s.output_bias) = (bias, bias);
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    decoder(b, &s)
}

/// The whole model.
pub(crate) fn decoder(b: &mut Builder<'_>, s: &Settings) -> Result<Interface, ModelError> {
    let mut blocks = Blocks::new(b, s)?;
    let x = blocks.embed(b)?;
    let x = layers(b, &mut blocks, s, x)?;
    let logits = blocks.logits(b, x, false)?;
    Ok(blocks.finish(b, logits))
}

/// All layers, each with a norm before attention and one before the feed-forward, and the last norm.
pub(crate) fn layers(
    b: &mut Builder<'_>,
    blocks: &mut Blocks<'_>,
    s: &Settings,
    mut x: ValueId,
) -> Result<ValueId, ModelError> {
    for layer in 0..s.layers.value {
        let at = |name: &str| format!("layers.{layer}.{name}");
        let normal = blocks.norm(b, x, &at("input_layernorm"))?;
        let attended = blocks.attention(b, normal, layer, &at("self_attn"))?;
        x = b.add(attended, x, &at("self_attn.add"))?;

        let normal = blocks.norm(b, x, &at("post_attention_layernorm"))?;
        let gated = blocks.feed_forward(b, normal, &at("mlp"))?;
        x = b.add(gated, x, &at("mlp.add"))?;
    }
    blocks.norm(b, x, "norm")
}
