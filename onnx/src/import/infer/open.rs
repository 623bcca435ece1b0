//! Results of operators that have an operand of which not even the number of dimensions is known, or which is not a tensor.

use planish_ir::{DType, Type};

use super::super::nodes::Node;
use super::super::scope::Scope;
use super::super::{CONTRIB, is_default};
use super::{Found, Inferred, LIKE_FIRST, Partial, contrib, control, elementwise, sequence};

/// Operators whose result has the elements of the first operand.
const ELEMENTS_OF_FIRST: &[&str] = &[
    "Add",
    "BitShift",
    "BitwiseAnd",
    "BitwiseOr",
    "BitwiseXor",
    "Compress",
    "Concat",
    "Conv",
    "Div",
    "Einsum",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gemm",
    "GlobalAveragePool",
    "LayerNormalization",
    "MatMul",
    "Max",
    "Mean",
    "Min",
    "Mod",
    "Mul",
    "Pad",
    "Pow",
    "Reshape",
    "Resize",
    "Slice",
    "Squeeze",
    "Sub",
    "Sum",
    "Tile",
    "Transpose",
    "Unsqueeze",
];

/// Operators whose result is booleans.
const TRUTH: &[&str] =
    &["And", "Equal", "Greater", "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor"];

pub(super) fn types(scope: &mut Scope, node: &Node<'_>) -> Found {
    if node.proto.domain == CONTRIB {
        return Ok(contrib::types(scope, node).unwrap_or_default());
    }
    if !is_default(&node.proto.domain) {
        return Ok(Vec::new());
    }
    if let Some(found) = sequence::types(scope, node)? {
        return Ok(found);
    }
    let operand = |index: usize| node.input(index).and_then(|name| scope.type_of(name));
    let op = node.proto.op_type.as_str();
    let elements = |dtype: Option<DType>| dtype.map_or(Inferred::Nothing, |d| Inferred::Other(Type::Unranked(d)));
    let found = match op {
        _ if LIKE_FIRST.contains(&op) => Inferred::of(operand(0)?),
        _ if TRUTH.contains(&op) => Inferred::Other(Type::Unranked(DType::Bool)),
        _ if ELEMENTS_OF_FIRST.contains(&op) || op.starts_with("Reduce") => elements(operand(0)?.dtype()),
        "Where" => elements(operand(1)?.dtype()),
        "Cast" => elements(elementwise::element(node, "to")?),
        "CastLike" | "DequantizeLinear" => elements(operand(1)?.dtype()),
        "Shape" => Inferred::Tensor(Partial::open(DType::I64, 1)),
        "Size" => Inferred::Tensor(Partial::open(DType::I64, 0)),
        "ArgMax" | "ArgMin" => Inferred::Other(Type::Unranked(DType::I64)),
        "NonZero" => Inferred::Tensor(Partial::open(DType::I64, 2)),
        _ => return control::types(scope, node),
    };
    Ok(vec![found])
}
