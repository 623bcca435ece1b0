//! The oldest opset that has the operators of a graph that pass through.

use planish_ir::ops::{Foreign, Setting};
use planish_ir::{DType, Graph, Op, Type, ValueId};
use prost::Message;

use super::foreign;
use super::update::{changes, take_back};
use crate::import::is_default;
use crate::proto::{GraphProto, NodeProto};

/// The oldest opset, from `least` on, that has all that a graph of opset `written` has: its element types, and the
/// operators that pass through in a form that means the same. It is at most `written`, where that is `least` or newer.
#[must_use]
pub fn oldest_opset(graph: &Graph, least: u32, written: u32) -> u32 {
    let of_types = graph.values().filter_map(|(_, value)| elements(&value.ty)).map(since).max().unwrap_or(0);
    let operators = graph.nodes().filter_map(|(_, node)| match &node.op {
        Op::Foreign(op) if op.is_standard() => Some(of_operator(graph, op, &node.outputs)),
        Op::Foreign(op) => Some(of_settings(op, usize::try_from(written).unwrap_or(usize::MAX))),
        _ => None,
    });
    let needed = operators.max().unwrap_or(0).max(of_types);
    u32::try_from(needed).unwrap_or(u32::MAX).min(written).max(least)
}

/// The element type of a value, or of what it holds.
fn elements(ty: &Type) -> Option<DType> {
    match ty {
        Type::Sequence(of) | Type::Optional(of) => elements(of),
        other => other.dtype(),
    }
}

/// The opset that an element type came with, where that is a late one.
fn since(dtype: DType) -> usize {
    match dtype {
        DType::I2 | DType::U2 => 25,
        DType::F6E2M3 | DType::F6E3M2 => 28,
        _ => 0,
    }
}

/// The opset from which on an operator takes an element type that operators took before, where that is a late one.
pub(super) fn widened(node: &NodeProto, dtype: DType) -> usize {
    let is_half = matches!(dtype, DType::F16 | DType::Bf16);
    match node.op_type.as_str() {
        "BitShift" if matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64) => 28,
        "Celu" if is_half || dtype == DType::F64 => 28,
        "Compress" | "Einsum" | "OneHot" | "ReverseSequence" | "Unique" if dtype == DType::Bf16 => 28,
        "Optional" | "OptionalGetElement" | "OptionalHasElement" if dtype == DType::Bf16 || !dtype.is_computed() => {
            if dtype == DType::String {
                0
            } else {
                28
            }
        }
        // Earlier forms take floats for the remainder with the sign of the dividend only.
        "Mod" if dtype.is_float() && !node.attribute.iter().any(|a| a.name == "fmod" && a.i == 1) => 28,
        "Range" if is_half => 27,
        _ => 0,
    }
}

fn of_operator(graph: &Graph, op: &Foreign, outputs: &[ValueId]) -> usize {
    let attributes = op.settings.0.iter().filter(|(_, setting)| !matches!(setting, Setting::Graph(_)));
    let attribute = attributes.filter_map(|(name, setting)| foreign::attribute(name, setting, &|_| None).ok());
    // Values that are given have a name here.
    let input = op.inputs.iter().map(|value| value.map_or_else(String::new, |_| "x".to_owned())).collect();
    let node = NodeProto { op_type: op.op.0.clone(), input, attribute: attribute.collect(), ..NodeProto::default() };
    let types = of_types(graph, &node, op.inputs.iter().flatten().chain(outputs));
    let dtype = op.inputs.first().copied().flatten().and_then(|value| elements(graph.type_of(value)));
    types.max(of_settings(op, op.version)).max(of_node(node, dtype, op.version))
}

/// The opset from which on an operator takes the types of values, where that is a late one.
pub(super) fn of_types<'a>(graph: &Graph, node: &NodeProto, values: impl Iterator<Item = &'a ValueId>) -> usize {
    let dtypes = values.filter_map(|value| elements(graph.type_of(*value)));
    dtypes.map(|dtype| widened(node, dtype)).max().unwrap_or(0)
}

/// The first opset that has a node in a form that means the same as that of the opset that it is written in.
fn of_node(mut node: NodeProto, operand: Option<DType>, written: usize) -> usize {
    let Ok(changes) = changes(&node.op_type) else { return written };
    let mut changes = changes.into_iter().rev().filter(|(since, _)| *since <= written);
    changes.find(|(since, _)| !take_back(&mut node, operand, *since)).map_or(0, |(since, _)| since)
}

/// What the attributes of an operator need.
fn of_settings(op: &Foreign, written: usize) -> usize {
    let of_setting = |(_, setting): &(String, Setting)| match setting {
        Setting::Tensor(dtype, ..) => since(*dtype),
        Setting::Graph(bytes) => GraphProto::decode(&bytes[..]).map_or(written, |graph| of_graph(&graph, written)),
        _ => 0,
    };
    op.settings.0.iter().map(of_setting).max().unwrap_or(0)
}

/// What the graph of a node needs, whose values have no known types.
fn of_graph(graph: &GraphProto, written: usize) -> usize {
    // Numbers of element types are in the order in which the types came.
    let of_number = |number: i64| match number {
        ..25 => 0,
        25 | 26 => 25,
        _ => 28,
    };
    let constants = graph.initializer.iter().map(|tensor| of_number(tensor.data_type.into()));
    let nodes = graph.node.iter().map(|node| {
        let attributes = node.attribute.iter().map(|a| {
            let inner = a.g.as_ref().map_or(0, |graph| of_graph(graph, written));
            let tensor = a.t.as_ref().map_or(0, |tensor| of_number(tensor.data_type.into()));
            let named = if matches!(a.name.as_str(), "to" | "dtype" | "output_dtype") { of_number(a.i) } else { 0 };
            inner.max(tensor).max(named)
        });
        let attributes = attributes.max().unwrap_or(0);
        if !is_default(&node.domain) {
            return attributes;
        }
        // An operand may be of any type that the operator takes.
        let types = DType::ALL.iter().map(|dtype| widened(node, *dtype)).max().unwrap_or(0);
        attributes.max(types).max(of_node(node.clone(), None, written))
    });
    constants.chain(nodes).max().unwrap_or(0)
}
