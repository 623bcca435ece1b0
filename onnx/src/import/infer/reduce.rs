//! Reductions, and what picks elements by their order.

use planish_ir::{DType, Dim};

use super::super::nodes::{Node, axis};
use super::super::scope::Scope;
use super::{Partial, length, numbers};

pub(super) fn types(scope: &mut Scope, node: &Node<'_>) -> Result<Option<Vec<Partial>>, String> {
    let found = match node.proto.op_type.as_str() {
        op if op.starts_with("Reduce") => reduce(scope, node)?,
        "ArgMax" | "ArgMin" => {
            let x: Partial = scope.ty(node.input(0)?)?.into();
            let at = axis(node.int_or("axis", 0)?, x.dims.len())?;
            without(&Partial { dtype: DType::I64, ..x }, &[at], node.int_or("keepdims", 1)? == 1)
        }
        "TopK" => return top_k(scope, node).map(Some),
        "Det" => {
            let x: Partial = scope.ty(node.input(0)?)?.into();
            let outer = x.dims.len().checked_sub(2).ok_or_else(|| format!("{x} is not a matrix"))?;
            Partial::new(x.dtype, x.dims[..outer].to_vec())
        }
        "NonMaxSuppression" => Partial::new(DType::I64, [None, Some(Dim::constant(3))]),
        "NegativeLogLikelihoodLoss" | "SoftmaxCrossEntropyLoss" => {
            let scores: Partial = scope.ty(node.input(0)?)?.into();
            let labels: Partial = scope.ty(node.input(1)?)?.into();
            let dims = if node.text_or("reduction", "mean")? == "none" { labels.dims } else { Vec::new() };
            return Ok(Some(vec![Partial::new(scores.dtype, dims), scores]));
        }
        _ => return Ok(None),
    };
    Ok(Some(vec![found]))
}

/// A type with some dimensions reduced.
fn without(x: &Partial, axes: &[usize], keep: bool) -> Partial {
    let dims = x.dims.iter().enumerate().filter_map(|(i, dim)| match axes.contains(&i) {
        true => keep.then_some(Some(Dim::constant(1))),
        false => Some(dim.clone()),
    });
    Partial::new(x.dtype, dims)
}

fn reduce(scope: &Scope, node: &Node<'_>) -> Result<Partial, String> {
    let x: Partial = scope.ty(node.input(0)?)?.into();
    let rank = x.dims.len();
    let keep = node.int_or("keepdims", 1)? == 1;
    let axes = match node.ints("axes")? {
        Some(axes) => Some(axes),
        None if node.has(1) => numbers(scope, node, 1),
        None => Some(Vec::new()),
    };
    match axes {
        Some(axes) if axes.is_empty() && node.int_or("noop_with_empty_axes", 0)? == 1 => Ok(x),
        Some(axes) if axes.is_empty() => Ok(without(&x, &(0..rank).collect::<Vec<_>>(), keep)),
        Some(axes) => Ok(without(&x, &super::super::nodes::axes(&axes, rank)?, keep)),
        None if keep => Ok(Partial::open(x.dtype, rank)),
        None => {
            let given = node.input(1)?;
            let count = length(scope, given).filter(|&n| n > 0 && n <= rank);
            Ok(Partial::of_rank(x.dtype, count.map(|count| rank - count)))
        }
    }
}

fn top_k(scope: &mut Scope, node: &Node<'_>) -> Result<Vec<Partial>, String> {
    let x: Partial = scope.ty(node.input(0)?)?.into();
    let at = axis(node.int_or("axis", -1)?, x.dims.len())?;
    let k = match node.version {
        ..10 => Some(Dim::constant(node.int("k")?.ok_or("it has no attribute `k`")?)),
        _ => scope.known(node.input(1)?).and_then(|k| k.scalar().cloned()),
    };
    let (name, mut dims) = (node.output()?, x.dims);
    dims[at] = Some(k.unwrap_or_else(|| scope.symbols.fresh(&format!("{name}_k"))));
    Ok(vec![Partial::new(x.dtype, dims.clone()), Partial::new(DType::I64, dims)])
}
