//! Llama (Touvron et al. 2023, arXiv:2302.13971), as `transformers/models/llama` has it, and the
//! order of layers that its kin have too.

use planish_ir::ValueId;

use crate::architecture::{Architecture, Interface};
use crate::checkpoint::gguf::config::Sizes;
use crate::checkpoint::gguf::{self, Kind, Names, Pair};
use crate::layers::blocks::{self, Blocks, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::{decoder, rope};
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
    gguf: Some(&Kind {
        name: "llama",
        class: "LlamaForCausalLM",
        names: GGUF_NAMES,
        pairs: true,
        whole_norms: false,
        configure: |c| {
            let Sizes { window, .. } = gguf::config::llama(c)?;
            c.set("hidden_act", "silu");
            match window {
                // The files of Mistral say that they are Llama.
                Some(window) => {
                    c.set_model("mistral", "MistralForCausalLM");
                    c.set("sliding_window", window);
                }
                None => {
                    c.set("attention_bias", c.has("blk.0.attn_q.bias"));
                    c.set("mlp_bias", c.has("blk.0.ffn_up.bias"));
                }
            }
            Ok(())
        },
    }),
    build,
};

/// The names of tensors in GGUF files, in those of its kin too.
pub(crate) const GGUF_NAMES: Names = Names {
    model: GGUF_MODEL,
    layers: "model.layers.",
    layer: &[
        ("attn_norm", "input_layernorm"),
        ("attn_q", "self_attn.q_proj"),
        ("attn_k", "self_attn.k_proj"),
        ("attn_v", "self_attn.v_proj"),
        ("attn_output", "self_attn.o_proj"),
        ("attn_q_norm", "self_attn.q_norm"),
        ("attn_k_norm", "self_attn.k_norm"),
        ("ffn_norm", "post_attention_layernorm"),
        ("ffn_gate", "mlp.gate_proj"),
        ("ffn_up", "mlp.up_proj"),
        ("ffn_down", "mlp.down_proj"),
    ],
};

/// The same, outside of layers.
pub(crate) const GGUF_MODEL: &[Pair] =
    &[("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

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
