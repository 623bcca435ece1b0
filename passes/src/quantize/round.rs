//! Weights that are rounded with data, and the mean errors of layers.

use std::collections::BTreeMap;

use planish_ir::{DType, Graph, NodeId, Op, Weight};
use rayon::prelude::*;

use super::gptq::{CodeGrid, Gptq};
use super::sites::{Site, name, sites};
use super::trial::{matrix, product, quantize_rows};
use super::weights::{WeightScales, scales};
use super::{Activation, Plan, Quantization, RoundedWeight, tables};
use crate::PassError;
use crate::calibration::{Gram, InputStatistics};

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

    /// The numbers that codes stand for.
    fn numbers(&self, codes: &[i8]) -> Vec<f32> {
        let rows = codes.chunks_exact(self.columns.max(1)).zip(&self.scales);
        rows.flat_map(|(row, scale)| row.iter().map(move |code| f32::from(*code) * scale)).collect()
    }

    fn nearest(&self) -> Vec<i8> {
        let rows = self.rows.chunks_exact(self.columns.max(1)).zip(&self.scales);
        rows.flat_map(|(row, scale)| row.iter().map(move |w| (w / scale).round_ties_even().clamp(-127.0, 127.0) as i8))
            .collect()
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

    /// Corrects the biases of layers by their mean errors: on the rows that calibration sampled, and for the difference
    /// between the means of these rows and those of all rows.
    ///
    /// # Errors
    /// When a weight cannot be read.
    pub fn correct_biases(
        &mut self,
        graph: &Graph,
        statistics: &BTreeMap<String, InputStatistics>,
    ) -> Result<(), PassError> {
        let planned: Vec<(Site, Activation, &InputStatistics)> = self
            .plan
            .inputs
            .iter()
            .filter_map(|input| {
                let (site, activation) = site(graph, &self.plan, &input.value)?;
                Some((site, activation, statistics.get(&input.value).filter(|s| !s.rows.is_empty())?))
            })
            .collect();
        let one = |(site, activation, statistics): &(Site, Activation, &InputStatistics)| {
            let mut corrections = Vec::new();
            for layer in &site.layers {
                let correction = self.correction(graph, site, *layer, activation, statistics)?;
                corrections.push((name(graph, *layer).to_owned(), correction));
            }
            Ok(corrections)
        };
        let all = planned.par_iter().map(one).collect::<Result<Vec<_>, PassError>>()?;
        self.corrections = all.into_iter().flatten().collect();
        Ok(())
    }

    fn correction(
        &self,
        graph: &Graph,
        site: &Site,
        layer: NodeId,
        activation: &Activation,
        statistics: &InputStatistics,
    ) -> Result<Vec<f32>, PassError> {
        let columns = site.columns;
        let exact = matrix(graph, layer)?;
        let smoothed = Smoothed::new(graph, layer, activation.smooth(), columns, self.weight_scales)?;
        let codes = match self.rounded.get(name(graph, layer)).map(|rounded| rounded.codes.read()) {
            Some(Ok(bytes)) => bytes.into_iter().map(u8::cast_signed).collect(),
            _ => smoothed.nearest(),
        };
        let quantized = smoothed.numbers(&codes);
        let rows = statistics.rows.matrix();
        let count = statistics.rows.len().max(1) as f64;
        let mut rounded = rows.clone();
        quantize_rows(activation, &mut rounded, columns);
        let mean = |rows: &[f32]| -> Vec<f64> {
            let mut sums = vec![0f64; columns];
            for row in rows.chunks_exact(columns.max(1)) {
                sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
            }
            sums.into_iter().map(|sum| sum / count).collect()
        };
        let (sampled, given) = (mean(&rows), mean(&rounded));
        let all = statistics.means();
        // The mean of the input, and of what its codes stand for, in the units of the weights.
        let factors = activation.smooth();
        let factor = |column: usize| factors.get(column).map_or(1.0, |factor| f64::from(*factor));
        let given: Vec<f32> = (0..columns).map(|j| (given[j] + (all[j] - sampled[j]) / factor(j)) as f32).collect();
        let wanted: Vec<f32> = all.iter().map(|x| *x as f32).collect();
        let (wanted, given) = (product(&wanted, &exact, columns), product(&given, &quantized, columns));
        Ok(wanted.iter().zip(&given).map(|(a, b)| a - b).collect())
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
