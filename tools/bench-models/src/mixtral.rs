//! Mixtral: its configuration and its tensors, as published checkpoints of transformers' `MixtralForCausalLM` name them.

use serde_json::{Value, json};

use crate::size::{Experts, Size};
use crate::weights::{StorageType, Tensor};

/// Mixtral 8x7B (Jiang et al. 2024, arXiv:2401.04088): 46.7B parameters, of which a token takes 12.9B.
pub(crate) const LARGE: Size = Size {
    vocab: 32000,
    hidden: 4096,
    layers: 32,
    heads: 32,
    kv_heads: 8,
    head_size: None,
    intermediate: 14336,
    positions: 32768,
    experts: Some(Experts { all: 8, taken: 2 }),
};

/// `config.json` with the keys that transformers 5 writes.
pub(crate) fn config(size: &Size, dtype: StorageType) -> Value {
    let Experts { all, taken } = size.experts.unwrap_or(Experts::ONE);
    json!({
        "architectures": ["MixtralForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "dtype": dtype.torch_name(),
        "eos_token_id": 2,
        "head_dim": size.head_size(),
        "hidden_act": "silu",
        "hidden_size": size.hidden,
        "initializer_range": 0.02,
        "intermediate_size": size.intermediate,
        "max_position_embeddings": size.positions,
        "model_type": "mixtral",
        "num_attention_heads": size.heads,
        "num_experts_per_tok": taken,
        "num_hidden_layers": size.layers,
        "num_key_value_heads": size.kv_heads,
        "num_local_experts": all,
        "output_router_logits": false,
        "pad_token_id": null,
        "rms_norm_eps": 1e-5,
        "rope_parameters": { "rope_theta": 1_000_000.0, "rope_type": "default" },
        "router_aux_loss_coef": 0.02,
        "router_jitter_noise": 0.0,
        "sliding_window": null,
        "tie_word_embeddings": false,
        "use_cache": true,
        "vocab_size": size.vocab
    })
}

/// The decoder with its head.
pub(crate) fn tensors(size: &Size) -> Vec<Tensor> {
    let hidden = size.hidden;
    let [queries, keys] = [size.heads, size.kv_heads].map(|heads| heads * size.head_size());
    let experts = size.experts.unwrap_or(Experts::ONE).all;
    let mut tensors = vec![
        Tensor::around_zero("model.embed_tokens.weight", [size.vocab, hidden]),
        Tensor::around_zero("lm_head.weight", [size.vocab, hidden]),
        Tensor::around_one("model.norm.weight", [hidden]),
    ];
    for layer in 0..size.layers {
        let mut linear = |name: &str, outputs: usize, inputs: usize| {
            tensors.push(Tensor::around_zero(format!("model.layers.{layer}.{name}.weight"), [outputs, inputs]));
        };
        linear("self_attn.q_proj", queries, hidden);
        linear("self_attn.k_proj", keys, hidden);
        linear("self_attn.v_proj", keys, hidden);
        linear("self_attn.o_proj", hidden, queries);
        linear("block_sparse_moe.gate", experts, hidden);
        for expert in 0..experts {
            linear(&format!("block_sparse_moe.experts.{expert}.w1"), size.intermediate, hidden);
            linear(&format!("block_sparse_moe.experts.{expert}.w2"), hidden, size.intermediate);
            linear(&format!("block_sparse_moe.experts.{expert}.w3"), size.intermediate, hidden);
        }
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            tensors.push(Tensor::around_one(format!("model.layers.{layer}.{norm}.weight"), [hidden]));
        }
    }
    tensors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_has_the_published_number_of_parameters() {
        assert_eq!(tensors(&LARGE).iter().map(Tensor::elements).sum::<usize>(), 46_702_792_704);
    }
}
