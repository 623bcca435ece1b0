//! The forms of one model in one artifact, which a library chooses from by their names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Artifact;
use crate::evaluation::Evaluation;
use crate::manifest::{CalibratedOn, File, Manifest, PartManifest};
use crate::package::RuntimePackage;
use crate::precision::PrecisionName;
use crate::recipe::{ExpertsName, Precision, Recipe};
use crate::verification::Report;

/// A form of a model, by the name that Transformers.js has for it as a `dtype`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VariantName {
    /// float32, or what an ONNX graph has.
    Fp32,
    /// float16.
    Fp16,
    /// Weights and activations of linear layers as integers of 8 bits.
    Q8,
    /// Weights of 4 bits.
    Q4,
    /// Weights of 4 bits in a model of float16.
    Q4f16,
}

/// Names that Transformers.js has, and that are of no form that planish makes.
const OTHERS: [&str; 7] = ["int8", "uint8", "bnb4", "q2", "q2f16", "q1", "q1f16"];

impl VariantName {
    /// Each of them.
    pub const ALL: [Self; 5] = [Self::Fp32, Self::Fp16, Self::Q8, Self::Q4, Self::Q4f16];

    /// Its text.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Fp16 => "fp16",
            Self::Q8 => "q8",
            Self::Q4 => "q4",
            Self::Q4f16 => "q4f16",
        }
    }

    /// What follows the name of a part in the names of its files.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Fp32 => "",
            Self::Fp16 => "_fp16",
            Self::Q8 => "_quantized",
            Self::Q4 => "_q4",
            Self::Q4f16 => "_q4f16",
        }
    }

    /// The precisions of its recipe.
    #[must_use]
    pub fn precision(self) -> Vec<Precision> {
        match self {
            Self::Fp32 => Vec::new(),
            Self::Fp16 => vec![Precision::Fp16],
            Self::Q8 => vec![Precision::Int8],
            Self::Q4 => vec![Precision::Int4],
            Self::Q4f16 => vec![Precision::Int4, Precision::Fp16],
        }
    }
}

impl fmt::Display for VariantName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for VariantName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|variant| variant.name() == text);
        found.ok_or_else(|| match OTHERS.contains(&text) {
            true => format!("planish makes no {text}; its variants are {all}"),
            false => format!("there are {all}"),
        })
    }
}

impl RuntimePackage {
    /// Whether its library chooses between the variants of a model.
    #[must_use]
    pub fn has_variants(self) -> bool {
        match self {
            Self::TransformersJs => true,
            Self::Optimum | Self::Genai | Self::SentenceTransformers | Self::TextEmbeddingsInference | Self::Triton => {
                false
            }
        }
    }
}

/// What an artifact says of a variant beside its own: the members of a manifest that differ by variant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VariantManifest {
    /// Its name.
    pub name: VariantName,
    /// The ONNX opset.
    pub opset: u32,
    /// As of the artifact.
    pub precision: PrecisionName,
    /// As of the artifact.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calibration: Option<CalibratedOn>,
    /// As of the artifact.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recipe: Option<Recipe>,
    /// As of the artifact.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub experts: Option<ExpertsName>,
    /// As of the artifact.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub integer_inputs: bool,
    /// The files of its graphs.
    pub files: Vec<File>,
    /// Its graphs.
    pub parts: Vec<PartManifest>,
    /// Its graph of both decoders.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub merged: Option<String>,
    /// The comparison with the source; absent without `--verify`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verification: Option<Report>,
    /// How close it is to the source on data; absent where it was not evaluated.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub evaluation: Option<Evaluation>,
}

impl VariantManifest {
    /// That of an artifact of one variant.
    #[must_use]
    pub fn of(name: VariantName, manifest: Manifest) -> Self {
        let Manifest { opset, precision, calibration, recipe, experts, integer_inputs, files, parts, .. } = manifest;
        let Manifest { merged, verification, evaluation, .. } = manifest;
        Self {
            name,
            opset,
            precision,
            calibration,
            recipe,
            experts,
            integer_inputs,
            files,
            parts,
            merged,
            verification,
            evaluation,
        }
    }

    /// The manifest of an artifact that had this variant alone, by that of the artifact with all.
    #[must_use]
    pub fn alone(&self, whole: &Manifest) -> Manifest {
        let of = self.clone();
        Manifest {
            opset: of.opset,
            precision: of.precision,
            calibration: of.calibration,
            recipe: of.recipe,
            experts: of.experts,
            integer_inputs: of.integer_inputs,
            files: of.files,
            parts: of.parts,
            merged: of.merged,
            verification: of.verification,
            evaluation: of.evaluation,
            variant: Some(self.name),
            variants: Vec::new(),
            ..whole.clone()
        }
    }

    /// The bytes of its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}

impl Artifact {
    /// The variants beside its own, each as an artifact in the same folder.
    pub fn variants(&self) -> impl Iterator<Item = (VariantName, Self)> {
        self.manifest.variants.iter().map(|variant| {
            let manifest = variant.alone(&self.manifest);
            (variant.name, Self { manifest, ..self.clone() })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_forms_are_refused_with_those_that_there_are() {
        assert!(VariantName::ALL.into_iter().all(|variant| variant.name().parse() == Ok(variant)));
        let refused = |text: &str| text.parse::<VariantName>().unwrap_err();
        assert_eq!(refused("bnb4"), "planish makes no bnb4; its variants are fp32, fp16, q8, q4, q4f16");
        assert_eq!(refused("fp64"), "there are fp32, fp16, q8, q4, q4f16");
    }
}
