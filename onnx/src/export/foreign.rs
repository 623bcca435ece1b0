//! Operators that pass through: they are written unchanged, in the form that the opset has that is
//! written.

use std::collections::HashSet;

use planish_ir::DType;
use planish_ir::ops::{Foreign, Setting};
use prost::Message;

use super::Emitter;
use super::nodes::size;
use super::oldest::of_types;
use super::types::tensor;
use super::update::{Operand, came, update};
use crate::import::bodies;
use crate::proto::{AttributeProto, AttributeType, GraphProto, NodeProto, TypeProto};

/// The operator as nodes, the last of which has no name and the results that it has by position.
///
/// # Errors
/// When the opset that is written has another operator of this name than the one that it came from.
pub(super) fn nodes(
    e: &mut Emitter<'_>,
    op: &Foreign,
    output: Vec<String>,
) -> Result<(Vec<NodeProto>, NodeProto), String> {
    let mut proto = as_it_came(e, op)?;
    proto.output = output;
    let mut before = Vec::new();
    if op.is_standard() {
        let written = usize::try_from(e.opset).unwrap_or(usize::MAX);
        let ty = op.inputs.first().copied().flatten().map(|v| e.graph.ty(v));
        let operand =
            Operand { dtype: ty.map_or(Some(DType::F32), |ty| Some(ty.dtype)), rank: ty.map(|ty| ty.shape.rank()) };
        // What came at an earlier opset with such types is left to the runtime.
        let of_types = Some(of_types(e.graph, &proto, op.inputs.iter().flatten())).filter(|since| *since <= op.version);
        before = match of_types {
            Some(since) if since > written => Err(came(since)),
            _ => update(e, &mut proto, operand, op.version, written),
        }
        .map_err(|why| format!("the graph is of opset {}, {written} is written; {why}", op.version))?;
    }
    Ok((before, proto))
}

fn as_it_came(e: &Emitter<'_>, op: &Foreign) -> Result<NodeProto, String> {
    let renamed = |name: &str| {
        let at = op.captures.iter().position(|c| c.0 == name)?;
        op.captured.get(at).map(|v| e.name(*v).to_owned())
    };
    let mut input: Vec<String> =
        op.inputs.iter().map(|v| v.map_or_else(String::new, |v| e.name(v).to_owned())).collect();
    while input.last().is_some_and(String::is_empty) {
        input.pop();
    }
    let attribute =
        op.settings.0.iter().map(|(name, value)| attribute(name, value, &renamed)).collect::<Result<_, _>>()?;
    Ok(NodeProto {
        input,
        op_type: op.op.0.clone(),
        domain: if op.is_standard() { String::new() } else { op.domain.0.clone() },
        attribute,
        ..NodeProto::default()
    })
}

/// An attribute as the format has it; graphs in it call values around them by other names.
///
/// # Errors
/// When such a graph is malformed.
pub(crate) fn attribute(
    name: &str,
    value: &Setting,
    renamed: &dyn Fn(&str) -> Option<String>,
) -> Result<AttributeProto, String> {
    let mut proto = AttributeProto { name: name.to_owned(), ..AttributeProto::default() };
    let kind = match value {
        Setting::Int(value) => {
            proto.i = *value;
            AttributeType::Int
        }
        Setting::Float(value) => {
            proto.f = value.0 as f32;
            AttributeType::Float
        }
        Setting::Bytes(bytes) => {
            proto.s = bytes.to_vec().into();
            AttributeType::String
        }
        Setting::Ints(values) => {
            proto.ints.clone_from(values);
            AttributeType::Ints
        }
        Setting::Floats(values) => {
            proto.floats = values.iter().map(|v| v.0 as f32).collect();
            AttributeType::Floats
        }
        Setting::Strings(values) => {
            proto.strings = values.iter().map(|v| v.to_vec().into()).collect();
            AttributeType::Strings
        }
        Setting::Tensor(dtype, shape, bytes) => {
            proto.t = Some(tensor("", *dtype, shape.iter().copied().map(size).collect(), bytes));
            AttributeType::Tensor
        }
        Setting::Type(bytes) => {
            proto.tp = Some(TypeProto::decode(&bytes[..]).map_err(|e| format!("attribute `{name}`: {e}"))?);
            AttributeType::TypeProto
        }
        Setting::Graph(bytes) => {
            let mut graph = GraphProto::decode(&bytes[..]).map_err(|e| format!("attribute `{name}`: {e}"))?;
            rename(&mut graph, renamed);
            proto.g = Some(graph);
            AttributeType::Graph
        }
    };
    proto.kind = kind.into();
    Ok(proto)
}

/// Gives the values around a graph the names that they have now.
fn rename(graph: &mut GraphProto, renamed: &dyn Fn(&str) -> Option<String>) {
    let own: Vec<String> = graph
        .input
        .iter()
        .map(|i| i.name.clone())
        .chain(graph.initializer.iter().map(|t| t.name.clone()))
        .chain(graph.node.iter().flat_map(|n| n.output.clone()))
        .collect();
    let outer = |name: &str| if own.iter().any(|n| n == name) { None } else { renamed(name) };
    for node in &mut graph.node {
        for name in &mut node.input {
            if let Some(new) = outer(name) {
                *name = new;
            }
        }
        for inner in node.attribute.iter_mut().filter_map(|a| a.g.as_mut()) {
            rename(inner, &outer);
        }
    }
    for output in &mut graph.output {
        if let Some(new) = outer(&output.name) {
            output.name = new;
        }
    }
}

/// The names that graphs of operators give to values of their own.
pub(super) fn inner_names(op: &Foreign) -> HashSet<String> {
    let mut names = HashSet::new();
    for (_, setting) in &op.settings.0 {
        if let Setting::Graph(bytes) = setting
            && let Ok(graph) = GraphProto::decode(&bytes[..])
        {
            bodies::names(&graph, &mut names);
        }
    }
    names
}
