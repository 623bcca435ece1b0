//! The transformer encoder that BERT and related models share (Vaswani et al. 2017, arXiv:1706.03762):
//! layers of self-attention and feed-forward, each with a residual connection and layer
//! normalization after it.

use planish_ir::ops::{Attention, Cast, Gelu, GeluForm, Real, Slice, Unary, UnaryKind};
use planish_ir::{DType, Dim, Op, ValueId};

use crate::architecture::Interface;
use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::config_keys::Only;
use crate::layers::builder::{Builder, SEQUENCE};
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
    pub(crate) fn interface(&self, max_positions: usize) -> Interface {
        Interface {
            max_positions: Some(max_positions),
            vocab_size: Some(self.vocabulary.value),
            pad_token_id: self.pad_token_id,
            ..Interface::default()
        }
    }
}

/// An activation function by the names that `config.json` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    Gelu(GeluForm),
    Unary(UnaryKind),
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
    pub(crate) fn of(self, x: ValueId) -> Op {
        match self {
            Activation::Gelu(form) => Gelu { x, form }.into(),
            Activation::Unary(kind) => Unary { kind, x }.into(),
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

/// The rows of the table `embeddings.position_embeddings` for positions 0, 1, 2 ...:
/// [sequence_length, hidden].
pub(crate) fn absolute_positions(b: &mut Builder<'_>, s: &Settings) -> Result<ValueId, ModelError> {
    let table = b.weight(&["embeddings.position_embeddings.weight"], &[s.positions, s.hidden])?;
    let slice = Slice { x: table, axis: 0, start: Dim::constant(0), end: Dim::symbol(SEQUENCE) };
    b.emit(slice, "embeddings.position_embeddings")
}

/// Sums embeddings in order and normalizes: [batch_size, sequence_length, hidden].
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
    b.layer_norm(sum, "embeddings.LayerNorm", s.hidden, s.eps)
}

/// All layers: [batch_size, sequence_length, hidden] to the same.
pub(crate) fn layers(
    b: &mut Builder<'_>,
    s: &Settings,
    names: &LayerNames,
    x: ValueId,
    mask: ValueId,
) -> Result<ValueId, ModelError> {
    (0..s.layers.value).try_fold(x, |x, i| layer(b, s, names, &format!("{}.{i}", names.layers), x, mask))
}

fn layer(
    b: &mut Builder<'_>,
    s: &Settings,
    names: &LayerNames,
    path: &str,
    x: ValueId,
    mask: ValueId,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{path}.{name}");
    let q = b.linear(x, &at(names.query), s.hidden, s.hidden)?;
    let k = b.linear(x, &at(names.key), s.hidden, s.hidden)?;
    let v = b.linear(x, &at(names.value), s.hidden, s.hidden)?;
    let head_size = (s.hidden.value / s.heads.value) as f64;
    let attention = Attention::new(q, k, v, s.heads.value, Real(1.0 / head_size.sqrt()));
    let attention = Attention { mask: Some(mask), ..attention };
    let attended = b.emit(attention, &at("attention"))?;
    let projected = b.linear(attended, &at(names.output), s.hidden, s.hidden)?;
    let residual = b.add(projected, x, &at("attention.add"))?;
    let x = b.layer_norm(residual, &at(names.attention_norm), s.hidden, s.eps)?;

    let up = b.linear(x, &at(names.up), s.intermediate, s.hidden)?;
    let active = b.emit(s.activation.of(up), &at("activation"))?;
    let down = b.linear(active, &at(names.down), s.hidden, s.intermediate)?;
    let residual = b.add(down, x, &at("add"))?;
    b.layer_norm(residual, &at(names.output_norm), s.hidden, s.eps)
}
