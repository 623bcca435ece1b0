//! Operators with graphs of their own: what is known to run, and how often, becomes part of the graph.
//! Where that fails, or comes to too much, the operator stays one.

mod body;
mod masked;
mod scan;
mod stack;
mod unroll;

use self::body::Body;
use super::super::scope::Scope;
use super::Node;

pub(super) fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    match node.proto.op_type.as_str() {
        "If" => branch(scope, node),
        "Loop" => unroll::rule(scope, node),
        "Scan" => scan::rule(scope, node),
        _ => Ok(false),
    }
}

/// The branch that is taken, where that is known, and the one that computes the same in any case.
fn branch(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let Some(condition) = scope.known(node.input(0)?).and_then(|k| k.scalar()?.as_constant()) else {
        return masked::rule(scope, node);
    };
    let name = if condition == 0 { "else_branch" } else { "then_branch" };
    let body = Body::new(scope, node, name)?;
    body.expect(0, node.proto.output.len())?;
    let results = body.instance(scope, name, &[])?;
    give(scope, &node.proto.output, &results);
    Ok(true)
}

/// Makes results of a node stand for what its graph gave.
fn give(scope: &mut Scope, outside: &[String], inside: &[String]) {
    for (outside, inside) in outside.iter().zip(inside).filter(|(outside, _)| !outside.is_empty()) {
        scope.alias(outside, inside);
    }
}
