//! The forms of the parts of a layer, and the names of its modules.

use planish_ir::ValueId;

use super::settings::Settings;
use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::alibi::Alibi;
use crate::layers::builder::Builder;

/// The modules that project to queries, keys and values.
#[derive(Clone, Copy)]
pub(crate) enum Projections {
    /// `q_proj`, `k_proj` and `v_proj`.
    Apart,
    /// One of this name, whose result is queries, keys and values side by side.
    Packed(&'static str),
    /// One of this name, whose result is so many groups side by side, in each of which are a part of the queries, then one of
    /// the keys and one of the values; or one of the values and one of the keys.
    Grouped { name: &'static str, groups: Size, values_first: bool },
}

/// Vectors of tokens for each layer, which it adds to what it gives (Gemma 3n): rows of a table of their own, and what a
/// projection makes of the embeddings.
#[derive(Clone, Copy)]
pub(crate) struct LayerInputs {
    /// The features of a vector.
    pub(crate) size: Size,
    /// The rows of the table.
    pub(crate) vocabulary: Size,
}

/// Queries at a position are multiplied with `1 + beta * ln(1 + floor((position + first) / length))`.
#[derive(Clone, Copy)]
pub(crate) struct Growth {
    pub(crate) beta: f64,
    pub(crate) length: f64,
    pub(crate) first: f64,
    /// Whether only queries that do not turn grow.
    pub(crate) of_unrotated: bool,
}

impl Growth {
    /// That of Ministral 3.
    pub(crate) const DEFAULT: Self = Self { beta: 0.1, length: 16384.0, first: 0.0, of_unrotated: false };
}

/// How a model knows the places of tokens.
#[derive(Clone, Copy)]
pub(crate) enum Places {
    /// Queries and keys turn, as the configuration says of rotary embedding.
    Rotary,
    /// So many features of each head of queries and keys turn, with frequencies to the base of 10000.
    PlainRotary(Size),
    /// Vectors of a table are added to embeddings. The first position has the row `first`.
    Table { module: &'static str, first: usize },
    /// The same with sines and cosines, in a table whose row `zero` is 0.
    Sinusoidal { module: &'static str, first: usize, zero: Option<usize> },
    /// Biases are added to scores.
    Alibi(Alibi),
}

/// The modules of the feed-forward.
#[derive(Clone, Copy)]
pub(crate) enum FeedForward {
    /// None: a layer ends after its attention.
    None,
    /// `down(activation(gate(x)) * up(x))`.
    Gated { gate: &'static str, up: &'static str, down: &'static str },
    /// `down(activation(a) * b)`, where `both` gives `a` and `b` side by side, or `b` and `a` where the gate is `last`.
    Packed { both: &'static str, last: bool, down: &'static str },
    /// `down(activation(up(x)))`.
    Plain { up: &'static str, down: &'static str },
    /// One of its own, of a module: [batch_size, sequence_length, hidden] to the same.
    Own(fn(&mut Builder<'_>, &Settings, ValueId, &str) -> Result<ValueId, ModelError>),
}

/// Where the gates are whose sigmoids what attention gives is multiplied with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputGate {
    /// There are none.
    None,
    /// The projection to queries gives one for each of them too, next to those of the same head.
    Beside,
    /// In the attention, a projection of this name.
    Apart(&'static str),
}

/// The norms of queries and keys before they are rotated.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadNorms {
    None,
    /// Of each head, with one weight for all heads.
    Each,
    /// Of each head, without a weight, once it is rotated; in layers that do not rotate there are none.
    OfRotated,
    /// Of each head, with a weight for each head and without a bias.
    Apart(HeadWeights),
    /// Of all heads as one.
    Whole,
}

/// How the weights of norms of heads are stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadWeights {
    /// In one tensor, [heads, size].
    Together,
    /// Each in a module of a list `norms`.
    Listed,
}

/// The norms around attention or feed-forward, by the names of their modules in a layer.
#[derive(Clone, Copy)]
pub(crate) struct Around {
    pub(crate) before: Option<&'static str>,
    /// Of the result, before it is added to the input.
    pub(crate) after: Option<&'static str>,
    /// Of the sum of result and input.
    pub(crate) sum: Option<&'static str>,
}

impl Around {
    const NONE: Self = Self { before: None, after: None, sum: None };

    pub(crate) const fn before(name: &'static str) -> Self {
        Self { before: Some(name), ..Self::NONE }
    }

    pub(crate) const fn after(name: &'static str) -> Self {
        Self { after: Some(name), ..Self::NONE }
    }

    pub(crate) const fn before_and_after(before: &'static str, after: &'static str) -> Self {
        Self { before: Some(before), after: Some(after), ..Self::NONE }
    }

    pub(crate) const fn sum(name: &'static str) -> Self {
        Self { sum: Some(name), ..Self::NONE }
    }
}

/// The names of modules.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    pub(crate) embeddings: &'static str,
    /// The norm of embeddings.
    pub(crate) embedding_norm: Option<&'static str>,
    /// The list of layers.
    pub(crate) layers: &'static str,
    pub(crate) attention: &'static str,
    /// In the attention, the projection of what it gives.
    pub(crate) output: &'static str,
    /// In the attention, the norms of queries and of keys.
    pub(crate) head_norms: [&'static str; 2],
    /// Empty where its modules are those of the layer.
    pub(crate) feed_forward: &'static str,
    /// The norm of what the last layer gives.
    pub(crate) final_norm: Option<&'static str>,
}

/// A number that a result is multiplied with, and the key that gives it.
pub(crate) type Factor = Option<(f64, &'static str)>;

/// What the embeddings of tokens are multiplied with.
#[derive(Clone, Copy)]
pub(crate) enum EmbeddingScale {
    None,
    /// The square root of the hidden size, which the transformers library rounds to the element type of the checkpoint.
    Root,
    Number(f64, &'static str),
}
