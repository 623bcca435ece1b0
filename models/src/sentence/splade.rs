//! SPLADE (Formal et al. 2021, arXiv:2109.10086), as `SpladePooling` of the sentence-transformers library.

use planish_ir::ops::{BinaryKind, Cast, Reduce, ReduceKind, Unary, UnaryKind};
use planish_ir::{DType, Dim, ValueId};

use super::build::check_width;
use super::{Features, Module};
use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::{BATCH, Builder, SEQUENCE};

/// How the scores of the vocabulary for each token become one for each word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Splade {
    /// Whether the sum over tokens is taken, in place of the largest.
    pub(crate) is_sum: bool,
    /// Whether the logarithm is taken twice.
    pub(crate) is_log_twice: bool,
    /// The number of words, where the configuration says it.
    pub(crate) words: Option<Size>,
}

/// `log(1 + relu(score))` over the real tokens: [batch_size, sequence_length, vocabulary] to [batch_size, vocabulary].
///
/// The logarithm grows with its argument, so the largest is taken first: it then is one of a vector, not of each token.
pub(super) fn pool(
    b: &mut Builder<'_>,
    splade: &Splade,
    features: &Features,
    module: &Module,
) -> Result<ValueId, ModelError> {
    let x = features.tokens;
    if let Some(words) = splade.words {
        check_width(b, module, x, words)?;
    }
    let name = module.name();
    let at = |part: &str| format!("{name}.{part}");
    let kept = b.emit(Cast { x: features.mask, to: DType::F32 }, &at("kept"))?;
    let column = [Dim::symbol(BATCH), Dim::symbol(SEQUENCE), Dim::constant(1)];
    let kept = b.reshape(kept, column, &at("column"))?;
    let scores = b.binary(BinaryKind::Mul, [x, kept], &at("scores"))?;
    let reduce = |x, kind| Reduce { kind, x, axes: vec![1], keep: false };
    match splade.is_sum {
        true => {
            let saturated = saturate(b, scores, splade, &name)?;
            b.emit(reduce(saturated, ReduceKind::Sum), &name)
        }
        false => {
            let largest = b.emit(reduce(scores, ReduceKind::Max), &at("largest"))?;
            saturate(b, largest, splade, &name)
        }
    }
}

/// `log(1 + relu(x))`, or the logarithm of 1 and that.
fn saturate(b: &mut Builder<'_>, x: ValueId, splade: &Splade, module: &str) -> Result<ValueId, ModelError> {
    let mut x = b.emit(Unary { kind: UnaryKind::Relu, x }, &format!("{module}.relu"))?;
    for step in 0..=usize::from(splade.is_log_twice) {
        let more = b.with_number(BinaryKind::Add, x, 1.0, &format!("{module}.add{step}"), "activation_function")?;
        x = b.emit(Unary { kind: UnaryKind::Log, x: more }, &format!("{module}.log{step}"))?;
    }
    Ok(x)
}
