//! Operators that a model brings itself: each call becomes the nodes of the function.

use std::collections::HashMap;

use prost::Message;

use super::is_default;
use super::order::label;
use crate::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, OperatorSetIdProto};

/// How deep functions may call each other.
const MAX_DEPTH: usize = 32;

/// How much calls may come to in all, as a multiple of what the model takes without weights, and in bytes.
const MAX_GROWTH: usize = 8;
const MIN_LIMIT: usize = 64 << 20;

/// Checks that functions are written in the opset of the model, whose rules their nodes are read by.
///
/// # Errors
/// Which one is not.
pub(super) fn check(functions: &[FunctionProto], of_model: &[OperatorSetIdProto]) -> Result<(), String> {
    let default = |opsets: &[OperatorSetIdProto]| opsets.iter().find(|o| is_default(&o.domain)).map(|o| o.version);
    let opset = default(of_model).unwrap_or(crate::DEFAULT_OPSET.into());
    for function in functions {
        if let Some(own) = default(&function.opset_import).filter(|own| *own != opset) {
            return Err(format!(
                "the function `{}` is written in opset {own}, the model in {opset}: convert the model to one opset",
                function.name
            ));
        }
    }
    Ok(())
}

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
        if is_default(call.0) {
            return Err(format!(
                "{}: it calls a function of the model in the domain of ONNX's own operators, and runtimes differ in whether they \
                 take that or their operator `{}`: give the function a domain of its own",
                label(node),
                call.1
            ));
        }
        if depth >= MAX_DEPTH {
            return Err(format!("{}: function calls are nested more than {MAX_DEPTH} deep", label(node)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::AttributeProto;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|n| (*n).to_owned()).collect()
    }

    fn node(domain: &str, op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
        let (domain, op_type) = (domain.to_owned(), op.to_owned());
        NodeProto { domain, op_type, input: names(inputs), output: names(outputs), ..NodeProto::default() }
    }

    fn function(name: &str, inputs: &[&str], outputs: &[&str], body: Vec<NodeProto>) -> FunctionProto {
        let (name, domain) = (name.to_owned(), "own".to_owned());
        FunctionProto {
            name,
            domain,
            input: names(inputs),
            output: names(outputs),
            node: body,
            ..FunctionProto::default()
        }
    }

    fn inlined(nodes: Vec<NodeProto>, functions: &[FunctionProto]) -> Vec<String> {
        let mut graph = GraphProto { node: nodes, ..GraphProto::default() };
        inline(&mut graph, functions).unwrap();
        let text = |n: &NodeProto| format!("{} = {}({})", n.output.join(", "), n.op_type, n.input.join(", "));
        graph.node.iter().map(text).collect()
    }

    #[test]
    fn calls_get_names_of_their_own() {
        let twice =
            function("F", &["a"], &["r"], vec![node("", "Neg", &["a"], &["h"]), node("", "Exp", &["h"], &["r"])]);
        let calls = vec![node("own", "F", &["x"], &["y"]), node("own", "F", &["y"], &["z"])];
        assert_eq!(inlined(calls, &[twice]), ["F/1/h = Neg(x)", "y = Exp(F/1/h)", "F/2/h = Neg(y)", "z = Exp(F/2/h)"]);
    }

    #[test]
    fn operands_and_results_may_be_left_out() {
        let body = vec![node("", "Clip", &["a", "low"], &["r"]), node("", "Neg", &["a"], &["s"])];
        let function = function("F", &["a", "low"], &["r", "s"], body);
        assert_eq!(
            inlined(vec![node("own", "F", &["x"], &["", "y"])], &[function]),
            ["F/1/r = Clip(x, )", "y = Neg(x)"]
        );
    }

    #[test]
    fn attributes_come_from_the_call_or_else_the_function() {
        let refers =
            AttributeProto { name: "axis".to_owned(), ref_attr_name: "at".to_owned(), ..AttributeProto::default() };
        let at = |i| AttributeProto { name: "at".to_owned(), i, ..AttributeProto::default() };
        let mut softmax = node("", "Softmax", &["a"], &["r"]);
        softmax.attribute = vec![refers];
        let mut function = function("F", &["a"], &["r"], vec![softmax]);
        let axis = |function: &FunctionProto, given: Vec<AttributeProto>| {
            let call = NodeProto { attribute: given, ..node("own", "F", &["x"], &["y"]) };
            let mut graph = GraphProto { node: vec![call], ..GraphProto::default() };
            inline(&mut graph, std::slice::from_ref(function)).unwrap();
            graph.node[0].attribute.iter().map(|a| (a.name.clone(), a.i)).collect::<Vec<_>>()
        };
        assert_eq!(axis(&function, vec![]), []);
        function.attribute_proto = vec![at(2)];
        assert_eq!(axis(&function, vec![]), [("axis".to_owned(), 2)]);
        assert_eq!(axis(&function, vec![at(1)]), [("axis".to_owned(), 1)]);
    }
}
