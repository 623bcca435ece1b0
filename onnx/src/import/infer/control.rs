//! Operators with graphs of their own: as these declare their results.

use super::super::nodes::{Node, axis};
use super::super::scope::Scope;
use super::super::tensors::dtype;
use super::{Found, Partial};
use crate::proto::{AttributeType, DimensionValue, GraphProto, ValueInfoProto};

pub(super) fn types(scope: &mut Scope, node: &Node<'_>) -> Found {
    match node.proto.op_type.as_str() {
        "If" => {
            let (then, other) = (body(node, "then_branch")?, body(node, "else_branch")?);
            then.output
                .iter()
                .zip(&other.output)
                .map_while(|(a, b)| Some(either(result(a).ok()?, result(b).ok()?)))
                .map(Ok)
                .collect()
        }
        "Loop" => {
            let body = body(node, "body")?;
            // The condition comes first in the body, and the number of rounds and the condition before the operands.
            let carried = node.proto.input.len().saturating_sub(2);
            let results = body.output.iter().skip(1).map_while(|r| result(r).ok()).enumerate();
            let rounds = scope.symbols.fresh(&format!("{}_rounds", node.proto.output.first().map_or("loop", |n| n)));
            let types = results.map(|(i, ty)| match i < carried {
                true => Partial::open(ty.dtype, ty.dims.len()),
                false => Partial::new(ty.dtype, [Some(rounds.clone())].into_iter().chain(ty.dims)),
            });
            Ok(types.collect())
        }
        "Scan" if node.version >= 9 => scan(node),
        _ => Ok(Vec::new()),
    }
}

/// What is passed on keeps its number of dimensions; the rest has one more, along which there is one of each round.
fn scan(node: &Node<'_>) -> Found {
    let body = body(node, "body")?;
    let cut = node.int("num_scan_inputs")?.and_then(|n| usize::try_from(n).ok());
    let carried = cut.and_then(|cut| node.proto.input.len().checked_sub(cut));
    let carried = carried.ok_or("its `num_scan_inputs` is not among its operands")?;
    let along = node.ints("scan_output_axes")?.unwrap_or_default();
    let results = body.output.iter().map_while(|r| result(r).ok()).enumerate();
    let types = results.map(|(i, ty)| match i.checked_sub(carried) {
        None => Ok(Partial::open(ty.dtype, ty.dims.len())),
        Some(i) => {
            let mut dims = ty.dims;
            dims.insert(axis(along.get(i).copied().unwrap_or(0), dims.len() + 1)?, None);
            Ok(Partial::new(ty.dtype, dims))
        }
    });
    types.collect()
}

fn body<'a>(node: &Node<'a>, name: &str) -> Result<&'a GraphProto, String> {
    let attribute = node.attribute(name, AttributeType::Graph)?;
    attribute.and_then(|a| a.g.as_ref()).ok_or_else(|| format!("it has no graph `{name}`"))
}

/// The type that a graph declares for a result; what it names is open.
fn result(info: &ValueInfoProto) -> Result<Partial, String> {
    let tensor = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
    let tensor = tensor.ok_or_else(|| format!("`{}` is no tensor", info.name))?;
    let shape = tensor.shape.as_ref().ok_or_else(|| format!("`{}` has no declared shape", info.name))?;
    let dims = shape.dim.iter().map(|d| match &d.value {
        Some(DimensionValue::DimValue(size)) if *size >= 0 => Some((*size).into()),
        _ => None,
    });
    Ok(Partial::new(dtype(tensor.elem_type)?, dims))
}

/// What two branches have in common.
fn either(a: Partial, b: Partial) -> Partial {
    let dims = a.dims.into_iter().zip(b.dims).map(|(a, b)| if a == b { a } else { None });
    Partial::new(a.dtype, dims)
}
