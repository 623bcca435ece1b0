//! How the weights of a model are quantized while activations stay floats.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use planish_ir::Graph;
use planish_passes::quantize::{WeightPlan, WeightQuantization, WeightSettings};
use planish_passes::{BlockInputs, Target};

use super::Quiet;
use crate::calibrate::{CalibrateOptions, InputName, ProductOptions, products};
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
        model: &SourceModel,
        part: &str,
        graph: &Graph,
        target: &Target,
    ) -> Result<Arc<WeightQuantization>> {
        let plan = WeightPlan::new(graph, &self.settings, target);
        let mut quantization = WeightQuantization { plan, ..WeightQuantization::default() };
        if let Some((data, run)) = &self.data {
            let inputs: Vec<InputName> =
                quantization.inputs(graph).into_iter().map(|value| (part.to_owned(), value)).collect();
            let wanted = ProductOptions { inputs: &inputs, transform: &|_, _, _, _| {} };
            products(model, data, run, &wanted, &Quiet, &mut |_, value, gram| {
                Ok(quantization.choose(graph, value, &gram, target)?)
            })?;
        }
        Ok(Arc::new(quantization))
    }
}
