//! What a model becomes: its target, its precision and how it is quantized, as one value.
//!
//! [`Recipe`] is what a user asks for, as options, as a file or as `planish.json` records it. The compiler resolves it in one
//! place, where it is refused or becomes options of passes.

mod forms;
mod keep;
mod read;
mod values;

use std::collections::BTreeMap;
use std::path::PathBuf;

use planish_models::{ImageSize, LatentCache, Pooling, Preprocessing, Towers};
use planish_passes::quantize::WeightMethod;
use planish_passes::{Exceptions, Half, KeptType, RangeMethod};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::text;

pub use forms::{AttentionName, BiasesName, ProjectionsName, TokenOrderName};
pub use keep::{HEAD, Keep, KeepError, KeptAs, TABLE};
pub use read::read;
pub use values::{
    AccuracyLevel, BlockSize, CacheName, ExpertsName, Io, LogitsChoice, Multiple, Precision, Smoothing, ValueError,
    WeightScalesName,
};

/// What a user asks for. A member that is absent is left to the compiler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// The name of the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// One of `fp16` and `bf16` at most, and one way to quantize at most; empty for the precision of the model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub precision: Vec<Precision>,
    /// What keeps another type than the rest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<Keep>,
    /// The magnitude of observed activations above which operators stay in float32 [default for float16: 8188].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_abs: Option<f64>,
    /// The type of floating-point inputs and outputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<Io>,
    /// Whether the products of attention are computed in float32.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub attention_fp32: bool,
    /// What mixtures of experts are lowered to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experts: Option<ExpertsName>,
    /// How codes and scales of weights are chosen.
    #[serde(skip_serializing_if = "Option::is_none", with = "text::optional")]
    pub weight_method: Option<WeightMethod>,
    /// How many input features of a weight share a scale.
    #[serde(skip_serializing_if = "Option::is_none", with = "text::optional")]
    pub block_size: Option<BlockSize>,
    /// Whether blocks have zero points.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub zero_points: bool,
    /// What ONNX Runtime multiplies weights of blocks with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy_level: Option<AccuracyLevel>,
    /// Whether each run computes the scales of activations although there is data.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dynamic: bool,
    /// The number of columns that an input of linear layers gets for columns with large values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split_columns: Option<usize>,
    /// How the inputs that norms give are smoothed.
    #[serde(skip_serializing_if = "Option::is_none", with = "text::optional")]
    pub smooth: Option<Smoothing>,
    /// The error of the results of layers within which an input is not split [default: 0.003].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_layer_loss: Option<f64>,
    /// How the range of an activation is chosen.
    #[serde(skip_serializing_if = "Option::is_none", with = "text::optional")]
    pub range: Option<RangeMethod>,
    /// How the scale of each output feature of a weight is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_scales: Option<WeightScalesName>,
    /// Whether weights that the model came with as codes are quantized anew.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub requantize: bool,
    /// Whether a weight stays a float that is not finite, or whose codes have a scale that is not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub allow_non_finite: bool,
    /// A `planish.json` whose plans of inputs are applied. An artifact records the plans themselves, not this path.
    #[serde(skip_serializing)]
    pub plan: Option<PathBuf>,
    /// What the rows of the token embedding and of the LM head are padded to a multiple of; 0 for no padding.
    #[serde(skip_serializing_if = "Option::is_none", with = "text::optional")]
    pub pad_vocab: Option<Multiple>,
    /// How the tokens of a batch are ordered in front of an attention without a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_order: Option<TokenOrderName>,
    /// What attention without a cache becomes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionName>,
    /// How linear layers of one operand are computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projections: Option<ProjectionsName>,
    /// Where the biases of linear layers are added that a norm follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub biases: Option<BiasesName>,
    /// How a decoder appends to its cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheName>,
    /// What the cache of a model with latent attention has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latent_cache: Option<LatentCache>,
    /// Height and width of images.
    #[serde(skip_serializing_if = "Option::is_none", with = "text::optional")]
    pub image_size: Option<ImageSize>,
    /// The graphs of a model of images and texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub towers: Option<Towers>,
    /// Where pictures and recordings are processed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preprocessing: Option<Preprocessing>,
    /// Whether a model repository of Triton has the tokenizer too, and an ensemble that takes texts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tokenizer: bool,
    /// Whether the artifact has a model card [default: true].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<bool>,
    /// How tokens become the vector of a text, of a checkpoint without modules of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pooling: Option<Pooling>,
    /// The logits that the graph gives.
    #[serde(skip_serializing_if = "Vec::is_empty", with = "text::list")]
    pub logits: Vec<LogitsChoice>,
    /// The options of `planish build-engine`, by their names with `_` for `-`, for the engine that `compile --target trt` builds.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub engine: BTreeMap<String, Value>,
    /// The `planish.json` that it was read from, of an artifact whose choices followed from data.
    #[serde(skip)]
    pub calibrated: Option<PathBuf>,
}

/// A recipe that cannot be followed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RecipeError(String);

/// What a member of a recipe needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum For {
    /// fp16 and bf16.
    Half,
    /// int8.
    Int8,
    /// int8 and fp8.
    Codes,
    /// int4 and int8-weights.
    Blocks,
    /// int8, int4 and int8-weights.
    Weights,
    /// All that quantize.
    Quantized,
}

/// The members that are of no use without a precision: its kind, and whether they need data for calibration too.
pub const NEEDS: &[(&str, For, bool)] = &[
    ("max_abs", For::Half, true),
    ("io", For::Half, false),
    ("weight_method", For::Weights, false),
    ("block_size", For::Blocks, false),
    ("zero_points", For::Blocks, false),
    ("dynamic", For::Int8, true),
    ("split_columns", For::Int8, false),
    ("smooth", For::Int8, false),
    ("max_layer_loss", For::Int8, true),
    ("range", For::Int8, true),
    ("weight_scales", For::Codes, false),
    ("requantize", For::Quantized, false),
    ("plan", For::Codes, false),
];

impl For {
    /// The precisions of this kind.
    pub fn all(self) -> &'static [Precision] {
        use Precision::{Bf16, Fp8, Fp16, Int4, Int8, Int8Weights};
        match self {
            Self::Half => &[Fp16, Bf16],
            Self::Int8 => &[Int8],
            Self::Codes => &[Int8, Fp8],
            Self::Blocks => &[Int4, Int8Weights],
            Self::Weights => &[Int8, Int4, Int8Weights],
            Self::Quantized => &[Int8, Fp8, Int4, Int8Weights],
        }
    }
}

impl Recipe {
    /// What keeps another type than the rest, in order. Without a type it keeps a float where something is quantized, and else
    /// float32.
    #[must_use]
    pub fn exceptions(&self) -> Exceptions {
        let usual = if self.quantized().is_some() { KeptType::Float } else { KeptType::Single };
        Exceptions(self.keep.iter().map(|keep| keep.exception(usual)).collect())
    }

    /// A recipe that asks for a precision and nothing else.
    #[must_use]
    pub fn of(precision: Precision) -> Self {
        Self { precision: vec![precision], ..Self::default() }
    }

    /// The half type, where one is asked for.
    #[must_use]
    pub fn half(&self) -> Option<Half> {
        self.precision.iter().find_map(|precision| precision.half())
    }

    /// How the model is quantized, where that is asked for.
    #[must_use]
    pub fn quantized(&self) -> Option<Precision> {
        self.asked(For::Quantized)
    }

    /// The precision that quantizes activations too: int8 or fp8.
    #[must_use]
    pub fn codes(&self) -> Option<Precision> {
        self.asked(For::Codes)
    }

    /// The precision that quantizes weights alone: int4 or int8-weights.
    #[must_use]
    pub fn blocks(&self) -> Option<Precision> {
        self.asked(For::Blocks)
    }

    /// Whether weights alone are quantized by a method that runs data.
    #[must_use]
    pub fn weights_take_data(&self) -> bool {
        self.blocks().is_some() && self.weight_method.unwrap_or_default().takes_data()
    }

    /// Whether a vocabulary is to be padded, on any target.
    #[must_use]
    pub fn pads(&self) -> bool {
        self.pad_vocab.is_some_and(|Multiple(multiple)| multiple > 0)
    }

    /// Whether only the last token of each row gets logits.
    #[must_use]
    pub fn last_logits(&self) -> bool {
        self.logits.contains(&LogitsChoice::Last)
    }

    /// The precision of a kind that is asked for.
    #[must_use]
    pub fn asked(&self, of: For) -> Option<Precision> {
        self.precision.iter().copied().find(|precision| of.all().contains(precision))
    }

    /// Whether a member has a value.
    #[must_use]
    pub fn has(&self, member: &str) -> bool {
        match member {
            "plan" => self.plan.is_some(),
            _ => serde_json::to_value(self).is_ok_and(|value| value.get(member).is_some()),
        }
    }
}

/// Refuses a recipe.
///
/// # Errors
/// Always: the reason.
pub fn refuse<T>(why: impl Into<String>) -> Result<T, RecipeError> {
    Err(RecipeError(why.into()))
}
