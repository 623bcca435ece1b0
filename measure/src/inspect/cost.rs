//! What a run of a model costs: floating-point operations and bytes by layer and by operator, and memory.

use std::collections::BTreeMap;

use planish_compiler::source::modules::{Modules, NodeNames};
use planish_data::inputs::Sizes;
use planish_ir::cost::{Cost, Costs, costs, stored_bytes};
use planish_ir::{Bindings, DType, Graph, ValueId};
use planish_runtimes::cuda::plan_nodes;
use serde::Serialize;

use super::Opened;
use super::batch::LargestBatch;
use super::confirm::Confirmation;
use super::memory::bindings;
use super::training::Training;

/// What a run of a model costs for sizes of its inputs.
#[derive(Debug, Serialize)]
pub struct ModelCost {
    /// Rows; absent where the graph fixes their number.
    pub batch: Option<usize>,
    /// Tokens of a row; absent where the graph fixes their number or takes none.
    pub sequence: Option<usize>,
    /// Tokens in front of them, whose keys and values are cached; absent without a cache.
    pub past: Option<usize>,
    /// The parts.
    pub parts: Vec<PartCost>,
    /// The largest batch that fits in a memory, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest: Option<LargestBatch>,
    /// What a run of that batch came to, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed: Option<Confirmation>,
    /// What it takes to train the model, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training: Option<Training>,
}

/// What a run of a part costs.
#[derive(Debug, Serialize)]
pub struct PartCost {
    /// The name of the part.
    pub name: String,
    /// The elements of its weights that are floating-point numbers or codes of such.
    pub parameters: u64,
    /// The bytes of all its weights as they are stored.
    pub weight_bytes: u64,
    /// The share of each element type in these bytes, from 0 to 1.
    pub types: BTreeMap<String, f64>,
    /// The work of a run.
    pub total: Work,
    /// The work of each layer, in the order of the graph.
    pub layers: Vec<Share>,
    /// The work of each operator, most operations first.
    pub operators: Vec<Share>,
    /// The memory of results of nodes; absent where a size is not known.
    pub activations: Option<Activations>,
    /// The bytes that the cache of keys and values grows by for each token of a row; absent without a cache.
    pub cache_bytes_per_token: Option<u64>,
    /// Operators whose cost is not known: how many, which, and why.
    pub uncounted: Vec<Uncounted>,
}

/// What nodes do in one run; planish_ir::cost defines what counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Work {
    /// Floating-point operations.
    pub flops: u64,
    /// Those of products: linear layers, attention, convolutions.
    pub product_flops: u64,
    /// Bytes read, those of weights included.
    pub read: u64,
    /// Bytes of weights read.
    pub weights: u64,
    /// Bytes written.
    pub written: u64,
    /// Floating-point operations for each byte read or written; absent without bytes.
    pub intensity: Option<f64>,
}

impl From<Cost> for Work {
    fn from(cost: Cost) -> Self {
        let Cost { flops, product_flops, read, weights, written } = cost;
        Self { flops, product_flops, read, weights, written, intensity: cost.intensity() }
    }
}

/// The work of some nodes.
#[derive(Debug, Serialize)]
pub struct Share {
    /// The layer or the operator.
    pub name: String,
    /// How many nodes.
    pub nodes: usize,
    /// Their work.
    #[serde(flatten)]
    pub work: Work,
    /// Their share of all floating-point operations, from 0 to 1.
    pub share: f64,
}

/// The memory of results of nodes, inputs and weights not included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Activations {
    /// The bytes of one arena in which results share memory.
    pub planned: usize,
    /// The bytes of all results, if each had memory of its own.
    pub naive: usize,
}

/// Operators whose cost is not known.
#[derive(Debug, Serialize)]
pub struct Uncounted {
    /// The operator.
    pub operator: String,
    /// How many nodes.
    pub nodes: usize,
    /// Why.
    pub reason: String,
}

impl ModelCost {
    /// Checks that the numbers are those of a run, and did not stop at the largest.
    ///
    /// # Errors
    /// When there are more operations or bytes than 64 bits count.
    pub fn check(&self) -> Result<(), String> {
        let beyond = |part: &&PartCost| {
            let Work { flops, read, written, .. } = part.total;
            [flops, read, written].contains(&u64::MAX)
        };
        match self.parts.iter().find(beyond) {
            Some(part) => Err(format!(
                "a run of {} has more operations or bytes than 64 bits count; ask for smaller sizes with --batch, --seq and --past",
                part.name
            )),
            None => Ok(()),
        }
    }
}

impl Opened {
    /// What a run of each part costs.
    #[must_use]
    pub fn cost(&self, sizes: Sizes, past: usize) -> ModelCost {
        let part = |(name, graph): &(String, Graph)| part(name, graph, &self.names(name), sizes, past);
        let (open, parts) = (self.open_sizes(), self.graphs.iter().map(part).collect());
        ModelCost {
            batch: open.rows.then_some(sizes.batch),
            sequence: open.tokens.then_some(sizes.sequence),
            past: open.past.then_some(past),
            parts,
            largest: None,
            confirmed: None,
            training: None,
        }
    }
}

fn part(name: &str, graph: &Graph, names: &NodeNames, sizes: Sizes, past: usize) -> PartCost {
    let bound = bindings(graph, sizes, past);
    let costs = costs(graph, &bound);
    let modules = Modules::of(graph, names);
    let total = costs.total();
    let layers = shares(&costs, total, |node| modules.layer(node).to_owned());
    let mut operators = shares(&costs, total, |node| graph.node(node).op.kind().to_owned());
    operators.sort_by(|a, b| b.work.flops.cmp(&a.work.flops).then(b.work.written.cmp(&a.work.written)));
    let activations = plan_nodes(graph, &bound).ok();
    PartCost {
        name: name.to_owned(),
        parameters: parameters(graph),
        weight_bytes: weight_bytes(graph),
        types: types(graph),
        total: total.into(),
        layers,
        operators,
        activations: activations.map(|plan| Activations { planned: plan.peak, naive: plan.sum }),
        cache_bytes_per_token: cache_growth(graph, sizes),
        uncounted: uncounted(graph, &costs),
    }
}

/// The work of the nodes of each name, in the order in which the names come first.
fn shares(costs: &Costs, total: Cost, name: impl Fn(planish_ir::NodeId) -> String) -> Vec<Share> {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut sums: Vec<(String, usize, Cost)> = Vec::new();
    for (node, cost) in &costs.nodes {
        let name = name(*node);
        let place = *places.entry(name.clone()).or_insert_with(|| {
            sums.push((name, 0, Cost::default()));
            sums.len() - 1
        });
        let (_, nodes, sum) = &mut sums[place];
        *nodes += 1;
        *sum = *sum + *cost;
    }
    let share = |cost: &Cost| cost.flops as f64 / total.flops.max(1) as f64;
    let one =
        |(name, nodes, cost): (String, usize, Cost)| Share { name, nodes, share: share(&cost), work: cost.into() };
    sums.into_iter().map(one).collect()
}

/// The elements of weights that are floating-point numbers or codes of at most 8 bits.
pub(super) fn parameters(graph: &Graph) -> u64 {
    let weights = graph.weights().filter(|(_, _, weight)| is_parameter(weight.dtype()));
    weights.map(|(_, _, weight)| weight.elements() as u64).fold(0, u64::saturating_add)
}

/// Whether elements are numbers or codes of numbers.
pub(super) fn is_parameter(dtype: DType) -> bool {
    dtype.is_float() || (dtype.bits() <= 8 && !matches!(dtype, DType::Bool | DType::String))
}

/// The bytes that the weights of a graph are stored in.
pub(crate) fn weight_bytes(graph: &Graph) -> u64 {
    graph.weights().map(|(_, _, weight)| stored_bytes(weight)).fold(0, u64::saturating_add)
}

fn types(graph: &Graph) -> BTreeMap<String, f64> {
    let all = weight_bytes(graph).max(1) as f64;
    let mut types = BTreeMap::new();
    for (_, _, weight) in graph.weights() {
        *types.entry(weight.dtype().to_string()).or_insert(0.0) += stored_bytes(weight) as f64 / all;
    }
    types
}

/// What one more cached token adds to the caches of one row.
pub(super) fn cache_growth(graph: &Graph, sizes: Sizes) -> Option<u64> {
    let one = Sizes { batch: 1, ..sizes };
    let [less, more] = [1, 2].map(|past| cache_bytes(graph, &bindings(graph, one, past)));
    more?.checked_sub(less?).filter(|growth| *growth > 0)
}

/// The bytes of the caches among the inputs.
pub(super) fn cache_bytes(graph: &Graph, bound: &Bindings) -> Option<u64> {
    let caches = graph.inputs().iter().filter(|input| is_cache(graph, **input));
    caches.map(|input| bytes(graph, *input, bound)).try_fold(0u64, |sum, bytes| sum.checked_add(bytes?))
}

/// Whether an input has cached keys or values.
pub(super) fn is_cache(graph: &Graph, input: ValueId) -> bool {
    graph.interface.input(&graph.value(input).name).cache().is_some()
}

/// The bytes of an input.
pub(super) fn bytes(graph: &Graph, input: ValueId, bound: &Bindings) -> Option<u64> {
    graph.ty(input).bytes_in(bound)
}

fn uncounted(graph: &Graph, costs: &Costs) -> Vec<Uncounted> {
    let mut all: Vec<Uncounted> = Vec::new();
    for (node, reason) in &costs.uncounted {
        let operator = graph.node(*node).op.kind();
        match all.iter_mut().find(|other| other.operator == operator) {
            Some(other) => other.nodes += 1,
            None => all.push(Uncounted { operator: operator.to_owned(), nodes: 1, reason: reason.clone() }),
        }
    }
    all
}
