//! Heads on top of a model, and the graph's outputs with them.

use planish_ir::ops::{Binary, BinaryKind, Cast, Gather, Linear, Reduce, ReduceKind, Reshape, Split};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::builder::{BATCH, Builder, SEQUENCE};
use crate::layers::encoder::{Activation, Settings};
use crate::names;

/// The first token of each sequence: [batch_size, sequence_length, hidden] to [batch_size, hidden].
pub(crate) fn first_token(b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let indices = b.graph.add_weight(&format!("{module}.first"), Weight::scalar(DType::I64, 0.0), Origin::Unknown);
    b.emit(Gather { x, indices, axis: 1 }, &format!("{module}.first_token"))
}

/// The mean of the tokens that a mask keeps, bool[batch_size, sequence_length]: [batch_size, sequence_length, hidden] to
/// [batch_size, hidden].
pub(crate) fn mean_token(b: &mut Builder<'_>, x: ValueId, mask: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let kept = b.emit(Cast { x: mask, to: DType::F32 }, &at("kept"))?;
    let column = Shape::new([Dim::symbol(BATCH), Dim::symbol(SEQUENCE), Dim::constant(1)]);
    let kept = b.emit(Reshape { x: kept, shape: column }, &at("column"))?;
    let x = b.emit(Binary { kind: BinaryKind::Mul, a: x, b: kept }, &at("mul"))?;
    let sum = |x| Reduce { kind: ReduceKind::Sum, x, axes: vec![1], keep: false };
    let (total, count) = (b.emit(sum(x), &at("sum"))?, b.emit(sum(kept), &at("count"))?);
    b.emit(Binary { kind: BinaryKind::Div, a: total, b: count }, module)
}

/// A projection of the first token with an activation after it: [batch_size, hidden].
pub(crate) fn pool(
    b: &mut Builder<'_>,
    hidden: Size,
    x: ValueId,
    module: &str,
    activation: Activation,
) -> Result<ValueId, ModelError> {
    let first = first_token(b, x, module)?;
    let projected = b.linear(first, module, hidden, hidden)?;
    activation.apply(b, projected, &format!("{module}.activation"))
}

/// `logits` of labels, of each token or of a pooled sequence.
pub(crate) fn classify(b: &mut Builder<'_>, hidden: Size, x: ValueId, module: &str) -> Result<(), ModelError> {
    let labels = b.config.labels()?;
    let logits = b.linear(x, module, labels, hidden)?;
    b.give(names::LOGITS, logits);
    Ok(())
}

/// `start_logits` and `end_logits` of each token.
pub(crate) fn answer(b: &mut Builder<'_>, hidden: Size, x: ValueId, module: &str) -> Result<(), ModelError> {
    let labels = b.config.labels()?;
    if labels.value != 2 {
        return Err(b.config.error(format!("question answering has 2 labels, start and end, but {labels}")));
    }
    let logits = b.linear(x, module, labels, hidden)?;
    let split = Split { x: logits, axis: 2, sizes: vec![1, 1] };
    let halves = b.graph.emit(split, &format!("{module}.split"), Origin::Module(module.into()))?;
    for (half, (name, role)) in halves.into_iter().zip([names::START_LOGITS, names::END_LOGITS]) {
        let shape = Shape::new([Dim::symbol(BATCH), Dim::symbol(SEQUENCE)]);
        let logits = b.emit(Reshape { x: half, shape }, &format!("{module}.{name}"))?;
        b.output(name, role, logits);
    }
    Ok(())
}

/// The weight of a projection to the vocabulary, [vocabulary, hidden]: that of the embeddings where
/// they are tied.
pub(crate) fn vocabulary_weight(
    b: &mut Builder<'_>,
    module: &str,
    embeddings: &str,
    tied: bool,
    shape: [Size; 2],
) -> Result<ValueId, ModelError> {
    let own = format!("{module}.weight");
    if !tied {
        return b.weight(&[&own], &shape);
    }
    if b.tensors.differs(embeddings, &own)? {
        let advice = "transformers 4 takes the word embeddings as the decoder's matrix, transformers 5 this tensor; \
                      set `tie_word_embeddings` to false in config.json to take this tensor, or remove it";
        return Err(b.tensors.contradiction(&own, embeddings, advice));
    }
    b.weight(&[embeddings], &shape)
}

/// The names of the modules of a masked language model's head.
pub(crate) struct MaskedLm {
    pub(crate) transform: &'static str,
    pub(crate) norm: &'static str,
    /// The projection to the vocabulary; its matrix is that of the word embeddings where they are tied.
    pub(crate) decoder: &'static str,
    /// Where the decoder's bias may be stored instead of, or besides, the decoder.
    pub(crate) second_bias: Option<SecondBias>,
    pub(crate) activation: Activation,
}

/// A second name of a decoder's bias. Where a checkpoint stores both and they differ, the transformers
/// library applies one of the two.
pub(crate) struct SecondBias {
    pub(crate) name: &'static str,
    /// The versions of the transformers library that apply this one, as major and minor version: from
    /// the first on, up to, not including, the second. All others apply the decoder's own. `None` where
    /// every version applies the decoder's own.
    pub(crate) applied_by: Option<[(u32, u32); 2]>,
}

/// `logits` of the vocabulary for each token.
pub(crate) fn fill_mask(b: &mut Builder<'_>, s: &Settings, x: ValueId, names: &MaskedLm) -> Result<(), ModelError> {
    const EMBEDDINGS: &str = "embeddings.word_embeddings.weight";
    let projected = b.linear(x, names.transform, s.embedded, s.hidden)?;
    let active = names.activation.apply(b, projected, &format!("{}.activation", names.transform))?;
    let x = b.layer_norm(active, names.norm, s.embedded, s.eps)?;

    let tied = b.config.boolean("tie_word_embeddings", true)?;
    let weight = vocabulary_weight(b, names.decoder, EMBEDDINGS, tied, [s.vocabulary, s.embedded])?;
    let bias = Some(decoder_bias(b, s, names, tied)?);
    let logits = b.emit(Linear::new(x, weight, bias), names.decoder)?;
    b.give(names::LOGITS, logits);
    Ok(())
}

fn decoder_bias(b: &mut Builder<'_>, s: &Settings, names: &MaskedLm, tied: bool) -> Result<ValueId, ModelError> {
    let shape = [s.vocabulary];
    let own = format!("{}.bias", names.decoder);
    let Some(second) = &names.second_bias else { return b.weight(&[&own], &shape) };
    if b.tensors.differs(second.name, &own)? {
        let (applied, other) = match applies_second(b, second, &own)? {
            true => (second.name, own.as_str()),
            false => (own.as_str(), second.name),
        };
        b.warnings.push(format!("tensor `{other}` differs from `{applied}`, which is applied in its place"));
        return b.weight(&[applied], &shape);
    }
    if !tied && b.tensors.contains(second.name) && !b.tensors.contains(&own) {
        b.warnings.push(format!(
            "tensor `{0}` is applied as the decoder's bias, as transformers 4 has it; \
             transformers 5 takes zeros, since `tie_word_embeddings` is false and there is no `{own}`",
            second.name
        ));
    }
    b.weight(&[second.name, &own], &shape)
}

/// Whether the version of the transformers library that wrote the checkpoint applies the second of two
/// biases that differ.
fn applies_second(b: &Builder<'_>, second: &SecondBias, own: &str) -> Result<bool, ModelError> {
    let Some([first, end]) = second.applied_by else { return Ok(false) };
    match b.config.transformers_version()? {
        Some(version) => Ok((first..end).contains(&version)),
        None => {
            let text = |(major, minor)| format!("{major}.{minor}");
            let advice = format!(
                "transformers from {} up to, not including, {} applies the latter, every other version the former; set \
                 `transformers_version` in config.json to the version that the model was trained with, or remove one of \
                 the two tensors",
                text(first),
                text(end)
            );
            Err(b.tensors.contradiction(own, second.name, &advice))
        }
    }
}
