//! The transformer encoder that BERT and related models share (Vaswani et al. 2017, arXiv:1706.03762):
//! layers of self-attention and feed-forward, each with a residual connection and layer
//! normalization after it.

use planish_ir::ops::{Attention, Binary, BinaryKind, Cast, Gelu, GeluForm, Iota, Reshape, Slice, Unary, UnaryKind};
use planish_ir::{DType, Dim, Shape, ValueId};

use crate::architecture::Properties;
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::attention::{Heads, Scores, Text, attention};
use crate::layers::builder::{Builder, SEQUENCE};
use crate::names;
use crate::{ModelError, Task};

/// The tasks of an encoder of text.
pub(crate) const TASKS: &[Task] = &[
    Task::FeatureExtraction,
    Task::FillMask,
    Task::TextClassification,
    Task::TokenClassification,
    Task::QuestionAnswering,
];

/// An encoder is not a decoder.
pub(crate) const NO_DECODER: Only = Only::Off("is_decoder");

/// The configuration of an encoder in `config.json`.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) vocabulary: Size,
    /// Rows of the position table.
    pub(crate) positions: Size,
    pub(crate) hidden: Size,
    /// Features of embeddings.
    pub(crate) embedded: Size,
    pub(crate) intermediate: Size,
    pub(crate) heads: Size,
    pub(crate) layers: Size,
    pub(crate) activation: Activation,
    /// Added to the variance in layer normalization.
    pub(crate) eps: f64,
    pub(crate) pad_token_id: Option<i64>,
}

impl Settings {
    /// Checks what no tensor's shape shows.
    pub(crate) fn check(self, config: &Config<'_>) -> Result<Self, ModelError> {
        if !self.hidden.value.is_multiple_of(self.heads.value) {
            return Err(config.error(format!("{} is not divisible by {}", self.hidden, self.heads)));
        }
        Ok(self)
    }

    /// The properties that callers need of a model that takes so many tokens.
    pub(crate) fn properties(&self, max_positions: usize) -> Properties {
        Properties {
            max_positions: Some(max_positions),
            vocab_size: Some(self.vocabulary.value),
            pad_token_id: self.pad_token_id,
            ..Properties::default()
        }
    }
}

/// An activation function by the names that `config.json` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    Gelu(GeluForm),
    Unary(UnaryKind),
    /// `relu(x)^2`.
    SquaredRelu,
}

impl Activation {
    pub(crate) const TANH: Self = Activation::Unary(UnaryKind::Tanh);
    pub(crate) const GELU: Self = Activation::Gelu(GeluForm::Erf);
}

const ACTIVATIONS: &[(&str, Activation)] = &[
    ("gelu", Activation::Gelu(GeluForm::Erf)),
    ("gelu_python", Activation::Gelu(GeluForm::Erf)),
    ("gelu_new", Activation::Gelu(GeluForm::Tanh)),
    ("gelu_fast", Activation::Gelu(GeluForm::Tanh)),
    ("gelu_accurate", Activation::Gelu(GeluForm::Tanh)),
    ("gelu_pytorch_tanh", Activation::Gelu(GeluForm::Tanh)),
    ("gelu_python_tanh", Activation::Gelu(GeluForm::Tanh)),
    ("relu", Activation::Unary(UnaryKind::Relu)),
    ("relu2", Activation::SquaredRelu),
    ("silu", Activation::Unary(UnaryKind::Silu)),
    ("swish", Activation::Unary(UnaryKind::Silu)),
    ("tanh", Activation::Unary(UnaryKind::Tanh)),
];

impl Activation {
    /// The function that a key names, or the default where it is absent.
    ///
    /// # Errors
    /// When the key is null: transformers 4.57 and 5.23 fail then too, for each architecture here. They
    /// take their default only where the key is absent.
    pub(crate) fn read(config: &Config<'_>, key: &'static str, default: &'static str) -> Result<Self, ModelError> {
        Self::named(config, key, Self::name(config, key, default)?)
    }

    /// The text of a key that names a function; null is an error.
    pub(crate) fn name<'a>(
        config: &Config<'a>,
        key: &'static str,
        default: &'static str,
    ) -> Result<&'a str, ModelError> {
        if config.is_null(key) {
            return Err(config.error(format!(
                "`{key}` is null, which names no activation function: set it to the function that the model was trained \
                 with, or remove the key to take the default"
            )));
        }
        config.text(key, default)
    }

    /// The function of a name, which a key gives.
    pub(crate) fn named(config: &Config<'_>, key: &str, name: &str) -> Result<Self, ModelError> {
        let found = ACTIVATIONS.iter().find(|(known, _)| *known == name);
        found.map(|(_, activation)| *activation).ok_or_else(|| {
            let known: Vec<&str> = ACTIVATIONS.iter().map(|(name, _)| *name).collect();
            config.error(format!("`{key}` is \"{name}\", which is not supported: known are {}", known.join(", ")))
        })
    }

    /// The function of a value.
    pub(crate) fn apply(self, b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
        match self {
            Activation::Gelu(form) => b.emit(Gelu { x, form }, module),
            Activation::Unary(kind) => b.emit(Unary { kind, x }, module),
            Activation::SquaredRelu => {
                let x = b.emit(Unary { kind: UnaryKind::Relu, x }, &format!("{module}.relu"))?;
                b.emit(Binary { kind: BinaryKind::Mul, a: x, b: x }, module)
            }
        }
    }
}

/// The names of the modules of a layer.
pub(crate) struct LayerNames {
    /// The list of layers.
    pub(crate) layers: &'static str,
    pub(crate) query: &'static str,
    pub(crate) key: &'static str,
    pub(crate) value: &'static str,
    /// The projection of what attention gives.
    pub(crate) output: &'static str,
    pub(crate) attention_norm: &'static str,
    /// The two layers of the feed-forward.
    pub(crate) up: &'static str,
    pub(crate) down: &'static str,
    pub(crate) output_norm: &'static str,
}

/// The attention mask as attention takes it: which tokens take part, bool[batch_size, sequence_length].
pub(crate) fn mask(b: &mut Builder<'_>, attention_mask: ValueId) -> Result<ValueId, ModelError> {
    b.emit(Cast { x: attention_mask, to: DType::Bool }, "attention_mask.bool")
}

/// The tokens of an encoder, as the layers attend to them that it shares with decoders.
pub(crate) struct TextEncoder {
    /// i64[batch_size, sequence_length].
    pub(crate) input_ids: ValueId,
    heads: Heads,
    /// bool[batch_size, sequence_length].
    pub(crate) mask: ValueId,
}

impl TextEncoder {
    /// Adds the inputs `input_ids` and `attention_mask`.
    pub(crate) fn new(b: &mut Builder<'_>, vocabulary: Size, heads: Heads) -> Result<Self, ModelError> {
        let input_ids = b.input(names::INPUT_IDS, vocabulary.signed());
        let attention_mask = b.input(names::ATTENTION_MASK, 2);
        Ok(Self { input_ids, heads, mask: mask(b, attention_mask)? })
    }
}

impl Text for TextEncoder {
    fn input_ids(&self) -> ValueId {
        self.input_ids
    }

    fn attend(
        &mut self,
        b: &mut Builder<'_>,
        qkv: [ValueId; 3],
        scores: Scores,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        b.emit(attention(qkv, self.heads, scores, self.mask), module)
    }
}

/// The positions 0, 1, 2 ... of tokens: i64[1, sequence_length].
pub(crate) fn positions(b: &mut Builder<'_>) -> Result<ValueId, ModelError> {
    let length = Dim::symbol(SEQUENCE);
    let positions = b.emit(Iota { dtype: DType::I64, length: length.clone() }, "position_ids.range")?;
    b.emit(Reshape { x: positions, shape: Shape::new([Dim::constant(1), length]) }, "position_ids")
}

/// The rows of the table `embeddings.position_embeddings` for positions 0, 1, 2 ...:
/// [sequence_length, embedded].
pub(crate) fn absolute_positions(b: &mut Builder<'_>, s: &Settings) -> Result<ValueId, ModelError> {
    let table = b.weight(&["embeddings.position_embeddings.weight"], &[s.positions, s.embedded])?;
    let slice = Slice { x: table, axis: 0, start: Dim::constant(0), end: Dim::symbol(SEQUENCE) };
    b.emit(slice, "embeddings.position_embeddings")
}

/// Sums embeddings in order and normalizes: [batch_size, sequence_length, embedded].
pub(crate) fn embeddings(
    b: &mut Builder<'_>,
    s: &Settings,
    first: ValueId,
    others: &[ValueId],
) -> Result<ValueId, ModelError> {
    let mut sum = first;
    for &other in others {
        sum = b.add(sum, other, "embeddings.add")?;
    }
    b.layer_norm(sum, "embeddings.LayerNorm", s.embedded, s.eps)
}

/// All layers: [batch_size, sequence_length, hidden] to the same.
pub(crate) fn layers(
    b: &mut Builder<'_>,
    s: &Settings,
    names: &LayerNames,
    x: ValueId,
    mask: ValueId,
) -> Result<ValueId, ModelError> {
    (0..s.layers.value).try_fold(x, |x, i| layer(b, s, names, &format!("{}.{i}", names.layers), x, (mask, None)))
}

/// The layer of a path. What attention takes are the mask, and what is added to scores, if anything is.
pub(crate) fn layer(
    b: &mut Builder<'_>,
    s: &Settings,
    names: &LayerNames,
    path: &str,
    x: ValueId,
    (mask, bias): (ValueId, Option<ValueId>),
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let q = b.linear(x, &at(names.query), s.hidden, s.hidden)?;
    let k = b.linear(x, &at(names.key), s.hidden, s.hidden)?;
    let v = b.linear(x, &at(names.value), s.hidden, s.hidden)?;
    let size = Size::derived(s.hidden.value / s.heads.value, "hidden_size / num_attention_heads");
    let heads = Heads { queries: s.heads, keys: s.heads, size };
    let scores = Scores::scaled(1.0 / (size.value as f64).sqrt());
    let attention = Attention { bias, ..attention([q, k, v], heads, scores, mask) };
    let attended = b.emit(attention, &at("attention"))?;
    let projected = b.linear(attended, &at(names.output), s.hidden, s.hidden)?;
    let residual = b.add(projected, x, &at("attention.add"))?;
    let x = b.layer_norm(residual, &at(names.attention_norm), s.hidden, s.eps)?;

    let up = b.linear(x, &at(names.up), s.intermediate, s.hidden)?;
    let active = s.activation.apply(b, up, &at("activation"))?;
    let down = b.linear(active, &at(names.down), s.hidden, s.intermediate)?;
    let residual = b.add(down, x, &at("add"))?;
    b.layer_norm(residual, &at(names.output_norm), s.hidden, s.eps)
}
