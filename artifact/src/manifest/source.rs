//! What an artifact was made from.

use std::collections::BTreeMap;

use planish_models::ModelCard;
use planish_onnx::ImportOptions;
use serde::{Deserialize, Serialize};

use super::{AppliedPass, File, Manifest};
use crate::precision::PrecisionName;
use crate::split::Split;

/// The data that the activations were measured on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalibratedOn {
    /// The data set.
    pub data: File,
    /// How many samples of it were run.
    pub samples: usize,
    /// Which ones.
    #[serde(skip_serializing_if = "Split::is_all", default)]
    pub split: Split,
}

/// An adapter of low rank that was added to the source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdapterManifest {
    /// The relative path from the artifact's folder to the adapter's; absent if the path is not UTF-8 text.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path: Option<String>,
    /// What its change of weights was multiplied by.
    pub weight: f64,
}

/// Where the files of a model of the Hugging Face hub came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubSource {
    /// `OWNER/NAME`.
    pub name: String,
    /// The commit, 40 hexadecimal digits.
    pub commit: String,
}

/// The source of the artifact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceManifest {
    /// The checkpoint's name.
    pub name: String,
    /// The relative path from the artifact's folder to the model; absent if the path is not UTF-8 text.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path: Option<String>,
    /// The model of the hub that it is; absent for what was named by its path.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hub: Option<HubSource>,
    /// What its model card says; absent where it has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub card: Option<ModelCard>,
    /// The files that decide what the model is.
    pub files: Vec<File>,
    /// The options that took a part of an ONNX graph; absent for the whole graph.
    #[serde(skip_serializing_if = "ImportOptions::is_empty", default)]
    pub import: ImportOptions,
    /// The adapters that were added to its weights, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub adapters: Vec<AdapterManifest>,
    /// How the artifact was made that is the source; absent for another source.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub artifact: Option<Box<ArtifactHistory>>,
}

/// How an artifact was made that another one was compiled from: what its manifest says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArtifactHistory {
    /// The tool and its version.
    pub producer: String,
    /// The source of that artifact, which may be an artifact itself.
    pub source: SourceManifest,
    /// The name of the target that it was compiled for.
    pub target: String,
    /// The ONNX opset.
    pub opset: u32,
    /// The type that its weights were stored in.
    pub precision: PrecisionName,
    /// The data that its activations were measured on; absent without calibration.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calibration: Option<CalibratedOn>,
    /// The passes that ran on each part, by the names of the parts.
    pub passes: BTreeMap<String, Vec<AppliedPass>>,
}

impl ArtifactHistory {
    /// That of an artifact.
    #[must_use]
    pub fn of(manifest: &Manifest) -> Self {
        let passes = manifest.parts.iter().map(|part| (part.name.clone(), part.passes.clone())).collect();
        Self {
            producer: manifest.producer.clone(),
            source: manifest.source.clone(),
            target: manifest.target.clone(),
            opset: manifest.opset,
            precision: manifest.precision,
            calibration: manifest.calibration.clone(),
            passes,
        }
    }
}
