//! The structure of a graph: each name defined once and before it is used.

use std::borrow::Cow;
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

    let mut makers: HashMap<&str, usize> = HashMap::with_capacity(graph.node.len());
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

/// The indices of the nodes, operands first, otherwise as they are.
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
            match makers.get(&*name) {
                Some(&maker) => from.push(maker),
                None if given(&name) => {}
                None => return Err(format!("`{name}`, used by {}, is not defined", label(node))),
            }
        }
        operands.push(from);
    }
    if operands.iter().enumerate().all(|(index, from)| from.iter().all(|maker| *maker < index)) {
        return Ok((0..nodes.len()).collect());
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
pub(super) fn used(node: &NodeProto) -> impl Iterator<Item = Cow<'_, str>> {
    let inputs = node.input.iter().filter(|n| !n.is_empty()).map(|n| Cow::from(n.as_str()));
    inputs.chain(node.attribute.iter().flat_map(captured).map(Cow::from))
}

/// The names of the graph around it that an attribute's graph uses, each once, in the order of their use.
pub(super) fn captured(attribute: &AttributeProto) -> Vec<String> {
    let Some(graph) = &attribute.g else { return Vec::new() };
    let mut own: HashSet<&str> = graph.input.iter().map(|i| i.name.as_str()).collect();
    own.extend(graph.initializer.iter().map(|t| t.name.as_str()));
    own.extend(graph.node.iter().flat_map(|n| &n.output).map(String::as_str));
    let mut seen = HashSet::new();
    let results = graph.output.iter().map(|o| o.name.clone());
    let names = graph.node.iter().flat_map(used).map(Cow::into_owned).chain(results);
    names.filter(|name| !own.contains(name.as_str()) && seen.insert(name.clone())).collect()
}

/// How messages name a node.
pub(super) fn label(node: &NodeProto) -> String {
    let name = match (&node.name, node.output.first()) {
        (name, _) if !name.is_empty() => name,
        (_, Some(output)) => output,
        _ => "",
    };
    format!("{} `{}`", plain(&node.op_type), plain(name))
}

/// A name in a line of its own: what breaks lines or changes terminals is written as escapes.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{AttributeProto, ValueInfoProto};

    fn node(name: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
        let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        NodeProto { name: name.to_owned(), input: names(inputs), output: names(outputs), ..NodeProto::default() }
    }

    fn order(nodes: Vec<NodeProto>) -> Result<Vec<String>, String> {
        let input = ValueInfoProto { name: "x".to_owned(), r#type: None };
        let mut graph = GraphProto { node: nodes, input: vec![input], ..GraphProto::default() };
        check(&mut graph, &|name| name == "outer")?;
        Ok(graph.node.into_iter().map(|n| n.name).collect())
    }

    /// A node with a graph that uses some names and defines `inner`.
    fn around(name: &str, used: &[&str], outputs: &[&str]) -> NodeProto {
        let inside = vec![node("i", used, &["inner"]), node("j", &["inner"], &["last"])];
        let graph = GraphProto { node: inside, ..GraphProto::default() };
        let attribute = vec![AttributeProto { g: Some(graph), ..AttributeProto::default() }];
        NodeProto { attribute, ..node(name, &[], outputs) }
    }

    #[test]
    fn what_is_used_comes_first_and_otherwise_order_stays() {
        let nodes = vec![node("a", &["c1"], &["a1"]), node("b", &["x"], &["b1"]), node("c", &["b1", "outer"], &["c1"])];
        assert_eq!(order(nodes).unwrap(), ["b", "c", "a"]);
    }

    #[test]
    fn graphs_of_nodes_use_names_too() {
        assert_eq!(order(vec![around("a", &["b1", "x"], &["a1"]), node("b", &["x"], &["b1"])]).unwrap(), ["b", "a"]);
        assert!(order(vec![around("a", &["a1"], &["a1"])]).unwrap_err().contains("computed from itself"));
        assert!(order(vec![around("a", &["nothing"], &["a1"])]).unwrap_err().contains("`nothing`"));
    }

    #[test]
    fn labels_are_of_one_line() {
        assert_eq!(label(&node("a\nb\u{1b}[1m é", &[], &[])), " `a\\nb\\u{1b}[1m é`");
    }

    #[test]
    fn names_that_a_graph_defines_are_not_captured() {
        assert_eq!(used(&around("a", &["x", "y", "x"], &[])).collect::<Vec<_>>(), ["x", "y"]);
    }
}
