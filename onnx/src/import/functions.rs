//! Operators that a model brings itself: each call becomes the nodes of the function.

use std::collections::HashMap;

use super::order::label;
use crate::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto};

/// How deep functions may call each other.
const MAX_DEPTH: usize = 32;

/// The most nodes that calls may come to in all.
const MAX_NODES: usize = 1 << 20;

/// Replaces calls by what they call, also in the graphs of nodes.
///
/// # Errors
/// When calls lie too deep in each other, or come to too many nodes.
pub(super) fn inline(graph: &mut GraphProto, functions: &[FunctionProto]) -> Result<(), String> {
    if functions.is_empty() {
        return Ok(());
    }
    let table = functions.iter().map(|f| ((f.domain.as_str(), f.name.as_str(), f.overload.as_str()), f)).collect();
    let mut inliner = Inliner { table, calls: 0, out: 0 };
    graph.node = inliner.nodes(std::mem::take(&mut graph.node), 0)?;
    Ok(())
}

struct Inliner<'a> {
    table: HashMap<(&'a str, &'a str, &'a str), &'a FunctionProto>,
    /// The number of calls so far: names are made unique by it.
    calls: usize,
    /// The number of nodes so far.
    out: usize,
}

impl Inliner<'_> {
    fn nodes(&mut self, nodes: Vec<NodeProto>, depth: usize) -> Result<Vec<NodeProto>, String> {
        let mut out = Vec::new();
        for mut node in nodes {
            let key = (node.domain.as_str(), node.op_type.as_str(), node.overload.as_str());
            if let Some(function) = self.table.get(&key).copied() {
                if depth >= MAX_DEPTH {
                    return Err(format!("{}: functions call each other more than {MAX_DEPTH} deep", label(&node)));
                }
                self.calls += 1;
                let body = instance(function, &node, self.calls);
                out.extend(self.nodes(body, depth + 1)?);
                continue;
            }
            for attribute in &mut node.attribute {
                if let Some(graph) = &mut attribute.g {
                    graph.node = self.nodes(std::mem::take(&mut graph.node), depth)?;
                }
            }
            self.out += 1;
            if self.out > MAX_NODES {
                return Err(format!("calls of functions come to more than {MAX_NODES} nodes"));
            }
            out.push(node);
        }
        Ok(out)
    }
}

/// The nodes of a function for one call.
fn instance(function: &FunctionProto, call: &NodeProto, number: usize) -> Vec<NodeProto> {
    let mut names: HashMap<&str, String> = HashMap::new();
    for (parameter, at) in function.input.iter().zip(0..) {
        names.insert(parameter, call.input.get(at).cloned().unwrap_or_default());
    }
    for (result, given) in function.output.iter().zip(&call.output) {
        if !given.is_empty() {
            names.insert(result, given.clone());
        }
    }
    let prefix = if call.name.is_empty() { &function.name } else { &call.name };
    let rename = |name: &str| match (name, names.get(name)) {
        ("", _) => String::new(),
        (_, Some(outside)) => outside.clone(),
        (name, None) => format!("{prefix}/{number}/{name}"),
    };
    function.node.iter().map(|node| instantiate(node, function, call, &rename)).collect()
}

/// A node under the names that a call gives, with the attributes of the call.
fn instantiate(
    node: &NodeProto,
    function: &FunctionProto,
    call: &NodeProto,
    rename: &dyn Fn(&str) -> String,
) -> NodeProto {
    let mut node = node.clone();
    node.name = rename(&node.name);
    node.input.iter_mut().chain(&mut node.output).for_each(|name| *name = rename(name));
    let attributes = std::mem::take(&mut node.attribute);
    node.attribute = attributes.into_iter().filter_map(|a| resolve(a, function, call)).collect();
    for graph in node.attribute.iter_mut().filter_map(|a| a.g.as_mut()) {
        graph.node = graph.node.iter().map(|n| instantiate(n, function, call, rename)).collect();
        graph.input.iter_mut().chain(&mut graph.output).for_each(|v| v.name = rename(&v.name));
        graph.initializer.iter_mut().for_each(|t| t.name = rename(&t.name));
    }
    node
}

/// An attribute with the value that the call gives it, or the function where the call gives none; nothing
/// where neither does.
fn resolve(attribute: AttributeProto, function: &FunctionProto, call: &NodeProto) -> Option<AttributeProto> {
    if attribute.ref_attr_name.is_empty() {
        return Some(attribute);
    }
    let named = |a: &&AttributeProto| a.name == attribute.ref_attr_name;
    let value = call.attribute.iter().find(named).or_else(|| function.attribute_proto.iter().find(named))?;
    Some(AttributeProto { name: attribute.name, ..value.clone() })
}
