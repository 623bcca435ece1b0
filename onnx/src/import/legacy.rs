//! Nodes of opsets before 7, in which operands broadcast only where an attribute says so, and `Scan` of opset 8.

use super::order::used;
use crate::export::changes;
use crate::proto::{AttributeProto, AttributeType, GraphProto, NodeProto, ValueInfoProto};

/// The first opset whose operators are read as they are.
pub(super) const MODERN: i64 = 7;

/// What earlier opsets have as attributes that say nothing: hints for the use of memory, and whether a
/// model runs or trains.
const HINTS: &[&str] = &["consumed_inputs", "legacy_optimization_attribute", "is_test"];

/// Operators that changed with opset 6 or 7 only by losing such attributes.
const SAME: &[&str] = &[
    "Abs",
    "Ceil",
    "Clip",
    "Dropout",
    "Elu",
    "Exp",
    "Floor",
    "HardSigmoid",
    "InstanceNormalization",
    "LeakyRelu",
    "Log",
    "Max",
    "Mean",
    "Min",
    "Neg",
    "PRelu",
    "Reciprocal",
    "Relu",
    "Selu",
    "Sigmoid",
    "Sqrt",
    "Sum",
    "Tanh",
];

/// Operators of two operands that broadcast on demand.
const BROADCAST: &[&str] = &["Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"];

/// A node in the form that opset 7 has.
///
/// # Errors
/// When that has another operator of this name.
pub(super) fn modern(node: &NodeProto, version: i64) -> Result<NodeProto, String> {
    let mut node = node.clone();
    node.attribute.retain(|a| !HINTS.contains(&a.name.as_str()));
    let op = node.op_type.as_str();
    let since = usize::try_from(version).unwrap_or(0);
    let changed = changes(op)?.into_iter().any(|(v, _)| v > since && v <= 7);
    let refused = || {
        format!(
            "it is of opset {version}, which has another form of it; onnx.version_converter writes opset 7 or later"
        )
    };
    if BROADCAST.contains(&op) {
        // Along an axis that is given, operands are not aligned at their last dimensions.
        if node.attribute.iter().any(|a| a.name == "axis") {
            return Err(refused());
        }
        node.attribute.retain(|a| a.name != "broadcast");
    } else if changed && !SAME.contains(&op) {
        return Err(refused());
    }
    Ok(node)
}

/// The opset whose `Scan` goes over a batch, and the one whose does not.
pub(super) const BATCHED_SCAN: i64 = 8;
pub(super) const SCAN: i64 = 9;

/// Whether a `Scan` has an operand more than its body: the lengths of rows.
pub(super) fn is_batched(node: &NodeProto) -> bool {
    let body = node.attribute.iter().find(|a| a.name == "body").and_then(|a| a.g.as_ref());
    body.is_some_and(|body| node.input.len() == body.input.len() + 1)
}

/// A `Scan` of opset 8 as one of opset 9 for each element of the batch, inside of one over the batch. `None` where rows
/// have lengths of their own.
pub(super) fn scan(node: &NodeProto) -> Option<NodeProto> {
    let (lengths, operands) = node.input.split_first().filter(|_| is_batched(node))?;
    let attribute = |name: &str| node.attribute.iter().find(|a| a.name == name);
    let body = attribute("body").filter(|_| lengths.is_empty())?.clone();
    let taken: Vec<String> = used(node).map(std::borrow::Cow::into_owned).collect();
    let prefix = node.output.iter().find(|name| !name.is_empty())?;
    let name = |of: &str, index: usize| {
        let mut name = format!("{prefix}/{of}_{index}");
        while taken.contains(&name) {
            name.push('_');
        }
        name
    };
    let names = |of: &str, count: usize| (0..count).map(|i| name(of, i)).collect::<Vec<String>>();
    let (inside, results) = (names("row", operands.len()), names("result", node.output.len()));
    let int = |name: &str, i: i64| AttributeProto {
        name: name.to_owned(),
        i,
        kind: AttributeType::Int.into(),
        ..AttributeProto::default()
    };
    let mut settings = vec![attribute("num_scan_inputs")?.clone(), body];
    if let Some(directions) = attribute("directions") {
        settings.push(AttributeProto { name: "scan_input_directions".to_owned(), ..directions.clone() });
    }
    let row = NodeProto {
        op_type: node.op_type.clone(),
        name: format!("{prefix}/row"),
        input: inside.clone(),
        output: results.clone(),
        attribute: settings,
        ..NodeProto::default()
    };
    let info = |name: String| ValueInfoProto { name, r#type: None };
    let graph = GraphProto {
        name: "row".to_owned(),
        node: vec![row],
        input: inside.into_iter().map(info).collect(),
        output: results.into_iter().map(info).collect(),
        ..GraphProto::default()
    };
    let kind = AttributeType::Graph.into();
    let body = AttributeProto { name: "body".to_owned(), g: Some(graph), kind, ..AttributeProto::default() };
    let count = i64::try_from(operands.len()).ok()?;
    let attribute = vec![int("num_scan_inputs", count), body];
    Some(NodeProto { input: operands.to_vec(), attribute, ..node.clone() })
}
