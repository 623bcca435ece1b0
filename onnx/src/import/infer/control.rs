//! Operators with graphs of their own: as these declare their results.

use planish_ir::Type;

use super::super::nodes::{Node, axis};
use super::super::scope::Scope;
use super::super::types;
use super::{Found, Inferred, Partial};
use crate::proto::{AttributeType, GraphProto, ValueInfoProto};

pub(super) fn types(scope: &mut Scope, node: &Node<'_>) -> Found {
    match node.proto.op_type.as_str() {
        "If" => {
            let (then, other) = (body(node, "then_branch")?, body(node, "else_branch")?);
            then.output.iter().zip(&other.output).map(|(a, b)| Ok(either(result(a)?, result(b)?))).collect()
        }
        "Loop" => {
            let body = body(node, "body")?;
            // The condition comes first in the body, and the number of rounds and the condition before the operands.
            let carried = node.proto.input.len().saturating_sub(2);
            let rounds = scope.symbols.fresh(&format!("{}_rounds", node.proto.output.first().map_or("loop", |n| n)));
            let types = body.output.iter().skip(1).enumerate().map(|(i, info)| {
                let ty = result(info)?;
                Ok(match (i < carried, ty) {
                    (true, ty) => passed_on(scope, ty, node.proto.input.get(i + 2)),
                    (false, Inferred::Tensor(ty)) => {
                        Partial::new(ty.dtype, [Some(rounds.clone())].into_iter().chain(ty.dims)).into()
                    }
                    (false, ty) => ty,
                })
            });
            types.collect()
        }
        "Scan" if node.version >= 9 => scan(scope, node),
        _ => Ok(Vec::new()),
    }
}

/// What is passed on keeps its number of dimensions; the rest has one more, along which there is one of each round.
fn scan(scope: &Scope, node: &Node<'_>) -> Found {
    let body = body(node, "body")?;
    let cut = node.int("num_scan_inputs")?.and_then(|n| usize::try_from(n).ok());
    let carried = cut.and_then(|cut| node.proto.input.len().checked_sub(cut));
    let carried = carried.ok_or("its `num_scan_inputs` is not among its operands")?;
    let along = node.ints("scan_output_axes")?.unwrap_or_default();
    let types = body.output.iter().enumerate().map(|(i, info)| {
        Ok(match (i.checked_sub(carried), result(info)?) {
            (None, ty) => passed_on(scope, ty, node.proto.input.get(i)),
            (Some(i), Inferred::Tensor(ty)) => {
                let mut dims = ty.dims;
                dims.insert(axis(along.get(i).copied().unwrap_or(0), dims.len() + 1)?, None);
                Partial::new(ty.dtype, dims).into()
            }
            (Some(_), ty) => ty,
        })
    });
    types.collect()
}

/// What rounds pass on to the next: as declared, with sizes that may change from one to the next; of what is not declared
/// the elements are those that the first round was given.
fn passed_on(scope: &Scope, declared: Inferred, given: Option<&String>) -> Inferred {
    match declared {
        Inferred::Tensor(ty) => Partial::open(ty.dtype, ty.dims.len()).into(),
        Inferred::Nothing => {
            let given = given.and_then(|name| scope.type_of(name).ok()?.dtype());
            given.map_or(Inferred::Nothing, |dtype| Inferred::Other(Type::Unranked(dtype)))
        }
        other => other,
    }
}

fn body<'a>(node: &Node<'a>, name: &str) -> Result<&'a GraphProto, String> {
    let attribute = node.attribute(name, AttributeType::Graph)?;
    attribute.and_then(|a| a.g.as_ref()).ok_or_else(|| format!("it has no graph `{name}`"))
}

/// The type that a graph declares for a result; what it names is open.
fn result(info: &ValueInfoProto) -> Result<Inferred, String> {
    let Some(ty) = &info.r#type else { return Ok(Inferred::Nothing) };
    // Names of dimensions mean nothing outside.
    let ty = types::read(&mut super::super::symbols::Symbols::default(), ty, &info.name)?;
    Ok(match ty {
        None => Inferred::Nothing,
        Some(Type::Tensor(ty)) => {
            let dims = ty.shape.iter().map(|d| d.as_constant().map(planish_ir::Dim::constant));
            Partial::new(ty.dtype, dims).into()
        }
        Some(other) => Inferred::Other(other),
    })
}

/// What two branches have in common.
fn either(a: Inferred, b: Inferred) -> Inferred {
    let open = |dtype| Inferred::Other(Type::Unranked(dtype));
    match (a, b) {
        (Inferred::Tensor(a), Inferred::Tensor(b)) if a.dtype == b.dtype => match a.dims.len() == b.dims.len() {
            true => {
                let dims = a.dims.into_iter().zip(b.dims).map(|(a, b)| if a == b { a } else { None });
                Partial::new(a.dtype, dims).into()
            }
            false => open(a.dtype),
        },
        (Inferred::Tensor(a), Inferred::Other(Type::Unranked(b)))
        | (Inferred::Other(Type::Unranked(b)), Inferred::Tensor(a))
            if a.dtype == b =>
        {
            open(b)
        }
        (a, b) if a == b => a,
        _ => Inferred::Nothing,
    }
}
