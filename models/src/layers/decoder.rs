//! The parts that decoders share: inputs, causal attention over a cache of keys and values, and the head that
//! scores the next token. Inputs and outputs are named as Optimum names them.

use planish_ir::ops::{Attention, Binary, BinaryKind, Cast, CumSum, Flag, Linear, Slice};
use planish_ir::{DType, Dim, ValueId};

use crate::ModelError;
use crate::architecture::Properties;
use crate::checkpoint::config::Size;
use crate::layers::attention::{Heads, Scores, Text, attention};
use crate::layers::builder::{BATCH, Builder, PAST, SEQUENCE};
use crate::layers::heads;
use crate::layers::sinks::{self, Cached};
use crate::names;
use crate::names::CacheOf;

/// The projection to the vocabulary.
const HEAD: &str = "lm_head";

/// The configuration keys that all decoders read.
pub(crate) const KEYS: &[&str] = &["pad_token_id", "tie_word_embeddings"];

/// Where the positions of tokens come from: Optimum gives some types an input for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Positions {
    /// The input `position_ids`.
    Given,
    /// Counted from the first token that the mask keeps.
    Counted,
}

/// A decoder that is being built.
pub(crate) struct Decoder {
    /// i64[batch_size, sequence_length].
    pub(crate) input_ids: ValueId,
    /// i64[batch_size, sequence_length].
    pub(crate) position_ids: ValueId,
    vocabulary: Size,
    positions: Size,
    heads: Heads,
    /// Which keys take part: bool[batch_size, past_sequence_length + sequence_length].
    mask: ValueId,
    /// Keys and values of each layer so far.
    present: Vec<[ValueId; 2]>,
}

impl Decoder {
    /// Adds the inputs, but those of the cache: each layer adds its own.
    pub(crate) fn new(
        b: &mut Builder<'_>,
        vocabulary: Size,
        positions: Size,
        source: Positions,
        heads: Heads,
    ) -> Result<Self, ModelError> {
        let input_ids = b.input(names::INPUT_IDS, vocabulary.signed());
        let keys = Dim::symbol(PAST).checked_add(&Dim::symbol(SEQUENCE)).unwrap_or_default();
        let attention_mask = b.ids(names::ATTENTION_MASK, [Dim::symbol(BATCH), keys], 2);
        let position_ids = match source {
            Positions::Given => b.input(names::POSITION_IDS, positions.signed()),
            Positions::Counted => counted(b, attention_mask)?,
        };
        let mask = b.emit(Cast { x: attention_mask, to: DType::Bool }, "attention_mask.bool")?;
        Ok(Self { input_ids, position_ids, vocabulary, positions, heads, mask, present: Vec::new() })
    }

    /// The scores of the vocabulary for each token, by the projection that checkpoints of most decoders
    /// call `lm_head`. Its weight is that of the embeddings where the configuration ties them; `tied` is
    /// its default. `bias` says whether there is one.
    pub(crate) fn logits(
        &self,
        b: &mut Builder<'_>,
        x: ValueId,
        hidden: Size,
        embeddings: &str,
        tied: bool,
        bias: bool,
    ) -> Result<ValueId, ModelError> {
        let tied = b.config.boolean("tie_word_embeddings", tied)?;
        let weight = heads::vocabulary_weight(b, HEAD, embeddings, tied, [self.vocabulary, hidden])?;
        let bias = if bias { Some(b.weight(&[&format!("{HEAD}.bias")], &[self.vocabulary])?) } else { None };
        b.emit(Linear::new(x, weight, bias), HEAD)
    }

    /// Adds the outputs: `logits`, then the cache.
    pub(crate) fn finish(self, b: &mut Builder<'_>, logits: ValueId) -> Properties {
        b.give(names::LOGITS, logits);
        for (layer, values) in self.present.into_iter().enumerate() {
            for ((name, role), value) in CacheOf::Model.present(layer).into_iter().zip(values) {
                b.output(&name, role, value);
            }
        }
        Properties {
            max_positions: Some(self.positions.value),
            vocab_size: Some(self.vocabulary.value),
            pad_token_id: b.config.any_token("pad_token_id", self.vocabulary),
            ..Properties::default()
        }
    }
}

impl Text for Decoder {
    fn attend(
        &mut self,
        b: &mut Builder<'_>,
        qkv: [ValueId; 3],
        scores: Scores,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        let layer = self.present.len();
        let Heads { keys, size, .. } = self.heads;
        let [past_key, past_value] = CacheOf::Model.past(layer).map(|(name, role)| {
            let dims = [Dim::symbol(BATCH), keys.signed().into(), Dim::symbol(PAST), size.signed().into()];
            b.floats(&name, role, dims)
        });
        if let Some(sinks) = scores.sinks {
            let cached = Cached { past: [past_key, past_value], mask: self.mask };
            let [result, key, value] = sinks::attend(b, qkv, cached, self.heads, scores, sinks, module)?;
            self.present.push([key, value]);
            return Ok(result);
        }
        let attention = Attention {
            past_key: Some(past_key),
            past_value: Some(past_value),
            causal: Flag(true),
            present: Flag(true),
            ..attention(qkv, self.heads, scores, self.mask)
        };
        match b.emit_all(attention, module)?[..] {
            [result, key, value] => {
                self.present.push([key, value]);
                Ok(result)
            }
            _ => unreachable!("attention has its keys and values as results"),
        }
    }
}

/// The number of tokens before each new one, padding not counted: i64[batch_size, sequence_length].
fn counted(b: &mut Builder<'_>, attention_mask: ValueId) -> Result<ValueId, ModelError> {
    const MODULE: &str = names::POSITION_IDS.0;
    let up_to = b.emit(CumSum { x: attention_mask, axis: 1 }, MODULE)?;
    let end = b.graph.ty(attention_mask).shape[1].clone();
    let up_to = b.emit(Slice { x: up_to, axis: 1, start: Dim::symbol(PAST), end }, MODULE)?;
    let one = b.graph.add_scalar("position_ids.one", DType::I64, 1.0);
    let before = b.emit(Binary { kind: BinaryKind::Sub, a: up_to, b: one }, MODULE)?;
    // Padding on the left has no token before it.
    let zero = b.graph.add_scalar("position_ids.zero", DType::I64, 0.0);
    b.emit(Binary { kind: BinaryKind::Max, a: before, b: zero }, MODULE)
}

/// The scores of the vocabulary for each token, by a weight [vocabulary, hidden].
pub(crate) fn score(b: &mut Builder<'_>, x: ValueId, weight: ValueId) -> Result<ValueId, ModelError> {
    b.emit(Linear::new(x, weight, None), HEAD)
}
