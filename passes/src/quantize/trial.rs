//! What quantization does to the results of layers, on rows that calibration sampled.

use std::sync::Arc;

use gemm::{Parallelism, gemm};
use planish_eval::Codes;
use planish_ir::handle::Handle;
use planish_ir::ops::FakeQuantize;
use planish_ir::{DType, Graph, NodeId, Op, ValueId};

use super::{Activation, sites::Site, sites::layer, weight_codes, weights};
use crate::PassError;

/// The weights of the layers that take an input, and rows of the input.
pub(super) struct Trial {
    /// [rows, columns].
    rows: Vec<f32>,
    columns: usize,
    /// [features of all layers, columns].
    weights: Arc<[f32]>,
    /// The results, [rows, features].
    exact: Vec<f32>,
}

impl Trial {
    /// For the layers of a site and rows of its input.
    ///
    /// # Errors
    /// When a weight cannot be read.
    pub(super) fn new(graph: &Graph, site: &Site, rows: Vec<f32>) -> Result<Self, PassError> {
        let mut all = Vec::new();
        for id in &site.layers {
            all.extend(matrix(graph, *id)?);
        }
        let exact = product(&rows, &all, site.columns);
        Ok(Self { rows, columns: site.columns, weights: all.into(), exact })
    }

    /// For other rows of the input.
    pub(super) fn with_rows(&self, rows: Vec<f32>) -> Self {
        let exact = product(&rows, &self.weights, self.columns);
        Self { rows, columns: self.columns, weights: self.weights.clone(), exact }
    }

    /// The largest magnitude of the weights for each column.
    pub(super) fn weight_magnitudes(&self) -> Vec<f32> {
        let mut largest = vec![0f32; self.columns];
        for row in self.weights.chunks_exact(self.columns.max(1)) {
            largest.iter_mut().zip(row).for_each(|(a, w)| *a = a.max(w.abs()));
        }
        largest
    }

    /// The error of the results, relative to them: the mean over the rows of the ratio of the sums of squares. A few tokens
    /// have results many times as large as the rest, and would hide what becomes of the others in one ratio of all rows.
    pub(super) fn loss(&self, activation: &Activation) -> f64 {
        let weights = self.quantized_weights(activation);
        let given = product(&self.quantized_rows(activation), &weights, self.columns);
        let features = (self.weights.len() / self.columns.max(1)).max(1);
        let square = |sum: f64, x: f64| sum + x * x;
        let ratios =
            self.exact.chunks_exact(features).zip(given.chunks_exact(features)).filter_map(|(exact, given)| {
                let error = exact.iter().zip(given).map(|(a, b)| f64::from(a - b)).fold(0.0, square);
                let all = exact.iter().map(|x| f64::from(*x)).fold(0.0, square);
                (all > 0.0).then(|| error / all)
            });
        let (sum, count) = ratios.fold((0.0, 0usize), |(sum, count), ratio| (sum + ratio, count + 1));
        sum / count.max(1) as f64
    }

    /// The rows as their codes stand for them, smoothed.
    fn quantized_rows(&self, activation: &Activation) -> Vec<f32> {
        let mut rows = self.rows.clone();
        quantize_rows(activation, &mut rows, self.columns);
        rows
    }

    /// The weights as their codes stand for them, smoothed.
    fn quantized_weights(&self, activation: &Activation) -> Vec<f32> {
        let mut all = self.weights.to_vec();
        let codes = weight_codes(activation.codes().unwrap_or(DType::I8));
        for row in all.chunks_exact_mut(self.columns.max(1)) {
            row.iter_mut().zip(activation.smooth()).for_each(|(w, factor)| *w *= factor);
            let scale = row.iter().fold(0f32, |a, w| a.max(w.abs()))
                / f32::from(weights::WeightScales::MinMax.largest_code(codes));
            if scale > 0.0 && codes == DType::I8 {
                row.iter_mut().for_each(|w| *w = (*w / scale).round_ties_even() * scale);
            } else if scale > 0.0 {
                round_to(&FakeQuantize::new(ValueId::from_index(0), codes, f64::from(scale), 0), row, self.columns);
            }
        }
        all
    }
}

/// Divides rows by the smoothing factors, and rounds them to what their codes stand for.
pub fn quantize_rows(activation: &Activation, rows: &mut [f32], columns: usize) {
    if !activation.smooth().is_empty() {
        let factors: Vec<f32> = activation.smooth().iter().map(|factor| 1.0 / factor).collect();
        for row in rows.chunks_exact_mut(columns.max(1)) {
            row.iter_mut().zip(&factors).for_each(|(x, factor)| *x *= factor);
        }
    }
    if let Some(operator) = activation.operator(ValueId::from_index(0)) {
        round_to(&operator, rows, columns);
    }
}

/// Rounds rows to what the codes of an operator stand for.
fn round_to(operator: &FakeQuantize, rows: &mut [f32], columns: usize) {
    // The types of codes that a plan has are known.
    let _ = Codes::new(operator, columns).round(rows);
}

/// The weight of a layer, [out, in].
pub(super) fn matrix(graph: &Graph, id: NodeId) -> Result<Vec<f32>, PassError> {
    let node = graph.node(id);
    let (Some((linear, _)), Op::Linear(_)) = (layer(graph, node), &node.op) else { return Ok(Vec::new()) };
    let Some(weight) = graph.weight(linear.weight) else { return Ok(Vec::new()) };
    weights::rows(weight, usize::from(linear.transposed.0))
        .map_err(|source| PassError::of_weight(graph, linear.weight, source))
}

/// `rows * weights^T`: [rows, columns] times [features, columns].
pub(super) fn product<T: From<f32> + Copy + 'static>(rows: &[T], weights: &[T], columns: usize) -> Vec<T> {
    let (m, n) = (rows.len() / columns.max(1), weights.len() / columns.max(1));
    let (zero, one) = (T::from(0.0), T::from(1.0));
    let mut out = vec![zero; m * n];
    let stride = |n: usize| isize::try_from(n).unwrap_or(isize::MAX);
    // SAFETY: the strides of [m, columns], [columns, n] and [m, n] stay within the slices, whose lengths they come from.
    unsafe {
        gemm(
            m,
            n,
            columns,
            out.as_mut_ptr(),
            1,
            stride(n),
            false,
            rows.as_ptr(),
            1,
            stride(columns),
            weights.as_ptr(),
            stride(columns),
            1,
            zero,
            one,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
    out
}
