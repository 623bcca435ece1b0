//! TensorRT's node for what ranks exchange.

use planish_ir::Op;
use planish_ir::ops::{AllGather, AllReduce};

use super::super::scope::Scope;
use super::Node;

/// DistCollective of all ranks: a sum that all get, and tensors that all get. Others pass through.
pub(super) fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    if node.proto.op_type != "DistCollective" {
        return Ok(false);
    }
    let ranks = node.int("nb_rank")?.and_then(|ranks| usize::try_from(ranks).ok()).ok_or("`nb_rank` is missing")?;
    let of_groups = node.ints("groups")?.is_some_and(|groups| !groups.is_empty());
    let x = scope.value(node.input(0)?)?;
    let operation = node.text_or("collective_operation", "")?;
    let op: Op = match (operation.as_str(), node.text_or("reduce_op", "none")?.as_str()) {
        _ if of_groups => return Ok(false),
        ("all_reduce", "sum") => AllReduce { x, ranks }.into(),
        ("all_gather", _) => AllGather { x, ranks }.into(),
        _ => return Ok(false),
    };
    let name = node.output()?;
    let value = scope.emit(op, name)?;
    scope.set(name, value);
    Ok(true)
}
