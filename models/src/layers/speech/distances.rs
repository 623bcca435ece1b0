//! What attention of conformers is told of the distances between frames.

use planish_ir::ops::{BinaryKind, Cast, Concat, Gather, Iota, MatMul, Sizes, Slice, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;
use crate::layers::rope::Angles;

const MODULE: &str = "encoder.embed_positions";

/// The base of the frequencies of sinusoids.
const BASE: f64 = 10_000.0;

/// The error of recordings whose number of frames does not fit.
fn too_long(b: &Builder<'_>) -> ModelError {
    b.config.error("recordings have more frames than 64 bits count")
}

/// How far a query is after a key, from the number of frames less 1 down: i64[2 * frames].
fn places(b: &mut Builder<'_>, frames: &Dim) -> Result<(ValueId, Dim), ModelError> {
    let at = |name: &str| format!("{MODULE}.{name}");
    let twice = frames.checked_mul(&Dim::constant(2));
    let Some((twice, first)) = twice.zip(frames.checked_add(&Dim::constant(-1))) else { return Err(too_long(b)) };
    let first = b.emit(Sizes { of: Shape::new([first]) }, &at("first"))?;
    let range = b.emit(Iota { dtype: DType::I64, length: twice.clone() }, &at("range"))?;
    Ok((b.binary(BinaryKind::Sub, [first, range], &at("places"))?, twice))
}

/// Sinusoids of these distances (Dai et al. 2019, arXiv:1901.02860), sines and cosines in turn: [2 * frames, hidden].
pub(super) fn sinusoids(b: &mut Builder<'_>, frames: &Dim, hidden: Size) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{MODULE}.{name}");
    let pairs = hidden.value / 2;
    let (places, count) = places(b, frames)?;
    let frequency = |i| BASE.powf(-(2.0 * i as f64) / hidden.value as f64);
    let angles = products(b, places, &count, pairs, frequency, &at("angles"))?;
    let last = [count.clone(), Dim::constant(i64::try_from(pairs).unwrap_or(i64::MAX)), Dim::constant(1)];
    let mut side = |kind, name: &str| {
        let x = b.emit(Unary { kind, x: angles }, &at(name))?;
        b.reshape(x, last.clone(), &at(&format!("{name}.column")))
    };
    let parts = vec![side(UnaryKind::Sin, "sin")?, side(UnaryKind::Cos, "cos")?];
    let pairs = b.emit(Concat { parts, axis: 2 }, &at("pairs"))?;
    b.reshape(pairs, [count, Dim::constant(hidden.signed())], MODULE)
}

/// The rows of tables that have a row for each distance from `left` before to `right` after, and take those at the ends for all
/// that is farther (Shaw et al. 2018, arXiv:1803.02155): i64[2 * frames].
pub(super) fn rows(b: &mut Builder<'_>, frames: &Dim, [left, right]: [usize; 2]) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{MODULE}.{name}");
    let (places, _) = places(b, frames)?;
    let mut number = |name: &str, number: usize| b.graph.add_scalar(&at(name), DType::I64, number as f64);
    let (left, last, zero) = (number("left", left), number("last", left + right), number("zero", 0));
    let rows = b.binary(BinaryKind::Sub, [left, places], &at("rows"))?;
    let rows = b.binary(BinaryKind::Max, [rows, zero], &at("rows.not_before"))?;
    b.binary(BinaryKind::Min, [rows, last], &at("rows.not_after"))
}

/// The vectors of distances in a table, as keys that all heads share: [size, 2 * frames].
pub(super) fn keys_of_table(
    b: &mut Builder<'_>,
    rows: ValueId,
    module: &str,
    [count, size]: [Size; 2],
) -> Result<ValueId, ModelError> {
    let table = b.weight(&[&format!("{module}.weight")], &[count, size])?;
    let keys = b.emit(Gather { x: table, indices: rows, axis: 0 }, module)?;
    b.transpose(keys, &[1, 0], &format!("{module}.columns"))
}

/// A projection of sinusoids, [2 * frames, hidden], as keys of each head: [heads, size, 2 * frames].
pub(super) fn keys_of_sinusoids(
    b: &mut Builder<'_>,
    sinusoids: ValueId,
    module: &str,
    [hidden, heads, size]: [Size; 3],
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let columns = b.graph.ty(sinusoids).shape[0].clone();
    let [by_head, inner] = [heads, size].map(|size| Dim::constant(size.signed()));
    let inner_size = Size::derived(heads.value * size.value, "hidden_size");
    let keys = b.projection(sinusoids, module, [inner_size, hidden], false)?;
    let keys = b.reshape(keys, [columns, by_head, inner], &at("heads"))?;
    b.transpose(keys, &[1, 2, 0], &at("columns"))
}

/// The scores of the distance between each query and each key, by queries [batch_size, frames, heads * size] and the keys of
/// distances from the number of frames less 1 down: [batch_size, heads, frames, frames].
pub(super) fn scores(
    b: &mut Builder<'_>,
    [q, keys]: [ValueId; 2],
    [heads, size]: [Size; 2],
    module: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let scale = 1.0 / (size.value as f64).sqrt();
    let [heads, size] = [heads, size].map(|size| Dim::constant(size.signed()));
    let [batch, frames] = [0, 1].map(|axis| b.graph.ty(q).shape[axis].clone());
    let columns = b.graph.ty(keys).shape.iter().last().cloned().unwrap_or_default();
    let q = b.reshape(q, [batch.clone(), frames.clone(), heads.clone(), size], &at("query.heads"))?;
    let q = b.transpose(q, &[0, 2, 1, 3], &at("query.by_head"))?;
    let scores = b.emit(MatMul { a: q, b: keys }, &at("scores"))?;
    let scores = b.with_number(BinaryKind::Mul, scores, scale, &at("scaled"), "hidden_size")?;
    // The score of query q and key k is in column `frames - 1 - q + k` of row q. With rows that are shorter by one column it is
    // in column k, after the first `frames - 1` scores.
    let less = |dim: &Dim| dim.checked_add(&Dim::constant(-1));
    let all = frames.checked_mul(&columns);
    let short = less(&columns);
    let end =
        less(&frames).zip(short.clone()).and_then(|(first, short)| frames.checked_mul(&short)?.checked_add(&first));
    let (Some(all), Some(short), Some(first), Some(end)) = (all, short, less(&frames), end) else {
        return Err(too_long(b));
    };
    let flat = b.reshape(scores, [batch.clone(), heads.clone(), all], &at("flat"))?;
    let flat = b.emit(Slice { x: flat, axis: 2, start: first, end }, &at("after_first"))?;
    let shifted = b.reshape(flat, [batch, heads, frames.clone(), short], &at("shifted"))?;
    b.emit(Slice { x: shifted, axis: 3, start: Dim::constant(0), end: frames }, &at("of_keys"))
}

/// Cosines and sines of positions, [1, frames, pairs].
pub(super) fn angles(b: &mut Builder<'_>, frames: &Dim, size: usize, base: f64) -> Result<Angles, ModelError> {
    let at = |name: &str| format!("{MODULE}.{name}");
    let range = b.emit(Iota { dtype: DType::I64, length: frames.clone() }, &at("range"))?;
    let pairs = size / 2;
    let angles = products(b, range, frames, pairs, |i| base.powf(-(2.0 * i as f64) / size as f64), &at("angles"))?;
    let shape = [Dim::constant(1), frames.clone(), Dim::constant(i64::try_from(pairs).unwrap_or(i64::MAX))];
    let mut side = |kind, name: &str| {
        let x = b.emit(Unary { kind, x: angles }, &at(name))?;
        b.reshape(x, shape.clone(), &at(&format!("{name}.row")))
    };
    Ok(Angles::stored(side(UnaryKind::Cos, "cos")?, side(UnaryKind::Sin, "sin")?))
}

/// Integers times frequencies: [count] to [count, pairs].
fn products(
    b: &mut Builder<'_>,
    integers: ValueId,
    count: &Dim,
    pairs: usize,
    frequency: impl Fn(usize) -> f64,
    module: &str,
) -> Result<ValueId, ModelError> {
    let numbers = b.emit(Cast { x: integers, to: DType::F32 }, &format!("{module}.numbers"))?;
    let column = b.reshape(numbers, [count.clone(), Dim::constant(1)], &format!("{module}.column"))?;
    let frequencies: Vec<f64> = (0..pairs).map(frequency).collect();
    let weight = Weight::numbers(DType::F32, vec![pairs], &frequencies);
    let weight = weight.unwrap_or_else(|| unreachable!("there is a number for each pair"));
    let frequencies =
        b.graph.add_weight(&format!("{module}.frequencies"), weight, Origin::Config("hidden_size".into()));
    b.binary(BinaryKind::Mul, [column, frequencies], module)
}
