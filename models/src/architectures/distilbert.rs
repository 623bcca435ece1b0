//! DistilBERT (Sanh et al. 2019, arXiv:1910.01108), as `transformers/models/distilbert` has it:
//! BERT without token types and pooler, under names of its own.

use planish_ir::ops::UnaryKind;

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::Config;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::encoder::{self, Context, LayerNames, Settings};
use crate::layers::heads::{DecoderBias, MaskedLm, Pooling, TextHeads, Tied};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "distilbert",
    class_prefix: "DistilBert",
    base: "distilbert",
    other_bases: &[],
    renamed: &[],
    tasks: encoder::TASKS,
    keys: &[&[
        "activation",
        "dim",
        "hidden_dim",
        "hidden_size",
        "max_position_embeddings",
        "n_heads",
        "n_layers",
        "num_attention_heads",
        "num_hidden_layers",
        "pad_token_id",
        "vocab_size",
    ]],
    older_keys: &[],
    only: &[encoder::NO_DECODER],
    irrelevant_keys: &[
        "qa_dropout",
        "seq_classif_dropout",
        // How the position table was initialized: it is stored either way.
        "sinusoidal_pos_embds",
    ],
    // Buffers, then heads of other tasks.
    unused_tensors: &[
        "embeddings.position_ids",
        "vocab_transform.",
        "vocab_layer_norm.",
        "vocab_projector.",
        "pre_classifier.",
        "classifier.",
        "qa_outputs.",
    ],
    pad_token_id: None,
    gguf: None,
    build,
};

const LAYER: LayerNames = LayerNames {
    layers: "transformer.layer",
    query: "attention.q_lin",
    key: "attention.k_lin",
    value: "attention.v_lin",
    output: "attention.out_lin",
    attention_norm: "sa_layer_norm",
    up: "ffn.lin1",
    down: "ffn.lin2",
    output_norm: "output_layer_norm",
    final_norm: None,
};

fn settings(config: &Config<'_>) -> Result<Settings, ModelError> {
    let vocabulary = config.size("vocab_size", 30522)?;
    let hidden = config.size_alias(&["dim", "hidden_size"], 768)?;
    let settings = Settings {
        vocabulary,
        positions: config.size("max_position_embeddings", 512)?,
        hidden,
        embedded: hidden,
        intermediate: config.size("hidden_dim", 3072)?,
        heads: config.size_alias(&["n_heads", "num_attention_heads"], 12)?,
        layers: config.size_alias(&["n_layers", "num_hidden_layers"], 6)?,
        activation: Activation::read(config, "activation", "gelu")?,
        // Not configurable in the transformers library.
        eps: 1e-12,
        pad_token_id: config.token("pad_token_id", 0, vocabulary)?,
    };
    settings.check(config)
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = settings(b.config)?;
    let input_ids = b.input(names::INPUT_IDS, s.vocabulary.signed())?;
    let attention_mask = b.input(names::ATTENTION_MASK, 2)?;
    let mask = encoder::mask(b, attention_mask)?;
    let words = b.embedding(input_ids, "embeddings.word_embeddings", s.vocabulary, s.hidden)?;
    let positions = encoder::absolute_positions(b, &s)?;
    let x = encoder::embeddings(b, &s, words, &[positions])?;
    let hidden = encoder::layers(b, &s, &LAYER, x, Context::of_mask(mask))?;
    let pooling = Pooling::Dense("pre_classifier", Activation::Unary(UnaryKind::Relu));
    let heads = TextHeads {
        pooler: None,
        masked: MaskedLm {
            transform: "vocab_transform",
            norm: "vocab_layer_norm",
            decoder: "vocab_projector",
            bias: DecoderBias::Own,
            activation: s.activation,
            tied: Tied::Configured,
        },
        sequence: (pooling, "classifier"),
        choice: Some(pooling),
    };
    heads.finish(b, &s.head_sizes(), hidden, task)?;
    Ok(s.properties(s.positions.value))
}
