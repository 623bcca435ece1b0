//! BERT (Devlin et al. 2018, arXiv:1810.04805), as `transformers/models/bert` has it.

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, MAX_SIZE, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::encoder::{self, Context, LayerNames, Settings};
use crate::layers::heads::{DecoderBias, SecondBias, TextHeads};
use crate::names;
use crate::{ModelError, Task};
use planish_ir::ValueId;

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "bert",
    class_prefix: "Bert",
    base: "bert",
    other_bases: &[],
    renamed: &[],
    tasks: encoder::TASKS,
    keys: &[KEYS],
    older_keys: &[],
    only: ONLY,
    // What Google's first checkpoints say of a pooler that the transformers library does not have.
    irrelevant_keys: &[
        "directionality",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
    ],
    // Buffers, then heads of other tasks.
    unused_tensors: &["embeddings.position_ids", "pooler.", "cls.", "classifier.", "qa_outputs."],
    pad_token_id: None,
    gguf: None,
    build,
};

/// The versions of the transformers library that apply `cls.predictions.bias` where a checkpoint also
/// stores a `cls.predictions.decoder.bias` that differs; all others apply the latter.
///
/// Observed with checkpoints that store both, tied and untied, in transformers 4.26.1, 4.30.2, 4.36.2,
/// 4.41.2, 4.42.4, 4.43.0, 4.43.4, 4.44.2, 4.45.2, 4.48.3, 4.50.3, 4.52.4, 4.54.1, 4.57.6, 5.0.0rc0, 5.0.0,
/// 5.3.0, 5.10.1 and 5.23.0. The two names are one parameter up to 4.42, which the decoder's tensor, read
/// last, overwrites. From 4.43.0 on `from_pretrained` assigns tensors instead of copying them
/// (`assign_to_params_buffers` in modeling_utils.py), and then `BertLMPredictionHead._tie_weights` sets
/// `decoder.bias` to `bias`. In 5.0 that method is gone (modeling_bert.py), and a stored tensor stays.
const SECOND_BIAS_APPLIED_BY: [(u32, u32); 2] = [(4, 43), (5, 0)];

/// The configuration keys that RoBERTa reads too.
pub(crate) const KEYS: &[&str] = &[
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "layer_norm_eps",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "pad_token_id",
    "type_vocab_size",
    "vocab_size",
];

/// The configuration keys of which one value is supported, in RoBERTa too.
pub(crate) const ONLY: &[Only] = &[encoder::NO_DECODER, Only::Text("position_embedding_type", "absolute")];

/// Names of a layer's modules, in RoBERTa too.
pub(crate) const LAYER: LayerNames = LayerNames {
    layers: "encoder.layer",
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    output: "attention.output.dense",
    attention_norm: "attention.output.LayerNorm",
    up: "intermediate.dense",
    down: "output.dense",
    output_norm: "output.LayerNorm",
    final_norm: None,
};

/// The defaults of a configuration, where architectures with the same keys differ.
pub(crate) struct Defaults {
    pub(crate) vocab_size: usize,
    pub(crate) pad_token_id: i64,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) num_attention_heads: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) max_position_embeddings: usize,
    pub(crate) hidden_act: &'static str,
    pub(crate) layer_norm_eps: f64,
}

impl Defaults {
    pub(crate) const BERT: Self = Self {
        vocab_size: 30522,
        pad_token_id: 0,
        hidden_size: 768,
        intermediate_size: 3072,
        num_attention_heads: 12,
        num_hidden_layers: 12,
        max_position_embeddings: 512,
        hidden_act: "gelu",
        layer_norm_eps: 1e-12,
    };
}

/// Reads the configuration, in RoBERTa too.
pub(crate) fn settings(config: &Config<'_>, defaults: &Defaults) -> Result<Settings, ModelError> {
    let vocabulary = config.size("vocab_size", defaults.vocab_size)?;
    let positions = config.size("max_position_embeddings", defaults.max_position_embeddings)?;
    let hidden = config.size("hidden_size", defaults.hidden_size)?;
    let settings = Settings {
        vocabulary,
        positions,
        hidden,
        embedded: hidden,
        intermediate: config.size("intermediate_size", defaults.intermediate_size)?,
        heads: config.size("num_attention_heads", defaults.num_attention_heads)?,
        layers: config.size("num_hidden_layers", defaults.num_hidden_layers)?,
        activation: Activation::read(config, "hidden_act", defaults.hidden_act)?,
        eps: config.positive("layer_norm_eps", defaults.layer_norm_eps)?,
        pad_token_id: config.token("pad_token_id", defaults.pad_token_id, vocabulary)?,
    };
    settings.check(config)
}

/// The number of token types. Where the file does not say it is that of the stored vectors: the
/// library's default of 2 fits BERT but no RoBERTa, whose configuration has the same default.
pub(crate) fn token_types(b: &Builder<'_>) -> Result<Size, ModelError> {
    const KEY: &str = "type_vocab_size";
    const TABLE: &str = "embeddings.token_type_embeddings.weight";
    if let Some(size) = b.config.given_size(&[KEY])? {
        return Ok(size);
    }
    match b.tensors.rows(TABLE).filter(|rows| (1..=MAX_SIZE).contains(rows)) {
        Some(rows) => {
            b.config.warn(format!("`{KEY}` is missing: taking {rows}, the rows of tensor `{TABLE}`"));
            Ok(Size { value: rows, key: KEY, is_default: true })
        }
        None => b.config.size(KEY, 2),
    }
}

/// The number of token types, or `None` where the configuration says 0, or does not say it and 0 is the `default`.
pub(crate) fn any_token_types(b: &Builder<'_>, default: usize) -> Result<Option<Size>, ModelError> {
    const KEY: &str = "type_vocab_size";
    match b.config.get(KEY) {
        Some(value) if value.as_u64() == Some(0) => Ok(None),
        Some(_) => token_types(b).map(Some),
        None if default == 0 => Ok(None),
        None => b.config.size(KEY, default).map(Some),
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = settings(b.config, &Defaults::BERT)?;
    let (x, mask) = embeddings(b, &s)?;
    let hidden = encoder::layers(b, &s, &LAYER, x, Context::of_mask(mask))?;
    heads(s.activation).finish(b, &s.head_sizes(), hidden, task)?;
    Ok(s.properties(s.positions.value))
}

/// The heads of the tasks.
pub(crate) fn heads(activation: Activation) -> TextHeads {
    let mut heads = TextHeads::bert(activation);
    let second = SecondBias { name: "cls.predictions.bias", applied_by: Some(SECOND_BIAS_APPLIED_BY) };
    heads.masked.bias = DecoderBias::Second(second);
    heads
}

/// Adds the inputs: the normalized embeddings of tokens, types and positions, [batch_size, sequence_length, embedded], and the
/// mask.
pub(crate) fn embeddings(b: &mut Builder<'_>, s: &Settings) -> Result<(ValueId, ValueId), ModelError> {
    let ([words, types, positions], mask) = sums(b, s)?;
    Ok((encoder::embeddings(b, s, words, &[types, positions])?, mask))
}

/// Adds the inputs: the embeddings of tokens, of types and of positions, and the mask.
pub(crate) fn sums(b: &mut Builder<'_>, s: &Settings) -> Result<([ValueId; 3], ValueId), ModelError> {
    let types = token_types(b)?;
    let input_ids = b.input(names::INPUT_IDS, s.vocabulary.signed())?;
    let attention_mask = b.input(names::ATTENTION_MASK, 2)?;
    let token_type_ids = b.input(names::TOKEN_TYPES, types.signed())?;
    let mask = encoder::mask(b, attention_mask)?;
    let words = b.embedding(input_ids, "embeddings.word_embeddings", s.vocabulary, s.embedded)?;
    let types = b.embedding(token_type_ids, "embeddings.token_type_embeddings", types, s.embedded)?;
    let positions = encoder::absolute_positions(b, s)?;
    Ok(([words, types, positions], mask))
}
