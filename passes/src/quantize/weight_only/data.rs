//! Codes and factors of weights that are chosen with data.

use planish_ir::handle::Handle;
use planish_ir::weight::{BlockFit, Dequantized, code_range};
use planish_ir::{DType, Graph, NodeId, Op, ValueId, Weight};
use rayon::prelude::*;

use super::super::gptq::{CodeGrid, Gptq};
use super::super::sites::{Site, layer, sites};
use super::super::trial::{matrix, product};
use super::{WeightForm, WeightMethod, WeightQuantization};
use crate::calibration::Gram;
use crate::observe::{Mixture, mixtures};
use crate::{PassError, Target};

/// The exponents that AWQ tries for its factors are this many, from 0 on, this far from each other.
const EXPONENTS: usize = 20;
const EXPONENT_STEP: f64 = 0.05;

/// How many rows one thread fits scales to.
const FITTED_ROWS: usize = 16;

/// The most output features of a site whose error AWQ compares.
const COMPARED: usize = 256;

impl WeightQuantization {
    /// The names of the inputs of linear layers whose products the methods of the plan take, in the order of the graph.
    #[must_use]
    pub fn inputs(&self, graph: &Graph) -> Vec<String> {
        let takes =
            |site: &Site| site.layers.iter().any(|id| self.method(graph, *id).is_some_and(WeightMethod::takes_data));
        sites(graph).iter().filter(|site| takes(site)).map(|site| graph.value(site.value).name.clone()).collect()
    }

    /// The names of what mixtures of experts give and take, where some of their weights become codes.
    pub fn mixtures<'a>(&'a self, graph: &'a Graph) -> impl Iterator<Item = [String; 2]> + 'a {
        let planned = |name: &str| {
            self.plan
                .weights
                .iter()
                .any(|planned| planned.form.codes().is_some() && planned.used_by.iter().any(|r| r == name))
        };
        let names = |of: Mixture| [of.result, of.x].map(|value| graph.value(value).name.clone());
        mixtures(graph).into_iter().map(names).filter(move |[result, _]| planned(result))
    }

    fn form(&self, graph: &Graph, id: NodeId) -> Option<(&WeightForm, ValueId)> {
        let (linear, _) = layer(graph, graph.node(id))?;
        let name = &graph.value(linear.weight).name;
        let planned = self.plan.weights.iter().find(|planned| planned.weight == *name)?;
        Some((&planned.form, linear.weight))
    }

    fn method(&self, graph: &Graph, id: NodeId) -> Option<WeightMethod> {
        match self.form(graph, id)?.0 {
            WeightForm::Blocks { method, .. } => Some(*method),
            WeightForm::Float { .. } | WeightForm::Rows { .. } => None,
        }
    }

    /// Chooses the codes or factors of the layers that take an input, by the sum of outer products of its rows.
    ///
    /// # Errors
    /// When a weight cannot be read.
    pub fn choose(&mut self, graph: &Graph, value: &str, products: &Gram, target: &Target) -> Result<(), PassError> {
        let Some(site) = sites(graph).into_iter().find(|site| graph.value(site.value).name == value) else {
            return Ok(());
        };
        let products = products.matrix();
        let negative = target.has_block_operators();
        let importance: Vec<f32> = diagonal(&products, site.columns).map(|x| x as f32).collect();
        let mut scaled = Vec::new();
        // All layers of the input share it.
        let mut gptq = None;
        for id in &site.layers {
            let Some((form, weight)) = self.form(graph, *id) else { continue };
            let WeightForm::Blocks { method, .. } = form else { continue };
            let (method, rows) = (*method, matrix(graph, *id)?);
            let Some(fit) = form.fit(site.columns, negative) else { continue };
            match method {
                WeightMethod::Gptq => {
                    let gptq = gptq.get_or_insert_with(|| Gptq::new(&products, site.columns));
                    if let Some(chosen) = rounded(&rows, fit, gptq, &importance) {
                        self.chosen.insert(graph.value(weight).name.clone(), chosen);
                    }
                }
                WeightMethod::Awq => scaled.push((fit, rows)),
                _ => {}
            }
        }
        if !scaled.is_empty() {
            self.importance.insert(value.to_owned(), importance);
            // Layers of other methods take the same input.
            if scaled.len() == site.layers.len() && has_place(graph, &site) {
                self.factors.insert(value.to_owned(), factors(&scaled, &products, site.columns));
            }
        }
        Ok(())
    }
}

fn diagonal(products: &[f64], columns: usize) -> impl Iterator<Item = f64> {
    (0..columns).map(move |i| products[i * columns + i])
}

/// Whether a norm gives the input of a site, and nothing else takes it: the factors then cost nothing.
fn has_place(graph: &Graph, site: &Site) -> bool {
    let norm = graph.producer(site.value).is_some_and(|node| matches!(node.op, Op::LayerNorm(_) | Op::RmsNorm(_)));
    norm && graph.use_counts()[site.value.index()] == site.layers.len()
}

/// The codes of a matrix by GPTQ, with scales that are fitted to it.
fn rounded(rows: &[f32], fit: BlockFit, gptq: &Gptq, importance: &[f32]) -> Option<Dequantized> {
    let columns = importance.len();
    let features = rows.len() / columns.max(1);
    let fitted: Vec<(Vec<f32>, Vec<f32>)> = rows
        .par_chunks(FITTED_ROWS * columns.max(1))
        .map(|rows| fit.of_rows(rows, columns, Some(importance)))
        .collect();
    let (scales, zeros): (Vec<Vec<f32>>, Vec<Vec<f32>>) = fitted.into_iter().unzip();
    let (scales, zeros) = (scales.concat(), zeros.concat());
    let (least, largest) = code_range(fit.codes)?;
    let range = [i16::try_from(least).ok()?, i16::try_from(largest).ok()?];
    let zeros = if fit.has_zero_points() { zeros } else { Vec::new() };
    let grid = CodeGrid { scales, zeros, block: fit.size, range };
    let codes: Vec<f64> = gptq.round(rows, &grid).into_iter().map(f64::from).collect();
    let held = |dtype, shape: Vec<usize>, numbers: &[f32]| {
        Weight::numbers(dtype, shape, &numbers.iter().copied().map(f64::from).collect::<Vec<_>>())
    };
    let shape = fit.channels().of(&[features, columns])?;
    Some(Dequantized {
        codes: Weight::numbers(fit.codes, vec![features, columns], &codes)?,
        scales: held(DType::F32, shape.clone(), &grid.scales)?,
        zero_points: if grid.zeros.is_empty() { None } else { Some(held(fit.codes, shape, &grid.zeros)?) },
        channels: fit.channels(),
    })
}

/// The factors of AWQ for an input: powers of the root of the mean square of each column, of the exponent with the least error
/// of the results of some features of its layers.
fn factors(layers: &[(BlockFit, Vec<f32>)], products: &[f64], columns: usize) -> Vec<f32> {
    let roots: Vec<f64> = diagonal(products, columns).map(f64::sqrt).collect();
    let features: usize = layers.iter().map(|(_, rows)| rows.len() / columns.max(1)).sum();
    let every = features.div_ceil(COMPARED).max(1);
    let some: Vec<(BlockFit, Vec<f32>)> = layers
        .iter()
        .map(|(fit, rows)| (*fit, rows.chunks(columns.max(1)).step_by(every).flatten().copied().collect()))
        .collect();
    let tried: Vec<(f64, Vec<f32>)> = (0..=EXPONENTS)
        .into_par_iter()
        .map(|at| {
            let factors = powers(&roots, at as f64 * EXPONENT_STEP);
            let sum = some.iter().map(|(fit, rows)| error(rows, *fit, &factors, products, columns)).sum();
            (sum, factors)
        })
        .collect();
    let best = tried.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, factors)| factors).unwrap_or_default()
}

/// Powers of numbers, scaled so that the largest times the least is 1.
fn powers(roots: &[f64], exponent: f64) -> Vec<f32> {
    let largest = roots.iter().fold(0f64, |a, b| a.max(*b));
    if largest == 0.0 {
        return vec![1.0; roots.len()];
    }
    let powers: Vec<f64> = roots.iter().map(|root| (root / largest).max(SMALLEST).powf(exponent)).collect();
    let least = powers.iter().fold(f64::INFINITY, |a, b| a.min(*b));
    powers.iter().map(|power| (power / least.sqrt()) as f32).collect()
}

/// Columns whose inputs are smaller than this part of the largest count as this large.
const SMALLEST: f64 = 1e-4;

/// The error of the results of rows whose columns are multiplied by factors, rounded, and divided by them: the sum of e H e'.
fn error(rows: &[f32], fit: BlockFit, factors: &[f32], products: &[f64], columns: usize) -> f64 {
    let mut scaled: Vec<f32> = rows.to_vec();
    scaled.chunks_mut(columns).for_each(|row| row.iter_mut().zip(factors).for_each(|(w, f)| *w *= f));
    // What a column of the weight is multiplied by, its input is divided by.
    let squares: Vec<f64> = diagonal(products, columns).zip(factors).map(|(x, f)| x / f64::from(f * f)).collect();
    let importance: Vec<f32> = squares.iter().map(|x| *x as f32).collect();
    let (scales, zeros) = fit.of_rows(&scaled, columns, Some(&importance));
    let (least, largest) = code_range(fit.codes).map_or((0.0, 0.0), |(a, b)| (a as f32, b as f32));
    let blocks = columns.div_ceil(fit.size);
    let mut errors = vec![0f64; rows.len()];
    for (at, (w, error)) in scaled.iter().zip(&mut errors).enumerate() {
        let (row, column) = (at / columns, at % columns);
        let block = row * blocks + column / fit.size;
        let (scale, zero) = (scales[block], zeros[block]);
        let code = (w / scale).round_ties_even().clamp(least - zero, largest - zero);
        *error = f64::from((w - code * scale) / factors[column]);
    }
    // The matrix is symmetric.
    let moved = product(&errors, products, columns);
    errors.iter().zip(&moved).map(|(a, b)| a * b).sum()
}
