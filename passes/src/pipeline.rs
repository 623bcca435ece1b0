//! The one place that orders passes.

use std::time::{Duration, Instant};

use planish_ir::{Graph, verify};

use crate::clean::{COMMON_SUBEXPRESSIONS, DEAD_CODE, IDENTITIES};
use crate::fold::FOLD;
use crate::legalize::{
    ABSORB_BIASES, CHECK_KERNELS, FLATTEN_TOKENS, LOWER_ACTIVATIONS, LOWER_ATTENTION, LOWER_LINEAR, LOWER_NORMS,
    LOWER_ROTARY,
};
use crate::pad::{PAD_LINEAR, PAD_VOCAB};
use crate::raise::{RAISE_ACTIVATIONS, RAISE_ATTENTION, RAISE_EMBEDDINGS, RAISE_LINEAR, RAISE_NORMS, RAISE_ROTARY};
use crate::{Options, Pass, PassError};

/// Every pass, in the order of the pipeline, each once.
pub const PASSES: &[Pass] = &[
    IDENTITIES,
    FOLD,
    COMMON_SUBEXPRESSIONS,
    RAISE_EMBEDDINGS,
    RAISE_LINEAR,
    RAISE_ACTIVATIONS,
    RAISE_NORMS,
    RAISE_ROTARY,
    RAISE_ATTENTION,
    DEAD_CODE,
    PAD_VOCAB,
    PAD_LINEAR,
    ABSORB_BIASES,
    LOWER_ACTIVATIONS,
    FLATTEN_TOKENS,
    LOWER_NORMS,
    LOWER_LINEAR,
    LOWER_ROTARY,
    LOWER_ATTENTION,
    CHECK_KERNELS,
];

/// From what exporters write to the operators in which the meaning is plain. A second time, nothing
/// changes.
pub const RAISING: &[&Pass] = &[
    &IDENTITIES,
    &FOLD,
    &COMMON_SUBEXPRESSIONS,
    // Constants that exporters compute are folded, and what they compute twice is one value.
    &RAISE_EMBEDDINGS,
    &RAISE_LINEAR,
    &RAISE_ACTIVATIONS,
    &RAISE_NORMS,
    &RAISE_ROTARY,
    // Heads are split off what was turned.
    &IDENTITIES,
    &RAISE_ATTENTION,
    // Heads that were split off and put together again.
    &IDENTITIES,
    &RAISE_LINEAR,
    &FOLD,
    // Layers share the mask.
    &COMMON_SUBEXPRESSIONS,
    &DEAD_CODE,
];

/// Sizes that the target has faster kernels for.
const PADDING: &[&Pass] = &[
    // What the first has padded is aligned for the second, which would slice it once more.
    &PAD_VOCAB,
    &PAD_LINEAR,
];

/// From there to what the target has kernels for.
const LOWERING: &[&Pass] = &[
    // Sees linear layers, sums and norms as the model has them.
    &ABSORB_BIASES,
    // Computes the biases that were absorbed.
    &FOLD,
    &LOWER_ACTIVATIONS,
    // What is still linear after this is a matrix product; `lower-linear` takes the rest.
    &FLATTEN_TOKENS,
    // Whole norms are flattened, their parts would not be.
    &LOWER_NORMS,
    &LOWER_LINEAR,
    &LOWER_ROTARY,
    // Sees in which order `flatten-tokens` put the tokens.
    &LOWER_ATTENTION,
    // Lowering repeats masks and shapes in each layer and transposes weights.
    &IDENTITIES,
    &FOLD,
    &COMMON_SUBEXPRESSIONS,
    &DEAD_CODE,
    &CHECK_KERNELS,
];

/// One application of a pass.
pub struct Stage {
    /// The pass.
    pub pass: &'static str,
    /// How many places it changed.
    pub changed: usize,
    /// How long it took.
    pub time: Duration,
}

/// The passes for a target.
pub struct Pipeline {
    options: Options,
    /// Only this many passes run; all of them when absent. For finding the one that breaks a graph.
    pub stop_after: Option<usize>,
    /// Whether the graph is verified after each pass.
    pub verify: bool,
}

impl Pipeline {
    /// The pipeline for these options, complete and without verification.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self { options, stop_after: None, verify: false }
    }

    /// Applies the passes; `after` sees the graph after each.
    ///
    /// # Errors
    /// When a pass fails or, with verification, breaks an invariant.
    pub fn run(&self, graph: &mut Graph, after: &mut dyn FnMut(&'static str, &Graph)) -> Result<Vec<Stage>, PassError> {
        let mut stages = Vec::new();
        let order = RAISING.iter().chain(PADDING).chain(LOWERING);
        for pass in order.take(self.stop_after.unwrap_or(usize::MAX)) {
            let start = Instant::now();
            let changed = (pass.run)(graph, &self.options)?;
            stages.push(Stage { pass: pass.name, changed, time: start.elapsed() });
            if self.verify {
                verify(graph).map_err(|source| PassError::Broken { pass: pass.name, source })?;
            }
            after(pass.name, graph);
        }
        Ok(stages)
    }
}
