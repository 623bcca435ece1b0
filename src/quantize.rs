//! How a model is quantized: from options and a calibration to what passes apply to each part.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_ir::Graph;
use planish_passes::quantize::{Activation, Plan, PlannedInput, Quantization, Settings, WeightScales, quantize_rows};
use serde::{Deserialize, Serialize};

use crate::artifact::manifest::Manifest;
use crate::calibrate::{CalibrateOptions, Calibration, CalibrationObserver, InputName, ProductOptions, products};
use crate::files;
use crate::source::SourceModel;

/// How a model is quantized.
#[derive(Clone, Debug)]
pub struct QuantizeOptions {
    /// What the plan follows.
    pub settings: Settings,
    /// How the scales of weights are chosen.
    pub weight_scales: WeightScales,
    /// How weights are rounded.
    pub rounding: Rounding,
    /// Whether the mean errors of layers are taken out of their biases. On MiniLM that changed nothing beyond noise.
    pub correct_biases: bool,
    /// The plans of the parts, by their names; planned by the settings where absent.
    pub plans: Option<BTreeMap<String, Plan>>,
}

/// How weights are rounded to codes.
#[derive(Clone, Debug)]
pub enum Rounding {
    /// To the nearest code.
    Nearest,
    /// With GPTQ, on this data.
    Gptq(PathBuf, Box<CalibrateOptions>),
}

/// Says nothing: the data was run before.
struct Quiet;

impl CalibrationObserver for Quiet {
    fn warning(&self, _: &str) {}
    fn progress(&self, _: usize, _: usize) {}
}

impl QuantizeOptions {
    /// With the defaults beside the settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            weight_scales: WeightScales::default(),
            rounding: Rounding::Nearest,
            correct_biases: false,
            plans: None,
        }
    }

    /// What is done to a part whose graph has been raised. Scales are those of each run without a calibration.
    ///
    /// # Errors
    /// When a weight cannot be read or, with GPTQ, the model cannot be run on the data.
    pub fn quantization(
        &self,
        model: &SourceModel,
        part: &str,
        graph: &Graph,
        calibration: Option<&Calibration>,
    ) -> Result<Quantization> {
        let inputs = calibration.map(|calibration| {
            let inputs = calibration.table().inputs().find(|(name, _)| *name == part);
            inputs.map(|(_, inputs)| inputs.clone()).unwrap_or_default()
        });

        let given = self.plans.as_ref().map(|plans| plans.get(part).cloned().unwrap_or_default());
        let plan = match given {
            Some(plan) => plan,
            None => Plan::new(graph, &self.settings, inputs.as_ref())?,
        };
        let mut quantization = Quantization { plan, weight_scales: self.weight_scales, ..Quantization::default() };
        if let Rounding::Gptq(data, options) = &self.rounding {
            round(&mut quantization, model, part, graph, (data, options))?;
        }
        if let Some(inputs) = inputs.filter(|_| self.correct_biases) {
            quantization.correct_biases(graph, &inputs)?;
        }
        Ok(quantization)
    }
}

/// Rounds the weights of a part with GPTQ.
fn round(
    quantization: &mut Quantization,
    model: &SourceModel,
    part: &str,
    graph: &Graph,
    (data, options): (&Path, &CalibrateOptions),
) -> Result<()> {
    let plan = quantization.plan.clone();
    let planned: BTreeMap<&str, &Activation> =
        plan.inputs.iter().map(|input| (input.value.as_str(), &input.activation)).collect();
    let is_static = |input: &&PlannedInput| matches!(input.activation, Activation::Static { .. });
    let inputs: Vec<InputName> =
        plan.inputs.iter().filter(is_static).map(|input| (part.to_owned(), input.value.clone())).collect();
    let transform = |_: &str, value: &str, rows: &mut [f32], columns: usize| {
        if let Some(activation) = planned.get(value) {
            quantize_rows(activation, rows, columns);
        }
    };
    let wanted = ProductOptions { inputs: &inputs, transform: &transform };
    products(model, data, options, &wanted, &Quiet, &mut |_, value, gram| {
        Ok(quantization.round_weights(graph, value, &gram)?)
    })
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
