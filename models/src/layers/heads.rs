//! Heads on top of a model, and the graph's outputs with them.

use planish_ir::ops::{Binary, BinaryKind, Cast, Gather, Linear, Reduce, ReduceKind, Reshape, Split};
use planish_ir::{DType, Dim, Origin, Shape, ValueId, Weight};

use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::builder::{BATCH, Builder, CHOICES, SEQUENCE};
pub(crate) use crate::layers::pooling::Pooling;
use crate::layers::pooling::Summary;
use crate::names;
use crate::{ModelError, Task};

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
    let column = Shape::new([b.texts(), Dim::symbol(SEQUENCE), Dim::constant(1)]);
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
    score_labels(b, hidden, x, module, true)
}

/// The same by a projection without a bias.
pub(crate) fn classify_without_bias(
    b: &mut Builder<'_>,
    hidden: Size,
    x: ValueId,
    module: &str,
) -> Result<(), ModelError> {
    score_labels(b, hidden, x, module, false)
}

fn score_labels(b: &mut Builder<'_>, hidden: Size, x: ValueId, module: &str, bias: bool) -> Result<(), ModelError> {
    let labels = b.config.labels()?;
    let logits = b.projection(x, module, [labels, hidden], bias)?;
    b.give(names::LOGITS, logits);
    Ok(())
}

/// `logits` of texts of which one is chosen, from what stands for each: [batch_size * num_choices, hidden] to
/// [batch_size, num_choices].
pub(crate) fn choose(b: &mut Builder<'_>, hidden: Size, x: ValueId, module: &str) -> Result<(), ModelError> {
    let scores = b.linear(x, module, Size::derived(1, "one score of a text"), hidden)?;
    let logits = b.reshape(scores, [BATCH, CHOICES].map(Dim::symbol), &format!("{module}.by_row"))?;
    b.give(names::LOGITS, logits);
    Ok(())
}

/// `start_logits` and `end_logits` of each token.
pub(crate) fn answer(b: &mut Builder<'_>, hidden: Size, x: ValueId, module: &str) -> Result<(), ModelError> {
    let labels = b.config.labels()?;
    if labels.value != 2 {
        return Err(b.config.error(format!("question answering has 2 labels, start and end, but {labels}")));
    }
    span(b, hidden, x, module, labels)
}

/// The same by a layer of two outputs, whatever the configuration says of labels.
pub(crate) fn span(
    b: &mut Builder<'_>,
    hidden: Size,
    x: ValueId,
    module: &str,
    labels: Size,
) -> Result<(), ModelError> {
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

/// The sizes that heads of tasks have.
#[derive(Clone, Copy)]
pub(crate) struct HeadSizes {
    pub(crate) vocabulary: Size,
    pub(crate) hidden: Size,
    /// Features that a projection to the vocabulary takes.
    pub(crate) embedded: Size,
    /// Added to the variance in layer normalization.
    pub(crate) eps: f64,
}

/// Why a task cannot be asked for here.
pub(crate) const NO_HEAD: &str = "accept.rs takes no task that an architecture has no head for";

/// The heads of an encoder of text.
pub(crate) struct TextHeads {
    /// What `pooler_output` is, where there is one: of a projection, where the checkpoint has it.
    pub(crate) pooler: Option<Pooling>,
    pub(crate) masked: MaskedLm,
    /// What the classifier of sequences takes, and its module.
    pub(crate) sequence: (Pooling, &'static str),
    /// What stands for a text where one of several is chosen; absent if the transformers library has no class for it.
    pub(crate) choice: Option<Pooling>,
}

impl TextHeads {
    /// Those of BERT, with the activation of its masked language model.
    pub(crate) fn bert(activation: Activation) -> Self {
        let pooler = Pooling::Dense("pooler.dense", Activation::TANH);
        Self {
            pooler: Some(pooler),
            masked: MaskedLm {
                transform: "cls.predictions.transform.dense",
                norm: "cls.predictions.transform.LayerNorm",
                decoder: "cls.predictions.decoder",
                bias: DecoderBias::Second(SecondBias { name: "cls.predictions.bias", applied_by: None }),
                activation,
                tied: Tied::Configured,
            },
            sequence: (pooler, "classifier"),
            choice: Some(pooler),
        }
    }

    /// Those of RoBERTa.
    pub(crate) fn roberta() -> Self {
        let pooler = Some(Pooling::Dense("pooler.dense", Activation::TANH));
        Self {
            pooler,
            masked: MaskedLm {
                transform: "lm_head.dense",
                norm: "lm_head.layer_norm",
                decoder: "lm_head.decoder",
                // Each version of the transformers library that was observed (bert.rs lists them) applies
                // `lm_head.decoder.bias`: `RobertaLMHead._tie_weights` sets `bias` to `decoder.bias`, where it is there.
                bias: DecoderBias::Second(SecondBias { name: "lm_head.bias", applied_by: None }),
                // Whatever `hidden_act` says.
                activation: Activation::GELU,
                tied: Tied::Configured,
            },
            sequence: (Pooling::Dense("classifier.dense", Activation::TANH), "classifier.out_proj"),
            choice: pooler,
        }
    }

    /// Those of ELECTRA: a generator as masked language model, and a classifier with a projection of its own.
    pub(crate) fn electra(activation: Activation) -> Self {
        Self {
            pooler: None,
            masked: MaskedLm {
                transform: "generator_predictions.dense",
                norm: "generator_predictions.LayerNorm",
                decoder: "generator_lm_head",
                bias: DecoderBias::Own,
                // Whatever `hidden_act` says.
                activation: Activation::GELU,
                tied: Tied::Configured,
            },
            sequence: (Pooling::Dense("classifier.dense", activation), "classifier.out_proj"),
            choice: Some(Pooling::Summary(Summary::LAST)),
        }
    }

    /// Adds the outputs of a task. `x` is what the encoder gives, [batch_size, sequence_length, hidden].
    pub(crate) fn finish(
        &self,
        b: &mut Builder<'_>,
        sizes: &HeadSizes,
        x: ValueId,
        task: Task,
    ) -> Result<(), ModelError> {
        match task {
            Task::FeatureExtraction => {
                b.give(names::HIDDEN, x);
                let stored = |b: &Builder<'_>, module: &str| b.tensors.contains(&format!("{module}.weight"));
                match self.pooler.filter(|_| !b.is_bare) {
                    Some(Pooling::Dense(module, _)) if !stored(b, module) => Ok(()),
                    Some(pooling) => {
                        let pooled = pooling.apply(b, sizes.hidden, x)?;
                        b.give(names::POOLED, pooled);
                        Ok(())
                    }
                    None => Ok(()),
                }
            }
            Task::FillMask => fill_mask(b, sizes, x, &self.masked),
            Task::TextClassification => {
                let (pooling, classifier) = self.sequence;
                let pooled = pooling.apply(b, sizes.hidden, x)?;
                classify(b, sizes.hidden, pooled, classifier)
            }
            Task::TokenClassification => classify(b, sizes.hidden, x, "classifier"),
            Task::QuestionAnswering => answer(b, sizes.hidden, x, "qa_outputs"),
            Task::MultipleChoice => {
                let Some(choice) = self.choice else { unreachable!("{}", NO_HEAD) };
                let x = choice.apply(b, sizes.hidden, x)?;
                choose(b, sizes.hidden, x, "classifier")
            }
            _ => unreachable!("{}", NO_HEAD),
        }
    }
}

/// The names of the modules of a masked language model's head.
pub(crate) struct MaskedLm {
    pub(crate) transform: &'static str,
    pub(crate) norm: &'static str,
    /// The projection to the vocabulary.
    pub(crate) decoder: &'static str,
    pub(crate) bias: DecoderBias,
    pub(crate) activation: Activation,
    pub(crate) tied: Tied,
}

/// Whether a decoder's matrix is that of the word embeddings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tied {
    /// As `tie_word_embeddings` says, which is true by default.
    Configured,
    Always,
    Never,
}

/// The bias of a projection to the vocabulary.
pub(crate) enum DecoderBias {
    /// The decoder's own.
    Own,
    /// A tensor of this name; the decoder has none of its own.
    Apart(&'static str),
    /// The decoder's own may be stored under a second name instead, or besides.
    Second(SecondBias),
    /// The same, in a checkpoint that may have no biases at all in the projections of the head.
    SecondOrNone(SecondBias),
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
fn fill_mask(b: &mut Builder<'_>, s: &HeadSizes, x: ValueId, names: &MaskedLm) -> Result<(), ModelError> {
    let logits = scores(b, s, x, names)?;
    b.give(names::LOGITS, logits);
    Ok(())
}

/// The scores of the vocabulary for each token.
pub(crate) fn scores(b: &mut Builder<'_>, s: &HeadSizes, x: ValueId, names: &MaskedLm) -> Result<ValueId, ModelError> {
    let x = transformed(b, s, x, names)?;
    let configured = b.config.boolean("tie_word_embeddings", true)?;
    let tied = names.tied == Tied::Always || configured && names.tied == Tied::Configured;
    let weight = vocabulary_weight(b, names.decoder, WORDS, tied, [s.vocabulary, s.embedded])?;
    let bias = decoder_bias(b, s, names, tied)?;
    b.emit(Linear::new(x, weight, bias), names.decoder)
}

/// The word embeddings.
pub(crate) const WORDS: &str = "embeddings.word_embeddings.weight";

/// What the projection to the vocabulary takes: a projection with an activation and a norm.
pub(crate) fn transformed(
    b: &mut Builder<'_>,
    s: &HeadSizes,
    x: ValueId,
    names: &MaskedLm,
) -> Result<ValueId, ModelError> {
    let may_lack = matches!(names.bias, DecoderBias::SecondOrNone(_));
    let has_bias = !may_lack || b.tensors.contains(&format!("{}.bias", names.transform));
    let projected = b.projection(x, names.transform, [s.embedded, s.hidden], has_bias)?;
    let active = names.activation.apply(b, projected, &format!("{}.activation", names.transform))?;
    b.layer_norm(active, names.norm, s.embedded, s.eps)
}

/// The bias of the projection to the vocabulary, where there is one.
pub(crate) fn decoder_bias(
    b: &mut Builder<'_>,
    s: &HeadSizes,
    names: &MaskedLm,
    tied: bool,
) -> Result<Option<ValueId>, ModelError> {
    let shape = [s.vocabulary];
    let own = format!("{}.bias", names.decoder);
    let second = match &names.bias {
        DecoderBias::Own => return b.weight(&[&own], &shape).map(Some),
        DecoderBias::Apart(name) => return b.weight(&[name], &shape).map(Some),
        DecoderBias::SecondOrNone(second) if ![second.name, &own].iter().any(|name| b.tensors.contains(name)) => {
            return Ok(None);
        }
        DecoderBias::Second(second) | DecoderBias::SecondOrNone(second) => second,
    };
    if b.tensors.differs(second.name, &own)? {
        let (applied, other) = match applies_second(b, second, &own)? {
            true => (second.name, own.as_str()),
            false => (own.as_str(), second.name),
        };
        b.warnings.push(format!("tensor `{other}` differs from `{applied}`, which is applied in its place"));
        return b.weight(&[applied], &shape).map(Some);
    }
    if !tied && b.tensors.contains(second.name) && !b.tensors.contains(&own) {
        b.warnings.push(format!(
            "tensor `{0}` is applied as the decoder's bias, as transformers 4 has it; \
             transformers 5 takes zeros, since `tie_word_embeddings` is false and there is no `{own}`",
            second.name
        ));
    }
    b.weight(&[second.name, &own], &shape).map(Some)
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
