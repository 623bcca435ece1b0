//! The report of a conversion to half precision.

use std::collections::BTreeMap;

use planish_ir::{Bindings, DType, Graph, Node, Op, ValueId};
use serde::{Deserialize, Serialize};

use super::reason::Kept;
use super::{Half, HalfPrecision, Halved, Loss};

/// The size that symbolic dimensions are taken for where operations are counted.
const NOMINAL_SIZE: i64 = 128;

/// The report of a conversion of a graph to half precision.
#[derive(Clone, Debug)]
pub struct HalfReport {
    /// The type.
    pub half: Half,
    /// How many operators compute in it, or where the target computes in float32, how many weights
    /// are stored in it.
    pub changed: usize,
    /// For each exception, whether it names an operator or a weight.
    pub matched: Vec<bool>,
    /// What is recorded of it.
    pub part: PartPrecision,
}

/// How a part of a model was brought to half precision, as `planish.json` records it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PartPrecision {
    /// The share of floating-point operations in products that compute in it, all symbolic
    /// dimensions being 128.
    pub flops: f64,
    /// The share of the weights' bytes that are in it.
    pub bytes: f64,
    /// The operators that stay in float32 because of their weights, their activations or a pattern.
    pub kept: Vec<Kept>,
    /// The values whose largest observed magnitude is between a quarter of the limit and the limit, with that magnitude.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub near: BTreeMap<String, f64>,
    /// The weights in half precision with elements that underflow.
    pub losses: Vec<Loss>,
}

impl HalfReport {
    pub(super) fn new(graph: &Graph, precision: &HalfPrecision, halved: Halved, losses: Vec<(ValueId, Loss)>) -> Self {
        let Halved { changed, kept, matched, .. } = halved;
        let half = precision.half;
        let near = precision
            .observed
            .iter()
            .filter(|(_, magnitude)| (precision.max_abs / 4.0..=precision.max_abs).contains(magnitude));
        let near = near.map(|(name, magnitude)| (name.clone(), *magnitude)).collect();
        let (flops, bytes) = (flops_share(graph, half.dtype()), bytes_share(graph, half.dtype()));
        let losses = losses.into_iter().map(|(_, loss)| loss).collect();
        Self { half, changed, matched, part: PartPrecision { flops, bytes, kept, near, losses } }
    }
}

/// The share of the operations of products that compute in a type.
fn flops_share(graph: &Graph, dtype: DType) -> f64 {
    let (mut all, mut half) = (0.0, 0.0);
    for (_, node) in graph.nodes() {
        let operations = operations(graph, node).unwrap_or(0.0);
        all += operations;
        if graph.ty(node.outputs[0]).dtype == dtype {
            half += operations;
        }
    }
    if all == 0.0 { 0.0 } else { half / all }
}

/// Floating-point operations of a product, two a multiplication and addition.
fn operations(graph: &Graph, node: &Node) -> Option<f64> {
    let size = |value: ValueId, axis: Option<usize>| -> Option<f64> {
        let shape = &graph.ty(value).shape;
        let dims = match axis {
            Some(axis) => &shape[axis..=axis],
            None => &shape[..],
        };
        let mut bindings = Bindings::new();
        for symbol in dims.iter().flat_map(|dim| dim.symbols()) {
            bindings.insert(symbol.clone(), NOMINAL_SIZE);
        }
        dims.iter().try_fold(1.0, |product, dim| Some(product * dim.evaluate(&bindings)? as f64))
    };
    let last = |value: ValueId| size(value, Some(graph.ty(value).shape.rank().checked_sub(1)?));
    let result = node.outputs[0];
    match &node.op {
        Op::Linear(p) => Some(2.0 * size(result, None)? * last(p.x)?),
        Op::MatMul(p) => Some(2.0 * size(result, None)? * last(p.a)?),
        Op::Conv(p) => {
            let filter = (1..graph.ty(p.weight).shape.rank()).map(|axis| size(p.weight, Some(axis)));
            Some(2.0 * size(result, None)? * filter.product::<Option<f64>>()?)
        }
        Op::Experts(p) => {
            let of_each = |weight: ValueId| Some(size(weight, Some(1))? * size(weight, Some(2))?);
            let gated = of_each(p.gate)? * (1.0 + f64::from(u8::from(p.up.is_some())));
            Some(2.0 * size(p.indices, None)? * (gated + of_each(p.down)?))
        }
        Op::Attention(p) => {
            let keys = p.past_key.map_or(Some(0.0), |past| size(past, Some(2)))?
                + size(p.k, Some(if graph.ty(p.k).shape.rank() == 4 { 2 } else { 1 }))?;
            Some(2.0 * keys * (size(p.q, None)? + size(result, None)?))
        }
        _ => None,
    }
}

/// The share of the weights' bytes that are stored in a type.
fn bytes_share(graph: &Graph, dtype: DType) -> f64 {
    let (mut all, mut half) = (0.0, 0.0);
    for (_, _, weight) in graph.weights() {
        let stored = super::store::narrow(weight, dtype);
        let bytes = stored.as_ref().unwrap_or(weight).bytes() as f64;
        all += bytes;
        if stored.is_some() || weight.dtype() == dtype {
            half += bytes;
        }
    }
    if all == 0.0 { 0.0 } else { half / all }
}
