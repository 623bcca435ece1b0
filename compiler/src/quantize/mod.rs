//! How a model is quantized: from options and a calibration to what passes apply to each part.

mod candidates;
mod document;
mod progress;
mod spill;
mod weights;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use planish_ir::Graph;
use planish_passes::quantize::{
    Activation, Plan, PlannedInput, Quantization, Settings, Site, WeightScales, quantize_rows, sites,
};

use crate::calibrate::{CalibrateOptions, Calibration, InputName, ProductOptions, products};
use crate::compile::Observer;
use crate::source::SourceModel;
use progress::{Progress, operations};
use spill::Spill;

pub use candidates::Quantizations;
pub use candidates::{BY_LIMITS, Candidate, LAYERS, Place};
pub use document::read_plans;
pub use progress::QuantizeProgress;
pub use weights::WeightOptions;

/// How a model is quantized.
#[derive(Clone, Debug)]
pub struct QuantizeOptions {
    /// What the plan follows.
    pub settings: Settings,
    /// How the scales of weights are chosen.
    pub weight_scales: WeightScales,
    /// How weights are rounded.
    pub rounding: Rounding,
    /// The plans of the parts, by their names; planned by the settings where absent.
    pub plans: Option<BTreeMap<String, Plan>>,
    /// The parts whose quantization is known, by their names: nothing else decides then.
    pub known: BTreeMap<String, Arc<Quantization>>,
}

/// How weights are rounded to codes.
#[derive(Clone, Debug)]
pub enum Rounding {
    /// To the nearest code.
    Nearest,
    /// With GPTQ, on this data.
    Gptq(PathBuf, Box<CalibrateOptions>),
}

impl QuantizeOptions {
    /// With the defaults beside the settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            weight_scales: WeightScales::default(),
            rounding: Rounding::Nearest,
            plans: None,
            known: BTreeMap::new(),
        }
    }

    /// The same, where these weights stay floats: by their names, and why.
    #[must_use]
    pub fn without(&self, not_finite: &BTreeMap<String, String>) -> Self {
        let settings = Settings { not_finite: not_finite.clone(), ..self.settings.clone() };
        Self { settings, ..self.clone() }
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
        observer: &dyn Observer,
    ) -> Result<Arc<Quantization>> {
        if let Some(known) = self.known.get(part) {
            return Ok(known.clone());
        }
        let inputs = calibration.map(|calibration| {
            let inputs = calibration.table().inputs().find(|(name, _)| *name == part);
            inputs.map(|(_, inputs)| inputs.clone()).unwrap_or_default()
        });

        let mut plan = match &self.plans {
            Some(plans) => {
                let parts = || plans.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                let plan = plans.get(part).cloned();
                let mut plan = plan.ok_or_else(|| anyhow!("the plan has no part `{part}`; it has {}", parts()))?;
                plan.check(graph, &self.settings).context(
                    "the quantization plan does not fit; take the planish.json of an artifact of this model, target and recipe",
                )?;
                plan
            }
            None => Plan::new(graph, &self.settings, inputs.as_ref())?,
        };
        plan.measure(graph, inputs.as_ref().unwrap_or(&BTreeMap::new()))?;
        let mut quantization = Quantization { plan, weight_scales: self.weight_scales, ..Quantization::default() };
        if let Rounding::Gptq(data, options) = &self.rounding {
            round(&mut quantization, model, part, graph, (data, options), observer)?;
        }
        Ok(Arc::new(quantization))
    }
}

/// Rounds the weights of a part with GPTQ.
fn round(
    quantization: &mut Quantization,
    model: &SourceModel,
    part: &str,
    graph: &Graph,
    (data, options): (&Path, &CalibrateOptions),
    observer: &dyn Observer,
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
    let wanted = ProductOptions { inputs: &inputs, transform: &transform, experts: &[] };
    // Codes of a layer do not stay in memory while those of the next one are chosen.
    let mut spill = Spill::default();
    let work = work(graph);
    let progress = Progress::new(observer, inputs.len(), inputs.iter().filter_map(|(_, value)| work.get(value)).sum());
    products(model, data, options, &wanted, &progress, &mut |_, value, gram| {
        quantization.round_weights(graph, value, &gram)?;
        spill.take(quantization.rounded.values_mut().map(|rounded| &mut rounded.codes))?;
        progress.chosen(work.get(value).copied().unwrap_or_default());
        Ok(())
    })?;
    Ok(())
}

/// The operations that the layers of each input take, by its name.
fn work(graph: &Graph) -> BTreeMap<String, f64> {
    let of = |site: &Site| {
        let results = site.layers.iter().map(|layer| graph.node(*layer).outputs[0]);
        let features = results.filter_map(|result| graph.ty(result).shape.last()?.as_constant());
        let features = features.filter_map(|features| usize::try_from(features).ok()).sum();
        (graph.value(site.value).name.clone(), operations(site.columns, features))
    };
    sites(graph).iter().map(of).collect()
}
