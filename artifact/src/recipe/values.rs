//! The values that members of a recipe have.

use std::fmt;
use std::str::FromStr;

use super::{RecipeError, refuse};
use planish_passes::quantize::{Smooth, WeightScales};
use planish_passes::{CacheForm, ExpertsForm, Half, TARGETS, Target};
use serde::{Deserialize, Serialize};

/// A text is not a value of a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// It is none of these names.
    #[error("there are {0}")]
    Names(String),
    /// It is not of this form.
    #[error("expected {0}")]
    Expected(&'static str),
}

/// What the numbers of an artifact are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// float32, or what an ONNX graph has.
    F32,
    /// Weights and arithmetic in float16.
    Fp16,
    /// Weights and arithmetic in bfloat16.
    Bf16,
    /// Weights and activations of linear layers as integers of 8 bits.
    Int8,
    /// Weights and activations of linear layers as E4M3.
    Fp8,
    /// Weights of 4 bits with a scale for each block.
    Int4,
    /// Weights of 8 bits with a scale for each block.
    Int8Weights,
}

impl Precision {
    /// Each of them.
    pub const ALL: [Self; 7] =
        [Self::F32, Self::Fp16, Self::Bf16, Self::Int8, Self::Fp8, Self::Int4, Self::Int8Weights];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Fp8 => "fp8",
            Self::Int4 => "int4",
            Self::Int8Weights => "int8-weights",
        }
    }

    /// The option that asks for it.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            Self::F32 => "--precision f32",
            Self::Fp16 => "--fp16",
            Self::Bf16 => "--bf16",
            Self::Int8 => "--int8",
            Self::Fp8 => "--fp8",
            Self::Int4 => "--int4",
            Self::Int8Weights => "--int8-weights",
        }
    }

    /// The half type, of a precision that is one.
    #[must_use]
    pub fn half(self) -> Option<Half> {
        match self {
            Self::Fp16 => Some(Half::F16),
            Self::Bf16 => Some(Half::Bf16),
            _ => None,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Precision {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let found = Self::ALL.into_iter().find(|precision| precision.name() == text);
        found.ok_or_else(|| ValueError::Names(Self::ALL.map(Self::name).join(", ")))
    }
}

/// The type of floating-point inputs and outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Io {
    /// float32.
    F32,
    /// The half type of the weights.
    Half,
}

/// What ONNX Runtime multiplies weights of blocks with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccuracyLevel {
    /// Inputs that each run rounds to integers of 8 bits.
    Int8,
    /// Inputs as they are.
    Float,
}

/// How a decoder appends to its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheName {
    /// The results are new tensors, with a copy of the past in them.
    Copy,
    /// New keys are written after the past, where a program gives one buffer for both.
    InPlace,
}

impl CacheName {
    /// As passes have it.
    #[must_use]
    pub fn form(self) -> CacheForm {
        match self {
            Self::Copy => CacheForm::Copy,
            Self::InPlace => CacheForm::InPlace,
        }
    }

    /// As passes have it, where the target has it.
    ///
    /// # Errors
    /// Which targets have the form, where this one has not.
    pub fn form_for(self, target: &Target) -> Result<CacheForm, RecipeError> {
        if self == Self::Copy || target.appends_in_place {
            return Ok(self.form());
        }
        let with = TARGETS.iter().filter(|target| target.appends_in_place).map(|target| target.name);
        let with = with.collect::<Vec<&str>>().join(", ");
        refuse(format!(
            "target {target} does not append to a cache in place; --recipe cache=in-place is for target {with}"
        ))
    }
}

/// What mixtures of experts are lowered to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExpertsName {
    /// Layers of each expert for the tokens that take it.
    Grouped,
    /// The chosen experts, copied to one tensor, for all tokens.
    Gathered,
    /// All experts for all tokens.
    All,
}

impl ExpertsName {
    const FORMS: [(Self, ExpertsForm, &'static str); 3] = [
        (Self::Grouped, ExpertsForm::Grouped, "grouped"),
        (Self::Gathered, ExpertsForm::Gathered, "gathered"),
        (Self::All, ExpertsForm::All, "all"),
    ];

    /// As passes have it.
    #[must_use]
    pub fn form(self) -> ExpertsForm {
        Self::FORMS.iter().find(|(name, ..)| *name == self).map_or(ExpertsForm::All, |(_, form, _)| *form)
    }

    /// As passes have it, where the target has it.
    ///
    /// # Errors
    /// Why the target has no such form.
    pub fn form_for(self, target: &Target) -> Result<ExpertsForm, RecipeError> {
        let form = self.form();
        if target.experts.contains(&form) {
            return Ok(form);
        }
        let others: Vec<&str> = target.experts.iter().map(|form| Self::of(*form).name()).collect();
        let name = self.name();
        refuse(match others.is_empty() {
            true => {
                format!("--recipe experts is not for target {target}, which has no mixtures of experts; leave it out")
            }
            false => format!("--recipe experts={name} is not for target {target}; there are {}", others.join(", ")),
        })
    }

    /// The name of a form.
    #[must_use]
    pub fn of(form: ExpertsForm) -> Self {
        Self::FORMS.iter().find(|(_, own, _)| *own == form).map_or(Self::All, |(name, ..)| *name)
    }

    /// Its text.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::FORMS.iter().find(|(name, ..)| *name == self).map_or("", |(.., text)| *text)
    }
}

/// How the scales of weights are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightScalesName {
    /// By the range.
    Minmax,
    /// By the least mean square error.
    Mse,
    /// By the range, with codes from -64 to 64.
    Reduced,
}

impl WeightScalesName {
    /// As passes have it.
    pub fn scales(self) -> WeightScales {
        match self {
            Self::Minmax => WeightScales::MinMax,
            Self::Mse => WeightScales::Mse,
            Self::Reduced => WeightScales::Reduced,
        }
    }
}

/// Which logits the graph gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogitsChoice {
    /// Those of each token.
    All,
    /// Those of the last token of each row.
    Last,
    /// One for each token of a padded vocabulary.
    Sliced,
    /// One for each row of a padded vocabulary.
    Padded,
}

impl LogitsChoice {
    const NAMES: [(&'static str, Self); 4] =
        [("all", Self::All), ("last", Self::Last), ("sliced", Self::Sliced), ("padded", Self::Padded)];
}

impl fmt::Display for LogitsChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES.iter().find(|(_, choice)| choice == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for LogitsChoice {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, choice)| *choice);
        found.ok_or_else(|| ValueError::Names(Self::NAMES.map(|(name, _)| name).join(", ")))
    }
}

/// The input features of a weight that share a scale; `None` for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize(pub Option<usize>);

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(size) => size.fmt(f),
            None => f.write_str("row"),
        }
    }
}

impl FromStr for BlockSize {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "row" => Ok(Self(None)),
            "16" | "32" | "64" | "128" | "256" => Ok(Self(text.parse().ok())),
            _ => Err(ValueError::Expected("16, 32, 64, 128, 256 or row")),
        }
    }
}

/// A number of rows; 0 for no padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiple(pub usize);

impl fmt::Display for Multiple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("off"),
            rows => rows.fmt(f),
        }
    }
}

impl FromStr for Multiple {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "off" => Ok(Self(0)),
            _ => text.parse().map(Self).map_err(|_| ValueError::Expected("a number of rows, or off")),
        }
    }
}

/// How the inputs that norms give are smoothed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Smoothing(pub Smooth);

impl fmt::Display for Smoothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Smooth::Off => f.write_str("off"),
            Smooth::Auto => f.write_str("auto"),
            Smooth::Alpha(alpha) => alpha.fmt(f),
        }
    }
}

impl FromStr for Smoothing {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "off" => Ok(Self(Smooth::Off)),
            "auto" => Ok(Self(Smooth::Auto)),
            _ => {
                let alpha = text.parse().ok().filter(|alpha| (0.0..=1.0).contains(alpha));
                let alpha = alpha.ok_or(ValueError::Expected("off, auto, or a number from 0 to 1"));
                alpha.map(|alpha| Self(Smooth::Alpha(alpha)))
            }
        }
    }
}
