//! Raising: from the arithmetic that exporters write back to high-level operators.
//!
//! A rule looks at one node and what it is computed from. It matches and says what takes the node's
//! place, or it comes near and says what is missing: nothing is lost without a reason.

mod activation;
mod attention;
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

use std::collections::HashSet;
use std::convert::Infallible;

use planish_ir::{BuildError, Graph, NodeId, Origin, Rewriter, Step, Value, ValueId};

pub use activation::RAISE_ACTIVATIONS;
pub use attention::RAISE_ATTENTION;
pub use count::{Match, matches, raised};
pub use embedding::RAISE_EMBEDDINGS;
pub use linear::RAISE_LINEAR;
pub use norm::RAISE_NORMS;
pub(crate) use norm::root_of_squares;
pub use quantized::RAISE_QUANTIZED;
pub use rotary::RAISE_ROTARY;

use crate::{Note, ONNX, Options, Outcome, Pass, PassError, Stage, last_notes};

/// What a rule finds at a node: what takes the place of the node's results, or why nothing does.
pub(crate) type Found = Result<Vec<ValueId>, NoMatch>;

/// Why a rule leaves a node as it is.
pub(crate) enum NoMatch {
    /// The node is nothing that the rule is about.
    Other,
    /// The rule almost matches the node: the condition that is false, and the value that makes it false.
    Miss(String),
}

/// An operator that a rule builds does not fit its operands: the graph has a form that the rule does not know.
impl From<BuildError> for NoMatch {
    fn from(error: BuildError) -> Self {
        NoMatch::Miss(does_not_fit(&error))
    }
}

/// What is said of an operator that a rule builds and whose operands do not fit.
fn does_not_fit(error: &BuildError) -> String {
    let lines: Vec<String> = error.to_string().lines().map(|line| line.trim().to_owned()).collect();
    format!("the operator that would take its place does not fit: {}", lines.join("; "))
}

/// A pattern and what it becomes. New nodes go before the one it looks at.
pub(crate) struct Rule {
    /// What it raises to, e.g. `attention`.
    pub(crate) name: &'static str,
    /// Looks at a node.
    pub(crate) find: fn(&mut Rewriter<'_>, NodeId) -> Found,
}

/// Where a rule came near.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss {
    /// What it would have raised to.
    pub rule: &'static str,
    /// The result of the node that it looked at.
    pub at: String,
    /// Where that came from.
    pub origin: Origin,
    /// What is missing, and at which value.
    pub reason: String,
}

impl Miss {
    /// A miss at the node of this result.
    pub(crate) fn at(graph: &Graph, result: ValueId, rule: &'static str, reason: String) -> Self {
        let Value { name, origin, .. } = graph.value(result);
        Self { rule, at: name.clone(), origin: origin.clone(), reason }
    }
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

/// Applies a rule everywhere; returns how often it matched and where it came near.
fn apply(graph: &mut Graph, rule: &Rule) -> (usize, Vec<Miss>) {
    let mut misses = Vec::new();
    let Ok(matched) = graph.rewrite(|graph, node| {
        let reason = match (rule.find)(graph, node) {
            Ok(values) if same_types(graph, node, &values) => return Ok::<_, Infallible>(Step::Replace(values)),
            Ok(values) => other_types(graph, node, &values),
            Err(NoMatch::Miss(reason)) => reason,
            Err(NoMatch::Other) => return Ok(Step::Keep),
        };
        misses.push(Miss::at(graph, graph.node(node).outputs[0], rule.name, reason));
        Ok(Step::Keep)
    });
    graph.compact();
    (matched, misses)
}

pub(crate) fn same_types(graph: &Graph, node: NodeId, values: &[ValueId]) -> bool {
    graph.node(node).outputs.iter().map(|v| graph.ty(*v)).eq(values.iter().map(|v| graph.ty(*v)))
}

/// What is said of results that would have other types than those that they take the place of: an operand with more
/// dimensions than it needs gave them to the result.
pub(crate) fn other_types(graph: &Graph, node: NodeId, values: &[ValueId]) -> String {
    let types =
        |values: &[ValueId]| values.iter().map(|v| graph.ty(*v).to_string()).collect::<Vec<String>>().join(", ");
    format!("the result would be {}, and it is {}", types(values), types(&graph.node(node).outputs))
}

/// Applies rules one after another.
pub(crate) fn run(graph: &mut Graph, rules: &[&Rule], options: &Options) -> Outcome {
    let mut outcome = Outcome::default();
    for rule in rules {
        let (matched, misses) = apply(graph, rule);
        outcome.changed += matched;
        if options.explain {
            outcome.notes.extend(misses.into_iter().map(Note::Missed));
        }
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
    let outcomes = RAISERS.into_iter().map(|pass| (pass.run)(&mut graph, &options));
    let outcomes = outcomes.collect::<Result<Vec<Outcome>, PassError>>()?;
    Ok(ends(outcomes.iter().flat_map(|outcome| &outcome.notes)))
}

/// The misses among notes. Of a chain, such as a product of several factors, its end stands for all.
pub(crate) fn ends<'a>(notes: impl Iterator<Item = &'a Note>) -> Vec<Miss> {
    let misses = notes.filter_map(|note| match note {
        Note::Missed(miss) => Some(miss),
        _ => None,
    });
    let mut seen = HashSet::new();
    let all: Vec<&Miss> = misses.collect();
    let ends = all.into_iter().rev().filter(|miss| seen.insert((miss.rule, &miss.reason)));
    let mut ends: Vec<Miss> = ends.cloned().collect();
    ends.reverse();
    ends
}
