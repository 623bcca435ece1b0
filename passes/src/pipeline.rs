//! The one place that orders passes.

use planish_ir::Graph;

use crate::clean::{COMMON_SUBEXPRESSIONS, DEAD_CODE, IDENTITIES, SHARE_WEIGHTS};
use crate::fold::FOLD;
use crate::fuse::{FUSE_EMBEDDINGS, FUSE_GATED, FUSE_LINEAR, FUSE_NORMS, FUSE_ROTARY, FUSING, PACK_PROJECTIONS};
use crate::last_logits::LAST_LOGITS;
use crate::legalize::{
    ABSORB_BIASES, CHECK_KERNELS, CHUNK_ATTENTION, FLATTEN_TOKENS, LOWER_ACTIVATIONS, LOWER_ATTENTION, LOWER_EXPERTS,
    LOWER_LINEAR, LOWER_NORMS, LOWER_QUANTIZED, LOWER_ROTARY, LOWER_STATES, MOVE_CODES, SELECT_PARTS, SPLIT_AHEAD,
    STORE_ONCE, SUBSTITUTE_KERNELS,
};
use crate::observe::{OBSERVE, OBSERVE_INPUTS};
use crate::pad::{PAD_LINEAR, PAD_VOCAB};
use crate::precision::{HALVE, STORE_HALF, WIDEN};
use crate::quantize::{CHECK_CODES, QUANTIZE, QUANTIZE_WEIGHTS};
use crate::raise::{
    FOLD_BATCH_NORMS, RAISE_ACTIVATIONS, RAISE_ATTENTION, RAISE_EMBEDDINGS, RAISE_LINEAR, RAISE_NORMS, RAISE_QUANTIZED,
    RAISE_ROTARY,
};
use crate::rounds::{Run, Stage};
use crate::{Options, Pass, PassError};

/// Every pass, in the order of the pipeline, each once; [`OBSERVE`] and [`OBSERVE_INPUTS`] run for calibration only.
pub const PASSES: &[Pass] = &[
    IDENTITIES,
    FOLD,
    SHARE_WEIGHTS,
    COMMON_SUBEXPRESSIONS,
    RAISE_QUANTIZED,
    RAISE_EMBEDDINGS,
    RAISE_LINEAR,
    RAISE_ACTIVATIONS,
    RAISE_NORMS,
    FOLD_BATCH_NORMS,
    RAISE_ROTARY,
    RAISE_ATTENTION,
    DEAD_CODE,
    OBSERVE,
    OBSERVE_INPUTS,
    CHECK_CODES,
    LAST_LOGITS,
    QUANTIZE,
    QUANTIZE_WEIGHTS,
    HALVE,
    PAD_VOCAB,
    PAD_LINEAR,
    PACK_PROJECTIONS,
    FUSE_EMBEDDINGS,
    FUSE_NORMS,
    FUSE_ROTARY,
    FUSE_GATED,
    FUSE_LINEAR,
    WIDEN,
    SPLIT_AHEAD,
    ABSORB_BIASES,
    LOWER_EXPERTS,
    LOWER_STATES,
    LOWER_ACTIVATIONS,
    SELECT_PARTS,
    FLATTEN_TOKENS,
    LOWER_NORMS,
    LOWER_QUANTIZED,
    LOWER_LINEAR,
    LOWER_ROTARY,
    CHUNK_ATTENTION,
    LOWER_ATTENTION,
    SUBSTITUTE_KERNELS,
    MOVE_CODES,
    STORE_HALF,
    STORE_ONCE,
    CHECK_KERNELS,
];

/// From what exporters write to the operators in which the meaning is plain: a round, which is repeated
/// until nothing changes.
pub const RAISING: &[&Pass] = &[
    &IDENTITIES,
    &FOLD,
    // Sees transposes of stored weights as such.
    &SHARE_WEIGHTS,
    &COMMON_SUBEXPRESSIONS,
    // Constants that exporters compute are folded, and what they compute twice is one value.
    &RAISE_QUANTIZED,
    // Weights that are codes are weights as others.
    &RAISE_EMBEDDINGS,
    &RAISE_LINEAR,
    &RAISE_ACTIVATIONS,
    &RAISE_NORMS,
    &FOLD_BATCH_NORMS,
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

/// Sizes that the target has faster kernels for, which depends on the element type.
const PADDING: &[&Pass] = &[
    // What the first has padded is aligned for the second, which would slice it once more.
    &PAD_VOCAB,
    &PAD_LINEAR,
];

/// From there to what the target has kernels for.
const LOWERING: &[&Pass] = &[
    // What is float32 is lowered as float32 is.
    &WIDEN,
    // Sees activations between linear layers.
    &SPLIT_AHEAD,
    // Sees linear layers, sums and norms as the model has them.
    &ABSORB_BIASES,
    // Computes the biases that were absorbed.
    &FOLD,
    // Both emit activations.
    &LOWER_EXPERTS,
    &LOWER_STATES,
    &LOWER_ACTIVATIONS,
    // Sees linear layers and what takes their results.
    &SELECT_PARTS,
    // What is still linear after this is a matrix product; `lower-linear` takes the rest.
    &FLATTEN_TOKENS,
    // Whole norms are flattened, their parts would not be.
    &LOWER_NORMS,
    // Sees matrices of tokens.
    &LOWER_QUANTIZED,
    &LOWER_LINEAR,
    &LOWER_ROTARY,
    // Sees attention that `lower-attention` takes apart.
    &CHUNK_ATTENTION,
    // Sees in which order `flatten-tokens` put the tokens.
    &LOWER_ATTENTION,
    // Sees what is left.
    &SUBSTITUTE_KERNELS,
];

/// Lowering repeats masks and shapes in each layer and transposes weights: a round, which is repeated until
/// nothing changes.
pub const CLEANING: &[&Pass] = &[
    &IDENTITIES,
    // Sees what is next to each other once nothing without effect is in between.
    &MOVE_CODES,
    &FOLD,
    &COMMON_SUBEXPRESSIONS,
    &DEAD_CODE,
];

/// The passes for a target.
pub struct Pipeline {
    pub(crate) options: Options,
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

    /// Raises a graph, halves and pads it where that is asked for, and lowers it; `after` sees the graph after each
    /// pass. Returns the passes that ran, with what they report.
    ///
    /// # Errors
    /// Those of [`Pipeline::raise`], [`Pipeline::prepare`] and [`Pipeline::lower`].
    pub fn run(&self, graph: &mut Graph, after: &mut dyn FnMut(&'static str, &Graph)) -> Result<Vec<Stage>, PassError> {
        let mut stages = Vec::new();
        self.raise(graph, &mut stages, after)?;
        self.prepare(graph, &mut stages, after)?;
        self.lower(graph, &mut stages, after)?;
        Ok(stages)
    }

    /// Repeats [`RAISING`] until nothing changes. The passes that run are put after `stages`.
    ///
    /// # Errors
    /// When a pass fails or, with verification, breaks an invariant; when there is no end of changes.
    pub fn raise(
        &self,
        graph: &mut Graph,
        stages: &mut Vec<Stage>,
        after: &mut dyn FnMut(&'static str, &Graph),
    ) -> Result<(), PassError> {
        Run { pipeline: self, graph, stages, after }.until_nothing_changes(RAISING)
    }

    /// Checks the codes of a graph that has been raised, quantizes it, leaves the logits that are asked for, brings it to half precision, each if that is
    /// asked for, and pads it. The passes that run are put after `stages`.
    ///
    /// # Errors
    /// When a weight cannot be read or padded or, with verification, an invariant is broken.
    pub fn prepare(
        &self,
        graph: &mut Graph,
        stages: &mut Vec<Stage>,
        after: &mut dyn FnMut(&'static str, &Graph),
    ) -> Result<(), PassError> {
        let mut run = Run { pipeline: self, graph, stages, after };
        // Weights that passes quantize have scales that are computed when they are written.
        // Plans name the inputs of layers, and LAST_LOGITS gives the input of the head another name.
        run.once(&[&CHECK_CODES, &QUANTIZE, &QUANTIZE_WEIGHTS, &LAST_LOGITS, &HALVE])?;
        run.once(PADDING)
    }

    /// Lowers a graph that has been raised to what the target has kernels for: fused operators, where it runs those. The
    /// passes that run are put after `stages`.
    ///
    /// # Errors
    /// Those of [`Pipeline::raise`], and when the target has no kernel for an operator.
    pub fn lower(
        &self,
        graph: &mut Graph,
        stages: &mut Vec<Stage>,
        after: &mut dyn FnMut(&'static str, &Graph),
    ) -> Result<(), PassError> {
        let mut run = Run { pipeline: self, graph, stages, after };
        if self.options.keeps_operators() {
            // Layers of one operand are known by it.
            run.until_nothing_changes(CLEANING)?;
            run.once(FUSING)?;
        } else {
            run.once(&[&PACK_PROJECTIONS])?;
        }
        run.once(LOWERING)?;
        run.until_nothing_changes(CLEANING)?;
        // After all folding, which would undo it.
        run.once(&[&STORE_HALF, &STORE_ONCE, &CHECK_KERNELS])
    }
}
