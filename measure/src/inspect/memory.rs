//! The memory that a run of a model needs beside inputs and weights.

use planish_data::inputs::{Sizes, graph_bindings};
use planish_ir::{Bindings, Graph};
use planish_runtimes::cuda::{PlannedBuffer, plan_nodes, plan_run};
use serde::Serialize;

use super::Opened;

/// The plans of the parts of a model for sizes of its inputs.
#[derive(Debug, Serialize)]
pub struct Memory {
    /// Rows.
    pub batch: usize,
    /// Tokens of a row.
    pub sequence: usize,
    /// Tokens in front of them, whose keys and values are cached.
    pub past: usize,
    /// The parts.
    pub parts: Vec<PartMemory>,
}

/// The plan of a part.
#[derive(Debug, Serialize)]
pub struct PartMemory {
    /// The name of the part.
    pub name: String,
    /// The bytes of one arena for all buffers: its planned peak.
    pub peak: usize,
    /// The bytes of all buffers, if each had memory of its own.
    pub sum: usize,
    /// The most bytes that buffers need in one step: no plan has a smaller arena.
    pub floor: usize,
    /// The steps of the run.
    pub steps: usize,
    /// The buffers.
    pub buffers: Vec<BufferMemory>,
    /// The form of each attention, and why it was chosen; of artifacts for target `cuda`.
    pub attentions: Vec<String>,
    /// Whether one program serves steps of all lengths of the cache, and why; of artifacts for target `cuda` with a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lengths: Option<String>,
    /// Whether the padding of batches whose rows have different lengths is computed, and why; of artifacts for target `cuda`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padding: Option<String>,
}

/// A buffer of a run.
#[derive(Debug, Serialize)]
pub struct BufferMemory {
    /// The value that it holds, or the operator that needs it.
    pub name: String,
    /// Its bytes.
    pub bytes: usize,
    /// The bytes in front of it in the arena.
    pub offset: usize,
    /// The first step that needs it.
    pub first: usize,
    /// The last step that needs it.
    pub last: usize,
    /// How many other buffers have some of its memory at other times.
    pub shared_with: usize,
}

/// A part has no plan.
#[derive(Debug, thiserror::Error)]
#[error("a run of {part} cannot be planned: {reason}")]
pub struct PlanError {
    part: String,
    reason: String,
}

impl PlanError {
    pub(super) fn new(part: &str, reason: String) -> Self {
        Self { part: part.to_owned(), reason }
    }
}

impl Opened {
    /// Plans the memory of runs.
    ///
    /// # Errors
    /// When a size is not known, or the runtime `cuda` has no kernel for an operator of an artifact for it.
    pub fn memory(&self, sizes: Sizes, past: usize) -> Result<Memory, PlanError> {
        let parts = self.graphs.iter().map(|(name, graph)| {
            let bindings = bindings(graph, sizes, past);
            let plan = if self.is_native { plan_run(graph, &bindings) } else { plan_nodes(graph, &bindings) };
            let plan = plan.map_err(|reason| PlanError::new(name, reason))?;
            let buffers = plan.buffers.iter().map(|buffer| described(buffer, &plan.buffers)).collect();
            let planish_runtimes::cuda::RunPlan { peak, sum, floor, steps, attentions, lengths, padding, .. } = plan;
            Ok(PartMemory { name: name.clone(), peak, sum, floor, steps, buffers, attentions, lengths, padding })
        });
        Ok(Memory { batch: sizes.batch, sequence: sizes.sequence, past, parts: parts.collect::<Result<_, _>>()? })
    }
}

/// What the symbols of the inputs stand for.
pub(super) fn bindings(graph: &Graph, sizes: Sizes, past: usize) -> Bindings {
    graph_bindings(graph, sizes, past)
}

fn described(buffer: &PlannedBuffer, all: &[PlannedBuffer]) -> BufferMemory {
    let PlannedBuffer { name, bytes, first, last, offset } = buffer.clone();
    let shares = |other: &&PlannedBuffer| {
        !std::ptr::eq(*other, buffer) && offset < other.offset + other.bytes && other.offset < offset + bytes
    };
    BufferMemory { name, bytes, offset, first, last, shared_with: all.iter().filter(shares).count() }
}
