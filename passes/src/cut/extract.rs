//! The graphs of stages.

use std::collections::{BTreeSet, HashMap, HashSet};

use planish_ir::handle::Handle;
use planish_ir::{Def, Dim, Graph, NodeId, Symbol, ValueId};

use super::points::{Point, light};

/// A stage that is not made: which one, and why.
type Failure = (usize, String);

/// The graphs between places.
pub(super) fn stages(graph: &Graph, points: &[Point]) -> Result<Vec<Graph>, Failure> {
    let nodes = graph.needed_nodes();
    let light = light(graph);
    let ends = points.iter().map(|point| point.at).chain([nodes.len()]);
    let begins = std::iter::once(0).chain(points.iter().map(|point| point.at));
    let mut stages = Vec::with_capacity(points.len() + 1);
    for (stage, (begin, end)) in begins.zip(ends).enumerate() {
        let taken = stage.checked_sub(1).map(|before| points[before].value);
        let sent = points.get(stage).map(|point| point.value);
        let part = Part { graph, own: nodes[begin..end].iter().copied().collect(), light: &light, taken };
        let made = part.make(stage == 0, sent).map_err(|reason| (stage, reason))?;
        stages.push(made);
    }
    Ok(stages)
}

/// A stage of a graph.
struct Part<'a> {
    graph: &'a Graph,
    /// The nodes between the places.
    own: HashSet<NodeId>,
    light: &'a [bool],
    /// The value that the stage before sends.
    taken: Option<ValueId>,
}

impl Part<'_> {
    /// The graph of the stage, which sends a value to the next one. The first stage has the outputs that need no other.
    fn make(&self, is_first: bool, sent: Option<ValueId>) -> Result<Graph, String> {
        let graph = self.graph;
        let outputs: Vec<(String, ValueId)> = self.outputs(is_first, sent);
        let (needed, nodes) = self.needed(outputs.iter().map(|(_, value)| *value));
        let mut made = Graph::new(&graph.name);
        let mut moved: HashMap<ValueId, ValueId> = HashMap::new();
        if let Some(value) = self.taken {
            let (name, of) = (name_of(graph, value), graph.value(value));
            moved.insert(value, made.add_input(&name, of.ty.clone(), of.origin.clone()));
        }
        let shapes = self.symbols(&needed);
        for &input in graph.inputs() {
            if needed.contains(&input) || self.gives_size(input, &shapes, &needed) {
                let of = graph.value(input);
                moved.insert(input, made.add_input(&of.name, of.ty.clone(), of.origin.clone()));
            }
        }
        for (id, value, weight) in graph.weights().filter(|(id, ..)| needed.contains(id)) {
            moved.insert(id, made.add_weight(&value.name, weight.clone(), value.origin.clone()));
        }
        for id in nodes {
            let node = graph.node(id);
            let first = graph.value(node.outputs[0]);
            let mut op = node.op.clone();
            op.visit_operands_mut(&mut |value| *value = moved.get(value).copied().unwrap_or(*value));
            let results = made.emit(op, &first.name, first.origin.clone()).map_err(|error| error.to_string())?;
            moved.extend(node.outputs.iter().copied().zip(results));
        }
        for (name, value) in outputs {
            made.add_output(&name, *moved.get(&value).ok_or_else(|| format!("nothing computes `{name}`"))?);
        }
        made.interface = self.interface(&made);
        Ok(made)
    }

    /// The outputs of the graph that the stage gives, and the value that it sends, which has the name of the output that it is.
    fn outputs(&self, is_first: bool, sent: Option<ValueId>) -> Vec<(String, ValueId)> {
        let gives = |value: ValueId| match self.graph.value(value).def {
            Def::Node { node, .. } if !self.light[value.index()] => self.own.contains(&node),
            _ => is_first,
        };
        let outputs = self.graph.outputs().iter().filter(|output| gives(output.value));
        let mut outputs: Vec<(String, ValueId)> = outputs.map(|output| (output.name.clone(), output.value)).collect();
        if let Some(value) = sent.filter(|value| outputs.iter().all(|(_, other)| other != value)) {
            outputs.push((name_of(self.graph, value), value));
        }
        outputs
    }

    /// What some values need of the stage, and the nodes that compute it, in order.
    fn needed(&self, outputs: impl Iterator<Item = ValueId>) -> (BTreeSet<ValueId>, Vec<NodeId>) {
        let mut needed = BTreeSet::new();
        let mut open: Vec<ValueId> = outputs.collect();
        // A stage that passes a value on takes it.
        while let Some(value) = open.pop() {
            if !needed.insert(value) || self.taken == Some(value) {
                continue;
            }
            if let Def::Node { node, .. } = self.graph.value(value).def {
                open.extend(self.graph.node(node).op.operands());
            }
        }
        let nodes = self.graph.needed_nodes().into_iter();
        let computes = |id: &NodeId| {
            let outputs = &self.graph.node(*id).outputs;
            outputs.iter().any(|value| needed.contains(value) && self.taken != Some(*value))
        };
        let nodes = nodes.filter(computes).collect();
        (needed, nodes)
    }

    /// The symbols that the values of the stage and its operators have.
    fn symbols(&self, needed: &BTreeSet<ValueId>) -> HashSet<Symbol> {
        let mut symbols: HashSet<Symbol> = HashSet::new();
        for value in needed {
            symbols.extend(self.graph.type_of(*value).dims().flat_map(Dim::symbols).cloned());
            if let Def::Node { node, .. } = self.graph.value(*value).def {
                self.graph.node(node).op.visit_dims(&mut |dim| symbols.extend(dim.symbols().cloned()));
            }
        }
        symbols
    }

    /// Whether an input says a size that the stage needs and that no input which it takes anyway, and none before, says.
    fn gives_size(&self, input: ValueId, symbols: &HashSet<Symbol>, needed: &BTreeSet<ValueId>) -> bool {
        let says = |value: ValueId, symbol: &Symbol| {
            self.graph.type_of(value).dims().any(|dim| dim.as_multiple().is_some_and(|(own, _)| own == symbol))
        };
        let inputs = self.graph.inputs();
        let before = inputs.iter().take_while(|other| **other != input);
        let known = inputs.iter().filter(|other| needed.contains(other)).chain(before).chain(&self.taken);
        let known: Vec<ValueId> = known.copied().collect();
        symbols.iter().any(|symbol| says(input, symbol) && !known.iter().any(|other| says(*other, symbol)))
    }

    /// The roles of what the stage takes and gives.
    fn interface(&self, made: &Graph) -> planish_ir::PartInterface {
        let mut interface = self.graph.interface.clone();
        let inputs: HashSet<&str> = made.inputs().iter().map(|value| made.value(*value).name.as_str()).collect();
        interface.inputs.retain(|name, _| inputs.contains(name.as_str()));
        interface.outputs.retain(|name, _| made.outputs().iter().any(|output| output.name == *name));
        interface
    }
}

/// The name of a value that goes on: that of an output of the graph, where it is one.
fn name_of(graph: &Graph, value: ValueId) -> String {
    let output = graph.outputs().iter().find(|output| output.value == value);
    if let Some(output) = output {
        return output.name.clone();
    }
    let name = &graph.value(value).name;
    let is_taken = graph.outputs().iter().any(|output| output.name == *name);
    if is_taken { format!("{name}/sent") } else { name.clone() }
}
