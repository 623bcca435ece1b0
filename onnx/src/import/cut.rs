//! Cutting a part out of a graph: its outputs before anything is imported, so that what they do not need
//! may be anything; its inputs in the imported graph, where the types of all values are known.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use planish_ir::handle::Handle;
use planish_ir::{Def, Dim, Graph, Symbol, ValueId};

use super::names::{LISTED, unknown};
use super::order::used;
use super::scope::Scope;
use crate::proto::{GraphProto, ValueInfoProto};

/// Makes inputs of those that the graph also has a value for.
pub(super) fn keep(graph: &mut GraphProto, names: &[String]) {
    let GraphProto { initializer, input, .. } = graph;
    initializer.retain(|tensor| !(names.contains(&tensor.name) && input.iter().any(|i| i.name == tensor.name)));
}

/// Says which inputs are constants from here on, for the graph has a value for them.
pub(super) fn defaults(graph: &GraphProto) -> Option<String> {
    let constants: HashSet<&str> = graph.initializer.iter().map(|tensor| tensor.name.as_str()).collect();
    let names: Vec<&str> = graph.input.iter().map(|input| input.name.as_str()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| constants.contains(name)).collect();
    let first: Vec<String> = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
    let more = if names.len() > LISTED { ", ..." } else { "" };
    (!names.is_empty()).then(|| {
        format!(
            "{} of its inputs have values in the file and become constants: {}{more}; --inputs keeps those that it names",
            names.len(),
            first.join(", ")
        )
    })
}

/// Makes values the outputs of a graph, in this order, and drops the nodes and inputs that they do not need.
///
/// # Errors
/// When a name is not a value, or stands for two outputs.
pub(super) fn outputs(graph: &mut GraphProto, names: &[String]) -> Result<(), String> {
    if names.is_empty() {
        return Ok(());
    }
    let mut outputs: Vec<ValueInfoProto> = Vec::new();
    for name in names {
        if !values(graph).any(|value| value == name) {
            return Err(unknown("value", name, values(graph)));
        }
        if outputs.iter().any(|output| output.name == *name) {
            return Err(format!("`{name}` is named twice as an output"));
        }
        let declared = graph.output.iter().chain(&graph.value_info).chain(&graph.input).find(|v| v.name == *name);
        outputs.push(declared.cloned().unwrap_or_else(|| ValueInfoProto { name: name.clone(), r#type: None }));
    }
    let mut needed: HashSet<String> = names.iter().cloned().collect();
    // Operands come first, so that users are seen before what they use.
    let mut kept = Vec::new();
    while let Some(node) = graph.node.pop() {
        if node.output.iter().any(|o| needed.contains(o)) {
            needed.extend(used(&node).map(Cow::into_owned));
            kept.push(node);
        }
    }
    kept.reverse();
    graph.node = kept;
    graph.input.retain(|input| needed.contains(&input.name));
    graph.output = outputs;
    Ok(())
}

/// The names of inputs and results.
fn values(graph: &GraphProto) -> impl Iterator<Item = &str> {
    let inputs = graph.input.iter().map(|input| input.name.as_str());
    inputs.chain(graph.node.iter().flat_map(|n| &n.output).map(String::as_str).filter(|name| !name.is_empty()))
}

/// What names that are to be inputs stand for, while that is known.
///
/// # Errors
/// When a name is not a value, stands for a constant, or is named twice.
pub(super) fn find(scope: &mut Scope, proto: &GraphProto, names: &[String]) -> Result<Vec<(String, ValueId)>, String> {
    let mut found: Vec<(String, ValueId)> = Vec::new();
    for name in names {
        if !values(proto).any(|value| value == name) {
            return Err(unknown("value", name, values(proto)));
        }
        if scope.weight(name).is_some() || scope.known(name).is_some() {
            return Err(format!("`{name}` cannot be an input: it is a constant, or made of sizes alone"));
        }
        let value = scope.value(name)?;
        if let Some((other, _)) = found.iter().find(|(_, v)| *v == value) {
            return Err(format!("the inputs `{other}` and `{name}` are the same value; name one of them"));
        }
        found.push((name.clone(), value));
    }
    Ok(found)
}

/// The graph from some values on, which become its inputs.
///
/// # Errors
/// When an output still depends on another input, or on a size that only another input has.
pub(super) fn inputs(graph: &Graph, given: &[(String, ValueId)]) -> Result<Graph, String> {
    let mut cut = Graph::new(&graph.name);
    let mut moved: HashMap<ValueId, ValueId> = HashMap::new();
    for (name, value) in given {
        let input = cut.add_input(name, graph.type_of(*value).clone(), graph.value(*value).origin.clone());
        moved.insert(*value, input);
    }
    let needed = needed(graph, &moved)?;
    for (id, value, weight) in graph.weights().filter(|(id, ..)| needed.contains(id)) {
        moved.insert(id, cut.add_weight(&value.name, weight.clone(), value.origin.clone()));
    }
    let mut symbols: HashSet<Symbol> =
        cut.inputs().iter().flat_map(|v| cut.ty(*v).shape.iter()).filter_map(|d| d.as_symbol().cloned()).collect();
    for (name, value) in given {
        sizes_are_given(graph, name, &graph.ty(*value).shape, &symbols)?;
    }
    for (_, node) in graph.nodes().filter(|(_, node)| node.outputs.iter().any(|v| needed.contains(v))) {
        let first = graph.value(node.outputs[0]);
        let mut op = node.op.clone();
        symbols.extend(op.determined_symbols().cloned());
        let mut dims: Vec<Dim> = node.outputs.iter().flat_map(|v| graph.ty(*v).shape.iter()).cloned().collect();
        op.visit_dims(&mut |dim| dims.push(dim.clone()));
        sizes_are_given(graph, &first.name, &dims, &symbols)?;
        op.visit_operands_mut(&mut |v| *v = moved.get(v).copied().unwrap_or(*v));
        let results = cut.emit(op, &first.name, first.origin.clone()).map_err(|e| e.to_string())?;
        for (old, new) in node.outputs.iter().zip(results) {
            moved.entry(*old).or_insert(new);
        }
    }
    for output in graph.outputs() {
        let value = moved.get(&output.value);
        cut.add_output(&output.name, *value.ok_or_else(|| format!("the output `{}` is not computed", output.name))?);
    }
    let used = cut.use_counts();
    if let Some(idle) = cut.inputs().iter().find(|v| used[v.index()] == 0) {
        return Err(format!("no output depends on the input `{}`; leave it out", cut.value(*idle).name));
    }
    Ok(cut)
}

/// The results and weights that the outputs need, without what is given.
fn needed(graph: &Graph, given: &HashMap<ValueId, ValueId>) -> Result<HashSet<ValueId>, String> {
    let mut needed = HashSet::new();
    for output in graph.outputs() {
        let mut open = vec![output.value];
        while let Some(value) = open.pop() {
            if given.contains_key(&value) || !needed.insert(value) {
                continue;
            }
            match &graph.value(value).def {
                Def::Weight(_) => {}
                Def::Input => {
                    return Err(format!(
                        "the output `{}` still depends on the input `{}`; name that in --inputs too, or a value \
                         between the two",
                        output.name,
                        graph.value(value).name
                    ));
                }
                Def::Node { node, .. } => open.extend(graph.node(*node).op.operands()),
            }
        }
    }
    Ok(needed)
}

/// Checks that the sizes that a value is made with are dimensions of the inputs.
fn sizes_are_given(graph: &Graph, name: &str, dims: &[Dim], given: &HashSet<Symbol>) -> Result<(), String> {
    let Some(size) = dims.iter().flat_map(Dim::symbols).find(|s| !given.contains(*s)) else { return Ok(()) };
    let has = |v: &&ValueId| graph.ty(**v).shape.iter().any(|d| d.as_symbol() == Some(size));
    let hint = graph.inputs().iter().find(has).map(|v| {
        format!("; `{}` has it: name that in --inputs too, or fix its shape with --shapes", graph.value(*v).name)
    });
    Err(format!(
        "`{name}` needs the size `{size}`, which is not a dimension of the inputs that are left{}",
        hint.unwrap_or_default()
    ))
}
