//! Attention in chunks, as `create_chunked_causal_mask` of the transformers library has it: texts are cut into chunks of a length, and
//! a token sees those of its own chunk only.

use planish_ir::ops::{BinaryKind, Cast, CumSum, Select, Slice, Unary, UnaryKind};
use planish_ir::{DType, Dim, ValueId};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::{BATCH, Builder, SEQUENCE};
use crate::layers::experts::LEAST;

const MODULE: &str = "chunks";

/// The chunks of a text.
pub(crate) struct Chunks {
    /// Tokens of a chunk.
    pub(crate) size: Size,
    /// Whether each layer attends in chunks; the layers after these do not.
    pub(crate) layers: Vec<bool>,
}

impl Chunks {
    /// Whether a layer attends in chunks.
    pub(crate) fn is_in(&self, layer: usize) -> bool {
        self.layers.get(layer).copied().unwrap_or(false)
    }

    /// What is added to scores, [batch_size, 1, sequence_length, keys]: 0, and the least number between tokens of two chunks. Only
    /// tokens that the mask, i64[batch_size, keys], keeps have places, so padding on either side changes nothing. (In the transformers
    /// library padding after the first token has places too.)
    pub(crate) fn bias(&self, b: &mut Builder<'_>, attention_mask: ValueId) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{MODULE}.{name}");
        let keys = b.graph.ty(attention_mask).shape[1].clone();
        let (rows, tokens, one) = (Dim::symbol(BATCH), Dim::symbol(SEQUENCE), Dim::constant(1));
        let kept = b.emit(CumSum { x: attention_mask, axis: 1 }, &at("kept"))?;
        let kept = b.emit(Cast { x: kept, to: DType::F32 }, &at("kept.numbers"))?;
        // The first token is the one at place 0.
        let places = b.with_number(BinaryKind::Sub, kept, 1.0, &at("places"), self.size.key)?;
        let x = b.with_number(BinaryKind::Div, places, self.size.value as f64, &at("div"), self.size.key)?;
        let chunk = b.emit(Unary { kind: UnaryKind::Floor, x }, &at("chunk"))?;
        let start = keys.checked_sub(&tokens).unwrap_or_default();
        let of_queries = b.emit(Slice { x: chunk, axis: 1, start, end: keys.clone() }, &at("chunk.new"))?;
        let of_queries = b.reshape(of_queries, [rows.clone(), one.clone(), tokens, one.clone()], &at("queries"))?;
        let of_keys = b.reshape(chunk, [rows, one.clone(), one, keys], &at("keys"))?;
        let later = b.binary(BinaryKind::Greater, [of_queries, of_keys], &at("later"))?;
        let (least, zero) = (b.number(LEAST, &at("least"), self.size.key), b.number(0.0, &at("zero"), self.size.key));
        b.emit(Select { condition: later, a: least, b: zero }, MODULE)
    }
}
