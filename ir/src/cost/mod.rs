//! What a run of a graph costs: floating-point operations and bytes of memory of each node, from types alone.
//!
//! A multiply-add counts 2 operations. So a product of [m, k] with [k, n] counts `2 * m * n * k`, whatever the element type
//! is; products of integer codes count alike. These products dominate in transformers, and [`Cost::product_flops`] has them
//! alone:
//!
//! - `linear`, `matmul` and their fused and quantized forms, ONNX's products, its recurrent layers, and `Einsum`, which
//!   counts 2 for each combination of its labels and each operand after the first;
//! - the two products of attention: every query with every key of the row, past ones included. Causality, a window and a
//!   mask subtract nothing, as is usual for model FLOPs (Chowdhery et al. 2022, arXiv:2204.02311, appendix B);
//! - convolutions: `2 * elements of the result * elements of one filter`;
//! - `experts`: the layers of each expert for each token that takes it.
//!
//! The other operations are counted by element, so that two forms of one layer count about the same:
//!
//! | Operation | FLOPs |
//! |---|---|
//! | a function or an arithmetic operation of floating-point elements, a bias, a residual | 1 for each element of the result |
//! | a sum, mean, minimum or maximum; a running sum; pooling; the largest elements and where they are | 1 for each element that is read |
//! | `softmax` | 5 for each element; 6 with an addend |
//! | `layer_norm`, `rms_norm` | 7 and 4 for each element |
//! | `gelu` by erf, by tanh; `silu` | 5, 9 and 2 for each element |
//! | `rotary` | 3 for each rotated element |
//! | scores of attention | 6 for each score (scale and softmax); 1 more with a bias, 3 more with a softcap |
//! | codes of elements; elements of codes | 1 for each element |
//! | integers and booleans, conversions, whatever moves elements | none |
//!
//! A node reads each of its operands once, even where it has one of them twice, and writes each of its results once.
//! Weights are read in the type that the graph stores them in; a weight that is an expression of codes is read as codes
//! and scales. A `gather` or an `embedding` reads the rows that it takes, and a `slice` the elements that it takes.
//! A node whose results have no elements reads nothing. Of a `Split` into parts whose sizes a run determines, as many parts have
//! rows as can: they are the tokens of each expert in a compiled mixture of experts.
//! `reshape` is a view, and sizes are constants; both cost nothing. What a runtime keeps in caches between nodes is not known
//! here, so the bytes are those of nodes that run one after another.

mod foreign;
mod groups;
mod native;
mod sizes;
#[cfg(test)]
mod tests;

use std::iter::Sum;
use std::ops::Add;

pub(crate) use native::{LAYER_NORM, RMS_NORM, SILU, SOFTMAX};
pub use sizes::stored_bytes;

use crate::{Bindings, Graph, Node, NodeId, Op};
use sizes::Sizes;

/// What a node, or several, cost in one run. Sums stay at the largest number instead of leaving 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations; see the [module](self) for what counts.
    pub flops: u64,
    /// Those of them that are of products: linear layers, attention, convolutions.
    pub product_flops: u64,
    /// Bytes read, those of weights included.
    pub read: u64,
    /// Bytes of weights read.
    pub weights: u64,
    /// Bytes written.
    pub written: u64,
}

impl Cost {
    /// Bytes read and written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.read.saturating_add(self.written)
    }

    /// Arithmetic intensity: floating-point operations for each byte read or written. `None` without bytes.
    #[must_use]
    pub fn intensity(&self) -> Option<f64> {
        let bytes = self.bytes();
        (bytes > 0).then(|| self.flops as f64 / bytes as f64)
    }
}

impl Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost {
            flops: self.flops.saturating_add(other.flops),
            product_flops: self.product_flops.saturating_add(other.product_flops),
            read: self.read.saturating_add(other.read),
            weights: self.weights.saturating_add(other.weights),
            written: self.written.saturating_add(other.written),
        }
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(costs: I) -> Cost {
        costs.fold(Cost::default(), Add::add)
    }
}

/// The costs of the nodes of a graph.
#[derive(Clone, Debug, Default)]
pub struct Costs {
    /// The nodes that the outputs need and whose cost is known, in the order of the graph.
    pub nodes: Vec<(NodeId, Cost)>,
    /// The other nodes that the outputs need, and why their cost is not known: part of a sentence.
    pub uncounted: Vec<(NodeId, String)>,
}

impl Costs {
    /// The sum of what is known.
    #[must_use]
    pub fn total(&self) -> Cost {
        self.nodes.iter().map(|(_, cost)| *cost).sum()
    }
}

/// The cost of each node that the outputs need, where the symbols of the inputs stand for the sizes in `bindings`.
///
/// Nodes of which a size is not known, graphs inside nodes (`If`, `Loop`, `Scan`) and operators that are not known are
/// named in [`Costs::uncounted`].
#[must_use]
pub fn costs(graph: &Graph, bindings: &Bindings) -> Costs {
    let bindings = &groups::with_parts(graph, bindings);
    let sizes = Sizes { graph, bindings };
    let mut costs = Costs::default();
    for id in graph.needed_nodes() {
        match of_node(graph.node(id), &sizes) {
            Ok(cost) => costs.nodes.push((id, cost)),
            Err(reason) => costs.uncounted.push((id, reason)),
        }
    }
    costs
}

/// The cost of one node.
///
/// # Errors
/// Why it is not known: part of a sentence.
pub fn cost(graph: &Graph, node: &Node, bindings: &Bindings) -> Result<Cost, String> {
    of_node(node, &Sizes { graph, bindings })
}

fn of_node(node: &Node, sizes: &Sizes<'_>) -> Result<Cost, String> {
    if !node.outputs.is_empty() && node.outputs.iter().all(|value| sizes.elements(*value) == Ok(0)) {
        return Ok(Cost::default());
    }
    match &node.op {
        Op::Foreign(op) => foreign::cost(op, node, sizes),
        op => native::cost(op, node, native::flops(op, node, sizes)?, sizes),
    }
}

/// The floating-point operations of a node.
#[derive(Clone, Copy, Default)]
struct Flops {
    /// Of products.
    products: u64,
    /// Of anything else.
    others: u64,
}

impl Flops {
    fn others(others: u64) -> Self {
        Self { products: 0, others }
    }

    /// As many multiply-adds.
    fn products(multiply_adds: u64) -> Self {
        Self { products: multiply_adds.saturating_mul(2), others: 0 }
    }

    /// With more operations that are no products.
    fn and(self, others: u64) -> Self {
        Self { others: self.others.saturating_add(others), ..self }
    }

    fn sum(self) -> u64 {
        self.products.saturating_add(self.others)
    }
}
