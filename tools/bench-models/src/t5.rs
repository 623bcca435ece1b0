//! T5: its configuration and its tensors, as transformers' `T5ForConditionalGeneration` names them.

use serde_json::{Value, json};

use crate::size::Size;
use crate::weights::{StorageType, Tensor};

/// Buckets of the distance between two tokens.
const BUCKETS: usize = 32;

/// The smallest of the five sizes (Raffel et al., 2020, section 3.7): 60M parameters. Sequences have no end.
pub(crate) const SMALL: Size = Size {
    vocab: 32128,
    hidden: 512,
    layers: 6,
    heads: 8,
    kv_heads: 8,
    intermediate: 2048,
    positions: 512,
    head_size: None,
    experts: None,
};

/// `config.json` with the keys that transformers 5 writes.
pub(crate) fn config(size: &Size, dtype: StorageType) -> Value {
    json!({
        "architectures": ["T5ForConditionalGeneration"],
        "classifier_dropout": 0.0,
        "d_ff": size.intermediate,
        "d_kv": size.hidden / size.heads,
        "d_model": size.hidden,
        "decoder_start_token_id": 0,
        "dense_act_fn": "relu",
        "dropout_rate": 0.1,
        "dtype": dtype.torch_name(),
        "eos_token_id": 1,
        "feed_forward_proj": "relu",
        "initializer_factor": 1.0,
        "is_encoder_decoder": true,
        "is_gated_act": false,
        "layer_norm_epsilon": 1e-6,
        "model_type": "t5",
        "num_decoder_layers": size.layers,
        "num_heads": size.heads,
        "num_layers": size.layers,
        "pad_token_id": 0,
        "relative_attention_max_distance": 128,
        "relative_attention_num_buckets": BUCKETS,
        "tie_word_embeddings": true,
        "use_cache": true,
        "vocab_size": size.vocab
    })
}

/// The encoder and the decoder; both embed tokens with the table that scores them.
pub(crate) fn tensors(size: &Size) -> Vec<Tensor> {
    let mut tensors = vec![Tensor::around_zero("shared.weight", [size.vocab, size.hidden])];
    for (part, attentions) in [("encoder", &["SelfAttention"][..]), ("decoder", &["SelfAttention", "EncDecAttention"])]
    {
        for block in 0..size.layers {
            let layer = |at: usize| format!("{part}.block.{block}.layer.{at}");
            for (at, attention) in attentions.iter().enumerate() {
                for projection in ["q", "k", "v", "o"] {
                    let name = format!("{}.{attention}.{projection}.weight", layer(at));
                    tensors.push(Tensor::around_zero(name, [size.hidden, size.hidden]));
                }
                if (block, at) == (0, 0) {
                    let name = format!("{}.{attention}.relative_attention_bias.weight", layer(at));
                    tensors.push(Tensor::around_zero(name, [BUCKETS, size.heads]));
                }
                norm(&mut tensors, &layer(at), size.hidden);
            }
            let last = layer(attentions.len());
            let wi = Tensor::around_zero(format!("{last}.DenseReluDense.wi.weight"), [size.intermediate, size.hidden]);
            let wo = Tensor::around_zero(format!("{last}.DenseReluDense.wo.weight"), [size.hidden, size.intermediate]);
            tensors.extend([wi, wo]);
            norm(&mut tensors, &last, size.hidden);
        }
        tensors.push(Tensor::around_one(format!("{part}.final_layer_norm.weight"), [size.hidden]));
    }
    tensors
}

fn norm(tensors: &mut Vec<Tensor>, layer: &str, size: usize) {
    tensors.push(Tensor::around_one(format!("{layer}.layer_norm.weight"), [size]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_has_the_published_number_of_parameters() {
        assert_eq!(tensors(&SMALL).iter().map(Tensor::elements).sum::<usize>(), 60_506_624);
    }
}
