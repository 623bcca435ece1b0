//! The Vision Transformer: its configuration and its tensors, as transformers' `ViTForImageClassification` names them.

use serde_json::{Map, Value, json};

use crate::size::Size;
use crate::weights::{StorageType, Tensor};

/// Pixels of a side of an image, and of a patch of it.
const IMAGE: usize = 224;
const PATCH: usize = 16;

/// The classes of ImageNet.
const CLASSES: usize = 1000;

/// ViT-Base (Dosovitskiy et al., 2020, table 1): 86M parameters. It has no vocabulary, and a position for each patch.
pub(crate) const BASE: Size = Size {
    vocab: 1,
    hidden: 768,
    layers: 12,
    heads: 12,
    kv_heads: 12,
    intermediate: 3072,
    positions: 197,
    head_size: None,
    experts: None,
};

/// `config.json` with the keys that transformers 5 writes.
pub(crate) fn config(size: &Size, dtype: StorageType) -> Value {
    let labels: Map<String, Value> = (0..CLASSES).map(|i| (i.to_string(), json!(format!("LABEL_{i}")))).collect();
    let ids: Map<String, Value> = (0..CLASSES).map(|i| (format!("LABEL_{i}"), json!(i.to_string()))).collect();
    json!({
        "architectures": ["ViTForImageClassification"],
        "attention_probs_dropout_prob": 0.0,
        "dtype": dtype.torch_name(),
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "hidden_size": size.hidden,
        "id2label": labels,
        "image_size": IMAGE,
        "initializer_range": 0.02,
        "intermediate_size": size.intermediate,
        "label2id": ids,
        "layer_norm_eps": 1e-12,
        "model_type": "vit",
        "num_attention_heads": size.heads,
        "num_channels": 3,
        "num_hidden_layers": size.layers,
        "patch_size": PATCH,
        "qkv_bias": true
    })
}

/// The encoder and the classifier.
pub(crate) fn tensors(size: &Size) -> Vec<Tensor> {
    let hidden = size.hidden;
    let patches = "vit.embeddings.patch_embeddings.projection";
    let mut tensors = vec![
        Tensor::around_zero("vit.embeddings.cls_token", [1, 1, hidden]),
        Tensor::around_zero("vit.embeddings.position_embeddings", [1, size.positions, hidden]),
        Tensor::around_zero(format!("{patches}.weight"), [hidden, 3, PATCH, PATCH]),
        Tensor::around_zero(format!("{patches}.bias"), [hidden]),
    ];
    for layer in 0..size.layers {
        let layer = format!("vit.encoder.layer.{layer}");
        for projection in ["query", "key", "value"] {
            linear(&mut tensors, &format!("{layer}.attention.attention.{projection}"), hidden, hidden);
        }
        linear(&mut tensors, &format!("{layer}.attention.output.dense"), hidden, hidden);
        linear(&mut tensors, &format!("{layer}.intermediate.dense"), size.intermediate, hidden);
        linear(&mut tensors, &format!("{layer}.output.dense"), hidden, size.intermediate);
        tensors.extend(Tensor::layer_norm(&format!("{layer}.layernorm_before"), hidden));
        tensors.extend(Tensor::layer_norm(&format!("{layer}.layernorm_after"), hidden));
    }
    tensors.extend(Tensor::layer_norm("vit.layernorm", hidden));
    linear(&mut tensors, "classifier", CLASSES, hidden);
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
    fn the_size_has_the_published_number_of_parameters() {
        assert_eq!(tensors(&BASE).iter().map(Tensor::elements).sum::<usize>(), 86_567_656);
    }
}
