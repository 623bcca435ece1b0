//! gpt-oss: its configuration and its tensors, as transformers' `GptOssForCausalLM` names them.

use serde_json::{Value, json};

use crate::size::{Experts, Size};
use crate::weights::{StorageType, Tensor};

/// gpt-oss-20b (OpenAI 2025, arXiv:2508.10925): 20.9B parameters, of which a token takes 3.6B.
pub(crate) const SMALL: Size = Size {
    vocab: 201_088,
    hidden: 2880,
    layers: 24,
    heads: 64,
    kv_heads: 8,
    head_size: Some(64),
    intermediate: 2880,
    positions: 131_072,
    experts: Some(Experts { all: 32, taken: 4 }),
};

/// `config.json` with the keys that transformers 5 writes.
pub(crate) fn config(size: &Size, dtype: StorageType) -> Value {
    let windows = |layer: usize| if layer.is_multiple_of(2) { "sliding_attention" } else { "full_attention" };
    let Experts { all, taken } = size.experts.unwrap_or(Experts::ONE);
    json!({
        "architectures": ["GptOssForCausalLM"],
        "attention_bias": true,
        "attention_dropout": 0.0,
        "bos_token_id": 1,
        "dtype": dtype.torch_name(),
        "eos_token_id": 2,
        "head_dim": size.head_size(),
        "hidden_act": "silu",
        "hidden_size": size.hidden,
        "initializer_range": 0.02,
        "intermediate_size": size.intermediate,
        "layer_types": (0..size.layers).map(windows).collect::<Vec<_>>(),
        "max_position_embeddings": size.positions,
        "model_type": "gpt_oss",
        "num_attention_heads": size.heads,
        "num_experts_per_tok": taken,
        "num_hidden_layers": size.layers,
        "num_key_value_heads": size.kv_heads,
        "num_local_experts": all,
        "output_router_logits": false,
        "pad_token_id": null,
        "rms_norm_eps": 1e-5,
        "rope_parameters": { "rope_theta": 150_000.0, "rope_type": "default" },
        "router_aux_loss_coef": 0.9,
        "sliding_window": 128,
        "swiglu_limit": 7.0,
        "tie_word_embeddings": false,
        "use_cache": true,
        "vocab_size": size.vocab
    })
}

/// The decoder with its head.
pub(crate) fn tensors(size: &Size) -> Vec<Tensor> {
    let (hidden, inner) = (size.hidden, size.intermediate);
    let [queries, keys] = [size.heads, size.kv_heads].map(|heads| heads * size.head_size());
    let experts = size.experts.unwrap_or(Experts::ONE).all;
    let mut tensors = vec![
        Tensor::around_zero("model.embed_tokens.weight", [size.vocab, hidden]),
        Tensor::around_zero("lm_head.weight", [size.vocab, hidden]),
        Tensor::around_one("model.norm.weight", [hidden]),
    ];
    for layer in 0..size.layers {
        let mut random = |name: &str, shape: &[usize]| {
            tensors.push(Tensor::around_zero(format!("model.layers.{layer}.{name}"), shape));
        };
        let layers = [
            ("q_proj", queries, hidden),
            ("k_proj", keys, hidden),
            ("v_proj", keys, hidden),
            ("o_proj", hidden, queries),
        ];
        for (name, outputs, inputs) in layers {
            random(&format!("self_attn.{name}.weight"), &[outputs, inputs]);
            random(&format!("self_attn.{name}.bias"), &[outputs]);
        }
        random("self_attn.sinks", &[size.heads]);
        random("mlp.router.weight", &[experts, hidden]);
        random("mlp.router.bias", &[experts]);
        random("mlp.experts.gate_up_proj", &[experts, hidden, 2 * inner]);
        random("mlp.experts.gate_up_proj_bias", &[experts, 2 * inner]);
        random("mlp.experts.down_proj", &[experts, inner, hidden]);
        random("mlp.experts.down_proj_bias", &[experts, hidden]);
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
        assert_eq!(tensors(&SMALL).iter().map(Tensor::elements).sum::<usize>(), 20_914_757_184);
    }
}
