//! Precision: weights and arithmetic in float16 or bfloat16, and float32 only where range or a
//! kernel demands it.

mod choices;
mod kind;
mod losses;
mod plan;
mod reason;
mod rebuild;
mod report;
mod store;
mod widen;

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use planish_ir::{DType, Graph, ValueId};

use crate::{Example, Exceptions, Note, ONNX, Options, Outcome, Pass, PassError, QuantizedForm};

pub use losses::Loss;
pub use reason::Kept;
pub use report::{HalfReport, PartPrecision};
pub use store::STORE_HALF;
pub use widen::WIDEN;

/// A floating-point type of 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// IEEE 754 binary16: 11 bits of precision, magnitudes up to 65504.
    F16,
    /// bfloat16: 8 bits of precision, the range of float32.
    Bf16,
}

impl Half {
    /// The element type.
    #[must_use]
    pub fn dtype(self) -> DType {
        match self {
            Half::F16 => DType::F16,
            Half::Bf16 => DType::Bf16,
        }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Half::F16 => Half::Bf16,
            Half::Bf16 => Half::F16,
        }
    }

    /// The largest finite number.
    #[must_use]
    pub fn max(self) -> f64 {
        self.dtype().finite_min().map_or(0.0, f64::abs)
    }

    /// The largest relative error of rounding a number of the normal range (unit roundoff).
    #[must_use]
    pub fn roundoff(self) -> f64 {
        match self {
            Half::F16 => 2f64.powi(-11),
            Half::Bf16 => 2f64.powi(-8),
        }
    }

    /// The magnitude beyond which an activation that was observed is kept in float32: an eighth of the
    /// largest number, so that unseen data may be eight times as large.
    #[must_use]
    pub fn default_max_abs(self) -> f64 {
        self.max() / 8.0
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Half::F16 => "fp16",
            Half::Bf16 => "bf16",
        })
    }
}

/// How a float32 graph is brought to half precision.
#[derive(Clone, Debug)]
pub struct HalfPrecision {
    /// The type that takes the place of float32.
    pub half: Half,
    /// What stays in float32 whatever its range: nodes whose name or origin, or a weight of which, matches. Entries of other
    /// types take nodes out of those before them.
    pub keep: Exceptions,
    /// Activations that exceed this stay in float32.
    pub max_abs: f64,
    /// Whether inputs and outputs of the graph are in half precision too.
    pub half_io: bool,
    /// The largest magnitude of values of the canonical graph that were observed, by name. The scores
    /// of an attention go by the name of its result and `/scores`.
    pub observed: BTreeMap<String, f64>,
}

impl HalfPrecision {
    /// With inputs and outputs in float32, and nothing known of activations.
    #[must_use]
    pub fn new(half: Half) -> Self {
        Self {
            half,
            keep: Exceptions::default(),
            max_abs: half.default_max_abs(),
            half_io: false,
            observed: BTreeMap::new(),
        }
    }
}

/// Brings a float32 graph to half precision.
pub const HALVE: Pass = Pass {
    name: "halve",
    summary: "Brings a float32 graph to float16 or bfloat16. The pass runs where half precision is asked for. Weights \
              are cast lazily. Products, norms, rotations, activations and sums compute in the half type. The \
              following stays float32. (positions) Values that are computed from integers alone, such as angles and \
              masks, and sums and products with a number beyond the limit of activations. (reductions) Sums, means, \
              running sums, softmax, powers, exponentials, logarithms, roots and trigonometric functions, and the \
              operators after them up to the next norm, product or bounded function: only float32 holds numbers as \
              large or as small. (sole-use) Values that only such operators use, except products and tables of \
              lookups, and the bias of an attention. (shared) Lookups in a table that another operator takes in \
              float32, so that a tied table stays one tensor. (weights) Operators with a weight that overflows, or \
              that underflows so much that its relative error exceeds four units of roundoff. (activations) Operators \
              of which an operand or a result was observed to exceed the limit. (choices) Operators that give the numbers of a choice of the \
              largest among at most 1024, from the last product on, such as the routers of experts: rounding would choose \
              others. (processing) Operators that make features of recordings. (asked) Operators that are to keep \
              float32 by their names. Inputs and outputs of the graph stay float32 too, unless the recipe's `io` is half. Values that the \
              graph has in the other half type, such as the slopes of ALiBi, are computed in float32. Norms always \
              compute their statistics in float32, and attention always computes its softmax in float32. Each value is \
              cast once. For target ort, which computes in float32, the pass only rounds weights to the half type, and \
              store-half stores them in it.",
    numerics: "Weights and results round to 11 bits (float16) or 8 bits (bfloat16). Results in the other half type no \
               longer round to it.",
    example: Example {
        target: &ONNX,
        fusion: true,
        before: "
            input %x: f32[n, 2]
            weight @w = uniform(1) : f32[3, 2]
            %y = linear(%x, @w) : f32[n, 3]
            %z = gelu(%y) {form = erf} : f32[n, 3]
            output z = %z",
        after: "
            input %x: f32[n, 2]
            weight @w = cast(uniform(1) : f32[3, 2]) : f16[3, 2]
            %x/cast = cast(%x) {to = f16} : f16[n, 2]
            %y = linear(%x/cast, @w) : f16[n, 3]
            %z = gelu(%y) {form = erf} : f16[n, 3]
            %z/cast = cast(%z) {to = f32} : f32[n, 3]
            output z = %z/cast",
    },
    applies: |options| options.half().is_some(),
    run,
};

/// What was brought to half precision, and what was not.
struct Halved {
    /// How many operators compute in the half type, or where the target computes in float32, how many weights were
    /// rounded to it.
    changed: usize,
    /// What is kept in float32 and would not be by its kind.
    kept: Vec<Kept>,
    /// For each exception, whether it names anything.
    matched: Vec<bool>,
    /// The weights that are in the half type now, by their values before.
    weights: HashSet<ValueId>,
}

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let Some(precision) = options.half() else { return Ok(Outcome::default()) };
    let mut losses = losses::losses(graph, precision.half)?;
    if options.target.quantized == QuantizedForm::Codes {
        // Their codes and scales are stored, and nothing is rounded to the half type.
        let is_codes = |weight: ValueId| graph.weight(weight).is_some_and(|weight| weight.as_dequantized().is_some());
        losses.retain(|(weight, _)| !is_codes(*weight));
    }
    let halved = if options.target.computes_in_float32 {
        store::round_weights(graph, precision, &losses)?
    } else {
        let plan = plan::plan(graph, precision, options.target.quantized, &losses);
        let (changed, weights) = (plan.halved(), plan.halved_weights(graph));
        *graph = rebuild::rebuild(graph, &plan::Planned { plan: &plan, precision })?;
        Halved { changed, kept: plan.kept, matched: plan.matched, weights }
    };
    // The other weights keep all their digits.
    losses.retain(|(weight, _)| halved.weights.contains(weight));
    let changed = halved.changed;
    let report = HalfReport::new(graph, precision, halved, losses);
    Ok(Outcome { changed, notes: vec![Note::Halved(report)] })
}
