//! The graph of a node on its way into the graph around it.

use std::collections::HashMap;

use prost::Message;

use super::super::super::scope::Scope;
use super::super::super::{is_default, order};
use super::super::{Node, import};
use crate::proto::{AttributeType, DimensionValue, GraphProto, NodeProto};

/// What unrolled loops of a model may come to in all, in nodes. Loops beyond it stay operators.
const MAX_UNROLLED: usize = 10_000;

/// A body counts as one node more for each so many bytes of its encoding: constants in graphs of its nodes are
/// copied in each round.
const BYTES_OF_A_NODE: usize = 1 << 10;

/// A graph that a node has as an attribute.
pub(super) struct Body {
    graph: GraphProto,
    /// The attribute.
    attribute: &'static str,
    /// What its names begin with outside.
    prefix: String,
    /// The names outside of its constants, where all rounds share them.
    shared: HashMap<String, String>,
}

impl Body {
    /// # Errors
    /// When the node has no such graph, or it is malformed.
    pub(super) fn new(scope: &Scope, node: &Node<'_>, attribute: &'static str) -> Result<Self, String> {
        let graph = node.attribute(attribute, AttributeType::Graph)?.and_then(|a| a.g.as_ref());
        let mut graph = graph.ok_or_else(|| format!("it has no graph `{attribute}`"))?.clone();
        order::check(&mut graph, &|name| scope.is_defined(name))?;
        let prefix = node.proto.output.iter().find(|name| !name.is_empty()).ok_or("it has no result")?.clone();
        Ok(Self { graph, attribute, prefix, shared: HashMap::new() })
    }

    /// Checks the numbers of inputs and results.
    ///
    /// # Errors
    /// When they differ.
    pub(super) fn expect(&self, inputs: usize, results: usize) -> Result<(), String> {
        for (kind, expected, found) in
            [("inputs", inputs, self.graph.input.len()), ("results", results, self.graph.output.len())]
        {
            if found != expected {
                return Err(format!("its `{}` has {found} {kind}, expected {expected}", self.attribute));
            }
        }
        Ok(())
    }

    /// Takes what so many rounds, or one where there is none, come to from what the model may still be unrolled to;
    /// whether that is enough.
    pub(super) fn takes(&self, scope: &mut Scope, rounds: i64) -> bool {
        // Operands are cut into rounds and results put together again.
        let ends = self.graph.input.len() + self.graph.output.len();
        let round = 1 + ends + nodes(&self.graph) + self.graph.encoded_len() / BYTES_OF_A_NODE;
        let total =
            usize::try_from(rounds.max(1)).unwrap_or(usize::MAX).saturating_mul(round).saturating_add(scope.unrolled);
        let enough = total <= MAX_UNROLLED;
        if enough {
            scope.unrolled = total;
        }
        enough
    }

    /// Brings the constants into the scope, once for all rounds. Names of dimensions are dropped: they need not
    /// stand for the same sizes in each round.
    ///
    /// # Errors
    /// When a constant cannot be had.
    pub(super) fn share_constants(&mut self, scope: &mut Scope) -> Result<(), String> {
        forget_names_of_dimensions(&mut self.graph);
        let is_constant = |node: &NodeProto| node.op_type == "Constant" && is_default(&node.domain);
        let (node, rest) = std::mem::take(&mut self.graph.node).into_iter().partition(is_constant);
        let initializer = std::mem::take(&mut self.graph.initializer);
        self.graph.node = rest;
        let mut constants = GraphProto { node, initializer, ..GraphProto::default() };
        let prefix = &self.prefix;
        self.shared = rename(&mut constants, &|own| scope.unused(&format!("{prefix}/{own}")), &|_| None);
        run(scope, &constants)
    }

    /// Makes the nodes part of the graph under names of their own, which `part` is in, and returns the names
    /// of the results.
    ///
    /// # Errors
    /// When an operand is missing or a node cannot be imported.
    pub(super) fn instance(&self, scope: &mut Scope, part: &str, operands: &[String]) -> Result<Vec<String>, String> {
        if let Some(missing) = operands.iter().find(|name| !scope.is_defined(name)) {
            return Err(format!("its operand `{missing}` is missing"));
        }
        let mut graph = self.graph.clone();
        let name = |own: &str| scope.unused(&format!("{}/{part}/{own}", self.prefix));
        rename(&mut graph, &name, &|name| self.shared.get(name).cloned());
        for (input, operand) in graph.input.iter().zip(operands) {
            scope.alias(&input.name, operand);
        }
        run(scope, &graph)?;
        Ok(graph.output.into_iter().map(|result| result.name).collect())
    }

    /// A name for what comes before or after the nodes of a round.
    pub(super) fn name(&self, scope: &Scope, round: i64, of: &str) -> String {
        scope.unused(&format!("{}/{round}/{of}", self.prefix))
    }
}

/// Imports the constants and nodes of a graph whose names are those of the scope.
fn run(scope: &mut Scope, graph: &GraphProto) -> Result<(), String> {
    let before = scope.problems.len();
    scope.interface(graph)?;
    for node in &graph.node {
        import(scope, node);
    }
    // The node may do without being part of the graph.
    let problems = scope.problems.split_off(before);
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

/// The nodes of a graph, those in graphs of its nodes included.
fn nodes(graph: &GraphProto) -> usize {
    let inner = graph.node.iter().flat_map(|node| &node.attribute).filter_map(|a| a.g.as_ref());
    graph.node.len() + inner.map(nodes).sum::<usize>()
}

fn forget_names_of_dimensions(graph: &mut GraphProto) {
    let infos = graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info);
    let shapes = infos.filter_map(|info| info.r#type.as_mut()?.tensor_type.as_mut()?.shape.as_mut());
    for dim in shapes.flat_map(|shape| &mut shape.dim) {
        if matches!(dim.value, Some(DimensionValue::DimParam(_))) {
            dim.value = None;
        }
    }
    let attributes = graph.node.iter_mut().flat_map(|node| &mut node.attribute);
    attributes.filter_map(|a| a.g.as_mut()).for_each(forget_names_of_dimensions);
}

/// Gives what a graph defines other names, also where its own graphs use it; returns them.
fn rename(
    graph: &mut GraphProto,
    other: &dyn Fn(&str) -> String,
    around: &dyn Fn(&str) -> Option<String>,
) -> HashMap<String, String> {
    let inputs = graph.input.iter().map(|i| &i.name);
    let constants = graph.initializer.iter().map(|t| &t.name);
    let results = graph.node.iter().flat_map(|n| &n.output);
    let own: HashMap<String, String> =
        inputs.chain(constants).chain(results).filter(|n| !n.is_empty()).map(|n| (n.clone(), other(n))).collect();
    let new = |name: &str| own.get(name).cloned().or_else(|| around(name));
    let replace = |name: &mut String| {
        if let Some(new) = new(name) {
            *name = new;
        }
    };
    let infos = graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info);
    infos.for_each(|info| replace(&mut info.name));
    graph.initializer.iter_mut().for_each(|t| replace(&mut t.name));
    for node in &mut graph.node {
        node.input.iter_mut().chain(&mut node.output).for_each(replace);
        for inner in node.attribute.iter_mut().filter_map(|a| a.g.as_mut()) {
            rename(inner, other, &new);
        }
    }
    own
}
