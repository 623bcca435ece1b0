//! What stands for a text: one vector of the vectors of its tokens.

use planish_ir::ops::{BinaryKind, Gather, Iota, Reduce, ReduceKind, Select, Slice, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, ValueId, Weight};

use crate::ModelError;
use crate::checkpoint::config::Size;
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::heads::{first_token, pool};

/// What becomes of the vectors of the tokens of a text.
#[derive(Clone, Copy)]
pub(crate) enum Pooling {
    /// That of the first token is taken as it is.
    First,
    /// A projection of that of the first token with an activation after it.
    Dense(&'static str, Activation),
    /// What the configuration says.
    Summary(Summary),
}

impl Pooling {
    /// [texts, sequence_length, hidden] to [texts, hidden].
    pub(crate) fn apply(self, b: &mut Builder<'_>, hidden: Size, x: ValueId) -> Result<ValueId, ModelError> {
        match self {
            Pooling::First => first_token(b, x, "pooler"),
            Pooling::Dense(module, activation) => pool(b, hidden, x, module, activation),
            Pooling::Summary(summary) => summary.apply(b, hidden, x),
        }
    }
}

/// The configuration keys of [`Summary`].
pub(crate) const SUMMARY_KEYS: &[&str] = &[ACTIVATION, TO_LABELS, KIND, PROJECTED];

/// The keys of the dropout of summaries, which is off when a model is used.
pub(crate) const SUMMARY_DROPOUT: &[&str] = &["summary_first_dropout", "summary_last_dropout"];

const ACTIVATION: &str = "summary_activation";
const KIND: &str = "summary_type";
const PROJECTED: &str = "summary_use_proj";
const TO_LABELS: &str = "summary_proj_to_labels";

/// What configurations without a key mean by `ElectraSequenceSummary` of the transformers library and its kin: the vector of a
/// token or the mean of all, then a projection and an activation.
#[derive(Clone, Copy)]
pub(crate) struct Summary {
    kind: &'static str,
    projected: bool,
    activation: Option<&'static str>,
}

impl Summary {
    /// The last position, without a projection.
    pub(crate) const LAST: Self = Self { kind: "last", projected: false, activation: None };
    /// A projection of the first token with an activation after it.
    pub(crate) const FIRST: Self = Self { kind: "first", projected: true, activation: Some("gelu") };

    fn apply(self, b: &mut Builder<'_>, hidden: Size, x: ValueId) -> Result<ValueId, ModelError> {
        const MODULE: &str = "sequence_summary";
        const PROJECTION: &str = "sequence_summary.summary";
        let config = b.config;
        let kind = config.text(KIND, self.kind)?;
        let mut x = match kind {
            "first" => first_token(b, x, MODULE)?,
            // Of the whole row, padding included, as in the library.
            "last" | "cls_index" => {
                let last = Weight::scalar(DType::I64, -1.0);
                let indices = b.graph.add_weight(&format!("{MODULE}.last"), last, Origin::Config(KIND.into()));
                b.emit(Gather { x, indices, axis: 1 }, MODULE)?
            }
            "mean" => b.emit(Reduce { kind: ReduceKind::Mean, x, axes: vec![1], keep: false }, MODULE)?,
            other => {
                let expected = "expected \"first\", \"last\", \"mean\" or \"cls_index\"";
                return Err(config.error(format!("`{KIND}` is \"{other}\", {expected}")));
            }
        };
        let activation = match config.get(ACTIVATION) {
            Some(_) => Some(Activation::read(config, ACTIVATION, "")?),
            None if config.is_null(ACTIVATION) => None,
            None => self.activation.map(|name| Activation::named(config, ACTIVATION, name)).transpose()?,
        };
        let projected = config.boolean(PROJECTED, self.projected)?;
        if config.boolean(TO_LABELS, false)? && projected {
            return Err(config.error(format!("`{TO_LABELS}` is true: that is not supported for multiple choice")));
        }
        if projected {
            x = b.linear(x, PROJECTION, hidden, hidden)?;
        }
        activation.map_or(Ok(x), |activation| activation.apply(b, x, &format!("{MODULE}.activation")))
    }
}

/// The last token of each row that a mask keeps, bool[batch_size, sequence_length], and that has another id than padding:
/// [batch_size, sequence_length, hidden] to [batch_size, hidden]. Of a row without one it is the first, as in
/// `GenericForSequenceClassification` of the transformers library, which goes by the ids alone.
pub(crate) fn last_token(
    b: &mut Builder<'_>,
    x: ValueId,
    input_ids: ValueId,
    mask: ValueId,
    pad: Option<i64>,
    module: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let kept = match pad {
        Some(pad) => {
            // Exact: ids are below 2^53.
            let pad = b.graph.add_scalar(&at("pad"), DType::I64, pad as f64);
            let padding = b.binary(BinaryKind::Equal, [input_ids, pad], &at("padding"))?;
            let token = b.emit(Unary { kind: UnaryKind::Not, x: padding }, &at("not_padding"))?;
            b.binary(BinaryKind::And, [mask, token], &at("kept"))?
        }
        None => mask,
    };
    last_kept(b, x, kept, module)
}

/// The last token of each row that `kept`, bool[batch_size, sequence_length], is true for, or the first where there is none:
/// [batch_size, sequence_length, hidden] to [batch_size, hidden].
pub(crate) fn last_kept(b: &mut Builder<'_>, x: ValueId, kept: ValueId, module: &str) -> Result<ValueId, ModelError> {
    one_kept(b, x, kept, ReduceKind::Max, module)
}

/// The same of the first token, or the last where there is none.
pub(crate) fn first_kept(b: &mut Builder<'_>, x: ValueId, kept: ValueId, module: &str) -> Result<ValueId, ModelError> {
    one_kept(b, x, kept, ReduceKind::Min, module)
}

/// The first token of each row that has the largest of some integers, i64[batch_size, sequence_length]: [batch_size,
/// sequence_length, hidden] to [batch_size, hidden].
pub(crate) fn first_largest(
    b: &mut Builder<'_>,
    x: ValueId,
    numbers: ValueId,
    module: &str,
) -> Result<ValueId, ModelError> {
    let largest = Reduce { kind: ReduceKind::Max, x: numbers, axes: vec![1], keep: true };
    let largest = b.emit(largest, &format!("{module}.largest"))?;
    let kept = b.binary(BinaryKind::Equal, [numbers, largest], &format!("{module}.kept"))?;
    first_kept(b, x, kept, module)
}

fn one_kept(
    b: &mut Builder<'_>,
    x: ValueId,
    kept: ValueId,
    kind: ReduceKind,
    module: &str,
) -> Result<ValueId, ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let [batch, tokens, hidden] = &b.graph.ty(x).shape.to_vec()[..] else {
        unreachable!("the tokens of a text are of three dimensions")
    };
    let all = batch.checked_mul(tokens).unwrap_or_default();
    // Tokens are counted through all rows.
    let places = b.emit(Iota { dtype: DType::I64, length: all.clone() }, &at("places"))?;
    let mut places = b.reshape(places, [batch.clone(), tokens.clone()], &at("places.by_row"))?;
    // The smallest place is the largest of the negative ones: ONNX Runtime's CUDA provider has no smallest of integers.
    let turned = (kind == ReduceKind::Min).then(|| b.graph.add_scalar(&at("turned"), DType::I64, -1.0));
    if let Some(turned) = turned {
        places = b.binary(BinaryKind::Mul, [places, turned], &at("places.turned"))?;
    }
    let start = match kind {
        ReduceKind::Min => tokens.checked_add(&Dim::constant(-1)).unwrap_or_default(),
        _ => Dim::constant(0),
    };
    let end = start.checked_add(&Dim::constant(1)).unwrap_or_default();
    let other = b.emit(Slice { x: places, axis: 1, start, end }, &at("other"))?;
    let place = b.emit(Select { condition: kept, a: places, b: other }, &at("place"))?;
    let largest = Reduce { kind: ReduceKind::Max, x: place, axes: vec![1], keep: false };
    let mut indices = b.emit(largest, &at("indices"))?;
    if let Some(turned) = turned {
        indices = b.binary(BinaryKind::Mul, [indices, turned], &at("indices.turned"))?;
    }
    let x = b.reshape(x, [all, hidden.clone()], &at("tokens"))?;
    b.emit(Gather { x, indices, axis: 0 }, module)
}
