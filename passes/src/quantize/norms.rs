//! What the weights of norms say of the inputs that the norms give, without data.

use planish_ir::ops::{LayerNorm, RmsNorm};
use planish_ir::{Graph, Op, ValueId};

use super::sites::Site;
use super::smooth::smooth_factors;
use super::trial::Trial;
use crate::PassError;

/// How many standard deviations the largest elements of a normalized column have, as is assumed.
const DEVIATIONS: f64 = 3.0;

/// How much of the range of columns moves into the weights.
const ALPHA: f32 = 0.5;

/// The smoothing factors of an input that a norm with stored weights gives; none for another.
pub(super) fn factors(graph: &Graph, site: &Site) -> Result<Vec<f32>, PassError> {
    let (weight, bias) = match graph.producer(site.value).map(|node| &node.op) {
        Some(Op::LayerNorm(LayerNorm { weight, bias, .. })) => (*weight, *bias),
        Some(Op::RmsNorm(RmsNorm { weight, .. })) => (*weight, None),
        _ => return Ok(Vec::new()),
    };
    let read = |value: ValueId| {
        let numbers = graph.weight(value).map(planish_ir::Weight::read_numbers).transpose();
        numbers.map_err(|source| PassError::of_weight(graph, value, source))
    };
    let Some(weight) = read(weight)? else { return Ok(Vec::new()) };
    let bias = match bias {
        Some(bias) => read(bias)?,
        None => Some(vec![0.0; weight.len()]),
    };
    let Some(bias) = bias else { return Ok(Vec::new()) };
    let magnitudes: Vec<f32> = weight.iter().zip(&bias).map(|(w, b)| (DEVIATIONS * w.abs() + b.abs()) as f32).collect();
    Ok(smooth_factors(&magnitudes, &Trial::new(graph, site, Vec::new())?.weight_magnitudes(), ALPHA))
}
