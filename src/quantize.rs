//! How a model is quantized: from options and a calibration to what passes apply to each part.

use std::collections::BTreeMap;

use planish_ir::Graph;
use planish_passes::quantize::{Plan, Quantization, Settings, WeightScales};

use crate::calibrate::Calibration;

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
    #[must_use]
    pub fn quantization(&self, part: &str, graph: &Graph, calibration: Option<&Calibration>) -> Quantization {
        let given = self.plans.as_ref().map(|plans| plans.get(part).cloned().unwrap_or_default());
        let plan = given.unwrap_or_else(|| {
            let table = calibration.map(Calibration::table);
            let inputs = table.as_ref().map(|table| {
                table.inputs().find(|(name, _)| *name == part).map(|(_, inputs)| inputs.clone()).unwrap_or_default()
            });
            Plan::new(graph, &self.settings, inputs.as_ref())
        });
        Quantization { plan, weight_scales: self.weight_scales, ..Quantization::default() }
    }
}
