//! Raising: from the arithmetic that exporters write back to high-level operators.
//!
//! A rule looks at one node and what it is computed from. It matches and says what takes the node's
//! place, or it comes near and says what is missing: nothing is lost without a reason.

mod activation;
mod attention;
mod batch_norm;
mod count;
mod element;
mod embedding;
mod linear;
mod narrow;
mod norm;
mod pattern;
mod product;
mod quantized;
mod rotary;

use planish_ir::{Graph, NodeId, Rewriter};

pub use activation::RAISE_ACTIVATIONS;
pub use attention::RAISE_ATTENTION;
pub use batch_norm::FOLD_BATCH_NORMS;
pub use count::{Match, matches, raised};
pub use embedding::RAISE_EMBEDDINGS;
pub use linear::RAISE_LINEAR;
pub use norm::RAISE_NORMS;
pub(crate) use norm::root_of_squares;
pub use quantized::RAISE_QUANTIZED;
pub use rotary::RAISE_ROTARY;

pub use crate::rules::Miss;
use crate::rules::{self, Uses, ends};
pub(crate) use crate::rules::{Found, NoMatch};
use crate::{ONNX, Options, Outcome, Pass, PassError, Stage, last_notes};

/// A pattern and what it becomes. New nodes go before the one it looks at.
pub(crate) struct Rule {
    /// What it raises to, e.g. `attention`.
    pub(crate) name: &'static str,
    /// Looks at a node.
    pub(crate) find: fn(&mut Rewriter<'_>, NodeId) -> Found,
}

/// What raising found in a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The operators.
    pub matches: Vec<Match>,
    /// Where it came near.
    pub misses: Vec<Miss>,
    /// The attention whose sizes are fixed, by the names of their results, and the form that `chunk-attention` chose, with
    /// the reason.
    pub attentions: Vec<(String, String)>,
}

/// What raising found in a graph that has been raised; `stages` are the passes that ran, with
/// [`Options::explain`](crate::Options::explain).
#[must_use]
pub fn explain(graph: &Graph, stages: &[Stage]) -> Explanation {
    Explanation { matches: matches(graph), misses: ends(last_notes(stages)), attentions: Vec::new() }
}

/// Applies rules one after another.
pub(crate) fn run(graph: &mut Graph, rules: &[&Rule], options: &Options) -> Outcome {
    let mut outcome = Outcome::default();
    for rule in rules {
        let found = rules::apply(graph, options, rule.name, Uses::default(), |graph, node, _| (rule.find)(graph, node));
        outcome.changed += found.changed;
        outcome.notes.extend(found.notes);
    }
    outcome
}

/// The passes that raise, each once, in the order of the pipeline.
const RAISERS: [&Pass; 7] = [
    &RAISE_QUANTIZED,
    &RAISE_EMBEDDINGS,
    &RAISE_LINEAR,
    &RAISE_ACTIVATIONS,
    &RAISE_NORMS,
    &RAISE_ROTARY,
    &RAISE_ATTENTION,
];

/// Where rules nearly match in a graph that has been raised.
///
/// # Errors
/// When a pass fails.
pub fn misses(graph: &Graph) -> Result<Vec<Miss>, PassError> {
    let mut graph = graph.clone();
    let options = Options { explain: true, ..Options::new(&ONNX, 20) };
    let outcomes = RAISERS.into_iter().map(|pass| pass.apply(&mut graph, &options));
    let outcomes = outcomes.collect::<Result<Vec<Outcome>, PassError>>()?;
    Ok(ends(outcomes.iter().flat_map(|outcome| &outcome.notes)))
}
