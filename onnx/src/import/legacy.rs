//! Nodes of opsets before 7, in which operands broadcast only where an attribute says so.

use crate::export::changes;
use crate::proto::NodeProto;

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
