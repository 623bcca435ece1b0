//! Raising: from the arithmetic that exporters write back to the operators in which the meaning is plain.
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
mod rotary;

use std::collections::HashSet;

use planish_ir::{BuildError, Graph, NodeId, Origin, Rewriter, Step, ValueId};

use crate::PassError;

pub use activation::RAISE_ACTIVATIONS;
pub use attention::RAISE_ATTENTION;
pub use count::{Match, matches, raised};
pub use embedding::RAISE_EMBEDDINGS;
pub use linear::RAISE_LINEAR;
pub use norm::RAISE_NORMS;
pub use rotary::RAISE_ROTARY;

/// What a rule finds at a node.
pub(crate) enum Found {
    /// Nothing that it is about.
    Nothing,
    /// Almost what it is about: the condition that does not hold, and the value that fails it.
    Miss(String),
    /// What takes the place of the node's results.
    Match(Vec<ValueId>),
}

/// A pattern and what it becomes. New nodes go before the one it looks at.
pub(crate) struct Rule {
    /// What it raises to, e.g. `attention`.
    pub(crate) name: &'static str,
    /// Looks at a node.
    pub(crate) find: fn(&mut Rewriter<'_>, NodeId) -> Result<Found, BuildError>,
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

/// What raising found in a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The operators.
    pub matches: Vec<Match>,
    /// Where it came near.
    pub misses: Vec<Miss>,
}

/// What raising found in a graph that has been raised.
///
/// # Errors
/// Those of [`misses`].
pub fn explain(graph: &Graph) -> Result<Explanation, PassError> {
    Ok(Explanation { matches: matches(graph), misses: misses(graph)? })
}

/// Applies a rule everywhere; returns how often it matched and where it came near.
fn apply(graph: &mut Graph, rule: &Rule) -> Result<(usize, Vec<Miss>), PassError> {
    let mut misses = Vec::new();
    let matched = graph.rewrite(|graph, node| match (rule.find)(graph, node)? {
        Found::Nothing => Ok::<_, PassError>(Step::Keep),
        Found::Match(values) if same_types(graph, node, &values) => Ok(Step::Replace(values)),
        // An operand with more dimensions than it needs gave them to the result.
        Found::Match(_) => Ok(Step::Keep),
        Found::Miss(reason) => {
            let value = graph.value(graph.node(node).outputs[0]);
            let (at, origin) = (value.name.clone(), value.origin.clone());
            misses.push(Miss { rule: rule.name, at, origin, reason });
            Ok(Step::Keep)
        }
    })?;
    graph.compact();
    Ok((matched, misses))
}

fn same_types(graph: &Graph, node: NodeId, values: &[ValueId]) -> bool {
    graph.node(node).outputs.iter().map(|v| graph.ty(*v)).eq(values.iter().map(|v| graph.ty(*v)))
}

/// Applies rules one after another.
pub(crate) fn run(graph: &mut Graph, rules: &[&Rule]) -> Result<usize, PassError> {
    rules.iter().try_fold(0, |sum, rule| Ok(sum + apply(graph, rule)?.0))
}

/// Where rules come near in a graph that has been raised.
///
/// # Errors
/// When a rule builds an operator whose operands do not fit: a bug in the rule.
pub fn misses(graph: &Graph) -> Result<Vec<Miss>, PassError> {
    let mut graph = graph.clone();
    let mut all: Vec<Miss> = Vec::new();
    for rule in RULES.iter().copied().flatten() {
        all.extend(apply(&mut graph, rule)?.1);
    }
    // Of a chain, such as a product of several factors, its end stands for all.
    let mut seen = HashSet::new();
    let mut ends: Vec<Miss> =
        all.into_iter().rev().filter(|miss| seen.insert((miss.rule, miss.reason.clone()))).collect();
    ends.reverse();
    Ok(ends)
}

/// Every rule.
const RULES: &[&[&Rule]] =
    &[embedding::RULES, linear::RULES, activation::RULES, norm::RULES, rotary::RULES, attention::RULES];
