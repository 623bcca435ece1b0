//! Passes: functions that rewrite a graph, each with its documentation as data, and the pipeline
//! that orders them. After every pass the graph means the same, within what the pass's `numerics`
//! state.

mod build;
pub mod calibration;
pub mod clean;
pub mod cut;
pub mod fold;
pub mod fuse;
mod keep;
mod last_logits;
pub mod legalize;
pub mod observe;
mod outcome;
pub mod pad;
mod pipeline;
pub mod precision;
mod processing;
pub mod quantize;
pub mod raise;
mod rounds;
mod rules;
pub mod shard;
mod target;

pub use calibration::{CalibrationTable, InputStatistics, Range, RangeMethod};
pub use keep::{Exception, Exceptions, KeptType, Named, names};
pub use last_logits::LAST_LOGITS;
pub use legalize::{
    Kernels, LAST_WITH_KERNELS, LAST_WITH_QUANTIZE_KERNELS, Signature, block_bits, opset_of_codes, product_inputs,
};
pub use outcome::{FeaturePadding, Note, Outcome, last_notes};
pub use pad::{Logits, Padding, UnknownLogits};
pub use pipeline::{CLEANING, PASSES, Pipeline, RAISING};
pub use precision::{Half, HalfPrecision};
pub use rounds::{MAX_ROUNDS, Stage};
pub use target::{
    AttentionForm, CUDA, CacheForm, CastAttention, ExpertsForm, ONNX, OPENVINO, ORT, ORT_CUDA, Observation, Packing,
    QuantizedForm, StateForm, TARGETS, TRT, Target, TokenOrder, UnknownTarget,
};

use std::ops::RangeInclusive;
use std::sync::Arc;

use planish_ir::weight::WeightError;
use planish_ir::{BuildError, DType, Graph, Origin, ValueId, VerifyError};

/// What passes may depend on besides the graph.
#[derive(Clone, Debug)]
pub struct Options {
    /// What the graph is compiled for.
    pub target: &'static Target,
    /// The ONNX opset it will be written in.
    pub opset: u32,
    /// Whether operators that the target has fused kernels for stay whole. Without, everything is
    /// lowered to plain arithmetic: the baseline that a bench compares with.
    pub fusion: bool,
    /// Whether attention of a half type computes its products in float32: queries, keys and values are cast in front of
    /// it.
    pub attention_fp32: bool,
    /// The precision that is asked for; the model's own where absent.
    pub precision: Option<Arc<HalfPrecision>>,
    /// How linear layers are quantized, where that is asked for.
    pub quantization: Option<Arc<quantize::Quantization>>,
    /// How weights alone are quantized, where that is asked for.
    pub weight_quantization: Option<Arc<quantize::WeightQuantization>>,
    /// Whether a weight that is not finite stays a float. Otherwise it is an error.
    pub allow_non_finite: bool,
    /// How target `ort` multiplies with weights that have a scale for each block.
    pub block_inputs: BlockInputs,
    /// What mixtures of experts are lowered to.
    pub experts: ExpertsForm,
    /// How the tokens of a batch are ordered in front of an attention without a cache.
    pub order: TokenOrder,
    /// What attention is lowered to.
    pub attention: AttentionForm,
    /// Which linear layers of one operand become one, where operators do not stay whole.
    pub packing: Packing,
    /// Whether the biases of linear layers move into norms.
    pub absorbs_biases: bool,
    /// How attention appends to the cache of keys and values.
    pub cache: CacheForm,
    /// Whether only the last token of each row gets logits.
    pub last_logits: bool,
    /// What is padded.
    pub padding: Padding,
    /// Whether passes that raise report the rules that nearly matched.
    pub explain: bool,
}

/// What ONNX Runtime multiplies weights that have a scale for each block with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockInputs {
    /// The input as it is.
    Floats,
    /// Integers of 8 bits with a scale for each block of the input, which each run computes.
    #[default]
    Integers,
}

impl Options {
    /// With fusion, in the model's own precision and with inputs of blocks as they are, with logits of all tokens, padded as
    /// the target wants it, and without explanations.
    #[must_use]
    pub fn new(target: &'static Target, opset: u32) -> Self {
        Self {
            target,
            opset,
            fusion: true,
            precision: None,
            quantization: None,
            weight_quantization: None,
            allow_non_finite: false,
            // Codes that a model comes with are multiplied without loss.
            block_inputs: BlockInputs::Floats,
            attention_fp32: false,
            experts: target.experts.first().copied().unwrap_or(ExpertsForm::All),
            order: target.order,
            attention: target.attention,
            packing: if target.rounds_block_inputs() { Packing::Blocks } else { Packing::None },
            absorbs_biases: target.absorbs_biases,
            cache: CacheForm::default(),
            last_logits: false,
            padding: Padding::of(target),
            explain: false,
        }
    }
}

impl Options {
    /// Whether the operators of the graph stay as they are, to be fused.
    pub(crate) fn keeps_operators(&self) -> bool {
        self.fusion && self.target.fuses
    }

    /// How float32 is brought to a half type, where that is asked for.
    pub(crate) fn half(&self) -> Option<&HalfPrecision> {
        self.precision.as_deref()
    }
}

/// A rewrite of graphs, and what it documents of itself.
pub struct Pass {
    /// Its name, e.g. `common-subexpressions`.
    pub name: &'static str,
    /// What it does, and why: sentences, the first of which says what the pass is for.
    pub summary: &'static str,
    /// What it does to numbers.
    pub numerics: &'static str,
    /// A graph before and after, in the text form; a test runs it.
    pub example: Example,
    /// Whether it applies with these options; a pipeline leaves it out where it does not.
    pub applies: fn(&Options) -> bool,
    /// Rewrites a graph with options that it applies with.
    pub run: fn(&mut Graph, &Options) -> Result<Outcome, PassError>,
}

impl Pass {
    /// Applies it, if it applies with these options; else it changes nothing.
    ///
    /// # Errors
    /// Those of the pass.
    pub fn apply(&self, graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
        if (self.applies)(options) { (self.run)(graph, options) } else { Ok(Outcome::default()) }
    }

    /// The first sentence of the summary, without its full stop: a line for lists of passes.
    #[must_use]
    pub fn gist(&self) -> &'static str {
        self.summary.split_once(". ").map_or(self.summary.trim_end_matches('.'), |(first, _)| first)
    }
}

/// A documented application of a pass, with vocabularies and linear layers padded to multiples of 4, and logits of the last
/// token only.
pub struct Example {
    /// The target it is run for, at opset 20.
    pub target: &'static Target,
    /// Whether it is run with fusion.
    pub fusion: bool,
    /// The statements of the graph before.
    pub before: &'static str,
    /// The statements of the graph after.
    pub after: &'static str,
}

/// A pass failed.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// A rewrite built an operator whose operands do not fit.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A constant could not be computed.
    #[error("cannot compute `{name}` ({origin}) at compile time: {message}")]
    Fold {
        /// The value.
        name: String,
        /// Where it came from.
        origin: Origin,
        /// What went wrong.
        message: String,
    },
    /// A weight could not be read.
    #[error("cannot read the weight `{name}` ({origin})")]
    Weight {
        /// The weight.
        name: String,
        /// Where it came from.
        origin: Origin,
        /// What went wrong.
        source: WeightError,
    },
    /// A weight cannot be as large as it should be padded.
    #[error("`{name}` ({origin}) cannot be padded to a multiple of {multiple}: it would be too large")]
    TooLarge {
        /// The weight.
        name: String,
        /// Where it came from.
        origin: Origin,
        /// What was asked for.
        multiple: usize,
    },
    /// Operators that the target has no kernel for; all of them are listed.
    #[error("target `{target}` cannot run {} of the graph's operators at opset {opset}:{}", .operators.len(), .operators.concat())]
    Unsupported {
        /// The target.
        target: &'static Target,
        /// The opset.
        opset: u32,
        /// A line for each.
        operators: Vec<String>,
    },
    /// A quantized value has codes that the target runs no operators of the opset for.
    #[error(
        "`{name}` ({origin}): quantization of {floats} to {codes} needs opset {}, and the graph is written in opset {opset}; --opset chooses another",
        within(.opsets)
    )]
    QuantizedOpset {
        /// The value.
        name: String,
        /// Where it came from.
        origin: Origin,
        /// The type of its elements.
        floats: DType,
        /// The type of the codes.
        codes: DType,
        /// The opsets whose operators the target runs.
        opsets: RangeInclusive<u32>,
        /// The opset.
        opset: u32,
    },
    /// Attention that cannot append to its cache in place; all of them are listed.
    #[error(
        "the cache cannot be appended to in place: {} of the graph's attentions cannot be ONNX Runtime's GroupQueryAttention; use --recipe cache=copy:{}",
        .operators.len(), .operators.concat()
    )]
    Cache {
        /// A line for each.
        operators: Vec<String>,
    },
    /// Passes that are repeated until nothing changes do not come to an end: a bug in those that are named.
    #[error("passes still change the graph after {rounds} rounds; please report it with the model:{}", .passes.concat())]
    NoFixedPoint {
        /// How often each ran.
        rounds: usize,
        /// A line for each that changed something in the last round, and how much.
        passes: Vec<String>,
    },
    /// A graph broke an invariant: a bug in the pass.
    #[error("pass `{pass}` broke the graph")]
    Broken {
        /// The pass.
        pass: &'static str,
        /// The invariant.
        source: VerifyError,
    },
}

/// Opsets in words.
fn within(opsets: &RangeInclusive<u32>) -> String {
    match (opsets.start(), opsets.end()) {
        (first, &u32::MAX) => format!("{first} or a later one"),
        (first, last) => format!("{first} to {last}"),
    }
}

impl PassError {
    /// That a weight could not be read.
    pub(crate) fn of_weight(graph: &Graph, weight: ValueId, source: WeightError) -> Self {
        let value = graph.value(weight);
        Self::Weight { name: value.name.clone(), origin: value.origin.clone(), source }
    }
}
