//! Attention with sinks (Xiao et al. 2023, arXiv:2309.17453): the softmax of each head has one more column, whose score is a
//! weight and which no value belongs to.

use planish_ir::ops::{Attention, BinaryKind, Concat, Expand, Flag, Iota, Select, Slice};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};

use crate::ModelError;
use crate::layers::attention::{Heads, Scores, attention};
use crate::layers::builder::{BATCH, Builder, PAST, SEQUENCE};

/// What a decoder's attention takes besides queries, and keys and values of new tokens.
pub(crate) struct Keys {
    /// Keys and values of the past, [batch_size, heads, past_sequence_length, size], where there is one.
    pub(crate) past: Option<[ValueId; 2]>,
    /// bool[batch_size, past_sequence_length + sequence_length].
    pub(crate) mask: ValueId,
}

/// Causal attention, and all keys and values as caches hold them. A sink is a key of zeros in front of the others: its score is
/// what is added to it, and its value is 0.
pub(crate) fn attend(
    b: &mut Builder<'_>,
    [q, k, v]: [ValueId; 3],
    Keys { past, mask }: Keys,
    heads: Heads,
    scores: Scores,
    sinks: ValueId,
    module: &str,
) -> Result<[ValueId; 3], ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let key = all(b, past.map(|[key, _]| key), k, heads, &at("keys"))?;
    let value = all(b, past.map(|[_, value]| value), v, heads, &at("values"))?;
    let past = if past.is_some() { Dim::symbol(PAST) } else { Dim::constant(0) };
    let zero = b.number(0.0, &at("sinks.zero"), "model_type");
    let (batch, one) = (Dim::symbol(BATCH), Dim::constant(1));
    let shape = Shape::new([batch.clone(), heads.keys.signed().into(), one.clone(), heads.size.signed().into()]);
    let front = b.emit(Expand { x: zero, shape }, &at("sinks.front"))?;
    let keys = b.emit(Concat { parts: vec![front, key], axis: 2 }, &at("sinks.keys"))?;
    let values = b.emit(Concat { parts: vec![front, value], axis: 2 }, &at("sinks.values"))?;
    let seen = b.graph.add_weight(&at("sinks.seen"), Weight::scalar(DType::Bool, 1.0), Origin::Unknown);
    let seen = b.emit(Expand { x: seen, shape: Shape::new([batch, one]) }, &at("sinks.column"))?;
    let mask = b.emit(Concat { parts: vec![seen, mask], axis: 1 }, &at("sinks.mask"))?;
    let bias = Some(bias(b, heads, (scores.window, past), sinks, zero, module)?);
    let scores = Scores { window: None, ..scores };
    let attention = Attention { bias, causal: Flag(true), ..attention([q, keys, values], heads, scores, mask) };
    Ok([b.emit(attention, module)?, key, value])
}

/// All keys or values: those of the past, then the new ones, [batch_size, sequence_length, heads * size].
fn all(
    b: &mut Builder<'_>,
    past: Option<ValueId>,
    new: ValueId,
    heads: Heads,
    name: &str,
) -> Result<ValueId, ModelError> {
    let (count, size) = (heads.keys.signed().into(), heads.size.signed().into());
    let apart = [Dim::symbol(BATCH), Dim::symbol(SEQUENCE), count, size];
    let new = b.reshape(new, apart, &format!("{name}.apart"))?;
    let new = b.transpose(new, &[0, 2, 1, 3], &format!("{name}.new"))?;
    match past {
        Some(past) => b.emit(Concat { parts: vec![past, new], axis: 2 }, name),
        None => Ok(new),
    }
}

/// What is added to scores: the sinks to those of the first key, and the least number where a window leaves out others.
fn bias(
    b: &mut Builder<'_>,
    heads: Heads,
    (window, past): (Option<usize>, Dim),
    sinks: ValueId,
    zero: ValueId,
    module: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.sinks.{name}");
    let (count, one) = (Dim::from(heads.queries.signed()), Dim::constant(1));
    let length = Dim::symbol(SEQUENCE);
    let total = past.checked_add(&length).unwrap_or_default();
    let mut column = b.reshape(sinks, [one.clone(), count.clone(), one.clone(), one.clone()], &at("scores"))?;
    let (mut rest, mut rows) = (zero, one.clone());
    if let Some(window) = window {
        let key = b.emit(Iota { dtype: DType::I64, length: total.clone() }, &at("key"))?;
        let query = b.emit(Slice { x: key, axis: 0, start: past, end: total.clone() }, &at("query"))?;
        let query = b.reshape(query, [length.clone(), one.clone()], &at("query.column"))?;
        let distance = b.binary(BinaryKind::Sub, [query, key], &at("distance"))?;
        // Exact: windows are below 2^53.
        let window = b.graph.add_scalar(&at("window"), DType::I64, window as f64);
        let condition = b.binary(BinaryKind::GreaterOrEqual, [distance, window], &at("far"))?;
        let least = b.number(f64::from(f32::MIN), &at("least"), "sliding_window");
        rest = b.emit(Select { condition, a: least, b: zero }, &at("window.bias"))?;
        rows = length;
        let shape = Shape::new([one.clone(), count.clone(), rows.clone(), one.clone()]);
        column = b.emit(Expand { x: column, shape }, &at("rows"))?;
    }
    let rest = b.emit(Expand { x: rest, shape: Shape::new([one, count, rows, total]) }, &at("rest"))?;
    b.emit(Concat { parts: vec![column, rest], axis: 3 }, &at("bias"))
}
