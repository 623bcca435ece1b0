//! Llama: its configuration and its tensors, as transformers' `LlamaForCausalLM` names them.

use serde_json::{Value, json};

use crate::size::Size;
use crate::weights::{StorageType, Tensor};

/// TinyLlama (Zhang et al., 2024, table 1): 1.1B parameters, 8 heads of queries to one of keys.
pub(crate) const TINY: Size = Size {
    vocab: 32000,
    hidden: 2048,
    layers: 22,
    heads: 32,
    kv_heads: 4,
    intermediate: 5632,
    positions: 2048,
    head_size: None,
    experts: None,
};

/// `config.json` with the keys that transformers 5 writes.
pub(crate) fn config(size: &Size, dtype: StorageType) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": false,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "dtype": dtype.torch_name(),
        "eos_token_id": 2,
        "head_dim": size.hidden / size.heads,
        "hidden_act": "silu",
        "hidden_size": size.hidden,
        "initializer_range": 0.02,
        "intermediate_size": size.intermediate,
        "max_position_embeddings": size.positions,
        "mlp_bias": false,
        "model_type": "llama",
        "num_attention_heads": size.heads,
        "num_hidden_layers": size.layers,
        "num_key_value_heads": size.kv_heads,
        "pad_token_id": null,
        "pretraining_tp": 1,
        "rms_norm_eps": 1e-5,
        "rope_parameters": { "rope_theta": 10000.0, "rope_type": "default" },
        "tie_word_embeddings": false,
        "use_cache": true,
        "vocab_size": size.vocab
    })
}

/// The decoder with its head.
pub(crate) fn tensors(size: &Size) -> Vec<Tensor> {
    let hidden = size.hidden;
    let keys = hidden / size.heads * size.kv_heads;
    let mut tensors = vec![
        Tensor::around_zero("model.embed_tokens.weight", [size.vocab, hidden]),
        Tensor::around_zero("lm_head.weight", [size.vocab, hidden]),
        Tensor::around_one("model.norm.weight", [hidden]),
    ];
    for layer in 0..size.layers {
        let mut linear = |name: &str, outputs: usize, inputs: usize| {
            tensors.push(Tensor::around_zero(format!("model.layers.{layer}.{name}.weight"), [outputs, inputs]));
        };
        linear("self_attn.q_proj", hidden, hidden);
        linear("self_attn.k_proj", keys, hidden);
        linear("self_attn.v_proj", keys, hidden);
        linear("self_attn.o_proj", hidden, hidden);
        linear("mlp.gate_proj", size.intermediate, hidden);
        linear("mlp.up_proj", size.intermediate, hidden);
        linear("mlp.down_proj", hidden, size.intermediate);
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
        assert_eq!(tensors(&TINY).iter().map(Tensor::elements).sum::<usize>(), 1_100_048_384);
    }
}
