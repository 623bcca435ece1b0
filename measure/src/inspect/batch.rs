//! The largest batch that fits in a memory.

use planish_data::inputs::Sizes;
use planish_ir::Graph;
use planish_runtimes::cuda::plan_nodes;
use planish_runtimes::ort::Provider;
use serde::Serialize;

use super::cost::{bytes, weight_bytes};
use super::memory::bindings;
use super::{Opened, arena};
use crate::profile::Process;

/// The largest batch that fits in a memory, as estimated from the graphs and from what a process has resident that loads them.
#[derive(Debug, Serialize)]
pub struct LargestBatch {
    /// The memory in bytes.
    pub memory: u64,
    /// Rows; 0 where one row does not fit.
    pub batch: usize,
    /// What a run of this batch needs, or of one row where that does not fit.
    pub needs: Need,
    /// The most bytes that the process needs for that: in the run, or before, while it loads the model.
    pub total: u64,
    /// The same for the rows that were asked for.
    pub asked: RunNeed,
    /// The process that loaded the model; absent where none did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// Why none did: what a runtime keeps is then left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmeasured: Option<String>,
}

/// What a run of some rows needs.
#[derive(Debug, Serialize)]
pub struct RunNeed {
    /// Rows.
    pub batch: usize,
    /// What the run needs.
    pub needs: Need,
    /// The most bytes that the process needs: in the run, or before, while it loads the model.
    pub total: u64,
}

fn most(needs: &Need, process: Option<&Process>) -> u64 {
    needs.total().max(process.map_or(0, |process| process.peak))
}

/// The bytes that a model needs in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// Of the process and the runtime; absent where they were not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<u64>,
    /// Of the weights of all parts: as the runtime keeps them, with all else that it keeps of the model, where that was
    /// measured; else as the graph stores them.
    pub weights: u64,
    /// Of the inputs without caches, of the part that needs most for them, its caches and its activations. A runtime on the
    /// processor has them twice: as planish read them, and as it takes them.
    pub inputs: u64,
    /// Of the cached keys and values among the inputs, as often.
    pub cache: u64,
    /// Of the results of nodes; outputs, which have the new caches, included. On ONNX Runtime what its arena touches in the
    /// first run, else one arena as planned.
    pub activations: u64,
    /// Of the copies of outputs that planish reads; absent where no process was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<u64>,
}

impl Need {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { base, weights, inputs, cache, activations, outputs } = *self;
        let all = [base.unwrap_or(0), weights, inputs, cache, activations, outputs.unwrap_or(0)];
        all.into_iter().fold(0, u64::saturating_add)
    }
}

/// The runtime whose arena is computed.
const ONNX_RUNTIME_CPU: &str = Provider::Cpu.runtime();

/// The most rows that are tried.
const MOST_ROWS: usize = 1 << 40;

impl Opened {
    /// The least bytes that a run of one row of `sizes` needs on any runtime.
    ///
    /// # Errors
    /// When a size is not known.
    pub fn least_need(&self, sizes: Sizes, past: usize) -> Result<u64, String> {
        self.need(Sizes { batch: 1, ..sizes }, past, None).map(|need| need.total())
    }

    /// The largest batch of rows of `sizes` that fits, and what the batch in `sizes` needs. `process` is what a process has that
    /// loaded the model, or why none did.
    ///
    /// # Errors
    /// When the graph fixes the number of rows, or a size is not known.
    pub fn largest_batch(
        &self,
        memory: u64,
        sizes: Sizes,
        past: usize,
        process: Result<Process, String>,
    ) -> Result<LargestBatch, String> {
        if !self.open_sizes().rows {
            return Err(
                "--estimate memory=SIZE looks for the largest batch, and the inputs fix the number of rows".to_owned()
            );
        }
        let (process, unmeasured) = match process {
            Ok(process) => (Some(process), None),
            Err(reason) => (None, Some(reason)),
        };
        let need = |batch| self.need(Sizes { batch, ..sizes }, past, process.as_ref());
        // What is too large to be planned does not fit.
        let fits = |batch| need(batch).is_ok_and(|need| most(&need, process.as_ref()) <= memory);
        let one = need(1)?;
        let (mut fitting, mut beyond) = (0, 1);
        while beyond < MOST_ROWS && fits(beyond) {
            (fitting, beyond) = (beyond, beyond * 2);
        }
        while fitting > 0 && beyond - fitting > 1 {
            let middle = fitting + (beyond - fitting) / 2;
            if fits(middle) { fitting = middle } else { beyond = middle }
        }
        let needs = if fitting > 0 { need(fitting)? } else { one };
        let asked = need(sizes.batch)?;
        let asked = RunNeed { batch: sizes.batch, needs: asked, total: most(&asked, process.as_ref()) };
        Ok(LargestBatch {
            memory,
            batch: fitting,
            needs,
            total: most(&needs, process.as_ref()),
            asked,
            process,
            unmeasured,
        })
    }

    /// What a run needs.
    fn need(&self, sizes: Sizes, past: usize, process: Option<&Process>) -> Result<Need, String> {
        let stored = self.graphs.iter().map(|(_, graph)| weight_bytes(graph)).fold(0, u64::saturating_add);
        let (base, weights) = match process {
            Some(process) => (Some(process.base), process.loaded.saturating_sub(process.base)),
            None => (None, stored),
        };
        let mut most: Option<Need> = None;
        for (name, graph) in &self.graphs {
            let part =
                of_part(graph, sizes, past, process).map_err(|reason| format!("the memory of {name}: {reason}"))?;
            let part = Need { base, weights, ..part };
            if most.is_none_or(|most| part.total() > most.total()) {
                most = Some(part);
            }
        }
        most.ok_or_else(|| "the model has no parts".to_owned())
    }
}

/// What a run of a part needs beside weights.
fn of_part(graph: &Graph, sizes: Sizes, past: usize, process: Option<&Process>) -> Result<Need, String> {
    let bound = bindings(graph, sizes, past);
    let sized = |value| {
        let name = &graph.value(value).name;
        bytes(graph, value, &bound).ok_or_else(|| format!("the size of `{name}` is not known"))
    };
    let times = if process.is_some() { 2 } else { 1 };
    let mut need = Need { base: None, weights: 0, inputs: 0, cache: 0, activations: 0, outputs: None };
    for &input in graph.inputs() {
        let bytes = sized(input)?.saturating_mul(times);
        let sum = if super::cost::is_cache(graph, input) { &mut need.cache } else { &mut need.inputs };
        *sum = sum.saturating_add(bytes);
    }
    need.activations = match process {
        Some(process) if process.runtime == ONNX_RUNTIME_CPU => arena::touched(graph, &bound)?,
        _ => plan_nodes(graph, &bound)?.peak as u64,
    };
    if process.is_some() {
        let outputs = graph.outputs().iter().map(|output| sized(output.value)).sum::<Result<u64, String>>()?;
        need.outputs = Some(outputs);
    }
    Ok(need)
}
