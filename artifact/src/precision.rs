//! The precision of an artifact.

use std::fmt;

use planish_ir::DType;
use planish_passes::Half;
use serde::{Deserialize, Serialize};

/// The type that the weights of an artifact are stored in, and that it computes in where its target has kernels for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PrecisionName {
    /// float32.
    #[serde(rename = "f32")]
    F32,
    /// float16.
    #[serde(rename = "fp16")]
    F16,
    /// bfloat16.
    #[serde(rename = "bf16")]
    Bf16,
}

impl PrecisionName {
    /// The element type.
    #[must_use]
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
            Self::Bf16 => DType::Bf16,
        }
    }
}

impl From<Half> for PrecisionName {
    fn from(half: Half) -> Self {
        match half {
            Half::F16 => Self::F16,
            Half::Bf16 => Self::Bf16,
        }
    }
}

impl fmt::Display for PrecisionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "fp16",
            Self::Bf16 => "bf16",
        })
    }
}
