//! How the weights of a model are quantized while activations stay floats.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use planish_ir::Graph;
use planish_passes::quantize::{WeightPlan, WeightQuantization, WeightSettings};
use planish_passes::{QuantizedForm, Target};

use super::progress::Progress;
use super::spill::Spill;
use super::work;
use crate::calibrate::{CalibrateOptions, InputName, ProductOptions, products};
use crate::compile::Observer;
use crate::source::SourceModel;

/// How weights are quantized.
#[derive(Clone, Debug)]
pub struct WeightOptions {
    /// What the plan follows.
    pub settings: WeightSettings,
    /// The data of a method that takes some, and how it is run.
    pub data: Option<(PathBuf, Box<CalibrateOptions>)>,
    /// The parts whose weights are planned already, by their names: nothing else decides then.
    pub known: BTreeMap<String, Arc<WeightQuantization>>,
}

impl WeightOptions {
    /// Without data.
    #[must_use]
    pub fn new(settings: WeightSettings) -> Self {
        Self { settings, data: None, known: BTreeMap::new() }
    }

    /// The same, where these weights stay floats: by their names, and why.
    #[must_use]
    pub fn without(&self, not_finite: &BTreeMap<String, String>) -> Self {
        let settings = WeightSettings { not_finite: not_finite.clone(), ..self.settings.clone() };
        Self { settings, ..self.clone() }
    }

    /// Why the weights of a target cannot be quantized alone, if they cannot.
    #[must_use]
    pub fn refused(target: &Target) -> Option<String> {
        (target.quantized == QuantizedForm::Codes).then(|| {
            format!("target {target} has no products with weights of 4 or 8 bits and floats; choose another target")
        })
    }

    /// Why a target has no choice of what products take with weights that have a scale for each block, if it has none.
    #[must_use]
    pub fn level_refused(target: &Target) -> Option<String> {
        match (target.rounds_block_inputs(), target.has_block_operators()) {
            (true, _) => None,
            (false, true) => Some(format!(
                "--recipe accuracy-level is not for target {target}: ONNX Runtime's MatMulNBits for GPUs multiplies floats at every level; \
                 leave it out"
            )),
            (false, false) => Some(format!(
                "--recipe accuracy-level is not for target {target}, whose products are not MatMulNBits of ONNX Runtime; choose --target \
                 ort, or leave it out"
            )),
        }
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
        observer: &dyn Observer,
    ) -> Result<Arc<WeightQuantization>> {
        if let Some(known) = self.known.get(part) {
            return Ok(known.clone());
        }
        let plan = WeightPlan::new(graph, &self.settings, target);
        let mut quantization = WeightQuantization { plan, ..WeightQuantization::default() };
        if let Some((data, run)) = &self.data {
            let inputs: Vec<InputName> =
                quantization.inputs(graph).into_iter().map(|value| (part.to_owned(), value)).collect();
            let experts: Vec<_> =
                quantization.mixtures(graph).map(|[result, x]| (part.to_owned(), result, x)).collect();
            let wanted = ProductOptions { inputs: &inputs, transform: &|_, _, _, _| {}, experts: &experts };
            // Codes of a layer do not stay in memory while those of the next one are chosen.
            let mut spill = Spill::default();
            let work = work(graph);
            let operations = inputs.iter().filter_map(|(_, value)| work.get(value)).sum();
            let progress = Progress::new(observer, inputs.len(), operations);
            let uses = products(model, data, run, &wanted, &progress, &mut |_, value, gram| {
                quantization.choose(graph, value, &gram, target)?;
                spill.take(quantization.chosen.values_mut().flat_map(|chosen| {
                    [Some(&mut chosen.codes), Some(&mut chosen.scales), chosen.zero_points.as_mut()]
                        .into_iter()
                        .flatten()
                }))?;
                progress.chosen(work.get(value).copied().unwrap_or_default());
                Ok(())
            })?;
            quantization.of_experts = uses.into_iter().map(|((_, result), own)| (result, own.importance())).collect();
        }
        Ok(Arc::new(quantization))
    }
}
