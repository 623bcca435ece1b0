//! What graphs are compiled for.

use std::fmt;
use std::str::FromStr;

use planish_ir::DType;

/// A consumer of compiled graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Any ONNX runtime: operators of the standard domain only.
    Onnx,
    /// ONNX Runtime's CPU provider.
    Ort,
    /// ONNX Runtime's CUDA provider.
    OrtCuda,
}

/// The targets by name, each with a line about it.
const TARGETS: &[(&str, Target, &str)] = &[
    ("onnx", Target::Onnx, "any ONNX runtime: standard operators only"),
    ("ort", Target::Ort, "ONNX Runtime, CPU provider: the forms measured to be fastest there"),
    ("ort-cuda", Target::OrtCuda, "ONNX Runtime, CUDA provider: operators that it documents kernels for"),
];

/// Targets to come.
const PLANNED: &[&str] = &["trt", "cuda"];

/// A name is no target.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` is {}; there are {}", if PLANNED.contains(&name.as_str()) { "not there yet" } else { "no target" }, names().join(", "))]
pub struct UnknownTarget {
    /// The name.
    name: String,
}

fn names() -> Vec<&'static str> {
    TARGETS.iter().map(|t| t.0).collect()
}

impl Target {
    /// Every target.
    pub fn all() -> impl Iterator<Item = Target> {
        TARGETS.iter().map(|t| t.1)
    }

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Target::Onnx => "onnx",
            Target::Ort => "ort",
            Target::OrtCuda => "ort-cuda",
        }
    }

    /// Whether it computes in float32 whatever the weights are stored in: it has no half kernels worth using.
    #[must_use]
    pub fn computes_in_float32(self) -> bool {
        self == Target::Ort
    }

    /// A line about it.
    #[must_use]
    pub fn summary(self) -> &'static str {
        TARGETS.iter().find(|t| t.1 == self).map_or("", |t| t.2)
    }
}

impl Target {
    /// What vocabularies are padded to a multiple of, where nothing else is asked for.
    #[must_use]
    pub fn vocabulary_multiple(self) -> Option<usize> {
        match self {
            Target::Onnx | Target::Ort => None,
            Target::OrtCuda => Some(64),
        }
    }

    /// What the features of linear layers should be a multiple of, for the kernels of an element type.
    #[must_use]
    pub fn alignment(self, dtype: DType) -> usize {
        match (self, dtype) {
            (Target::OrtCuda, DType::F16 | DType::Bf16) => 8,
            (Target::OrtCuda, DType::F32) => 4,
            _ => 1,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Target {
    type Err = UnknownTarget;
    fn from_str(text: &str) -> Result<Self, UnknownTarget> {
        TARGETS.iter().find(|t| t.0 == text).map(|t| t.1).ok_or_else(|| UnknownTarget { name: text.to_owned() })
    }
}
