//! How a model is quantized: from options and a calibration to what passes apply to each part.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_ir::Graph;
use planish_passes::CalibrationTable;
use planish_passes::quantize::{Plan, Quantization, Settings, WeightScales};
use serde::{Deserialize, Serialize};

use crate::artifact::manifest::Manifest;
use crate::calibrate::Calibration;
use crate::files;

/// How a model is quantized.
#[derive(Clone, Debug)]
pub struct QuantizeOptions {
    /// What the plan follows.
    pub settings: Settings,
    /// How the scales of weights are chosen.
    pub weight_scales: WeightScales,
    /// The plans of the parts, by their names; planned by the settings where absent.
    pub plans: Option<BTreeMap<String, Plan>>,
}

impl QuantizeOptions {
    /// With the defaults beside the settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings, weight_scales: WeightScales::default(), plans: None }
    }

    /// What is done to a part whose graph has been raised. Scales are those of each run without a calibration.
    ///
    /// # Errors
    /// When a weight cannot be read.
    pub fn quantization(&self, part: &str, graph: &Graph, calibration: Option<&Calibration>) -> Result<Quantization> {
        let given = self.plans.as_ref().map(|plans| plans.get(part).cloned().unwrap_or_default());
        let plan = match given {
            Some(plan) => plan,
            None => {
                let of_part = |table: &CalibrationTable| {
                    let inputs = table.inputs().find(|(name, _)| *name == part);
                    inputs.map(|(_, inputs)| inputs.clone()).unwrap_or_default()
                };
                let inputs = calibration.map(|calibration| of_part(calibration.table()));
                Plan::new(graph, &self.settings, inputs.as_ref())?
            }
        };
        Ok(Quantization { plan, weight_scales: self.weight_scales, ..Quantization::default() })
    }
}

/// What a file of plans says it is.
const FORMAT: &str = "planish-quantization-plan";

/// The version of this format.
const SCHEMA: u32 = 1;

/// The plans of a model's parts as a file. It may be edited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanDocument {
    format: String,
    schema: u32,
    producer: String,
    /// By the names of the parts.
    pub parts: BTreeMap<String, Plan>,
}

impl PlanDocument {
    /// The plans of parts.
    #[must_use]
    pub fn new(parts: BTreeMap<String, Plan>) -> Self {
        Self { format: FORMAT.to_owned(), schema: SCHEMA, producer: Manifest::producer(), parts }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// When the file cannot be read or has another format.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let wrong =
            || format!("{} is not a quantization plan of this version; --quantization-plan writes one", path.display());
        let document: Self = serde_json::from_str(&text).with_context(wrong)?;
        if (document.format.as_str(), document.schema) != (FORMAT, SCHEMA) {
            bail!("{}: it is of format {}, schema {}", wrong(), document.format, document.schema);
        }
        Ok(document)
    }

    /// Writes it.
    ///
    /// # Errors
    /// When that is impossible.
    pub fn write(&self, path: &Path) -> Result<()> {
        files::write(path, (serde_json::to_string_pretty(self)? + "\n").as_bytes())
    }
}
