//! RoBERTa (Liu et al. 2019, arXiv:1907.11692), as `transformers/models/roberta` has it: BERT
//! without token types as inputs, whose positions count the tokens that are not padding.

use planish_ir::ops::{Binary, BinaryKind, Cast, CumSum, Iota, Slice, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};

use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults, LAYER};
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;
use crate::layers::encoder::{self, Context, LayerNames, Settings};
use crate::layers::heads::TextHeads;
use crate::names;
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "roberta",
    class_prefix: "Roberta",
    base: "roberta",
    other_bases: &[],
    renamed: &[],
    tasks: encoder::TASKS,
    keys: &[bert::KEYS],
    older_keys: &[],
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
    pad_token_id: None,
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

/// The text model of data2vec (Baevski et al. 2022, arXiv:2202.03555): the same model, trained to predict what it gives.
pub(crate) const DATA2VEC_TEXT: Architecture = Architecture {
    model_type: "data2vec-text",
    class_prefix: "Data2VecText",
    base: "data2vec_text",
    build: |b, task| build(b, task, 30522),
    ..ARCHITECTURE
};

/// XLM-RoBERTa-XL (Goyal et al. 2021, arXiv:2105.00572): the same model with norms before attention and feed-forward.
pub(crate) const XLM_ROBERTA_XL: Architecture = Architecture {
    model_type: "xlm-roberta-xl",
    class_prefix: "XLMRobertaXL",
    build: |b, task| {
        let defaults = Defaults {
            vocab_size: 250_880,
            pad_token_id: 1,
            hidden_size: 2560,
            intermediate_size: 10240,
            num_attention_heads: 32,
            num_hidden_layers: 36,
            max_position_embeddings: 514,
            layer_norm_eps: 1e-5,
            ..Defaults::BERT
        };
        build_with(b, task, &defaults, &PRE_NORM_LAYER)
    },
    ..ARCHITECTURE
};

/// The names of a layer's modules where norms stand before attention and feed-forward.
const PRE_NORM_LAYER: LayerNames = LayerNames {
    attention_norm: "attention.self_attn_layer_norm",
    output_norm: "LayerNorm",
    final_norm: Some("encoder.LayerNorm"),
    ..LAYER
};

/// Builds the graph; a configuration without `vocab_size` means `default_vocabulary`.
fn build(b: &mut Builder<'_>, task: Task, default_vocabulary: usize) -> Result<Properties, ModelError> {
    let defaults = Defaults { vocab_size: default_vocabulary, pad_token_id: 1, ..Defaults::BERT };
    build_with(b, task, &defaults, &LAYER)
}

/// Builds the graph. Embeddings are normalized where norms stand after attention and feed-forward.
fn build_with(
    b: &mut Builder<'_>,
    task: Task,
    defaults: &Defaults,
    layer: &LayerNames,
) -> Result<Properties, ModelError> {
    let s = bert::settings(b.config, defaults)?;
    let pad = padding(b, &s)?;
    let max_positions = s.positions.value.saturating_sub(usize::try_from(pad).unwrap_or(usize::MAX).saturating_add(1));
    let types = bert::token_types(b)?;

    let input_ids = b.input(names::INPUT_IDS, s.vocabulary.signed())?;
    let attention_mask = b.input(names::ATTENTION_MASK, 2)?;
    let mask = encoder::mask(b, attention_mask)?;
    let words = b.embedding(input_ids, "embeddings.word_embeddings", s.vocabulary, s.hidden)?;
    let types = type_of_all(b, types, s.hidden)?;
    let ids = position_ids(b, input_ids, pad, &Dim::constant(0))?;
    let positions = b.embedding(ids, "embeddings.position_embeddings", s.positions, s.hidden)?;
    let x = encoder::sum(b, words, &[types, positions])?;
    let x = match layer.final_norm {
        Some(_) => x,
        None => b.layer_norm(x, "embeddings.LayerNorm", s.hidden, s.eps)?,
    };
    let hidden = encoder::layers(b, &s, layer, x, Context::of_mask(mask))?;
    TextHeads::roberta().finish(b, &s.head_sizes(), hidden, task)?;
    Ok(s.properties(max_positions))
}

/// The id that pads, after which positions begin: token number n, from 1 on, has position pad + n.
pub(crate) fn padding(b: &Builder<'_>, s: &Settings) -> Result<i64, ModelError> {
    let Some(pad) = s.pad_token_id else {
        return Err(b.config.error("`pad_token_id` is not an id: the positions of RoBERTa depend on it"));
    };
    match pad + 1 < s.positions.signed() {
        true => Ok(pad),
        false => Err(b.config.error(format!("{} leaves no position after pad_token_id = {pad}", s.positions))),
    }
}

/// The embedding of type 0, which every token is of: [1, hidden].
pub(crate) fn type_of_all(b: &mut Builder<'_>, types: Size, hidden: Size) -> Result<ValueId, ModelError> {
    let table = b.weight(&["embeddings.token_type_embeddings.weight"], &[types, hidden])?;
    let first = Slice { x: table, axis: 0, start: Dim::constant(0), end: Dim::constant(1) };
    b.emit(first, "embeddings.token_type_embeddings")
}

/// `pad` for padding, `pad + n` for token number n of its row (from 1 on, padding not counted, and `past` tokens before these).
pub(crate) fn position_ids(
    b: &mut Builder<'_>,
    input_ids: ValueId,
    pad: i64,
    past: &Dim,
) -> Result<ValueId, ModelError> {
    const MODULE: &str = "embeddings.position_ids";
    let at = |name: &str| format!("{MODULE}.{name}");
    // Exact: token ids are below 2^53.
    let padding = Weight::scalar(DType::I64, pad as f64);
    let padding = b.graph.add_weight(&at("padding_idx"), padding, Origin::Config("pad_token_id".into()));
    let padded = b.emit(Binary { kind: BinaryKind::Equal, a: input_ids, b: padding }, &at("padded"))?;
    let present = b.emit(Unary { kind: UnaryKind::Not, x: padded }, &at("present"))?;
    let ones = b.emit(Cast { x: present, to: DType::I64 }, &at("ones"))?;
    let mut count = b.emit(CumSum { x: ones, axis: 1 }, &at("count"))?;
    if past.as_constant() != Some(0) {
        let more = past.checked_add(&Dim::constant(1)).unwrap_or_default();
        let numbers = b.emit(Iota { dtype: DType::I64, length: more.clone() }, &at("past.range"))?;
        let before = b.emit(Slice { x: numbers, axis: 0, start: past.clone(), end: more }, &at("past"))?;
        count = b.add(count, before, &at("after"))?;
    }
    let counted = b.emit(Binary { kind: BinaryKind::Mul, a: count, b: ones }, &at("counted"))?;
    b.add(counted, padding, MODULE)
}
