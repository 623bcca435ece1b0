//! Llama (Touvron et al. 2023, arXiv:2302.13971), as `transformers/models/llama` has it.

use crate::architecture::{Architecture, Properties};
use crate::architectures::mixtral;
use crate::checkpoint::gguf::config::Sizes;
use crate::checkpoint::gguf::{self, Kind, Names, Pair};
use crate::layers::blocks::{self, Defaults, Settings};
use crate::layers::builder::Builder;
use crate::layers::{decoder, rope};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "llama",
    class_prefix: "Llama",
    base: "model",
    // In checkpoints for question answering.
    other_bases: &["transformer"],
    renamed: &[],
    tasks: decoder::TASKS,
    keys: &[decoder::KEYS, rope::KEYS, blocks::KEYS, &["attention_bias", "hidden_act", "mlp_bias", "rms_norm_eps"]],
    older_keys: &[],
    only: &[],
    // Cuts products into pieces, as they were trained: same result.
    irrelevant_keys: &["pretraining_tp"],
    unused_tensors: UNUSED_TENSORS,
    pad_token_id: None,
    gguf: Some(&GGUF),
    build,
};

/// What GGUF files say of it, from which those of its kin name the differences.
pub(crate) const GGUF: Kind = Kind {
    name: "llama",
    class: "LlamaForCausalLM",
    names: GGUF_NAMES,
    pairs: true,
    whole_norms: false,
    configure: |c| {
        let Sizes { window, .. } = gguf::config::llama(c)?;
        c.set("hidden_act", "silu");
        if c.size_or_none("expert_count")?.is_some() {
            return mixtral::configure_gguf(c, window);
        }
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
};

/// The names of tensors in GGUF files; of experts, those of Qwen2-MoE.
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
        ("ffn_gate_inp", "mlp.gate"),
        ("ffn_gate_exps", "mlp.experts.gate_proj"),
        ("ffn_up_exps", "mlp.experts.up_proj"),
        ("ffn_down_exps", "mlp.experts.down_proj"),
        ("ffn_gate_inp_shexp", "mlp.shared_expert_gate"),
        ("ffn_gate_shexp", "mlp.shared_expert.gate_proj"),
        ("ffn_up_shexp", "mlp.shared_expert.up_proj"),
        ("ffn_down_shexp", "mlp.shared_expert.down_proj"),
    ],
};

/// The same, outside of layers.
pub(crate) const GGUF_MODEL: &[Pair] =
    &[("token_embd", "model.embed_tokens"), ("output_norm", "model.norm"), ("output", "lm_head")];

/// Frequencies that old checkpoints store, then heads of other tasks.
pub(crate) const UNUSED_TENSORS: &[&str] = &[".rotary_emb.inv_freq", "rotary_emb.inv_freq", "score.", "qa_outputs."];

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let mut s = Settings::read(b, &Defaults::LLAMA)?;
    s.read_attention_bias(b, false)?;
    s.feed_forward_bias = b.config.boolean("mlp_bias", false)?;
    blocks::decoder(b, &s, task)
}
