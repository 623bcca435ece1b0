//! What looks for the largest or the smallest elements.

use planish_ir::ops::{ArgMax, Flag, TopK};
use planish_ir::{Dim, ValueId};

use super::super::scope::Scope;
use super::{Node, axis};

/// ArgMax, and TopK of a known number of elements. One that need not be in order is in order.
pub(super) fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    match node.proto.op_type.as_str() {
        "TopK" => top_k(scope, node),
        "ArgMax" => {
            let name = node.output()?;
            let (x, axis) = along(scope, node, 0)?;
            let (keep, last) = (node.int_or("keepdims", 1)? == 1, Flag(node.int_or("select_last_index", 0)? == 1));
            let value = scope.emit(ArgMax { x, axis, keep, last }, name)?;
            scope.set(name, value);
            Ok(true)
        }
        _ => Ok(false),
    }
}

fn top_k(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let k = match node.version {
        ..10 => node.int("k")?.map(Dim::constant),
        _ => scope.known(node.input(1)?).and_then(|k| k.scalar().cloned()),
    };
    let Some(k) = k else { return Ok(false) };
    let (x, axis) = along(scope, node, -1)?;
    let smallest = Flag(node.int_or("largest", 1)? == 0);
    let results = node.proto.output.iter().find(|name| !name.is_empty()).cloned().unwrap_or_default();
    let values = scope.emit_all(TopK { x, axis, k, smallest }, &results)?;
    for (name, value) in node.proto.output.iter().zip(values).filter(|(name, _)| !name.is_empty()) {
        scope.graph.rename(value, name);
        scope.set(name, value);
    }
    Ok(true)
}

/// The operand, and the axis that the operator works along.
fn along(scope: &mut Scope, node: &Node<'_>, default: i64) -> Result<(ValueId, usize), String> {
    let x = scope.value(node.input(0)?)?;
    Ok((x, axis(node.int_or("axis", default)?, scope.graph.ty(x).shape.rank())?))
}
