//! The heads of BGE-M3 (Chen et al. 2024, arXiv:2402.03216) besides the vector of a text, as FlagEmbedding's `BGEM3Model`
//! computes them: a weight of each token, and a vector of each but the first.

use planish_ir::ops::{Cast, Slice, Unary, UnaryKind};
use planish_ir::{DType, Dim, ValueId};

use super::Features;
use super::build::{normalize, width};
use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::{Builder, SEQUENCE};
use crate::names;

/// The names of the files of the two heads, without endings.
pub(super) const SPARSE: &str = "sparse_linear";
pub(super) const MULTI_VECTOR: &str = "colbert_linear";

/// Adds the two heads as outputs: [batch_size, sequence_length, 1] and [batch_size, sequence_length - 1, features].
pub(super) fn build(b: &mut Builder<'_>, features: &Features) -> Result<(), ModelError> {
    let hidden = width(b, features.tokens).and_then(|width| usize::try_from(width).ok()).unwrap_or_default();
    let hidden = Size::derived(hidden, "hidden_size");
    let weight = linear(b, features.tokens, SPARSE, Size::derived(1, "one weight a token"), hidden)?;
    let weight = b.emit(Unary { kind: UnaryKind::Relu, x: weight }, &format!("{SPARSE}.relu"))?;
    b.give(names::SPARSE, weight);

    let without_first = |x: ValueId| Slice { x, axis: 1, start: Dim::constant(1), end: Dim::symbol(SEQUENCE) };
    let at = |name: &str| format!("{MULTI_VECTOR}.{name}");
    let x = b.emit(without_first(features.tokens), &at("tokens"))?;
    let out = b.tensors.rows(&format!("{MULTI_VECTOR}/weight")).unwrap_or(hidden.value);
    let projected = linear(b, x, MULTI_VECTOR, Size::derived(out, "rows of the weight"), hidden)?;
    let mask = b.emit(without_first(features.mask), &at("mask"))?;
    let kept = b.emit(Cast { x: mask, to: DType::F32 }, &at("kept"))?;
    let shape = [b.graph.ty(mask).shape[0].clone(), b.graph.ty(mask).shape[1].clone(), Dim::constant(1)];
    let kept = b.reshape(kept, shape, &at("column"))?;
    let masked = b.binary(planish_ir::ops::BinaryKind::Mul, [projected, kept], &at("masked"))?;
    let normalized = normalize(b, masked, &at("normalize"))?;
    b.give(names::MULTI_VECTOR, normalized);
    Ok(())
}

fn linear(b: &mut Builder<'_>, x: ValueId, file: &str, out: Size, inner: Size) -> Result<ValueId, ModelError> {
    let weight = b.weight(&[&format!("{file}/weight")], &[out, inner])?;
    let bias = b.weight(&[&format!("{file}/bias")], &[out])?;
    b.emit(planish_ir::ops::Linear::new(x, weight, Some(bias)), file)
}
