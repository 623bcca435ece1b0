//! BERT: its sizes, its configuration and its tensors, as transformers' `BertModel` names them.

use serde_json::{Value, json};

use crate::weights::{StorageType, Tensor};

/// The numbers that set the size of a BERT (Devlin et al., 2018, section 3).
pub(crate) struct BertSize {
    pub(crate) vocab: usize,
    pub(crate) hidden: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) intermediate: usize,
    pub(crate) positions: usize,
}

/// Segments a token can belong to.
const TYPE_VOCAB: usize = 2;

impl BertSize {
    /// 110M parameters.
    pub(crate) const BASE: Self =
        Self { vocab: 30522, hidden: 768, layers: 12, heads: 12, intermediate: 3072, positions: 512 };

    /// 340M parameters.
    pub(crate) const LARGE: Self =
        Self { vocab: 30522, hidden: 1024, layers: 24, heads: 16, intermediate: 4096, positions: 512 };

    /// `config.json` with the keys that transformers 5 writes.
    pub(crate) fn config(&self, dtype: StorageType) -> Value {
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
            "hidden_size": self.hidden,
            "initializer_range": 0.02,
            "intermediate_size": self.intermediate,
            "is_decoder": false,
            "layer_norm_eps": 1e-12,
            "max_position_embeddings": self.positions,
            "model_type": "bert",
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "pad_token_id": 0,
            "tie_word_embeddings": true,
            "type_vocab_size": TYPE_VOCAB,
            "use_cache": true,
            "vocab_size": self.vocab
        })
    }

    /// The encoder with its pooler.
    pub(crate) fn tensors(&self) -> Vec<Tensor> {
        let hidden = self.hidden;
        let mut tensors = vec![
            Tensor::around_zero("embeddings.word_embeddings.weight", [self.vocab, hidden]),
            Tensor::around_zero("embeddings.position_embeddings.weight", [self.positions, hidden]),
            Tensor::around_zero("embeddings.token_type_embeddings.weight", [TYPE_VOCAB, hidden]),
        ];
        layer_norm(&mut tensors, "embeddings.LayerNorm", hidden);
        for layer in 0..self.layers {
            let layer = format!("encoder.layer.{layer}");
            for projection in ["query", "key", "value"] {
                linear(&mut tensors, &format!("{layer}.attention.self.{projection}"), hidden, hidden);
            }
            linear(&mut tensors, &format!("{layer}.attention.output.dense"), hidden, hidden);
            layer_norm(&mut tensors, &format!("{layer}.attention.output.LayerNorm"), hidden);
            linear(&mut tensors, &format!("{layer}.intermediate.dense"), self.intermediate, hidden);
            linear(&mut tensors, &format!("{layer}.output.dense"), hidden, self.intermediate);
            layer_norm(&mut tensors, &format!("{layer}.output.LayerNorm"), hidden);
        }
        linear(&mut tensors, "pooler.dense", hidden, hidden);
        tensors
    }
}

fn linear(tensors: &mut Vec<Tensor>, name: &str, outputs: usize, inputs: usize) {
    tensors.push(Tensor::around_zero(format!("{name}.weight"), [outputs, inputs]));
    tensors.push(Tensor::around_zero(format!("{name}.bias"), [outputs]));
}

fn layer_norm(tensors: &mut Vec<Tensor>, name: &str, size: usize) {
    tensors.push(Tensor::around_one(format!("{name}.weight"), [size]));
    tensors.push(Tensor::around_zero(format!("{name}.bias"), [size]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_published_number_of_parameters() {
        let parameters = |size: BertSize| size.tensors().iter().map(Tensor::elements).sum::<usize>();
        assert_eq!(parameters(BertSize::BASE), 109_482_240);
        assert_eq!(parameters(BertSize::LARGE), 335_141_888);
    }
}
