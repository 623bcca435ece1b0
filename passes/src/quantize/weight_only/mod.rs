//! Weight-only quantization: weights as codes with a scale for each block, while activations stay floats.

mod apply;
mod data;
mod planner;

pub(super) use planner::{Uses, uses};

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use planish_ir::DType;
use planish_ir::weight::{BlockFit, Dequantized, Search};
use serde::{Deserialize, Serialize};

pub use apply::QUANTIZE_WEIGHTS;
pub use planner::{Bits, WeightSettings};

use super::plan::dtype;

/// What `quantize-weights` does to a graph.
#[derive(Clone, Debug, Default)]
pub struct WeightQuantization {
    /// What becomes of each weight.
    pub plan: WeightPlan,
    /// Codes and scales that were chosen with data, by the name of the weight.
    pub chosen: BTreeMap<String, Dequantized>,
    /// What the columns of an input of linear layers are divided by, and those of its weights are multiplied by, by the name
    /// of the input (AWQ).
    pub factors: BTreeMap<String, Vec<f32>>,
    /// How much the square errors of the columns of weights count, by the name of the input: the squares of its columns, before
    /// factors divide it.
    pub importance: BTreeMap<String, Vec<f32>>,
    /// The same of the columns of the first matrices of experts, [experts, columns], by the name of what the mixture gives.
    pub of_experts: BTreeMap<String, Vec<f32>>,
}

/// What becomes of the weights of linear layers and of tables of tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeightPlan {
    /// The weights, in the order in which the graph uses them.
    pub weights: Vec<PlannedWeight>,
}

/// What becomes of a weight.
// serde cannot combine `deny_unknown_fields` with `flatten`; `WeightForm` refuses unknown members.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedWeight {
    /// The name of the weight in the canonical graph.
    pub weight: String,
    /// The names of the results of the layers and lookups that take it.
    pub used_by: Vec<String>,
    /// The number of its elements.
    pub elements: usize,
    /// What becomes of it.
    #[serde(flatten)]
    pub form: WeightForm,
}

/// The form of a weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "lowercase", deny_unknown_fields)]
pub enum WeightForm {
    /// It stays as it is.
    Float {
        /// Why.
        reason: String,
    },
    /// Codes with a scale for each block of neighbours in the input features.
    Blocks {
        /// The type of the codes: a signed one, or an unsigned one whose blocks have zero points.
        #[serde(with = "dtype")]
        codes: DType,
        /// The elements of a block; absent where an output feature is one block.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        block: Option<usize>,
        /// How codes and scales are chosen.
        method: WeightMethod,
        /// Why it has these bits, where an option or a search chose them for this weight.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Codes with a scale for each row of a table, or for each feature that a recurrent layer computes.
    Rows {
        /// The type of the codes.
        #[serde(with = "dtype")]
        codes: DType,
        /// Whether the operator multiplies the codes with integers, to which each run rounds the other factor.
        #[serde(default, skip_serializing_if = "is_false")]
        integers: bool,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// How codes and scales of weights are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightMethod {
    /// The range of a block gives its scale, and elements round to the nearest code.
    Nearest,
    /// The range that has the least mean square error is searched for each block.
    #[default]
    Mse,
    /// Half-quadratic quantization, [`Search::HalfQuadratic`].
    Hqq,
    /// GPTQ (Frantar et al. 2022, arXiv:2210.17323): the error of each column is made up for in the columns after, by the
    /// products of the inputs of the layer.
    Gptq,
    /// AWQ (Lin et al. 2023, arXiv:2306.00978): columns with large inputs are multiplied by a factor before they are rounded.
    Awq,
}

impl WeightMethod {
    /// Whether it takes data.
    #[must_use]
    pub fn takes_data(self) -> bool {
        matches!(self, Self::Gptq | Self::Awq)
    }

    /// The search for the scales of blocks.
    #[must_use]
    pub fn search(self) -> Search {
        match self {
            Self::Nearest => Search::Range,
            Self::Mse | Self::Gptq | Self::Awq => Search::LeastSquares,
            Self::Hqq => Search::HalfQuadratic,
        }
    }
}

impl FromStr for WeightMethod {
    type Err = UnknownMethod;

    fn from_str(text: &str) -> Result<Self, UnknownMethod> {
        let all = [Self::Nearest, Self::Mse, Self::Hqq, Self::Gptq, Self::Awq];
        all.into_iter().find(|method| method.to_string() == text).ok_or_else(|| UnknownMethod(text.to_owned()))
    }
}

/// A text that names no method for weights.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a method: there are nearest, mse, hqq, gptq and awq")]
pub struct UnknownMethod(String);

impl fmt::Display for WeightMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nearest => "nearest",
            Self::Mse => "mse",
            Self::Hqq => "hqq",
            Self::Gptq => "gptq",
            Self::Awq => "awq",
        })
    }
}

impl WeightForm {
    /// The type of the codes; absent for a float.
    #[must_use]
    pub fn codes(&self) -> Option<DType> {
        match self {
            Self::Float { .. } => None,
            Self::Blocks { codes, .. } | Self::Rows { codes, .. } => Some(*codes),
        }
    }

    /// Why it has this form, where there is a reason to give.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Float { reason } => Some(reason),
            Self::Blocks { reason, .. } => reason.as_deref(),
            Self::Rows { .. } => None,
        }
    }

    /// How a matrix of so many columns becomes codes; absent for a float. `negative` says whether scales may be negative.
    pub(super) fn fit(&self, columns: usize, negative: bool) -> Option<BlockFit> {
        let Self::Blocks { codes, block, method, .. } = self else { return None };
        let size = block.unwrap_or(columns).max(1);
        Some(BlockFit { codes: *codes, size, search: method.search(), negative })
    }
}

/// In a few words, for tables.
impl fmt::Display for WeightForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float { reason } => write!(f, "float: {reason}"),
            Self::Blocks { codes, block, method, reason } => {
                write!(f, "{codes}, ")?;
                match block {
                    Some(block) => write!(f, "blocks of {block}")?,
                    None => f.write_str("a scale for each output feature")?,
                }
                write!(f, ", {method}")?;
                reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
            }
            Self::Rows { codes, integers } => {
                let products = if *integers { ", products of integers" } else { "" };
                write!(f, "{codes}, a scale for each row{products}")
            }
        }
    }
}
