//! RoBERTa (Liu et al. 2019, arXiv:1907.11692), as `transformers/models/roberta` has it: BERT
//! without token types as inputs, whose positions count the tokens that are not padding.

use planish_ir::ops::{Binary, BinaryKind, Cast, CumSum, Slice, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults, LAYER};
use crate::layers::builder::Builder;
use crate::layers::encoder::{self, Activation, Settings};
use crate::layers::heads::{self, MaskedLm, SecondBias};
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "roberta",
    class_prefix: "Roberta",
    base: "roberta",
    renamed: &[],
    tasks: encoder::TASKS,
    keys: &[bert::KEYS],
    only: bert::ONLY,
    irrelevant_keys: &[],
    // Buffers, then heads of other tasks.
    unused_tensors: &[
        "embeddings.position_ids",
        "embeddings.token_type_ids",
        "pooler.",
        "lm_head.",
        "classifier.",
        "qa_outputs.",
    ],
    gguf: None,
    build: |b, task| build(b, task, 50265),
};

/// XLM-RoBERTa (Conneau et al. 2019, arXiv:1911.02116): the same model, trained on 100 languages.
pub(crate) const XLM_ROBERTA: Architecture = Architecture {
    model_type: "xlm-roberta",
    class_prefix: "XLMRoberta",
    build: |b, task| build(b, task, 30522),
    ..ARCHITECTURE
};

/// CamemBERT (Martin et al. 2019, arXiv:1911.03894): the same model, trained on French.
pub(crate) const CAMEMBERT: Architecture = Architecture {
    model_type: "camembert",
    class_prefix: "Camembert",
    build: |b, task| build(b, task, 30522),
    ..ARCHITECTURE
};

/// Builds the graph; a configuration without `vocab_size` means `default_vocabulary`.
fn build(b: &mut Builder<'_>, task: Task, default_vocabulary: usize) -> Result<Properties, ModelError> {
    let s = bert::settings(b.config, &Defaults { vocab_size: default_vocabulary, pad_token_id: 1, ..Defaults::BERT })?;
    let Some(pad) = s.pad_token_id else {
        return Err(b.config.error("`pad_token_id` is not an id: the positions of RoBERTa depend on it"));
    };
    // Token number n, from 1 on, has position pad + n.
    let max_positions = usize::try_from(pad).ok().and_then(|pad| s.positions.value.checked_sub(pad + 1));
    let Some(max_positions) = max_positions.filter(|n| *n > 0) else {
        return Err(b.config.error(format!("{} leaves no position after pad_token_id = {pad}", s.positions)));
    };
    let types = bert::token_types(b)?;

    let input_ids = b.input(names::INPUT_IDS, s.vocabulary.signed());
    let attention_mask = b.input(names::ATTENTION_MASK, 2);
    let mask = encoder::mask(b, attention_mask)?;
    let words = b.embedding(input_ids, "embeddings.word_embeddings", s.vocabulary, s.hidden)?;
    // Every token is of type 0.
    let table = b.weight(&["embeddings.token_type_embeddings.weight"], &[types, s.hidden])?;
    let first = Slice { x: table, axis: 0, start: Dim::constant(0), end: Dim::constant(1) };
    let types = b.emit(first, "embeddings.token_type_embeddings")?;
    let ids = position_ids(b, input_ids, pad)?;
    let positions = b.embedding(ids, "embeddings.position_embeddings", s.positions, s.hidden)?;
    let x = encoder::embeddings(b, &s, words, &[types, positions])?;
    let hidden = encoder::layers(b, &s, &LAYER, x, mask)?;

    match task {
        Task::FeatureExtraction => bert::features(b, &s, hidden)?,
        Task::FillMask => fill_mask(b, &s, hidden)?,
        Task::TextClassification => {
            let pooled = heads::pool(b, s.hidden, hidden, "classifier.dense", Activation::TANH)?;
            heads::classify(b, s.hidden, pooled, "classifier.out_proj")?;
        }
        Task::TokenClassification => heads::classify(b, s.hidden, hidden, "classifier")?,
        Task::QuestionAnswering => heads::answer(b, s.hidden, hidden, "qa_outputs")?,
        Task::TextGeneration | Task::Text2TextGeneration | Task::ImageClassification => {
            return Err(ARCHITECTURE.without(task));
        }
    }
    Ok(s.properties(max_positions))
}

fn fill_mask(b: &mut Builder<'_>, s: &Settings, hidden: ValueId) -> Result<(), ModelError> {
    let names = MaskedLm {
        transform: "lm_head.dense",
        norm: "lm_head.layer_norm",
        decoder: "lm_head.decoder",
        // Each version of the transformers library that was observed (bert.rs lists them) applies
        // `lm_head.decoder.bias`: `RobertaLMHead._tie_weights` sets `bias` to `decoder.bias`, where it is there.
        second_bias: Some(SecondBias { name: "lm_head.bias", applied_by: None }),
        // Whatever `hidden_act` says.
        activation: Activation::GELU,
    };
    heads::fill_mask(b, s, hidden, &names)
}

/// `pad` for padding, `pad + n` for token number n of its row (from 1 on, padding not counted).
pub(crate) fn position_ids(b: &mut Builder<'_>, input_ids: ValueId, pad: i64) -> Result<ValueId, ModelError> {
    const MODULE: &str = "embeddings.position_ids";
    let at = |name: &str| format!("{MODULE}.{name}");
    // Exact: token ids are below 2^53.
    let padding = Weight::scalar(DType::I64, pad as f64);
    let padding = b.graph.add_weight(&at("padding_idx"), padding, Origin::Config("pad_token_id".into()));
    let padded = b.emit(Binary { kind: BinaryKind::Equal, a: input_ids, b: padding }, &at("padded"))?;
    let present = b.emit(Unary { kind: UnaryKind::Not, x: padded }, &at("present"))?;
    let ones = b.emit(Cast { x: present, to: DType::I64 }, &at("ones"))?;
    let count = b.emit(CumSum { x: ones, axis: 1 }, &at("count"))?;
    let counted = b.emit(Binary { kind: BinaryKind::Mul, a: count, b: ones }, &at("counted"))?;
    b.add(counted, padding, MODULE)
}
