//! Operators that a model brings itself: each call becomes the nodes of the function.

use std::collections::HashMap;

use prost::Message;

use super::order::label;
use crate::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto};

/// How deep functions may call each other.
const MAX_DEPTH: usize = 32;

/// How much calls may come to in all, as a multiple of what the model takes without weights, and in bytes.
const MAX_GROWTH: usize = 8;
const MIN_LIMIT: usize = 64 << 20;

/// Replaces calls by what they call, also in the graphs of nodes.
///
/// # Errors
/// When calls lie too deep in each other, or come to too much.
pub(super) fn inline(graph: &mut GraphProto, functions: &[FunctionProto]) -> Result<(), String> {
    if functions.is_empty() {
        return Ok(());
    }
    let table: HashMap<_, _> = functions.iter().map(|f| (key(f), f)).collect();
    let written = functions.iter().fold(graph.encoded_len(), |sum, f| sum.saturating_add(f.encoded_len()));
    let limit = written.saturating_mul(MAX_GROWTH).max(MIN_LIMIT);
    let growth = growth(&graph.node, &table, &mut HashMap::new(), 0)?;
    if growth > limit {
        return Err(format!(
            "calls of functions come to {growth} bytes of nodes, of a model with {written} without weights"
        ));
    }
    let mut inliner = Inliner { table, calls: 0 };
    graph.node = inliner.nodes(std::mem::take(&mut graph.node));
    Ok(())
}

/// What tells functions apart: domain, name and overload.
type Key<'a> = (&'a str, &'a str, &'a str);

fn key(function: &FunctionProto) -> Key<'_> {
    (&function.domain, &function.name, &function.overload)
}

/// How many bytes of nodes calls come to, those of functions in each other included.
fn growth<'a>(
    nodes: &'a [NodeProto],
    table: &HashMap<Key<'a>, &'a FunctionProto>,
    known: &mut HashMap<Key<'a>, usize>,
    depth: usize,
) -> Result<usize, String> {
    let mut sum = 0usize;
    for node in nodes {
        for graph in node.attribute.iter().filter_map(|a| a.g.as_ref()) {
            sum = sum.saturating_add(growth(&graph.node, table, known, depth)?);
        }
        let call = (node.domain.as_str(), node.op_type.as_str(), node.overload.as_str());
        let Some(function) = table.get(&call) else { continue };
        if depth >= MAX_DEPTH {
            return Err(format!("{}: functions call each other more than {MAX_DEPTH} deep", label(node)));
        }
        let size = match known.get(&call) {
            Some(&size) => size,
            None => function.encoded_len().saturating_add(growth(&function.node, table, known, depth + 1)?),
        };
        known.insert(call, size);
        sum = sum.saturating_add(size);
    }
    Ok(sum)
}

struct Inliner<'a> {
    table: HashMap<Key<'a>, &'a FunctionProto>,
    /// The number of calls so far: names are made unique by it.
    calls: usize,
}

impl Inliner<'_> {
    fn nodes(&mut self, nodes: Vec<NodeProto>) -> Vec<NodeProto> {
        let mut out = Vec::new();
        for mut node in nodes {
            let key = (node.domain.as_str(), node.op_type.as_str(), node.overload.as_str());
            if let Some(function) = self.table.get(&key).copied() {
                self.calls += 1;
                let body = instance(function, &node, self.calls);
                out.extend(self.nodes(body));
                continue;
            }
            for attribute in &mut node.attribute {
                if let Some(graph) = &mut attribute.g {
                    graph.node = self.nodes(std::mem::take(&mut graph.node));
                }
            }
            out.push(node);
        }
        out
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
