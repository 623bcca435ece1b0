//! ALBERT (Lan et al. 2019, arXiv:1909.11942), as `transformers/models/albert` has it: BERT with embeddings of a size of their
//! own, whose layers share their weights.

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults};
use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::encoder::{self, Context, LayerNames};
use crate::layers::heads::{DecoderBias, MaskedLm, Pooling, SecondBias, TextHeads, Tied};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "albert",
    class_prefix: "Albert",
    base: "albert",
    keys: &[bert::KEYS, &["embedding_size", GROUPS, "inner_group_num"]],
    irrelevant_keys: &[
        // Training.
        "classifier_dropout_prob",
        // What Google's first checkpoints say that the transformers library does not have.
        "down_scale_factor",
        "gap_size",
        "net_structure_type",
        "num_memory_blocks",
        "layers_to_keep",
    ],
    // Buffers, then heads of other tasks.
    unused_tensors: &[
        "embeddings.position_ids",
        "pooler.",
        "predictions.",
        "sop_classifier.",
        "classifier.",
        "qa_outputs.",
    ],
    build,
    ..bert::ARCHITECTURE
};

const GROUPS: &str = "num_hidden_groups";

const LAYER: LayerNames = LayerNames {
    layers: "encoder.albert_layer_groups",
    query: "attention.query",
    key: "attention.key",
    value: "attention.value",
    output: "attention.dense",
    attention_norm: "attention.LayerNorm",
    up: "ffn",
    down: "ffn_output",
    output_norm: "full_layer_layer_norm",
    final_norm: None,
};

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let config = b.config;
    let defaults = Defaults {
        vocab_size: 30000,
        hidden_size: 4096,
        intermediate_size: 16384,
        num_attention_heads: 64,
        hidden_act: "gelu_new",
        ..Defaults::BERT
    };
    let mut s = bert::settings(config, &defaults)?;
    s.embedded = config.size("embedding_size", 128)?;
    let groups = config.size_or(GROUPS, Size::derived(1, GROUPS))?;
    let inner = config.size_or("inner_group_num", Size::derived(1, "inner_group_num"))?;
    if groups.value > s.layers.value {
        return Err(config.error(format!("{groups} is more than {}", s.layers)));
    }
    let (x, mask) = bert::embeddings(b, &s)?;
    let mut x = b.linear(x, "encoder.embedding_hidden_mapping_in", s.hidden, s.embedded)?;
    for layer in 0..s.layers.value {
        // Rounded as the reference rounds it, whose quotient is a floating-point number.
        let group = (layer as f64 / (s.layers.value as f64 / groups.value as f64)) as usize;
        for inner in 0..inner.value {
            let path = format!("{}.{group}.albert_layers.{inner}", LAYER.layers);
            x = encoder::layer(b, &s, &LAYER, &path, x, Context::of_mask(mask))?;
        }
    }
    let pooler = Pooling::Dense("pooler", Activation::TANH);
    let heads = TextHeads {
        pooler: Some(pooler),
        masked: MaskedLm {
            transform: "predictions.dense",
            norm: "predictions.LayerNorm",
            decoder: "predictions.decoder",
            bias: DecoderBias::Second(SecondBias { name: "predictions.bias", applied_by: None }),
            activation: s.activation,
            tied: Tied::Configured,
        },
        sequence: (pooler, "classifier"),
        choice: Some(pooler),
    };
    heads.finish(b, &s.head_sizes(), x, task)?;
    Ok(s.properties(s.positions.value))
}
