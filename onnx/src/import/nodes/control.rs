//! Operators with graphs of their own: a branch that is known to be taken becomes part of the graph.

use std::collections::HashMap;

use super::super::order;
use super::super::scope::Scope;
use super::{Node, import};
use crate::proto::{AttributeType, GraphProto};

pub(super) fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    if node.proto.op_type != "If" {
        return Ok(false);
    }
    let Some(condition) = scope.known(node.input(0)?).and_then(|k| k.scalar()?.as_constant()) else { return Ok(false) };
    let name = if condition == 0 { "else_branch" } else { "then_branch" };
    let attribute = node.attribute(name, AttributeType::Graph)?;
    let branch = attribute.and_then(|a| a.g.as_ref()).ok_or_else(|| format!("it has no graph `{name}`"))?;
    if !branch.input.is_empty() {
        return Err(format!("its `{name}` has inputs"));
    }
    if branch.output.len() != node.proto.output.len() {
        return Err(format!("its `{name}` has {} results, expected {}", branch.output.len(), node.proto.output.len()));
    }
    let mut branch = branch.clone();
    let prefix = format!("{}/{name}", node.output()?);
    rename(&mut branch, &|own| scope.unused(&format!("{prefix}/{own}")), &|_| None);
    order::check(&mut branch, &|name| scope.is_defined(name))?;
    scope.interface(&branch)?;
    for inner in &branch.node {
        import(scope, inner);
    }
    for (outside, result) in node.proto.output.iter().zip(&branch.output) {
        if !outside.is_empty() {
            scope.alias(outside, &result.name);
        }
    }
    Ok(true)
}

/// Gives what a graph defines other names, also where its own graphs use it.
fn rename(graph: &mut GraphProto, other: &dyn Fn(&str) -> String, around: &dyn Fn(&str) -> Option<String>) {
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
}
