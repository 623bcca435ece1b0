//! The vector of a text of those of its tokens (`Pooling` of the sentence-transformers library).

use std::fmt;
use std::str::FromStr;

use planish_ir::ops::{BinaryKind, Cast, Concat, Reduce, ReduceKind, Select, Unary, UnaryKind};
use planish_ir::{DType, Dim, ValueId};
use serde::{Deserialize, Serialize};

use super::Features;
use crate::ModelError;
use crate::layers::builder::{BATCH, Builder, SEQUENCE};
use crate::layers::encoder;

/// The axis of tokens.
const TOKENS: usize = 1;

/// The least sum of a mask that is divided by.
const LEAST_COUNT: f64 = 1e-9;

macro_rules! modes {
    ($($(#[$doc:meta])* $mode:ident = $name:literal, $older:literal;)*) => {
        /// How the vectors of tokens become one; real tokens alone count.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Mode { $($(#[$doc])* $mode,)* }

        impl Mode {
            /// All, in the order in which several are joined, with the names that configurations have: `pooling_mode`, and
            /// before version 5 of the library a key for each.
            pub(crate) const ALL: &'static [(Mode, &'static str, &'static str)] = &[$((Mode::$mode, $name, $older),)*];
        }
    };
}

modes! {
    /// The first.
    First = "cls", "pooling_mode_cls_token";
    /// The largest of each feature.
    Max = "max", "pooling_mode_max_tokens";
    /// The mean.
    Mean = "mean", "pooling_mode_mean_tokens";
    /// The sum over the root of their number.
    RootMean = "mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens";
    /// The mean, each weighted with its place in the text, from 1 on.
    Weighted = "weightedmean", "pooling_mode_weightedmean_tokens";
    /// The last.
    Last = "lasttoken", "pooling_mode_lasttoken";
}

impl Mode {
    /// The mode of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known, _)| *known == name).map(|(mode, ..)| *mode)
    }

    /// The names of all, for messages.
    pub(crate) fn names() -> String {
        Self::ALL.iter().map(|(_, name, _)| *name).collect::<Vec<_>>().join(", ")
    }

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(mode, ..)| *mode == self).map_or("", |(_, name, _)| *name)
    }
}

/// The pooling that a caller asks for, of a checkpoint without modules of its own: `mean`, `cls,normalize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pooling {
    pub(crate) mode: Mode,
    /// Whether the vector of a text is divided by its length.
    pub(crate) normalize: bool,
}

/// What is written after a mode to divide vectors by their lengths.
const NORMALIZE: &str = "normalize";

/// A text names no pooling.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no pooling: take one of {all}, with `,{NORMALIZE}` after it for vectors of length 1", all = Mode::names())]
pub struct UnknownPooling(String);

impl FromStr for Pooling {
    type Err = UnknownPooling;
    fn from_str(text: &str) -> Result<Self, UnknownPooling> {
        let (mode, normalize) = match text.split_once(',') {
            Some((mode, NORMALIZE)) => (mode, true),
            Some(_) => return Err(UnknownPooling(text.to_owned())),
            None => (text, false),
        };
        let mode = Mode::named(mode).ok_or_else(|| UnknownPooling(text.to_owned()))?;
        Ok(Self { mode, normalize })
    }
}

impl fmt::Display for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let normalize = if self.normalize { format!(",{NORMALIZE}") } else { String::new() };
        write!(f, "{}{normalize}", self.mode.name())
    }
}

impl TryFrom<String> for Pooling {
    type Error = UnknownPooling;
    fn try_from(text: String) -> Result<Self, UnknownPooling> {
        text.parse()
    }
}

impl From<Pooling> for String {
    fn from(pooling: Pooling) -> String {
        pooling.to_string()
    }
}

/// One vector of those of the tokens: [batch_size, modes * features].
pub(super) fn pool(
    b: &mut Builder<'_>,
    modes: &[Mode],
    features: &Features,
    module: &str,
) -> Result<ValueId, ModelError> {
    let mut pooled = Vec::with_capacity(modes.len());
    for mode in modes {
        let name = if modes.len() == 1 { module.to_owned() } else { format!("{module}.{}", mode.name()) };
        pooled.push(one(b, *mode, features, &name)?);
    }
    match pooled[..] {
        [one] => Ok(one),
        _ => b.emit(Concat { parts: pooled, axis: 1 }, module),
    }
}

fn one(b: &mut Builder<'_>, mode: Mode, features: &Features, module: &str) -> Result<ValueId, ModelError> {
    let (x, mask) = (features.tokens, features.mask);
    let at = |name: &str| format!("{module}.{name}");
    match mode {
        Mode::Max => {
            let column = b.reshape(mask, column(), &at("column"))?;
            let lowest = b.number(f64::NEG_INFINITY, &at("lowest"), "pooling_mode");
            let kept = b.emit(Select { condition: column, a: x, b: lowest }, &at("kept"))?;
            b.emit(Reduce { kind: ReduceKind::Max, x: kept, axes: vec![TOKENS], keep: false }, module)
        }
        Mode::Mean | Mode::RootMean | Mode::Weighted => {
            let mut weights = b.emit(Cast { x: mask, to: DType::F32 }, &at("kept"))?;
            if mode == Mode::Weighted {
                let places = places(b, mask, &at("place"))?;
                weights = b.binary(BinaryKind::Mul, [weights, places], &at("weights"))?;
            }
            let (total, count) = weighted_sum(b, x, weights, module)?;
            let count = b.with_number(BinaryKind::Max, count, LEAST_COUNT, &at("at_least"), "pooling_mode")?;
            let count = match mode {
                Mode::RootMean => b.emit(Unary { kind: UnaryKind::Sqrt, x: count }, &at("root"))?,
                _ => count,
            };
            b.binary(BinaryKind::Div, [total, count], module)
        }
        Mode::First | Mode::Last => {
            let end = end(b, mask, mode == Mode::First, &at("at"))?;
            let positions = encoder::positions(b)?;
            let chosen = b.binary(BinaryKind::Equal, [positions, end], &at("chosen"))?;
            let chosen = b.emit(Cast { x: chosen, to: DType::F32 }, &at("weights"))?;
            Ok(weighted_sum(b, x, chosen, module)?.0)
        }
    }
}

/// [batch_size, sequence_length, 1].
fn column() -> [Dim; 3] {
    [Dim::symbol(BATCH), Dim::symbol(SEQUENCE), Dim::constant(1)]
}

/// The sum of the vectors of tokens with weights f32[batch_size, sequence_length], [batch_size, features], and that of the
/// weights, [batch_size, 1].
fn weighted_sum(
    b: &mut Builder<'_>,
    x: ValueId,
    weights: ValueId,
    module: &str,
) -> Result<(ValueId, ValueId), ModelError> {
    let at = |name: &str| format!("{module}.{name}");
    let weights = b.reshape(weights, column(), &at("column"))?;
    let weighted = b.binary(BinaryKind::Mul, [x, weights], &at("mul"))?;
    let sum = |x| Reduce { kind: ReduceKind::Sum, x, axes: vec![TOKENS], keep: false };
    Ok((b.emit(sum(weighted), &at("sum"))?, b.emit(sum(weights), &at("count"))?))
}

/// The place of each token in its text, from 1 on: f32[batch_size, sequence_length].
fn places(b: &mut Builder<'_>, mask: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let first = end(b, mask, true, &format!("{module}.first"))?;
    let positions = encoder::positions(b)?;
    let from_first = b.binary(BinaryKind::Sub, [positions, first], &format!("{module}.sub"))?;
    let from_first = b.emit(Cast { x: from_first, to: DType::F32 }, &format!("{module}.float"))?;
    b.with_number(BinaryKind::Add, from_first, 1.0, module, "pooling_mode")
}

/// The position of the first or the last real token: i64[batch_size, 1]; of a row of padding only, one that no token has.
fn end(b: &mut Builder<'_>, mask: ValueId, is_first: bool, module: &str) -> Result<ValueId, ModelError> {
    let (kind, outside) = if is_first { (ReduceKind::Min, i64::from(i32::MAX)) } else { (ReduceKind::Max, -1) };
    let outside = b.graph.add_scalar(&format!("{module}.outside"), DType::I64, outside as f64);
    let positions = encoder::positions(b)?;
    let kept = b.emit(Select { condition: mask, a: positions, b: outside }, &format!("{module}.kept"))?;
    b.emit(Reduce { kind, x: kept, axes: vec![TOKENS], keep: true }, module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poolings_are_read_as_they_are_written() {
        for text in ["mean", "cls,normalize", "lasttoken"] {
            assert_eq!(text.parse::<Pooling>().unwrap().to_string(), text);
        }
        for wrong in ["median", "mean,", "mean,normalise", "mean,normalize,cls", ""] {
            let error = wrong.parse::<Pooling>().unwrap_err().to_string();
            assert!(error.contains("cls, max, mean, mean_sqrt_len_tokens, weightedmean, lasttoken"), "{error}");
        }
    }
}
