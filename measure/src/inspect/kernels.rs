//! What the steps of a run on the runtime `cuda` are, what they compute and move, and how long a GPU should take for them.

use std::collections::{BTreeMap, HashMap};

use planish_ir::cost::costs;
use planish_ir::{DType, Graph, NodeId, Op};
use planish_runtimes::cuda::{CompileError, PlannedStep, plan_steps, precompile_run};
use serde::Serialize;

use super::memory::{PlanError, bindings};
use super::{Asked, Opened};

/// A GPU by its datasheet, without sparsity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gpu {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its architecture.
    pub architecture: &'static str,
    /// Operations a second of products of float16 and bfloat16, in units of 10^12.
    pub half_tflops: f64,
    /// The same of products of codes of 8 bits.
    pub int8_tops: f64,
    /// The same of float32 (without TensorFloat-32).
    pub float_tflops: f64,
    /// Bytes of memory a second, in units of 10^9.
    pub gb_s: f64,
}

impl Gpu {
    /// Every one that is known: NVIDIA's datasheets of the A100 80 GB SXM, the H100 SXM and the H200 SXM.
    pub const ALL: [Self; 3] = [
        Self {
            name: "a100",
            architecture: "sm_80",
            half_tflops: 312.0,
            int8_tops: 624.0,
            float_tflops: 19.5,
            gb_s: 2039.0,
        },
        Self::H100,
        Self {
            name: "h200",
            architecture: "sm_90",
            half_tflops: 989.0,
            int8_tops: 1979.0,
            float_tflops: 67.0,
            gb_s: 4800.0,
        },
    ];

    /// The H100 SXM.
    pub const H100: Self = Self {
        name: "h100",
        architecture: "sm_90",
        half_tflops: 989.0,
        int8_tops: 1979.0,
        float_tflops: 67.0,
        gb_s: 3350.0,
    };

    /// The least microseconds for products and bytes.
    fn roofline(&self, product_flops: u64, dtype: DType, bytes: u64) -> f64 {
        let tops = match dtype {
            DType::I8 => self.int8_tops,
            DType::F16 | DType::Bf16 => self.half_tflops,
            _ => self.float_tflops,
        };
        (product_flops as f64 / (tops * 1e6)).max(bytes as f64 / (self.gb_s * 1e3))
    }
}

/// The share of the datasheet's peaks that a prediction takes a kernel to reach.
pub const REACHED: f64 = 0.75;

/// The microseconds that a prediction takes each launch of a recorded CUDA graph to need at least.
pub const LAUNCH_US: f64 = 2.0;

/// The steps of a run, and how long a GPU should take for them.
#[derive(Debug, Serialize)]
pub struct Kernels {
    /// The GPU of the prediction.
    pub gpu: Gpu,
    /// Rows.
    pub batch: usize,
    /// Tokens of a row.
    pub sequence: usize,
    /// Cached tokens in front of them.
    pub past: usize,
    /// The parts.
    pub parts: Vec<PartKernels>,
}

/// The steps of a part.
#[derive(Debug, Serialize)]
pub struct PartKernels {
    /// The name of the part.
    pub name: String,
    /// All of them together.
    pub total: KernelWork,
    /// By operator and kernels, the longest predicted time first.
    pub rows: Vec<KernelRow>,
}

/// Nodes of one operator that the same kernels compute.
#[derive(Debug, Serialize)]
pub struct KernelRow {
    /// The operator of the graph; `copy` for copies to outputs.
    pub operator: String,
    /// The kernels of a node, in order.
    pub kernels: Vec<&'static str>,
    /// How many nodes.
    pub nodes: usize,
    /// Their work.
    #[serde(flatten)]
    pub work: KernelWork,
}

/// What steps compute and move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct KernelWork {
    /// Launches of kernels, products and copies.
    pub launches: usize,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read and written, those between the steps of a node included.
    pub bytes: u64,
    /// The microseconds that the datasheet's peaks allow at least, for one node after the other.
    pub least_us: f64,
    /// The microseconds at [`REACHED`] of the peaks, and at least [`LAUNCH_US`] for each launch.
    pub predicted_us: f64,
}

impl KernelWork {
    fn add(&mut self, other: Self) {
        self.launches += other.launches;
        self.flops = self.flops.saturating_add(other.flops);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.least_us += other.least_us;
        self.predicted_us += other.predicted_us;
    }
}

impl Opened {
    /// The steps of runs on the runtime `cuda`, with the time that a GPU should take for them.
    ///
    /// # Errors
    /// When a size is not known, or the runtime has no kernel for an operator.
    pub fn kernels(&self, gpu: Gpu, asked: Asked) -> Result<Kernels, PlanError> {
        let (sizes, past) = (self.sizes(asked), asked.past.unwrap_or(0));
        let part = |(name, graph): &(String, Graph)| {
            let bound = bindings(graph, sizes, past);
            let steps = plan_steps(graph, &bound, gpu.architecture).map_err(|reason| PlanError::new(name, reason))?;
            let costs: HashMap<NodeId, _> = costs(graph, &bound).nodes.into_iter().collect();
            let mut rows: BTreeMap<(String, Vec<&'static str>), KernelRow> = BTreeMap::new();
            let mut total = KernelWork::default();
            for (node, steps) in by_node(&steps) {
                let cost = node.and_then(|node| costs.get(&node)).copied().unwrap_or_default();
                let scratch: usize = steps.iter().map(|step| step.scratch).sum();
                let bytes = cost.bytes().saturating_add(2 * scratch as u64);
                let dtype = node.map_or(DType::F32, |node| product_type(graph, node));
                let least_us = gpu.roofline(cost.product_flops, dtype, bytes);
                let predicted_us = (least_us / REACHED).max(steps.len() as f64 * LAUNCH_US);
                let work = KernelWork { launches: steps.len(), flops: cost.flops, bytes, least_us, predicted_us };
                total.add(work);
                let operator = node.map_or("copy", |node| graph.node(node).op.kind()).to_owned();
                let kernels: Vec<&'static str> = steps.iter().map(|step| step.kernel).collect();
                let row = rows.entry((operator.clone(), kernels.clone())).or_insert_with(|| KernelRow {
                    operator,
                    kernels,
                    nodes: 0,
                    work: KernelWork::default(),
                });
                row.nodes += 1;
                row.work.add(work);
            }
            let mut rows: Vec<KernelRow> = rows.into_values().collect();
            rows.sort_by(|a, b| b.work.predicted_us.total_cmp(&a.work.predicted_us));
            Ok(PartKernels { name: name.clone(), total, rows })
        };
        let parts = self.graphs.iter().map(part).collect::<Result<_, _>>()?;
        Ok(Kernels { gpu, batch: sizes.batch, sequence: sizes.sequence, past, parts })
    }
}

impl Opened {
    /// Compiles the kernels of runs for an architecture into the user's folder of caches. Returns how many there are.
    ///
    /// # Errors
    /// When there is no NVRTC, or a kernel does not compile.
    pub fn precompile(&self, asked: Asked, architecture: &str) -> Result<usize, CompileError> {
        let (sizes, past) = (self.sizes(asked), asked.past.unwrap_or(0));
        let part = |(_, graph): &(String, Graph)| precompile_run(graph, &bindings(graph, sizes, past), architecture);
        self.graphs.iter().map(part).sum()
    }
}

/// The steps of each node, in the order in which the nodes start.
fn by_node(steps: &[PlannedStep]) -> Vec<(Option<NodeId>, Vec<PlannedStep>)> {
    let mut nodes: Vec<(Option<NodeId>, Vec<PlannedStep>)> = Vec::new();
    for step in steps {
        match nodes.last_mut().filter(|(node, _)| node.is_some() && *node == step.node) {
            Some((_, own)) => own.push(*step),
            None => nodes.push((step.node, vec![*step])),
        }
    }
    nodes
}

/// The element type that the products of a node multiply.
fn product_type(graph: &Graph, node: NodeId) -> DType {
    let node = graph.node(node);
    match (&node.op, node.outputs.first()) {
        (Op::QuantizedLinear(_), _) => DType::I8,
        (_, Some(result)) => graph.ty(*result).dtype,
        (_, None) => DType::F32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roofline_is_the_longer_of_products_and_bytes() {
        let h100 = Gpu::H100;
        assert!((h100.roofline(989_000_000, DType::F16, 0) - 1.0).abs() < 1e-9);
        assert!((h100.roofline(1_979_000_000, DType::I8, 3_350_000) - 1.0).abs() < 1e-9);
        assert!((h100.roofline(67_000_000, DType::F32, 6_700_000) - 2.0).abs() < 1e-9);
    }
}
