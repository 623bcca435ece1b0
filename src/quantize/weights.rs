//! How the weights of a model are quantized while activations stay floats.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use planish_ir::Graph;
use planish_passes::quantize::{WeightPlan, WeightQuantization, WeightSettings};
use planish_passes::{BlockInputs, Target};

use crate::calibrate::CalibrateOptions;
use crate::source::SourceModel;

/// How weights are quantized.
#[derive(Clone, Debug)]
pub struct WeightOptions {
    /// What the plan follows.
    pub settings: WeightSettings,
    /// What ONNX Runtime multiplies the weights with.
    pub inputs: BlockInputs,
    /// The data of a method that takes some, and how it is run.
    pub data: Option<(PathBuf, Box<CalibrateOptions>)>,
}

impl WeightOptions {
    /// Without data.
    #[must_use]
    pub fn new(settings: WeightSettings) -> Self {
        Self { settings, inputs: BlockInputs::default(), data: None }
    }

    /// What is done to the weights of a part whose graph has been raised.
    ///
    /// # Errors
    /// When a weight cannot be read, or the model cannot be run on the data.
    pub fn quantization(
        &self,
        _model: &SourceModel,
        _part: &str,
        graph: &Graph,
        target: &Target,
    ) -> Result<Arc<WeightQuantization>> {
        let plan = WeightPlan::new(graph, &self.settings, target);
        Ok(Arc::new(WeightQuantization { plan, ..WeightQuantization::default() }))
    }
}
