//! Attention, apart from what it attends to: the tokens of an encoder, or those that a decoder has cached too.

use planish_ir::ValueId;
use planish_ir::ops::{self, Real};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;
use crate::layers::decoder::Decoder;

/// The heads of an attention.
#[derive(Clone, Copy)]
pub(crate) struct Heads {
    pub(crate) queries: Size,
    /// Heads of keys and values: a divisor of those of queries.
    pub(crate) keys: Size,
    /// Features of a head.
    pub(crate) size: Size,
}

impl Heads {
    /// Checks what no tensor's shape shows.
    pub(crate) fn check(self, b: &Builder<'_>) -> Result<Self, ModelError> {
        match self.queries.value.is_multiple_of(self.keys.value) {
            true => Ok(self),
            false => Err(b.config.error(format!("{} is not divisible by {}", self.queries, self.keys))),
        }
    }
}

/// How queries and keys become the scores of an attention.
#[derive(Clone, Copy)]
pub(crate) struct Scores {
    /// The factor of the products.
    pub(crate) scale: f64,
    /// Only keys that are less than so many positions from the query take part; all where absent.
    pub(crate) window: Option<usize>,
    /// Scores `s` become `softcap * tanh(s / softcap)`.
    pub(crate) softcap: Option<f64>,
    /// The scores of one more column of the softmax, a weight of [heads].
    pub(crate) sinks: Option<ValueId>,
    /// What is added to scaled scores: it broadcasts to [batch_size, heads, queries, keys].
    pub(crate) bias: Option<ValueId>,
}

impl Scores {
    /// Scores of all keys.
    pub(crate) fn scaled(scale: f64) -> Self {
        Self { scale, window: None, softcap: None, sinks: None, bias: None }
    }
}

/// Attention to keys that a mask keeps, bool[batch_size, keys], without a cache: a query sees those before and after it.
pub(crate) fn attention([q, k, v]: [ValueId; 3], heads: Heads, scores: Scores, mask: ValueId) -> ops::Attention {
    let Heads { queries, keys, .. } = heads;
    ops::Attention {
        mask: Some(mask),
        bias: scores.bias,
        kv_heads: Some(keys.value).filter(|keys| *keys != queries.value),
        window: scores.window,
        softcap: scores.softcap.map(Real),
        ..ops::Attention::new(q, k, v, queries.value, Real(scores.scale))
    }
}

/// What the layers of a model attend to.
pub(crate) trait Text {
    /// Attention of the next layer, [batch_size, sequence_length, features].
    fn attend(
        &mut self,
        b: &mut Builder<'_>,
        qkv: [ValueId; 3],
        heads: Heads,
        scores: Scores,
        module: &str,
    ) -> Result<ValueId, ModelError>;

    /// Attention of a layer that has no keys and values of its own to those of an earlier layer.
    fn attend_to_layer(
        &mut self,
        b: &mut Builder<'_>,
        q: ValueId,
        layer: usize,
        heads: Heads,
        scores: Scores,
        module: &str,
    ) -> Result<ValueId, ModelError>;

    /// Whether a cache grows that has latents, not keys and values of heads.
    fn caches_latents(&self, b: &mut Builder<'_>) -> bool;

    /// What the cache of the next layer has of all tokens, [batch_size, heads, keys, size], of what it gets of new ones.
    fn extend(&mut self, b: &mut Builder<'_>, new: [ValueId; 2], module: &str) -> Result<[ValueId; 2], ModelError>;

    /// Attention to keys and values of all tokens, as caches hold them.
    fn attend_all(
        &self,
        b: &mut Builder<'_>,
        qkv: [ValueId; 3],
        heads: Heads,
        scores: Scores,
        module: &str,
    ) -> Result<ValueId, ModelError>;

    /// The decoder, if it is one.
    fn decoder(&mut self) -> Option<&mut Decoder>;
}
