//! BERT: its configuration and its tensors, as transformers' `BertModel` names them. Sizes are those
//! of Devlin et al., 2018, section 3.

use serde_json::{Value, json};

use crate::size::Size;
use crate::weights::{StorageType, Tensor};

/// Segments a token can belong to.
const TYPE_VOCAB: usize = 2;

/// 110M parameters.
pub(crate) const BASE: Size = Size {
    vocab: 30522,
    hidden: 768,
    layers: 12,
    heads: 12,
    kv_heads: 12,
    intermediate: 3072,
    positions: 512,
    head_size: None,
    experts: None,
};

/// 340M parameters.
pub(crate) const LARGE: Size = Size {
    vocab: 30522,
    hidden: 1024,
    layers: 24,
    heads: 16,
    kv_heads: 16,
    intermediate: 4096,
    positions: 512,
    head_size: None,
    experts: None,
};

/// `config.json` with the keys that transformers 5 writes.
pub(crate) fn config(size: &Size, dtype: StorageType) -> Value {
    json!({
        "add_cross_attention": false,
        "architectures": ["BertModel"],
        "attention_probs_dropout_prob": 0.1,
        "bos_token_id": null,
        "classifier_dropout": null,
        "dtype": dtype.torch_name(),
        "eos_token_id": null,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": size.hidden,
        "initializer_range": 0.02,
        "intermediate_size": size.intermediate,
        "is_decoder": false,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": size.positions,
        "model_type": "bert",
        "num_attention_heads": size.heads,
        "num_hidden_layers": size.layers,
        "pad_token_id": 0,
        "tie_word_embeddings": true,
        "type_vocab_size": TYPE_VOCAB,
        "use_cache": true,
        "vocab_size": size.vocab
    })
}

/// The encoder with its pooler.
pub(crate) fn tensors(size: &Size) -> Vec<Tensor> {
    let hidden = size.hidden;
    let mut tensors = vec![
        Tensor::around_zero("embeddings.word_embeddings.weight", [size.vocab, hidden]),
        Tensor::around_zero("embeddings.position_embeddings.weight", [size.positions, hidden]),
        Tensor::around_zero("embeddings.token_type_embeddings.weight", [TYPE_VOCAB, hidden]),
    ];
    tensors.extend(Tensor::layer_norm("embeddings.LayerNorm", hidden));
    for layer in 0..size.layers {
        let layer = format!("encoder.layer.{layer}");
        for projection in ["query", "key", "value"] {
            linear(&mut tensors, &format!("{layer}.attention.self.{projection}"), hidden, hidden);
        }
        linear(&mut tensors, &format!("{layer}.attention.output.dense"), hidden, hidden);
        tensors.extend(Tensor::layer_norm(&format!("{layer}.attention.output.LayerNorm"), hidden));
        linear(&mut tensors, &format!("{layer}.intermediate.dense"), size.intermediate, hidden);
        linear(&mut tensors, &format!("{layer}.output.dense"), hidden, size.intermediate);
        tensors.extend(Tensor::layer_norm(&format!("{layer}.output.LayerNorm"), hidden));
    }
    linear(&mut tensors, "pooler.dense", hidden, hidden);
    tensors
}

fn linear(tensors: &mut Vec<Tensor>, name: &str, outputs: usize, inputs: usize) {
    tensors.push(Tensor::around_zero(format!("{name}.weight"), [outputs, inputs]));
    tensors.push(Tensor::around_zero(format!("{name}.bias"), [outputs]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_published_number_of_parameters() {
        let parameters = |size: Size| tensors(&size).iter().map(Tensor::elements).sum::<usize>();
        assert_eq!(parameters(BASE), 109_482_240);
        assert_eq!(parameters(LARGE), 335_141_888);
    }
}
