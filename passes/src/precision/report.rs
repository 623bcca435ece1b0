//! The report of a conversion to half precision.

use std::collections::BTreeMap;

use planish_ir::cost::cost;
use planish_ir::{Bindings, DType, Graph, ValueId};
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
    let symbols = graph.values().flat_map(|(_, value)| value.ty.dims()).flat_map(|dim| dim.symbols());
    let bindings: Bindings = symbols.map(|symbol| (symbol.clone(), NOMINAL_SIZE)).collect();
    let (mut all, mut half) = (0.0, 0.0);
    for (_, node) in graph.nodes().filter(|(_, node)| node.op.is_product()) {
        let operations = cost(graph, node, &bindings).map_or(0.0, |cost| cost.product_flops as f64);
        all += operations;
        if graph.ty(node.outputs[0]).dtype == dtype {
            half += operations;
        }
    }
    if all == 0.0 { 0.0 } else { half / all }
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
