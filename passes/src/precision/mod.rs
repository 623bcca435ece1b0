//! Precision: weights and arithmetic in float16 or bfloat16, and float32 only where range or a
//! kernel demands it.

mod kind;
mod losses;
mod plan;
mod reason;
mod rebuild;
mod report;
mod store;
mod widen;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use planish_ir::{DType, Graph};
use regex::Regex;

use crate::{Example, Note, ONNX, Options, Outcome, Pass, PassError};

pub use losses::Loss;
pub use reason::{Kept, Reason};
pub use report::HalfReport;
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

/// The precision that a graph is brought to.
#[derive(Clone, Debug)]
pub enum Precision {
    /// Weights and arithmetic in float16 or bfloat16.
    Half(HalfPrecision),
}

impl Precision {
    /// How float32 is brought to a half type, where it is.
    #[must_use]
    pub fn half(&self) -> Option<&HalfPrecision> {
        match self {
            Self::Half(half) => Some(half),
        }
    }
}

impl fmt::Display for Precision {
    /// The name in `planish.json`, e.g. `fp16`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Half(precision) => precision.half.fmt(f),
        }
    }
}

/// As [`Options`] has it.
impl From<HalfPrecision> for Arc<Precision> {
    fn from(half: HalfPrecision) -> Self {
        Self::new(Precision::Half(half))
    }
}

/// How a float32 graph is brought to half precision.
#[derive(Clone, Debug)]
pub struct HalfPrecision {
    /// The type that takes the place of float32.
    pub half: Half,
    /// What stays in float32 whatever its range: nodes whose name or origin, or a weight of which,
    /// matches.
    pub keep: Vec<Regex>,
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
        Self { half, keep: Vec::new(), max_abs: half.default_max_abs(), half_io: false, observed: BTreeMap::new() }
    }
}

/// Brings a float32 graph to half precision.
pub const HALVE: Pass = Pass {
    name: "halve",
    summary: "brings a float32 graph to float16 or bfloat16, where one is asked for: weights are cast lazily, \
              products, norms, rotations, activations and sums compute in it. In float32 stay: (positions) what is \
              computed from integers alone, such as angles and masks, and sums and products with a number beyond \
              the limit of activations; (reductions) sums, means, running sums, softmax, powers, exponentials, \
              logarithms, roots and trigonometric functions on their own, and what follows them up to the next \
              norm, product or bounded function, for only float32 holds how large or small they may be; (sole-use) \
              what only such operators use, but for products and tables that are looked up in, and the bias of an \
              attention; (shared) lookups in a table that another operator takes in float32, so that a tied one \
              stays one tensor; (weights) operators with a weight that the type cannot hold, because elements \
              overflow or so much underflows that the weight's relative error exceeds four units of roundoff; \
              (activations) operators one of whose values was observed to exceed the limit; (asked) what was \
              named; and inputs and outputs of the graph, unless they are to be halved too. What the graph has in the other \
              half type, such as the slopes of ALiBi, is computed in float32. Norms compute their \
              statistics and attention its softmax in float32 in any case. One value is cast once. On target ort, \
              which has no half kernels, weights are stored in half precision instead (store-half)",
    numerics: "weights and each result round to 11 (float16) or 8 (bfloat16) bits; results in the other half type no \
               longer round to it",
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
    run,
};

fn run(graph: &mut Graph, options: &Options) -> Result<Outcome, PassError> {
    let Some(precision) = options.half() else { return Ok(Outcome::default()) };
    let mut losses = losses::losses(graph, precision.half)?;
    let (changed, kept, matched, halved) = if options.target.computes_in_float32 {
        store::round_weights(graph, precision, &losses)?
    } else {
        let plan = plan::plan(graph, precision, &losses);
        let (changed, halved) = (plan.halved(), plan.halved_weights(graph));
        *graph = rebuild::rebuild(graph, &plan::Halved { plan: &plan, precision })?;
        (changed, plan.kept, plan.matched, halved)
    };
    // The other weights keep all their digits.
    losses.retain(|(weight, _)| halved.contains(weight));
    let report = HalfReport::new(graph, precision, changed, kept, losses, matched);
    Ok(Outcome { changed, notes: vec![Note::Halved(report)] })
}
