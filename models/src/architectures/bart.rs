//! BART (Lewis et al. 2019, arXiv:1910.13461), as `transformers/models/bart` has it: learned
//! positions, and norms after attention and feed-forward. Marian shares its layers.

use planish_ir::ops::{Attention, Binary, BinaryKind, Embedding, Real, Reshape, Slice};
use planish_ir::{DType, Dim, Origin, Shape, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::architectures::roberta;
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::activation::Activation;
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::seq2seq::{self, CACHED, DECODER_SEQUENCE, Decoder, ENCODER_SEQUENCE, Encoder, Heads, Shared};
use crate::layers::sinusoidal;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "bart",
    class_prefix: "Bart",
    base: "model",
    other_bases: &[],
    renamed: &[],
    tasks: &[Task::Text2TextGeneration, Task::TextClassification, Task::QuestionAnswering],
    keys: &[KEYS, seq2seq::TOKEN_KEYS],
    older_keys: &[],
    only: &[
        NO_BIAS_OF_LOGITS,
        NO_FINAL_NORM,
        NORM_AFTER,
        Only::On("normalize_embedding"),
        Only::Off("static_position_embeddings"),
    ],
    irrelevant_keys: &[
        // Training.
        "activation_dropout",
        "classif_dropout",
        "decoder_layerdrop",
        "encoder_layerdrop",
        "init_std",
        // What the first checkpoints say besides `encoder_layers` and `max_position_embeddings`.
        "extra_pos_embeddings",
        "num_hidden_layers",
        // A setting of text generation.
        "force_bos_token_to_be_generated",
    ],
    // Marks of old checkpoints, then heads of other tasks.
    unused_tensors: &["encoder.version", "decoder.version", "classification_head.", "qa_outputs."],
    pad_token_id: None,
    gguf: None,
    build,
};

/// The configuration keys that Marian reads too.
pub(crate) const KEYS: &[&str] = &[
    "activation_function",
    "d_model",
    "decoder_attention_heads",
    "decoder_ffn_dim",
    "decoder_layers",
    "encoder_attention_heads",
    "encoder_ffn_dim",
    "encoder_layers",
    "hidden_size",
    "max_position_embeddings",
    "pad_token_id",
    "scale_embedding",
    "tie_word_embeddings",
    "vocab_size",
];

// What neither BART nor Marian follow.
pub(crate) const NO_BIAS_OF_LOGITS: Only = Only::Off("add_bias_logits");
pub(crate) const NO_FINAL_NORM: Only = Only::Off("add_final_layer_norm");
pub(crate) const NORM_AFTER: Only = Only::Off("normalize_before");

/// The embeddings of both, of the encoder, of the decoder.
pub(crate) const EMBEDDINGS: &[&str; 3] =
    &["shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"];
pub(crate) const HEAD: &str = "lm_head.weight";
const HEAD_BIAS: &str = "final_logits_bias";

/// The first rows of a table of learned positions, which no position has.
const OFFSET: usize = 2;

/// Added to the variance in layer normalization.
const EPS: f64 = 1e-5;

/// The configuration of the encoder or the decoder in `config.json`.
#[derive(Clone, Copy)]
pub(crate) struct Stack {
    name: &'static str,
    layers: Size,
    pub(crate) heads: Heads,
    intermediate: Size,
}

impl Stack {
    pub(crate) fn read(
        config: &Config<'_>,
        name: &'static str,
        hidden: Size,
        keys: [&'static str; 3],
    ) -> Result<Self, ModelError> {
        let [layers, count, intermediate] = keys;
        let count = config.size(count, 16)?;
        if !hidden.value.is_multiple_of(count.value) {
            return Err(config.error(format!("{hidden} is not divisible by {count}")));
        }
        let size = Size::derived(hidden.value / count.value, "d_model / heads");
        let heads = Heads { count, size, scale: 1.0 / (size.value as f64).sqrt() };
        Ok(Self { name, layers: config.size(layers, 12)?, heads, intermediate: config.size(intermediate, 4096)? })
    }
}

/// The vectors that stand for positions.
#[derive(Clone, Copy)]
pub(crate) enum Positions {
    Learned,
    /// Computed, where they are not stored.
    Sinusoidal,
    /// Computed for the number of a token in its row, where tokens of this id count as padding.
    OfTokens {
        padding: i64,
    },
}

/// The differences between the models of the family.
pub(crate) struct Defaults {
    /// The default of `vocab_size`.
    pub(crate) vocab_size: usize,
    pub(crate) positions: Positions,
    /// Whether embeddings are normalized.
    pub(crate) normalized_embeddings: bool,
}

/// The configuration of both in `config.json`.
pub(crate) struct Settings {
    /// The number of the encoder's token ids, and of the decoder's.
    pub(crate) vocabularies: [Size; 2],
    pub(crate) hidden: Size,
    /// Whether the projection to the vocabulary has the weight of the decoder's embeddings.
    pub(crate) tied: bool,
    pub(crate) max_positions: Size,
    pub(crate) positions: Positions,
    pub(crate) normalized_embeddings: bool,
    pub(crate) activation: Activation,
    /// The factor of the embeddings.
    pub(crate) embedding_scale: Option<f64>,
    /// The encoder; of a decoder alone the same as the decoder.
    pub(crate) encoder: Stack,
    pub(crate) decoder: Stack,
    /// Whether norms stand before attention and feed-forward, and one after the last layer; else they are after the sums.
    pub(crate) norms_first: bool,
    /// The features of what the decoder attends to besides itself.
    pub(crate) memory: Size,
}

impl Settings {
    /// Reads what all have in common; both have one vocabulary.
    pub(crate) fn read(config: &Config<'_>, defaults: &Defaults) -> Result<Self, ModelError> {
        let hidden = config.size_alias(&["d_model", "hidden_size"], 1024)?;
        let encoder = ["encoder_layers", "encoder_attention_heads", "encoder_ffn_dim"];
        let decoder = ["decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"];
        let scaled = config.boolean("scale_embedding", false)?;
        Ok(Self {
            vocabularies: [config.size("vocab_size", defaults.vocab_size)?; 2],
            hidden,
            tied: config.boolean("tie_word_embeddings", true)?,
            max_positions: config.size("max_position_embeddings", 1024)?,
            positions: defaults.positions,
            normalized_embeddings: defaults.normalized_embeddings,
            activation: Activation::read(config, "activation_function", "gelu")?,
            embedding_scale: scaled.then(|| (hidden.value as f64).sqrt()),
            encoder: Stack::read(config, "encoder", hidden, encoder)?,
            decoder: Stack::read(config, "decoder", hidden, decoder)?,
            norms_first: false,
            memory: hidden,
        })
    }
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let defaults = Defaults { vocab_size: 50265, positions: Positions::Learned, normalized_embeddings: true };
    let s = Settings::read(b.config, &defaults)?;
    let shared = Shared::find(b, EMBEDDINGS, HEAD, s.tied, [s.vocabularies[0], s.hidden])?;
    match task {
        Task::Text2TextGeneration => parts(b, &s, &[shared; 2]),
        _ => labels(b, &s, &shared, task),
    }
}

/// One graph of encoder and decoder with the head of a task, as `BartForSequenceClassification` and
/// `BartForQuestionAnswering` of the transformers library: the decoder reads the encoder's tokens one place later.
fn labels(b: &mut Builder<'_>, s: &Settings, shared: &Shared, task: Task) -> Result<Properties, ModelError> {
    let [vocabulary, _] = s.vocabularies;
    let (encoder, states) = encoder(b, s, shared, SEQUENCE)?;
    let start = seq2seq::start(b, task, vocabulary)?;
    let mut decoder = Decoder::after(b, &encoder, states, s.decoder.heads, start)?;
    let x = decoder_layers(b, s, shared, &mut decoder, SEQUENCE)?;
    seq2seq::head(b, &encoder, x, [vocabulary, s.hidden], 3, task)?;
    b.tensors.leave("lm_head");
    b.tensors.leave(HEAD_BIAS);
    Ok(seq2seq::properties(b, vocabulary, Some(s.max_positions.value)))
}

/// The three parts of a model with the embeddings of its encoder and its decoder.
pub(crate) fn parts(
    b: &mut Builder<'_>,
    s: &Settings,
    [source, target]: &[Shared; 2],
) -> Result<Properties, ModelError> {
    let [vocabulary, scored] = s.vocabularies;
    let (first, states) = encoder(b, s, source, ENCODER_SEQUENCE)?;
    first.finish(b, states);
    for cached in CACHED {
        let mut decoder = Decoder::new(b, [scored, s.hidden], s.decoder.heads, cached)?;
        let x = decoder_layers(b, s, target, &mut decoder, DECODER_SEQUENCE)?;
        let weight = if s.tied { target.weight(b)? } else { b.weight(&[HEAD], &[scored, s.hidden])? };
        let bias = head_bias(b, scored)?;
        decoder.finish(b, x, weight, bias)?;
    }
    Ok(seq2seq::properties(b, vocabulary, Some(s.max_positions.value)))
}

/// The bias of the projection to the vocabulary, where it is stored; it is zero otherwise.
fn head_bias(b: &mut Builder<'_>, vocabulary: Size) -> Result<Option<ValueId>, ModelError> {
    if !b.tensors.contains(HEAD_BIAS) {
        return Ok(None);
    }
    let stored = b.weight(&[HEAD_BIAS], &[Size::derived(1, "one row"), vocabulary])?;
    let shape = Shape::new([vocabulary.signed().into()]);
    b.emit(Reshape { x: stored, shape }, "final_logits_bias.vector").map(Some)
}

/// Embeddings of tokens and of the positions after `past` others.
fn embeddings(
    b: &mut Builder<'_>,
    s: &Settings,
    shared: &Shared,
    [stack, length]: [&str; 2],
    ids: ValueId,
    past: &Dim,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{stack}.{name}");
    let weight = shared.weight(b)?;
    let mut words = b.emit(Embedding { weight, ids }, &at("embed_tokens"))?;
    if let Some(scale) = s.embedding_scale {
        let scale = b.graph.add_scalar(&at("embed_tokens.scale"), DType::F32, scale);
        words = b.emit(Binary { kind: BinaryKind::Mul, a: words, b: scale }, &at("embed_tokens.scaled"))?;
    }
    let places = match s.positions {
        Positions::OfTokens { padding } => {
            let rows = s.max_positions.value + usize::try_from(padding + 1).unwrap_or_default();
            let rows = Size::derived(rows, "max_position_embeddings + pad_token_id + 1");
            let zero = usize::try_from(padding).ok();
            let table = sinusoidal::table_between(b.config, rows, s.hidden, zero)?;
            let origin = Origin::Config(s.max_positions.key.into());
            let table = b.graph.add_weight(&at("embed_positions.weights"), table, origin);
            let numbers = roberta::position_ids(b, ids, padding, past)?;
            b.emit(Embedding { weight: table, ids: numbers }, &at("embed_positions"))?
        }
        Positions::Learned | Positions::Sinusoidal => places(b, s, [stack, length], past)?,
    };
    let sum = b.add(words, places, &at("embeddings.add"))?;
    match s.normalized_embeddings {
        true => b.layer_norm(sum, &at("layernorm_embedding"), s.hidden, EPS),
        false => Ok(sum),
    }
}

/// The vectors of positions after `past` others: [length, hidden].
fn places(b: &mut Builder<'_>, s: &Settings, [stack, length]: [&str; 2], past: &Dim) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{stack}.{name}");
    let (table, offset) = positions(b, s, &at("embed_positions.weight"))?;
    let start = Dim::constant(offset.try_into().unwrap_or_default()).checked_add(past).unwrap_or_default();
    let end = start.checked_add(&Dim::symbol(length)).unwrap_or_default();
    b.emit(Slice { x: table, axis: 0, start, end }, &at("embed_positions"))
}

/// A table of the vectors of positions, and the row of the first.
fn positions(b: &mut Builder<'_>, s: &Settings, name: &str) -> Result<(ValueId, usize), ModelError> {
    match s.positions {
        Positions::Learned => {
            let rows = Size::derived(s.max_positions.value + OFFSET, "max_position_embeddings + 2");
            Ok((b.weight(&[name], &[rows, s.hidden])?, OFFSET))
        }
        Positions::Sinusoidal if b.tensors.contains(name) => Ok((b.weight(&[name], &[s.max_positions, s.hidden])?, 0)),
        Positions::Sinusoidal | Positions::OfTokens { .. } => {
            let table = sinusoidal::table(b.config, s.max_positions, s.hidden)?;
            Ok((b.graph.add_weight(name, table, Origin::Config(s.max_positions.key.into())), 0))
        }
    }
}

/// The encoder, and what it gives: [batch_size, `length`, hidden].
fn encoder(b: &mut Builder<'_>, s: &Settings, shared: &Shared, length: &str) -> Result<(Encoder, ValueId), ModelError> {
    let stack = &s.encoder;
    let encoder = Encoder::new(b, s.vocabularies[0], length)?;
    let names = [stack.name, length];
    let mut x = embeddings(b, s, shared, names, encoder.input_ids, &Dim::constant(0))?;
    for i in 0..stack.layers.value {
        let at = |name: &str| format!("{}.layers.{i}.{name}", stack.name);
        let q = b.linear(x, &at("self_attn.q_proj"), s.hidden, s.hidden)?;
        let [k, v] = keys_and_values(b, s.hidden, x, s.hidden, &at("self_attn"))?;
        let Heads { count, scale, .. } = stack.heads;
        let attention = Attention { mask: Some(encoder.mask), ..Attention::new(q, k, v, count.value, Real(scale)) };
        let attended = b.emit(attention, &at("self_attn"))?;
        x = add_and_norm(b, s, attended, x, &at("self_attn"))?;
        x = feed_forward(b, s, stack, x, &at(""))?;
    }
    Ok((encoder, x))
}

/// The output of the decoder's layers: [batch_size, `length`, hidden].
pub(crate) fn decoder_layers(
    b: &mut Builder<'_>,
    s: &Settings,
    shared: &Shared,
    decoder: &mut Decoder,
    length: &str,
) -> Result<ValueId, ModelError> {
    let stack = &s.decoder;
    let names = [stack.name, length];
    let mut x = embeddings(b, s, shared, names, decoder.input_ids, &decoder.past())?;
    for i in 0..stack.layers.value {
        let at = |name: &str| format!("{}.layers.{i}.{name}", stack.name);
        let input = norm_before(b, s, x, &at("self_attn_layer_norm"))?;
        let q = b.linear(input, &at("self_attn.q_proj"), s.hidden, s.hidden)?;
        let [k, v] = keys_and_values(b, s.hidden, input, s.hidden, &at("self_attn"))?;
        let attended = decoder.attend(b, [q, k, v], None, &at("self_attn"))?;
        x = add_and_norm(b, s, attended, x, &at("self_attn"))?;

        let input = norm_before(b, s, x, &at("encoder_attn_layer_norm"))?;
        let q = b.linear(input, &at("encoder_attn.q_proj"), s.hidden, s.hidden)?;
        let project = |b: &mut Builder<'_>, states| keys_and_values(b, s.hidden, states, s.memory, &at("encoder_attn"));
        let attended = decoder.attend_to_encoder(b, q, project, &at("encoder_attn"))?;
        x = add_and_norm(b, s, attended, x, &at("encoder_attn"))?;
        x = feed_forward(b, s, stack, x, &at(""))?;
    }
    if s.norms_first { b.layer_norm(x, &format!("{}.layer_norm", stack.name), s.hidden, EPS) } else { Ok(x) }
}

/// The norm of what attention or feed-forward take, where norms stand before these.
fn norm_before(b: &mut Builder<'_>, s: &Settings, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    if s.norms_first { b.layer_norm(x, module, s.hidden, EPS) } else { Ok(x) }
}

fn keys_and_values(
    b: &mut Builder<'_>,
    hidden: Size,
    x: ValueId,
    inner: Size,
    module: &str,
) -> Result<[ValueId; 2], ModelError> {
    let k = b.linear(x, &format!("{module}.k_proj"), hidden, inner)?;
    Ok([k, b.linear(x, &format!("{module}.v_proj"), hidden, inner)?])
}

/// The projection of what attention gives, added to its input and, where norms stand after sums, normalized.
fn add_and_norm(
    b: &mut Builder<'_>,
    s: &Settings,
    attended: ValueId,
    x: ValueId,
    module: &str,
) -> Result<ValueId, ModelError> {
    let projected = b.linear(attended, &format!("{module}.out_proj"), s.hidden, s.hidden)?;
    let sum = b.add(projected, x, &format!("{module}.add"))?;
    if s.norms_first { Ok(sum) } else { b.layer_norm(sum, &format!("{module}_layer_norm"), s.hidden, EPS) }
}

fn feed_forward(
    b: &mut Builder<'_>,
    s: &Settings,
    stack: &Stack,
    x: ValueId,
    layer: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{layer}{name}");
    let input = norm_before(b, s, x, &at("final_layer_norm"))?;
    let up = b.linear(input, &at("fc1"), stack.intermediate, s.hidden)?;
    let active = s.activation.apply(b, up, &at("activation"))?;
    let down = b.linear(active, &at("fc2"), s.hidden, stack.intermediate)?;
    let sum = b.add(down, x, &at("add"))?;
    if s.norms_first { Ok(sum) } else { b.layer_norm(sum, &at("final_layer_norm"), s.hidden, EPS) }
}
