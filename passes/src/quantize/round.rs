//! Weights that are rounded with data.

use planish_ir::{DType, Graph, NodeId, Op, Weight};

use super::gptq::{CodeGrid, Gptq};
use super::sites::{Site, name, sites};
use super::trial::matrix;
use super::weights::{WeightScales, scales};
use super::{Activation, Plan, Quantization, RoundedWeight, tables};
use crate::PassError;
use crate::calibration::Gram;

/// A layer's weight in the units of its quantized input: [features, columns] with the smoothing factors in it.
struct Smoothed {
    rows: Vec<f32>,
    scales: Vec<f32>,
    columns: usize,
}

impl Smoothed {
    fn new(
        graph: &Graph,
        layer: NodeId,
        factors: &[f32],
        columns: usize,
        how: WeightScales,
    ) -> Result<Self, PassError> {
        let mut rows = matrix(graph, layer)?;
        for row in rows.chunks_exact_mut(columns.max(1)) {
            row.iter_mut().zip(factors).for_each(|(w, factor)| *w *= factor);
        }
        let failed = |source| PassError::of_weight(graph, graph.node(layer).outputs[0], source);
        let numbers: Vec<f64> = rows.iter().copied().map(f64::from).collect();
        let features = rows.len() / columns.max(1);
        let Some(weight) = Weight::numbers(DType::F32, vec![features, columns], &numbers) else {
            return Ok(Self { rows, scales: Vec::new(), columns });
        };
        let scales = scales(&weight, 0, DType::I8, how).and_then(|s| s.read_numbers()).map_err(failed)?;
        Ok(Self { rows, scales: scales.into_iter().map(|s| s as f32).collect(), columns })
    }
}

impl Quantization {
    /// Rounds the weights of the layers of an input with GPTQ, by the sum of outer products of its rows as they are
    /// quantized.
    ///
    /// # Errors
    /// When a weight cannot be read.
    pub fn round_weights(&mut self, graph: &Graph, value: &str, products: &Gram) -> Result<(), PassError> {
        let Some((site, activation)) = site(graph, &self.plan, value) else { return Ok(()) };
        let gptq = Gptq::new(&products.matrix(), site.columns);
        for layer in &site.layers {
            if self.is_shared(graph, *layer) {
                continue;
            }
            let weight = Smoothed::new(graph, *layer, activation.smooth(), site.columns, self.weight_scales)?;
            let grid = CodeGrid::by_row(&weight.scales, self.weight_scales.largest_code(DType::I8));
            let codes = gptq.round(&weight.rows, &grid);
            // They are at most 127.
            let codes: Vec<i8> = codes.into_iter().map(|code| code as i8).collect();
            self.set_codes(name(graph, *layer), &weight, &codes);
        }
        Ok(())
    }

    /// Whether a layer takes the codes of a table: data says nothing of what is looked up.
    fn is_shared(&self, graph: &Graph, layer: NodeId) -> bool {
        match &graph.node(layer).op {
            Op::Linear(linear) => tables::is_shared(graph, &self.plan, linear),
            _ => false,
        }
    }

    fn set_codes(&mut self, layer: &str, weight: &Smoothed, codes: &[i8]) {
        let features = weight.scales.len();
        let bytes: Vec<u8> = codes.iter().map(|code| code.cast_unsigned()).collect();
        let scales: Vec<f64> = weight.scales.iter().copied().map(f64::from).collect();
        let codes = Weight::inline(DType::I8, vec![features, weight.columns], bytes);
        if let (Some(codes), Some(scales)) = (codes, Weight::numbers(DType::F32, vec![features], &scales)) {
            self.rounded.insert(layer.to_owned(), RoundedWeight { codes, scales });
        }
    }
}

/// The site of a value that is quantized with a scale that was calibrated.
fn site(graph: &Graph, plan: &Plan, value: &str) -> Option<(Site, Activation)> {
    let input = plan.inputs.iter().find(|input| input.value == value)?;
    let codes = input.activation.codes()?;
    let calibrated = matches!(input.activation, Activation::Static { .. }) && matches!(codes, DType::U8 | DType::I8);
    let site = sites(graph).into_iter().find(|site| graph.value(site.value).name == value)?;
    calibrated.then(|| (site, input.activation.clone()))
}
