//! T5 (Raffel et al. 2019, arXiv:1910.10683), as `transformers/models/t5` has it: norms before
//! attention and feed-forward, and biases of attention by relative position in place of positions.

use planish_ir::ops::{Attention, Binary, BinaryKind, Embedding, Real};
use planish_ir::{DType, Dim, ValueId};

use crate::architecture::{Architecture, Properties};
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::{Builder, SEQUENCE};
use crate::layers::heads;
use crate::layers::relative::{self, Buckets};
use crate::layers::seq2seq::{self, CACHED, DECODER_SEQUENCE, Decoder, ENCODER_SEQUENCE, Encoder, Heads, Shared};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "t5",
    class_prefix: "T5",
    base: "transformer",
    other_bases: &[],
    renamed: &[],
    tasks: &[
        Task::Text2TextGeneration,
        Task::FeatureExtraction,
        Task::TextClassification,
        Task::TokenClassification,
        Task::QuestionAnswering,
    ],
    keys: &[KEYS, seq2seq::TOKEN_KEYS, &[SCALED]],
    older_keys: &[],
    only: &[],
    irrelevant_keys: &[
        // Training.
        "classifier_dropout",
        "dropout_rate",
        "initializer_factor",
        // The length of sequences in training: nothing depends on it.
        "n_positions",
    ],
    // Biases by position between decoder and encoder, which old checkpoints store and nothing uses.
    unused_tensors: &["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias."],
    pad_token_id: None,
    gguf: None,
    build,
};

/// The configuration keys that all models of the family read.
pub(crate) const KEYS: &[&str] = &[
    "d_ff",
    "d_kv",
    "d_model",
    "dense_act_fn",
    "feed_forward_proj",
    "hidden_size",
    "is_gated_act",
    "layer_norm_epsilon",
    "num_attention_heads",
    "num_decoder_layers",
    "num_heads",
    "num_hidden_layers",
    "num_layers",
    "pad_token_id",
    "relative_attention_max_distance",
    "relative_attention_num_buckets",
    "tie_word_embeddings",
    "vocab_size",
];

/// The key that says whether the decoder's result is divided by the root of its features.
pub(crate) const SCALED: &str = "scale_decoder_outputs";

/// The default of the number of token ids of the multilingual models.
pub(crate) const MULTILINGUAL: usize = 250_112;

const EMBEDDINGS: &[&str] = &["shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"];
const HEAD: &str = "lm_head.weight";

/// The differences between the models of the family, and what a configuration without a key means.
#[derive(Clone, Copy)]
pub(crate) struct Defaults {
    pub(crate) vocab_size: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) intermediate: usize,
    /// `feed_forward_proj`.
    pub(crate) form: &'static str,
    /// Whether the decoder's result may be scaled for the projection to the vocabulary.
    pub(crate) scales: bool,
    /// Whether each layer has biases of attention of its own, in place of those of the first.
    pub(crate) own_biases: bool,
}

impl Defaults {
    pub(crate) const T5: Self = Self {
        vocab_size: 32128,
        layers: 6,
        heads: 8,
        intermediate: 2048,
        form: "relu",
        scales: true,
        own_biases: false,
    };

    /// Of the multilingual models.
    pub(crate) const MULTILINGUAL: Self =
        Self { vocab_size: MULTILINGUAL, layers: 8, heads: 6, intermediate: 1024, form: "gated-gelu", ..Self::T5 };
}

/// The configuration in `config.json`.
pub(crate) struct Settings {
    vocabulary: Size,
    hidden: Size,
    /// Features of all heads side by side.
    inner: Size,
    intermediate: Size,
    /// Layers of encoder and decoder.
    layers: [Size; 2],
    heads: Heads,
    buckets: Size,
    max_distance: Size,
    activation: Activation,
    /// Whether the feed-forward is gated.
    gated: bool,
    /// Added to the mean square in norms.
    eps: f64,
    scales: bool,
    own_biases: bool,
    /// The attention of the encoder's layers: its module, and how many tokens a token sees on either side, itself counted.
    pub(crate) encoder_attention: (&'static str, Option<usize>),
}

impl Settings {
    pub(crate) fn read(config: &Config<'_>, defaults: Defaults) -> Result<Self, ModelError> {
        let size = config.size("d_kv", 64)?;
        let count = config.size_alias(&["num_heads", "num_attention_heads"], defaults.heads)?;
        let layers = config.size_alias(&["num_layers", "num_hidden_layers"], defaults.layers)?;
        let (activation, gated) = feed_forward_form(config, defaults.form)?;
        Ok(Self {
            vocabulary: config.size("vocab_size", defaults.vocab_size)?,
            hidden: config.size_alias(&["d_model", "hidden_size"], 512)?,
            inner: Size::derived(count.value * size.value, "num_heads * d_kv"),
            intermediate: config.size("d_ff", defaults.intermediate)?,
            layers: [layers, config.size_or("num_decoder_layers", layers)?],
            heads: Heads { count, size, scale: 1.0 },
            buckets: config.size("relative_attention_num_buckets", 32)?,
            max_distance: config.size("relative_attention_max_distance", 128)?,
            activation,
            gated,
            eps: config.positive("layer_norm_epsilon", 1e-6)?,
            scales: defaults.scales,
            own_biases: defaults.own_biases,
            encoder_attention: ("SelfAttention", None),
        })
    }
}

/// The activation of the feed-forward and whether it is gated. `feed_forward_proj` says both; what
/// the library derives from it may be stored too.
fn feed_forward_form(config: &Config<'_>, default: &'static str) -> Result<(Activation, bool), ModelError> {
    const FORM: &str = "feed_forward_proj";
    const STORED: &str = "dense_act_fn";
    let form = Activation::name(config, FORM, default)?;
    let (name, gated) = match form.strip_prefix("gated-") {
        // The only name that means another function than elsewhere.
        Some("gelu") => ("gelu_new", true),
        Some(name) => (name, true),
        None => (form, false),
    };
    let activation = Activation::named(config, FORM, name)?;
    let stored = match config.get(STORED) {
        None if !config.is_null(STORED) => activation,
        _ => Activation::read(config, STORED, "")?,
    };
    if stored != activation || config.boolean("is_gated_act", gated)? != gated {
        return Err(config.error(format!(
            "`{FORM}` is \"{form}\", but `{STORED}` or `is_gated_act` says otherwise: they come from it"
        )));
    }
    Ok((activation, gated))
}

fn build(b: &mut Builder<'_>, task: Task) -> Result<Properties, ModelError> {
    let s = Settings::read(b.config, Defaults::T5)?;
    outputs(b, &s, task)
}

/// The graphs of a task.
pub(crate) fn outputs(b: &mut Builder<'_>, s: &Settings, task: Task) -> Result<Properties, ModelError> {
    let tied = b.config.boolean("tie_word_embeddings", true)?;
    let scaled = s.scales && b.config.boolean(SCALED, tied)?;
    // Transformers 5 writes of all models that they are tied, also of those with a head of their own,
    // which are not scaled.
    let tied = tied && (scaled || !has_own_head(b)?);
    let shape = [s.vocabulary, s.hidden];
    let shared = Shared::find(b, EMBEDDINGS, HEAD, tied, shape)?;
    match task {
        Task::Text2TextGeneration => {
            let (first, states) = encoder(b, s, &shared, ENCODER_SEQUENCE)?;
            first.finish(b, states);
            for cached in CACHED {
                let mut decoder = Decoder::new(b, shape, s.heads, cached)?;
                let mut x = decoder_layers(b, s, &shared, &mut decoder, DECODER_SEQUENCE)?;
                if scaled {
                    let scale = b.graph.add_scalar("lm_head.scale", DType::F32, (s.hidden.value as f64).powf(-0.5));
                    x = b.emit(Binary { kind: BinaryKind::Mul, a: x, b: scale }, "lm_head.scaled")?;
                }
                let weight = if tied { shared.weight(b)? } else { b.weight(&[HEAD], &shape)? };
                decoder.finish(b, x, weight, None)?;
            }
        }
        _ => {
            features(b, s, &shared, task)?;
            b.tensors.leave("lm_head");
        }
    }
    Ok(seq2seq::properties(b, s.vocabulary, None))
}

/// One graph with what a task takes of the tokens: of the encoder alone, as `T5EncoderModel` and `T5ForTokenClassification` of the
/// transformers library, or of the decoder after it, which reads the same tokens one place later.
fn features(b: &mut Builder<'_>, s: &Settings, shared: &Shared, task: Task) -> Result<(), ModelError> {
    let (encoder, states) = encoder(b, s, shared, SEQUENCE)?;
    match task {
        Task::FeatureExtraction | Task::TokenClassification => {
            b.tensors.leave("decoder");
            if task == Task::TokenClassification {
                return heads::classify(b, s.hidden, states, "classifier");
            }
            b.give(names::HIDDEN, states);
            Ok(())
        }
        _ => {
            let mut decoder = Decoder::after(b, &encoder, states, s.heads, seq2seq::start(b, task, s.vocabulary)?)?;
            let x = decoder_layers(b, s, shared, &mut decoder, SEQUENCE)?;
            seq2seq::head(b, &encoder, x, [s.vocabulary, s.hidden], 2, task)
        }
    }
}

/// Whether the projection to the vocabulary is stored and is none of the embeddings.
fn has_own_head(b: &mut Builder<'_>) -> Result<bool, ModelError> {
    EMBEDDINGS.iter().try_fold(false, |own, name| Ok(own || b.tensors.differs(name, HEAD)?))
}

/// The inputs of the encoder and its result: [batch_size, `length`, hidden].
fn encoder(b: &mut Builder<'_>, s: &Settings, shared: &Shared, length: &str) -> Result<(Encoder, ValueId), ModelError> {
    let encoder = Encoder::new(b, s.vocabulary, length)?;
    let (attention, window) = s.encoder_attention;
    let mut x = embed(b, shared, encoder.input_ids, "encoder")?;
    let mut bias = None;
    for i in 0..s.layers[0].value {
        let at = |name: &str| format!("encoder.block.{i}.layer.{name}");
        let module = at(&format!("0.{attention}"));
        let normal = b.rms_norm(x, &at("0.layer_norm"), s.hidden, s.eps)?;
        let qkv = project(b, s, normal, &module)?;
        let first = bias.filter(|_| !s.own_biases);
        let own = first.map_or_else(|| position_bias(b, s, &module, None, length), Ok)?;
        bias = Some(own);
        let [q, k, v] = qkv;
        let attention = Attention {
            mask: Some(encoder.mask),
            bias,
            window,
            ..Attention::new(q, k, v, s.heads.count.value, Real(s.heads.scale))
        };
        let attended = b.emit(attention, &module)?;
        let projected = b.projection(attended, &format!("{module}.o"), [s.hidden, s.inner], false)?;
        x = b.add(projected, x, &at("0.add"))?;
        x = feed_forward(b, s, x, &at("1"))?;
    }
    let x = b.rms_norm(x, "encoder.final_layer_norm", s.hidden, s.eps)?;
    Ok((encoder, x))
}

/// The normalized output of the decoder's layers: [batch_size, `length`, hidden].
fn decoder_layers(
    b: &mut Builder<'_>,
    s: &Settings,
    shared: &Shared,
    decoder: &mut Decoder,
    length: &str,
) -> Result<ValueId, ModelError> {
    let mut bias = None;
    let mut x = embed(b, shared, decoder.input_ids, "decoder")?;
    for i in 0..s.layers[1].value {
        let at = |name: &str| format!("decoder.block.{i}.layer.{name}");
        let normal = b.rms_norm(x, &at("0.layer_norm"), s.hidden, s.eps)?;
        let module = at("0.SelfAttention");
        let qkv = project(b, s, normal, &module)?;
        let first = bias.filter(|_| !s.own_biases);
        let own = first.map_or_else(|| position_bias(b, s, &module, Some(&decoder.past()), length), Ok)?;
        bias = Some(own);
        let attended = decoder.attend(b, qkv, bias, &module)?;
        let projected = b.projection(attended, &format!("{module}.o"), [s.hidden, s.inner], false)?;
        x = b.add(projected, x, &at("0.add"))?;

        let normal = b.rms_norm(x, &at("1.layer_norm"), s.hidden, s.eps)?;
        let module = at("1.EncDecAttention");
        let q = b.projection(normal, &format!("{module}.q"), [s.inner, s.hidden], false)?;
        let project = |b: &mut Builder<'_>, states| {
            let k = b.projection(states, &format!("{module}.k"), [s.inner, s.hidden], false)?;
            Ok([k, b.projection(states, &format!("{module}.v"), [s.inner, s.hidden], false)?])
        };
        let attended = decoder.attend_to_encoder(b, q, project, &module)?;
        let projected = b.projection(attended, &format!("{module}.o"), [s.hidden, s.inner], false)?;
        x = b.add(projected, x, &at("1.add"))?;
        x = feed_forward(b, s, x, &at("2"))?;
    }
    b.rms_norm(x, "decoder.final_layer_norm", s.hidden, s.eps)
}

fn embed(b: &mut Builder<'_>, shared: &Shared, ids: ValueId, stack: &str) -> Result<ValueId, ModelError> {
    let weight = shared.weight(b)?;
    b.emit(Embedding { weight, ids }, &format!("{stack}.embed_tokens"))
}

/// Queries, keys and values.
fn project(b: &mut Builder<'_>, s: &Settings, x: ValueId, module: &str) -> Result<[ValueId; 3], ModelError> {
    let mut one = |name: &str| b.projection(x, &format!("{module}.{name}"), [s.inner, s.hidden], false);
    Ok([one("q")?, one("k")?, one("v")?])
}

/// `x + wo(activation(wi(norm(x))))`; gated, `wo(activation(wi_0(..)) * wi_1(..))`.
fn feed_forward(b: &mut Builder<'_>, s: &Settings, x: ValueId, path: &str) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let shape = [s.intermediate, s.hidden];
    let normal = b.rms_norm(x, &at("layer_norm"), s.hidden, s.eps)?;
    let first = if s.gated { "DenseReluDense.wi_0" } else { "DenseReluDense.wi" };
    let up = b.projection(normal, &at(first), shape, false)?;
    let mut active = s.activation.apply(b, up, &at("DenseReluDense.act"))?;
    if s.gated {
        let up = b.projection(normal, &at("DenseReluDense.wi_1"), shape, false)?;
        active = b.emit(Binary { kind: BinaryKind::Mul, a: active, b: up }, &at("DenseReluDense.mul"))?;
    }
    let down = b.projection(active, &at("DenseReluDense.wo"), [s.hidden, s.intermediate], false)?;
    b.add(down, x, &at("add"))
}

/// The addend of the scaled scores: [heads, queries, keys]. Of each head it depends on the distance
/// between key and query only, so one table of distances, which is known at compile time, has it all. Attention is causal
/// where keys of the past are given.
fn position_bias(
    b: &mut Builder<'_>,
    s: &Settings,
    attention: &str,
    past: Option<&Dim>,
    length: &str,
) -> Result<ValueId, ModelError> {
    let module = format!("{attention}.relative_attention_bias");
    let buckets = Buckets::new(b.config, s.buckets, s.max_distance, past.is_none())?;
    let past = past.cloned().unwrap_or_else(|| Dim::constant(0));
    relative::bias(b, &buckets, [s.buckets, s.heads.count], &past, &Dim::symbol(length), &module)
}
