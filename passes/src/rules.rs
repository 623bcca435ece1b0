//! The engine of rules: a rule looks at one node and what it is computed from. It matches and says what takes the node's
//! place, or it comes near and says what is missing: nothing is lost without a reason.

use std::collections::HashSet;
use std::convert::Infallible;

use planish_ir::handle::Handle;
use planish_ir::{BuildError, Graph, NodeId, Origin, Rewriter, Step, Value, ValueId};

use crate::{Note, Options, Outcome};

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
pub(crate) fn does_not_fit(error: &BuildError) -> String {
    let lines: Vec<String> = error.to_string().lines().map(|line| line.trim().to_owned()).collect();
    format!("the operator that would take its place does not fit: {}", lines.join("; "))
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

/// Applies a rule everywhere. It sees how often each value is used, of those that `uses` has; what takes the place of a
/// value has its users.
pub(crate) fn apply(
    graph: &mut Graph,
    options: &Options,
    rule: &'static str,
    mut uses: Uses,
    mut find: impl FnMut(&mut Rewriter<'_>, NodeId, &Uses) -> Found,
) -> Outcome {
    let mut misses = Vec::new();
    let Ok(changed) = graph.rewrite(|graph, node| {
        let reason = match find(graph, node, &uses) {
            Ok(values) if same_types(graph, node, &values) => {
                uses.hand_on(&graph.node(node).outputs, &values);
                return Ok::<_, Infallible>(Step::Replace(values));
            }
            Ok(values) => other_types(graph, node, &values),
            Err(NoMatch::Miss(reason)) => reason,
            Err(NoMatch::Other) => return Ok(Step::Keep),
        };
        misses.push(Miss::at(graph, graph.node(node).outputs[0], rule, reason));
        Ok(Step::Keep)
    });
    graph.compact();
    let notes = if options.explain { misses.into_iter().map(Note::Missed).collect() } else { Vec::new() };
    Outcome { changed, notes }
}

fn same_types(graph: &Graph, node: NodeId, values: &[ValueId]) -> bool {
    graph.node(node).outputs.iter().map(|v| graph.ty(*v)).eq(values.iter().map(|v| graph.ty(*v)))
}

/// What is said of results that would have other types than those that they take the place of: an operand with more
/// dimensions than it needs gave them to the result.
fn other_types(graph: &Graph, node: NodeId, values: &[ValueId]) -> String {
    let types =
        |values: &[ValueId]| values.iter().map(|v| graph.ty(*v).to_string()).collect::<Vec<String>>().join(", ");
    format!("the result would be {}, and it is {}", types(values), types(&graph.node(node).outputs))
}

/// How often values are used.
#[derive(Default)]
pub(crate) struct Uses(Vec<usize>);

impl Uses {
    /// How often a graph uses each value.
    pub(crate) fn of(graph: &Graph) -> Self {
        Self(graph.use_counts())
    }

    /// Whether a value is used once.
    pub(crate) fn is_single(&self, value: ValueId) -> bool {
        self.0.get(value.index()) == Some(&1)
    }

    /// Gives values the users of those that they take the place of.
    fn hand_on(&mut self, from: &[ValueId], to: &[ValueId]) {
        for (from, to) in from.iter().zip(to) {
            let users = self.0.get(from.index()).copied().unwrap_or(0);
            if self.0.len() <= to.index() {
                self.0.resize(to.index() + 1, 0);
            }
            self.0[to.index()] += users;
        }
    }
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
