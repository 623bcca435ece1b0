//! `planish.json`: what an artifact is and how it came about. Nothing in it depends on when it was written, and
//! of where only the way from the artifact to its source, so that the same input in the same places gives the same bytes.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_ir::DType;
use planish_onnx::ImportOptions;
use planish_passes::{Half, Logits, Target};
use serde::{Deserialize, Serialize};

use crate::artifact::MANIFEST;
use crate::artifact::package::RuntimePackage;
use crate::artifact::precision::PartPrecision;
use crate::verify::Report;

/// The version of this format.
const SCHEMA: u32 = 3;

/// The oldest version that is read: in it all sizes are strings.
const OLDEST: u32 = 2;

/// The manifest of an artifact.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of this format.
    pub schema: u32,
    /// The tool and its version.
    pub producer: String,
    /// What was compiled.
    pub source: Source,
    /// The architecture's `model_type`.
    pub architecture: String,
    /// The task, by Optimum's name; absent where an ONNX graph does not say.
    pub task: Option<String>,
    /// What it was compiled for.
    pub target: String,
    /// The ONNX opset.
    pub opset: u32,
    /// The type that weights are stored in, and where the target has kernels computed in: `f32`, `fp16`, `bf16`.
    pub precision: String,
    /// The data that decided what stays in float32, if any did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub calibration: Option<CalibratedOn>,
    /// Whether operators were kept whole where the target has fused kernels.
    pub fusion: bool,
    /// The library that the artifact is laid out for.
    #[serde(default)]
    pub runtime_package: RuntimePackage,
    /// The files that make up the model, each ONNX graph before its data.
    pub files: Vec<File>,
    /// Weight files of the source that the model points into.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub linked: Vec<String>,
    /// Configuration and tokenizer files: copied from the source, or written for the library.
    pub companions: Vec<String>,
    /// The number of parameters, those that are tied or that parts share counted once.
    pub parameters: u64,
    /// The graphs, in the order in which one takes what others give.
    pub parts: Vec<Part>,
    /// The id that pads short sequences, where the configuration has one.
    pub pad_token_id: Option<i64>,
    /// The longest sequence, in tokens; absent where the model takes none or has no limit.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_sequence_length: Option<usize>,
    /// The length in tokens at which a text is read anew as a whole instead of going on from the cache;
    /// absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub recompute_at: Option<usize>,
    /// How the artifact compared with its source, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verification: Option<Report>,
}

/// What a model was run on to see where its values lie.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CalibratedOn {
    /// The data set.
    pub data: File,
    /// How many samples of it were run.
    pub samples: usize,
}

/// A graph of the model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Part {
    /// The name of its file, without `.onnx`.
    pub name: String,
    /// The inputs, in order.
    pub inputs: Vec<Input>,
    /// The outputs, in order.
    pub outputs: Vec<Port>,
    /// The passes that ran, in order.
    pub passes: Vec<AppliedPass>,
    /// How it was brought to half precision, where it was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub precision: Option<PartPrecision>,
    /// How many of each operator that raising finds the graph has, before it is lowered.
    pub raised: BTreeMap<String, usize>,
    /// Its vocabulary, where that was to be padded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub vocabulary: Option<Vocabulary>,
}

/// A vocabulary and what was made of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vocabulary {
    /// The number of tokens.
    pub size: usize,
    /// The rows of the tables of tokens and of the head in the graph.
    pub padded: usize,
    /// What the scores of tokens look like outside, `sliced` or `padded`; absent where there are none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub logits: Option<String>,
}

impl Part {
    /// The vocabulary, where scores are given for all of its rows.
    #[must_use]
    pub fn padded_logits(&self) -> Option<&Vocabulary> {
        self.vocabulary.as_ref().filter(|v| v.logits.as_deref() == Some(Logits::Padded.name()))
    }
}

/// What was compiled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Source {
    /// The checkpoint's name.
    pub name: String,
    /// The way to it from the artifact's folder; absent where there is none that text can say.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub path: Option<String>,
    /// The files that decide what the model is.
    pub files: Vec<File>,
    /// What of an ONNX graph was taken, if not all as it is.
    #[serde(skip_serializing_if = "ImportOptions::is_empty", default)]
    pub import: ImportOptions,
}

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its name, without folders.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// The BLAKE3 digest of its contents, in hexadecimal. Absent for weight files of which nothing
    /// was read, being linked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub blake3: Option<String>,
}

impl File {
    /// Whether this and another record may be of the same file: they are unless digests differ,
    /// which not all records have.
    #[must_use]
    pub fn may_be(&self, other: &Self) -> bool {
        let differ = self.blake3.as_ref().zip(other.blake3.as_ref()).is_some_and(|(own, other)| own != other);
        self.name == other.name && self.bytes == other.bytes && !differ
    }
}

/// Name and type of an output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Port {
    /// The name.
    pub name: String,
    /// The element type, e.g. `f32`; of what is no tensor of a known number of dimensions the type, e.g.
    /// `seq(f32[2])` or `f32[*]`.
    pub dtype: String,
    /// Its dimensions; none where the type is no element type.
    pub shape: Vec<Size>,
}

impl Port {
    /// The type as text, e.g. `f32[batch_size, 12]`.
    #[must_use]
    pub fn type_text(&self) -> String {
        let sizes: Vec<String> = self.shape.iter().map(Size::to_string).collect();
        match self.dtype.parse::<DType>() {
            Ok(_) => format!("{}[{}]", self.dtype, sizes.join(", ")),
            Err(_) => self.dtype.clone(),
        }
    }
}

/// The size of a dimension: in JSON a number where it is known, else a string.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, from = "WrittenSize")]
pub enum Size {
    /// A size that is the same in every run.
    Known(u64),
    /// The name of a size that a run decides, or a sum of such names and numbers.
    Open(String),
}

impl Size {
    /// The name of a size that a run decides.
    #[must_use]
    pub fn symbol(&self) -> Option<&str> {
        match self {
            Self::Known(_) => None,
            Self::Open(symbol) => Some(symbol),
        }
    }

    /// The size, where it is the same in every run.
    #[must_use]
    pub fn known(&self) -> Option<usize> {
        match self {
            Self::Known(size) => usize::try_from(*size).ok(),
            Self::Open(_) => None,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(size) => write!(f, "{size}"),
            Self::Open(symbol) => f.write_str(symbol),
        }
    }
}

/// A size as it stands in JSON.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenSize {
    Number(u64),
    Text(String),
}

impl From<WrittenSize> for Size {
    fn from(written: WrittenSize) -> Self {
        match written {
            WrittenSize::Number(size) => Self::Known(size),
            WrittenSize::Text(text) => text.into(),
        }
    }
}

impl From<String> for Size {
    /// A number is a known size.
    fn from(text: String) -> Self {
        text.parse().map_or(Self::Open(text), Self::Known)
    }
}

/// An input, and which integers it takes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Input {
    /// Name and type.
    #[serde(flatten)]
    pub port: Port,
    /// The first integer from 0 on that it does not take; absent for real numbers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end: Option<i64>,
}

/// A pass that ran.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AppliedPass {
    /// Its name.
    pub name: String,
    /// How many places it changed.
    pub changed: usize,
}

impl Manifest {
    /// Whether the artifact computes in bfloat16.
    #[must_use]
    pub fn computes_in_bfloat16(&self) -> bool {
        self.computes_in_half() && self.precision == Half::Bf16.to_string()
    }

    /// Whether the artifact computes in half precision, and not only stores weights in it.
    #[must_use]
    pub fn computes_in_half(&self) -> bool {
        let half = Target::find(&self.target).is_ok_and(|target| !target.computes_in_float32);
        half && self.precision != "f32"
    }

    /// The version of this format.
    #[must_use]
    pub fn schema() -> u32 {
        SCHEMA
    }

    /// The tool and its version.
    #[must_use]
    pub fn producer() -> String {
        concat!("planish ", env!("CARGO_PKG_VERSION")).to_owned()
    }

    /// Reads the manifest of an artifact.
    ///
    /// # Errors
    /// When the folder has none, or one of another version.
    pub fn read(folder: &Path) -> Result<Self> {
        if !folder.exists() {
            bail!("there is no folder {}; an artifact is made with `planish compile`", folder.display());
        }
        if folder.is_file() {
            bail!("{} is a file; an artifact is named by its folder", folder.display());
        }
        let path = folder.join(MANIFEST);
        let text = fs::read_to_string(&path).with_context(|| {
            let folder = folder.display();
            format!("{folder} is no artifact, make one with `planish compile`: cannot read its {MANIFEST}")
        })?;
        let manifest: Self = serde_json::from_str(&text).with_context(|| {
            format!("{} is no manifest that this version reads; compile the model again", path.display())
        })?;
        if !(OLDEST..=SCHEMA).contains(&manifest.schema) {
            bail!(
                "{} is of schema {}, this version reads {OLDEST} to {SCHEMA}; compile the model again",
                path.display(),
                manifest.schema
            );
        }
        Ok(manifest)
    }

    /// Writes the manifest into an artifact.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(MANIFEST);
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_sizes_are_numbers_and_were_strings() {
        let port = |shape: &str| -> Port {
            serde_json::from_str(&format!(r#"{{"name": "x", "dtype": "f32", "shape": {shape}}}"#)).unwrap()
        };
        let new = port(r#"["batch_size", 128, "past + 1"]"#);
        let old = port(r#"["batch_size", "128", "past + 1"]"#);
        assert_eq!(new.shape, old.shape);
        assert_eq!(new.shape[1], Size::Known(128));
        assert_eq!(old.type_text(), "f32[batch_size, 128, past + 1]");
        let written = serde_json::to_string(&old).unwrap();
        assert_eq!(written, r#"{"name":"x","dtype":"f32","shape":["batch_size",128,"past + 1"]}"#);
        serde_json::from_str::<Size>("-1").unwrap_err();
        serde_json::from_str::<Size>("1.5").unwrap_err();
    }
}
