//! The parts that decoders share: inputs, causal attention, over a cache of keys and values where text is generated, and
//! heads. Inputs and outputs are named as Optimum names them.

mod states;
mod text;

pub(crate) use states::Convolution;

use planish_ir::ops::{Binary, BinaryKind, CumSum, Linear, Slice};
use planish_ir::{DType, Dim, OutputRole, ValueId};

use crate::architecture::Properties;
use crate::checkpoint::config::{MAX_SIZE, Size};
use crate::layers::builder::{BATCH, Builder, PAST, SEQUENCE};
use crate::layers::sight::Together;
use crate::layers::{encoder, heads, pooling};
use crate::names;
use crate::names::CacheOf;
use crate::{ModelError, Task};

/// The projection to the vocabulary.
const HEAD: &str = "lm_head";

/// The configuration keys that all decoders read.
pub(crate) const KEYS: &[&str] = &[CAUSAL, "pad_token_id", "tie_word_embeddings", TOKEN_BIAS];

/// Whether a token sees only itself and those before it, in transformers 5.
const CAUSAL: &str = "is_causal";

/// Whether the projection to the vocabulary has the weight of the embeddings.
const TIED: &str = "tie_word_embeddings";

/// Whether the classifier of tokens has a bias.
const TOKEN_BIAS: &str = "token_classification_bias";

/// The tasks that the transformers library has classes for, of those decoders for which it has most; others take the first
/// ones of them.
pub(crate) const TASKS: &[Task] = &[
    Task::TextGeneration,
    Task::FeatureExtraction,
    Task::TextClassification,
    Task::TokenClassification,
    Task::QuestionAnswering,
];

/// The tasks but question answering.
pub(crate) const WITHOUT_ANSWERS: &[Task] = TASKS.split_at(4).0;

/// The tasks of decoders that classify only whole texts.
pub(crate) const OF_TEXTS: &[Task] = TASKS.split_at(3).0;

/// The tasks of decoders that classify only whole texts, and answer questions.
pub(crate) const OF_TEXTS_WITH_ANSWERS: &[Task] =
    &[Task::TextGeneration, Task::FeatureExtraction, Task::TextClassification, Task::QuestionAnswering];

/// The tasks of decoders that classify nothing.
pub(crate) const WITHOUT_LABELS: &[Task] = TASKS.split_at(2).0;

/// Where the positions of tokens come from if text is generated: Optimum gives some types an input for them. For other tasks
/// there is no such input: the positions are 0, 1, 2 ..., padding counted, as the transformers library takes them, if it is not
/// said otherwise here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Positions {
    /// The input `position_ids`.
    Given,
    /// The same, and counted from the first token that the mask keeps for other tasks.
    GivenOrCounted,
    /// Counted from the first token that the mask keeps.
    Counted,
    /// Nowhere: nothing depends on them.
    Unused,
}

/// A decoder that is being built.
pub(crate) struct Decoder {
    /// i64[batch_size, sequence_length], or in their place vectors [batch_size, sequence_length, hidden] if text is generated.
    pub(crate) input_ids: ValueId,
    /// i64[batch_size, sequence_length].
    pub(crate) position_ids: ValueId,
    task: Task,
    vocabulary: Size,
    /// The longest text, where there is one.
    positions: Option<Size>,
    /// i64[batch_size, past_sequence_length + sequence_length].
    pub(crate) attention_mask: ValueId,
    /// Which keys take part: bool[batch_size, past_sequence_length + sequence_length].
    mask: ValueId,
    /// Whether a token sees only itself and those before it.
    causal: bool,
    /// How many keys more than the configuration says are in a window.
    wider: usize,
    /// Whether the generic classifier of tokens has a bias.
    token_bias: bool,
    /// Whether the configuration says that the projection to the vocabulary has the weight of the embeddings.
    tied: Option<bool>,
    /// The id of padding, where there is one.
    padding: Option<i64>,
    /// Keys and values of each layer so far; where text is generated, those of the past too, as caches hold them.
    keys: Vec<[ValueId; 2]>,
    /// The layers that have no keys and values.
    without_keys: Vec<usize>,
    /// 1 for each new token, 0 for padding: f32[batch_size, sequence_length, 1].
    kept: Option<ValueId>,
    /// States of a fixed size after the new tokens, where text is generated.
    states: Vec<(String, OutputRole, ValueId)>,
    /// Tokens that see each other whatever their order, where there are such.
    together: Option<Together>,
}

/// The end of the positions of texts without a longest length.
const ENDLESS: Size = Size { value: MAX_SIZE, key: "no longest text", is_default: false };

impl Decoder {
    /// Adds the inputs for a task, but those of the cache: each layer adds its own.
    pub(crate) fn new(
        b: &mut Builder<'_>,
        task: Task,
        vocabulary: Size,
        positions: Option<Size>,
        source: Positions,
    ) -> Result<Self, ModelError> {
        Self::reading(b, task, vocabulary, positions, source, None)
    }

    /// The same with vectors of so many features in the place of ids, where there are.
    pub(crate) fn reading(
        b: &mut Builder<'_>,
        task: Task,
        vocabulary: Size,
        positions: Option<Size>,
        source: Positions,
        vectors: Option<Size>,
    ) -> Result<Self, ModelError> {
        let generates = task == Task::TextGeneration;
        let (causal, token_bias) = (b.config.boolean(CAUSAL, true)?, b.config.boolean(TOKEN_BIAS, true)?);
        if !causal {
            refuse_generation(b, CAUSAL, task)?;
        }
        let tied = b.config.get(TIED).map(|_| b.config.boolean(TIED, false)).transpose()?;
        let padding = padding(b, vocabulary);
        let past = if generates { Dim::symbol(PAST) } else { Dim::constant(0) };
        let input_ids = match vectors {
            None => b.input(names::INPUT_IDS, vocabulary.signed())?,
            Some(size) => {
                let dims = [Dim::symbol(BATCH), Dim::symbol(SEQUENCE), size.signed().into()];
                b.floats(names::VECTORS.0.0, names::VECTORS.0.1, dims)
            }
        };
        let keys = past.checked_add(&Dim::symbol(SEQUENCE)).unwrap_or_default();
        let attention_mask = b.ids(names::ATTENTION_MASK, [Dim::symbol(BATCH), keys.clone()], 2);
        let position_ids = match source {
            _ if b.sight.is_some_and(|sight| sight.has_coordinates()) => {
                let dims = [Dim::constant(3), Dim::symbol(BATCH), Dim::symbol(SEQUENCE)];
                b.ids(names::POSITION_IDS, dims, positions.unwrap_or(ENDLESS).signed())
            }
            _ if vectors.is_some() => b.input(names::POSITION_IDS, positions.unwrap_or(ENDLESS).signed())?,
            Positions::Given | Positions::GivenOrCounted if generates => {
                b.input(names::POSITION_IDS, positions.unwrap_or(ENDLESS).signed())?
            }
            Positions::Counted if generates => counted(b, attention_mask, past)?,
            Positions::GivenOrCounted => counted(b, attention_mask, past)?,
            Positions::Given | Positions::Counted | Positions::Unused => encoder::positions(b)?,
        };
        let mask = encoder::mask(b, attention_mask)?;
        let together = Together::new(b, keys)?;
        // The library's windows on both sides have a key more.
        let wider = usize::from(!causal);
        Ok(Self {
            input_ids,
            position_ids,
            task,
            vocabulary,
            positions,
            attention_mask,
            mask,
            causal,
            wider,
            token_bias,
            tied,
            padding,
            keys: Vec::new(),
            without_keys: Vec::new(),
            kept: None,
            states: Vec::new(),
            together,
        })
    }

    /// Lets each token see those after it too, as a key of the configuration says.
    pub(crate) fn sees_both_sides(&mut self, b: &Builder<'_>, key: &'static str) -> Result<(), ModelError> {
        self.causal = false;
        refuse_generation(b, key, self.task)
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
        let tied = self.tied.unwrap_or(tied);
        let weight = heads::vocabulary_weight(b, HEAD, embeddings, tied, [self.vocabulary, hidden])?;
        let bias = if bias { Some(b.weight(&[&format!("{HEAD}.bias")], &[self.vocabulary])?) } else { None };
        b.emit(Linear::new(x, weight, bias), HEAD)
    }

    /// Adds the outputs of the task. `x` is what the last layer gives, [batch_size, sequence_length, hidden], and `score` makes
    /// scores of the vocabulary of it.
    pub(crate) fn finish(
        self,
        b: &mut Builder<'_>,
        x: ValueId,
        hidden: Size,
        tokens: Classifier,
        score: impl FnOnce(&Self, &mut Builder<'_>, ValueId) -> Result<ValueId, ModelError>,
    ) -> Result<Properties, ModelError> {
        let properties = self.properties();
        if self.task != Task::TextGeneration {
            b.tensors.leave(HEAD);
        }
        match self.task {
            Task::TextGeneration => {
                let logits = score(&self, b, x)?;
                b.give(names::LOGITS, logits);
                let layers = (0..).filter(|layer| !self.without_keys.contains(layer));
                for (layer, values) in layers.zip(self.keys) {
                    for ((name, role), value) in CacheOf::Model.present(layer).into_iter().zip(values) {
                        b.output(&name, role, value);
                    }
                }
                self.states.iter().for_each(|(name, role, value)| b.output(name, *role, *value));
            }
            Task::FeatureExtraction => b.give(names::HIDDEN, x),
            Task::TextClassification => {
                let x = self.last_token(b, x)?;
                heads::classify_without_bias(b, hidden, x, SCORE)?;
            }
            Task::TokenClassification => match tokens {
                Classifier::Own => heads::classify(b, hidden, x, "classifier")?,
                Classifier::Generic if self.token_bias => heads::classify(b, hidden, x, SCORE)?,
                Classifier::Generic => heads::classify_without_bias(b, hidden, x, SCORE)?,
            },
            // Whatever `num_labels` is.
            Task::QuestionAnswering => heads::span(b, hidden, x, "qa_outputs", Size::derived(2, "start and end"))?,
            _ => unreachable!("{}", heads::NO_HEAD),
        }
        Ok(properties)
    }

    /// The last token of each text that is no padding: [batch_size, sequence_length, hidden] to [batch_size, hidden].
    pub(crate) fn last_token(&self, b: &mut Builder<'_>, x: ValueId) -> Result<ValueId, ModelError> {
        pooling::last_token(b, x, self.input_ids, self.mask, self.padding, "last_token")
    }

    /// The properties that callers need.
    pub(crate) fn properties(&self) -> Properties {
        Properties {
            max_positions: self.positions.map(|size| size.value),
            vocab_size: Some(self.vocabulary.value),
            pad_token_id: self.padding,
            ..Properties::default()
        }
    }
}

/// The classifier of tokens.
#[derive(Clone, Copy)]
pub(crate) enum Classifier {
    /// That of `GenericForTokenClassification` of the transformers library, with a bias unless the configuration says otherwise.
    Generic,
    /// `classifier`.
    Own,
}

/// The id of padding, where there is one: null says that there is none.
fn padding(b: &Builder<'_>, vocabulary: Size) -> Option<i64> {
    const KEY: &str = "pad_token_id";
    if b.config.get(KEY).is_some() || b.config.is_null(KEY) {
        return b.config.any_token(KEY, vocabulary);
    }
    b.pad_token_id.filter(|id| *id < vocabulary.signed())
}

/// The module that scores labels.
const SCORE: &str = "score";

/// Refuses to generate text by a model whose tokens see those after them, as a key of the configuration says.
fn refuse_generation(b: &Builder<'_>, key: &'static str, task: Task) -> Result<(), ModelError> {
    if task != Task::TextGeneration {
        return Ok(());
    }
    let value = b.config.get(key).map_or_else(String::new, ToString::to_string);
    Err(b.config.error(format!(
        "`{key}` is {value}: a token sees those after it, so no cache holds its keys and values while a text grows; choose \
         another task, such as {}",
        Task::FeatureExtraction
    )))
}

/// The number of tokens before each new one, padding not counted: i64[batch_size, sequence_length].
fn counted(b: &mut Builder<'_>, attention_mask: ValueId, past: Dim) -> Result<ValueId, ModelError> {
    const MODULE: &str = names::POSITION_IDS.0;
    let up_to = b.emit(CumSum { x: attention_mask, axis: 1 }, MODULE)?;
    let end = b.graph.ty(attention_mask).shape[1].clone();
    let up_to = b.emit(Slice { x: up_to, axis: 1, start: past, end }, MODULE)?;
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
