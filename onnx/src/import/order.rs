//! The structure of a graph: each name defined once and before it is used.

use std::collections::{HashMap, HashSet};

use crate::proto::{AttributeProto, GraphProto, NodeProto};

/// Checks that names are defined once and that what is used is defined, here or `around`, and puts nodes in
/// an order in which it is defined before.
///
/// # Errors
/// What is defined twice, not at all, or by way of itself.
pub(super) fn check(graph: &mut GraphProto, around: &dyn Fn(&str) -> bool) -> Result<(), String> {
    let mut given: HashSet<&str> = HashSet::new();
    for input in &graph.input {
        if input.name.is_empty() || !given.insert(&input.name) {
            return Err(format!("the input `{}` has no name or is given twice", input.name));
        }
    }
    let mut constants = HashSet::new();
    let sparse = graph.sparse_initializer.iter().filter_map(|s| s.values.as_ref());
    for tensor in graph.initializer.iter().chain(sparse) {
        if !constants.insert(tensor.name.as_str()) {
            return Err(format!("the initializer `{}` is given twice", tensor.name));
        }
    }
    given.extend(constants);

    let mut makers: HashMap<&str, usize> = HashMap::new();
    for (index, node) in graph.node.iter().enumerate() {
        for output in node.output.iter().filter(|o| !o.is_empty()) {
            if given.contains(output.as_str()) || makers.insert(output, index).is_some() {
                return Err(format!("`{output}`, a result of {}, is defined twice", label(node)));
            }
        }
    }
    for output in &graph.output {
        let name = output.name.as_str();
        if !given.contains(name) && !makers.contains_key(name) && !around(name) {
            return Err(format!("the output `{}` is not defined", output.name));
        }
    }
    let order = sorted(&graph.node, &|name| given.contains(name) || around(name), &makers)?;
    if order.iter().enumerate().any(|(at, &index)| at != index) {
        let mut nodes: Vec<Option<NodeProto>> = std::mem::take(&mut graph.node).into_iter().map(Some).collect();
        graph.node = order.into_iter().filter_map(|index| nodes[index].take()).collect();
    }
    Ok(())
}

/// The indices of the nodes, operands first, otherwise as they stand.
fn sorted(
    nodes: &[NodeProto],
    given: &dyn Fn(&str) -> bool,
    makers: &HashMap<&str, usize>,
) -> Result<Vec<usize>, String> {
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut operands: Vec<Vec<usize>> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let mut from = Vec::new();
        for name in used(node) {
            match makers.get(name.as_str()) {
                Some(&maker) => from.push(maker),
                None if given(&name) => {}
                None => return Err(format!("`{name}`, used by {}, is not defined", label(node))),
            }
        }
        operands.push(from);
    }
    let mut states = vec![State::New; nodes.len()];
    let mut order = Vec::with_capacity(nodes.len());
    for first in 0..nodes.len() {
        // Nodes under way with how many of their operands were looked at.
        let mut path = vec![(first, 0)];
        while let Some((node, seen)) = path.pop() {
            if states[node] == State::Done {
                continue;
            }
            states[node] = State::Open;
            match operands[node].get(seen) {
                Some(&operand) => {
                    path.push((node, seen + 1));
                    match states[operand] {
                        State::New => path.push((operand, 0)),
                        State::Open => return Err(format!("{} is computed from itself", label(&nodes[node]))),
                        State::Done => {}
                    }
                }
                None => {
                    states[node] = State::Done;
                    order.push(node);
                }
            }
        }
    }
    Ok(order)
}

/// The names of the graph that a node uses, those in its graphs included.
pub(super) fn used(node: &NodeProto) -> Vec<String> {
    let inputs = node.input.iter().filter(|n| !n.is_empty()).cloned();
    inputs.chain(node.attribute.iter().flat_map(captured)).collect()
}

/// The names of the graph around it that an attribute's graph uses, each once, in the order of their use.
pub(super) fn captured(attribute: &AttributeProto) -> Vec<String> {
    let Some(graph) = &attribute.g else { return Vec::new() };
    let mut own: HashSet<&str> = graph.input.iter().map(|i| i.name.as_str()).collect();
    own.extend(graph.initializer.iter().map(|t| t.name.as_str()));
    own.extend(graph.node.iter().flat_map(|n| &n.output).map(String::as_str));
    let mut seen = HashSet::new();
    let results = graph.output.iter().map(|o| o.name.clone());
    let names = graph.node.iter().flat_map(used).chain(results);
    names.filter(|name| !own.contains(name.as_str()) && seen.insert(name.clone())).collect()
}

/// How messages name a node.
pub(super) fn label(node: &NodeProto) -> String {
    let name = match (&node.name, node.output.first()) {
        (name, _) if !name.is_empty() => name,
        (_, Some(output)) => output,
        _ => "",
    };
    format!("{} `{name}`", node.op_type)
}
