//! GPT-2: its configuration and its tensors, as transformers' `GPT2LMHeadModel` names them.

use serde_json::{Value, json};

use crate::size::Size;
use crate::weights::{StorageType, Tensor};

/// The smallest of the four sizes (Radford et al., 2019, table 2): 124M parameters.
pub(crate) const SMALL: Size = Size {
    vocab: 50257,
    hidden: 768,
    layers: 12,
    heads: 12,
    kv_heads: 12,
    intermediate: 3072,
    positions: 1024,
    head_size: None,
    experts: None,
};

/// `config.json` with the keys that transformers 5 writes.
pub(crate) fn config(size: &Size, dtype: StorageType) -> Value {
    json!({
        "activation_function": "gelu_new",
        "add_cross_attention": false,
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1,
        "bos_token_id": size.vocab - 1,
        "dtype": dtype.torch_name(),
        "embd_pdrop": 0.1,
        "eos_token_id": size.vocab - 1,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-5,
        "model_type": "gpt2",
        "n_embd": size.hidden,
        "n_head": size.heads,
        "n_inner": size.intermediate,
        "n_layer": size.layers,
        "n_positions": size.positions,
        "pad_token_id": null,
        "reorder_and_upcast_attn": false,
        "resid_pdrop": 0.1,
        "scale_attn_by_inverse_layer_idx": false,
        "scale_attn_weights": true,
        "tie_word_embeddings": true,
        "use_cache": true,
        "vocab_size": size.vocab
    })
}

/// The decoder; its head is the embedding of tokens.
pub(crate) fn tensors(size: &Size) -> Vec<Tensor> {
    let hidden = size.hidden;
    let mut tensors = vec![
        Tensor::around_zero("transformer.wte.weight", [size.vocab, hidden]),
        Tensor::around_zero("transformer.wpe.weight", [size.positions, hidden]),
    ];
    for layer in 0..size.layers {
        let layer = format!("transformer.h.{layer}");
        tensors.extend(Tensor::layer_norm(&format!("{layer}.ln_1"), hidden));
        conv1d(&mut tensors, &format!("{layer}.attn.c_attn"), hidden, 3 * hidden);
        conv1d(&mut tensors, &format!("{layer}.attn.c_proj"), hidden, hidden);
        tensors.extend(Tensor::layer_norm(&format!("{layer}.ln_2"), hidden));
        conv1d(&mut tensors, &format!("{layer}.mlp.c_fc"), hidden, size.intermediate);
        conv1d(&mut tensors, &format!("{layer}.mlp.c_proj"), size.intermediate, hidden);
    }
    tensors.extend(Tensor::layer_norm("transformer.ln_f", hidden));
    tensors
}

/// A linear layer whose weight is stored as [in, out].
fn conv1d(tensors: &mut Vec<Tensor>, name: &str, inputs: usize, outputs: usize) {
    tensors.push(Tensor::around_zero(format!("{name}.weight"), [inputs, outputs]));
    tensors.push(Tensor::around_zero(format!("{name}.bias"), [outputs]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_has_the_published_number_of_parameters() {
        assert_eq!(tensors(&SMALL).iter().map(Tensor::elements).sum::<usize>(), 124_439_808);
    }
}
