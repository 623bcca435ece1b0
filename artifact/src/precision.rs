//! The report on half precision, in `planish.json` and as text.

use std::collections::BTreeMap;
use std::fmt;

use planish_ir::DType;
use planish_passes::Half;
use planish_passes::precision::{HalfReport, Kept, Loss};
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

/// How a graph was brought to half precision.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartPrecision {
    /// The share of floating-point operations in products that compute in half precision, all symbolic
    /// dimensions being 128.
    pub flops: f64,
    /// The share of the weights' bytes that are stored in it.
    pub bytes: f64,
    /// The operators that stay in float32 because of their weights, their activations or a pattern.
    pub kept: Vec<KeptInFloat32>,
    /// Values that stay in half precision and were observed near the limit, and how large they are.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub near: BTreeMap<String, f64>,
    /// The weights in half precision with elements that underflow.
    pub losses: Vec<WeightLoss>,
}

/// Something that is kept in float32.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptInFloat32 {
    /// The name of an operator's first result, or of a weight.
    pub name: String,
    /// The operator, or `weight`.
    pub operator: String,
    /// Its origin.
    pub origin: String,
    /// The reason.
    pub reason: String,
}

/// The error of a weight in half precision.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WeightLoss {
    /// Its name.
    pub name: String,
    /// Its largest magnitude.
    pub max_abs: f64,
    /// How many of its elements other than 0 become 0.
    pub underflows: u64,
    /// How many elements it has.
    pub elements: u64,
}

impl From<&HalfReport> for PartPrecision {
    fn from(report: &HalfReport) -> Self {
        let kept = |kept: &Kept| KeptInFloat32 {
            name: kept.name.clone(),
            operator: kept.operator.clone(),
            origin: kept.origin.to_string(),
            reason: kept.reason.to_string(),
        };
        let loss = |loss: &Loss| WeightLoss {
            name: loss.name.clone(),
            max_abs: loss.max_abs,
            underflows: loss.underflows,
            elements: loss.elements,
        };
        Self {
            flops: report.flops,
            bytes: report.bytes,
            kept: report.kept.iter().map(kept).collect(),
            near: report.near.iter().cloned().collect(),
            losses: report.losses.iter().map(loss).collect(),
        }
    }
}

/// The most lines of one kind; planish.json has them all.
const MAX_LINES: usize = 12;

impl PartPrecision {
    /// Lines for a person, the first without the name of the precision; `computed` says whether the target
    /// computes in it.
    #[must_use]
    pub fn lines(&self, computed: bool) -> Vec<String> {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let mut lines = vec![match computed {
            true => format!(
                "{} of the operations of products, {} of the weights' bytes",
                percent(self.flops),
                percent(self.bytes)
            ),
            false => format!("{} of the weights' bytes are stored in it; computed in float32", percent(self.bytes)),
        }];
        let kept = |kept: &KeptInFloat32| {
            // Most go by the name of where they came from.
            let from = if kept.origin.contains(&kept.name) { String::new() } else { format!(" ({})", kept.origin) };
            format!("  float32: {} `{}`{from}: {}", kept.operator, kept.name, kept.reason)
        };
        lines.extend(self.kept.iter().take(MAX_LINES).map(kept));
        rest(&mut lines, self.kept.len(), "operators are kept in float32");
        let near = |(name, magnitude): (&String, &f64)| format!("  near the limit: `{name}` reaches {magnitude:.3e}");
        lines.extend(self.near.iter().take(MAX_LINES).map(near));
        rest(&mut lines, self.near.len(), "values are near the limit");
        let underflow = |loss: &WeightLoss| {
            format!(
                "  underflow: {} of {} elements of `{}` become 0; its largest is {:.1e}",
                loss.underflows, loss.elements, loss.name, loss.max_abs
            )
        };
        lines.extend(self.losses.iter().take(MAX_LINES).map(underflow));
        rest(&mut lines, self.losses.len(), "weights underflow");
        lines
    }
}

fn rest(lines: &mut Vec<String>, count: usize, what: &str) {
    if count > MAX_LINES {
        lines.push(format!("  {} more {what}; planish.json has them all", count - MAX_LINES));
    }
}
