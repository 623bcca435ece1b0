//! The largest batch that fits in a memory.

use planish_ir::Graph;
use planish_runtimes::cuda::plan_nodes;
use serde::Serialize;

use super::Opened;
use super::cost::{bytes, weight_bytes};
use super::memory::bindings;
use crate::inputs::Sizes;

/// The largest batch that fits in a memory, as computed from the graphs.
#[derive(Debug, Serialize)]
pub struct LargestBatch {
    /// The memory in bytes.
    pub memory: u64,
    /// Rows; 0 where one row does not fit.
    pub batch: usize,
    /// What a run of this batch needs, or of one row where that does not fit.
    pub needs: Need,
}

/// The bytes that a model needs for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// Of the weights of all parts.
    pub weights: u64,
    /// Of the inputs without caches, of the part that needs most for them, its caches and its activations.
    pub inputs: u64,
    /// Of the cached keys and values among the inputs.
    pub cache: u64,
    /// Of the results of nodes, as planned in one arena; outputs, which have the new caches, included.
    pub activations: u64,
}

impl Need {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        [self.weights, self.inputs, self.cache, self.activations].into_iter().fold(0, u64::saturating_add)
    }
}

/// The most rows that are tried.
const MOST_ROWS: usize = 1 << 40;

impl Opened {
    /// The largest batch of rows of `sizes` that fits, whatever the batch in `sizes` is.
    ///
    /// # Errors
    /// When the graph fixes the number of rows, or a size is not known.
    pub fn largest_batch(&self, memory: u64, sizes: Sizes, past: usize) -> Result<LargestBatch, String> {
        if !self.open_sizes().rows {
            return Err("--memory looks for the largest batch, and the inputs fix the number of rows".to_owned());
        }
        let need = |batch| self.need(Sizes { batch, ..sizes }, past);
        // What is too large to be planned does not fit.
        let fits = |batch| need(batch).is_ok_and(|need| need.total() <= memory);
        let one = need(1)?;
        if !fits(1) {
            return Ok(LargestBatch { memory, batch: 0, needs: one });
        }
        let (mut fitting, mut beyond) = (1, 2);
        while beyond < MOST_ROWS && fits(beyond) {
            (fitting, beyond) = (beyond, beyond * 2);
        }
        while beyond - fitting > 1 {
            let middle = fitting + (beyond - fitting) / 2;
            if fits(middle) { fitting = middle } else { beyond = middle }
        }
        Ok(LargestBatch { memory, batch: fitting, needs: need(fitting)? })
    }

    /// What a run needs.
    fn need(&self, sizes: Sizes, past: usize) -> Result<Need, String> {
        let weights = self.graphs.iter().map(|(_, graph)| weight_bytes(graph)).fold(0, u64::saturating_add);
        let mut most = Need { weights, inputs: 0, cache: 0, activations: 0 };
        for (name, graph) in &self.graphs {
            let part = of_part(graph, sizes, past).map_err(|reason| format!("the memory of {name}: {reason}"))?;
            let part = Need { weights, ..part };
            if part.total() > most.total() {
                most = part;
            }
        }
        Ok(most)
    }
}

/// What a run of a part needs beside weights.
fn of_part(graph: &Graph, sizes: Sizes, past: usize) -> Result<Need, String> {
    let bound = bindings(graph, sizes, past);
    let mut need = Need { weights: 0, inputs: 0, cache: 0, activations: 0 };
    for &input in graph.inputs() {
        let name = &graph.value(input).name;
        let bytes =
            bytes(graph, input, &bound).ok_or_else(|| format!("the size of the input `{name}` is not known"))?;
        let sum = if super::cost::is_cache(graph, input) { &mut need.cache } else { &mut need.inputs };
        *sum = sum.saturating_add(bytes);
    }
    need.activations = plan_nodes(graph, &bound)?.peak as u64;
    Ok(need)
}
