//! The plan of a quantization: what becomes of each input of a linear layer.

use std::fmt;

use planish_ir::ops::{Columns, FakeQuantize, Real};
use planish_ir::{DType, ValueId};
use serde::{Deserialize, Serialize};

use super::{PlannedWeight, WeightForm};

/// How the inputs of the linear layers of a part of a model are quantized.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The inputs, in the order in which the graph computes them.
    pub inputs: Vec<PlannedInput>,
    /// The attentions whose products of queries and keys may be of codes, in the order of the graph.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attention: Vec<PlannedAttention>,
    /// What convolutions take and give, in the order in which the graph computes it. What none takes has no layers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maps: Vec<PlannedInput>,
    /// Tables that rows are looked up in, weights of recurrent layers, and weights of convolutions that take floats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<PlannedWeight>,
}

impl Plan {
    /// The weights that become codes, and their forms by their names.
    pub(super) fn coded_weights(&self) -> impl Iterator<Item = (&str, &WeightForm)> {
        let coded = self.weights.iter().filter(|planned| planned.form.codes().is_some());
        coded.map(|planned| (planned.weight.as_str(), &planned.form))
    }

    /// Makes floats of the inputs that a layer takes, and of what shares its weight with the layer.
    pub fn keep_input(&mut self, at: usize, reason: String) {
        let Some(input) = self.inputs.get_mut(at) else { return };
        let shared = |planned: &&mut PlannedWeight| planned.used_by.iter().any(|result| input.layers.contains(result));
        for planned in self.weights.iter_mut().filter(shared) {
            planned.form = WeightForm::Float { reason: super::tables::shared_with(&input.value) };
        }
        (input.activation, input.layer_loss) = (Activation::Float { reason }, None);
    }
}

/// The product of the queries and keys of an attention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedAttention {
    /// The name of the result in the canonical graph.
    pub attention: String,
    /// The mean square error of scaled scores on the rows that calibration sampled; nothing depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_loss: Option<f64>,
    /// What becomes of the queries.
    pub queries: Activation,
    /// What becomes of the keys.
    pub keys: Activation,
}

/// A value that linear layers or convolutions take: they share what it becomes.
// `Activation` refuses the members that neither has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedInput {
    /// The name of the value in the canonical graph.
    pub value: String,
    /// The names of the results of the layers that take it.
    pub layers: Vec<String>,
    /// The error of the results of these layers, as [`Plan::measure`] measures it; nothing depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer_loss: Option<f64>,
    /// What becomes of it.
    #[serde(flatten)]
    pub activation: Activation,
}

/// What becomes of an input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "activation", rename_all = "lowercase", deny_unknown_fields)]
pub enum Activation {
    /// It stays a float, and so do the weights of the layers.
    Float {
        /// Why.
        reason: String,
    },
    /// Its scale was calibrated.
    Static {
        /// The type of the codes.
        #[serde(with = "dtype")]
        codes: DType,
        /// What a code of 1 stands for.
        scale: f32,
        /// The code of 0.
        #[serde(default, skip_serializing_if = "is_zero")]
        zero_point: i64,
        /// The columns that have further columns of codes, as [`FakeQuantize`] has them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        split: Vec<usize>,
        /// What each column is divided by before, and each column of the weights is multiplied by (SmoothQuant); no
        /// column where empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        smooth: Vec<f32>,
    },
    /// Its scale is that of the values of each run.
    Dynamic {
        /// The columns that have further columns of codes, as [`FakeQuantize`] has them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        split: Vec<usize>,
        /// Where these columns are cut.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<f32>,
        /// As of a scale that was calibrated.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        smooth: Vec<f32>,
    },
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Element types by their names.
pub(super) mod dtype {
    use planish_ir::DType;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in super::super) fn serialize<S: Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(dtype)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DType, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(|_| D::Error::custom(format!("`{name}` is not an element type")))
    }
}

impl Activation {
    /// The operator that quantizes `x`, a value that is smoothed; `None` for a float.
    #[must_use]
    pub fn operator(&self, x: ValueId) -> Option<FakeQuantize> {
        match self {
            Self::Float { .. } => None,
            Self::Static { codes, scale, zero_point, split, .. } => Some(FakeQuantize {
                split: Columns(split.clone()),
                ..FakeQuantize::new(x, *codes, f64::from(*scale), *zero_point)
            }),
            Self::Dynamic { split, limit, .. } => Some(FakeQuantize {
                split: Columns(split.clone()),
                limit: limit.map(|limit| Real(limit.into())),
                ..FakeQuantize::dynamic(x)
            }),
        }
    }

    /// What the columns are divided by before they are quantized; no column where empty.
    #[must_use]
    pub fn smooth(&self) -> &[f32] {
        match self {
            Self::Static { smooth, .. } | Self::Dynamic { smooth, .. } => smooth,
            Self::Float { .. } => &[],
        }
    }

    /// Why it stays a float; absent for codes.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Float { reason } => Some(reason),
            Self::Static { .. } | Self::Dynamic { .. } => None,
        }
    }

    /// The type of the codes; absent for a float.
    #[must_use]
    pub fn codes(&self) -> Option<DType> {
        match self {
            Self::Float { .. } => None,
            Self::Static { codes, .. } => Some(*codes),
            Self::Dynamic { .. } => Some(DType::U8),
        }
    }

    /// The columns that have further columns of codes.
    #[must_use]
    pub fn split(&self) -> &[usize] {
        match self {
            Self::Static { split, .. } | Self::Dynamic { split, .. } => split,
            Self::Float { .. } => &[],
        }
    }
}

/// In a few words, for tables.
impl fmt::Display for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float { reason } => write!(f, "float: {reason}"),
            Self::Static { codes, scale, zero_point, split, smooth } => {
                write!(f, "{codes}, scale {scale:.4e}, zero point {zero_point}")?;
                columns(f, split, smooth)
            }
            Self::Dynamic { split, smooth, .. } => {
                f.write_str("u8, scale of each run")?;
                columns(f, split, smooth)
            }
        }
    }
}

fn columns(f: &mut fmt::Formatter<'_>, split: &[usize], smooth: &[f32]) -> fmt::Result {
    if !split.is_empty() {
        let mut distinct = split.to_vec();
        distinct.dedup();
        write!(f, ", {} columns split into {} more", distinct.len(), split.len())?;
    }
    if smooth.is_empty() { Ok(()) } else { f.write_str(", smoothed") }
}
