//! Convolution.

use planish_ir::ops::Conv;
use planish_ir::{Dim, Shape, Type};

use super::super::infer;
use super::super::scope::Scope;
use super::{Node, foreign};

/// A convolution whose padding is known: given, or such that only strides make a result smaller.
pub(super) fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    if node.proto.op_type != "Conv" {
        return Ok(false);
    }
    let name = node.output()?;
    let (x, weight) = (scope.value(node.input(0)?)?, scope.value(node.input(1)?)?);
    let bias = node.has(2).then(|| scope.value(node.input(2)?)).transpose()?;
    let sizes = |shape: &Shape| shape.get(2..).map(|dims| dims.iter().map(Dim::as_constant).collect::<Vec<_>>());
    let (Some(image), Some(kernel)) = (sizes(&scope.graph.ty(x).shape), sizes(&scope.graph.ty(weight).shape)) else {
        return Ok(false);
    };
    let rank = kernel.len();
    let list = |name: &str, default: usize, length: usize| -> Result<Option<Vec<usize>>, String> {
        let given = node.ints(name)?.filter(|given| !given.is_empty());
        let Some(given) = given else { return Ok(Some(vec![default; length])) };
        let sizes: Option<Vec<usize>> = given.iter().map(|&n| usize::try_from(n).ok()).collect();
        Ok(sizes.filter(|sizes| sizes.len() == length))
    };
    let (Some(strides), Some(dilations)) = (list("strides", 1, rank)?, list("dilations", 1, rank)?) else {
        return Ok(false);
    };
    let pads = match node.text_or("auto_pad", "NOTSET")?.as_str() {
        "NOTSET" => list("pads", 0, 2 * rank)?,
        "VALID" => Some(vec![0; 2 * rank]),
        mode => same(&image, &kernel, &strides, &dilations, mode == "SAME_LOWER"),
    };
    let Some((pads, groups)) = pads.zip(usize::try_from(node.int_or("group", 1)?).ok()) else { return Ok(false) };
    let Some(found) = infer::results(scope, node)?.into_iter().next() else { return Ok(false) };
    let Type::Tensor(ty) = foreign::result_type(scope, found, name, node.proto)? else { return Ok(false) };
    let Some(sizes) = ty.shape.get(2..).map(|dims| Shape::new(dims.iter().cloned())) else { return Ok(false) };
    let value = scope.emit(Conv { x, weight, bias, strides, dilations, pads, groups, sizes }, name)?;
    scope.set(name, value);
    Ok(true)
}

/// The padding with which a result has as many places as strides fit, where all sizes are known. An odd one goes after,
/// or, with `lower`, in front.
fn same(
    image: &[Option<i64>],
    kernel: &[Option<i64>],
    strides: &[usize],
    dilations: &[usize],
    lower: bool,
) -> Option<Vec<usize>> {
    let rank = kernel.len();
    let mut pads = vec![0; 2 * rank];
    for axis in 0..rank {
        let (size, kernel) = (usize::try_from((*image.get(axis)?)?).ok()?, usize::try_from(kernel[axis]?).ok()?);
        let (stride, dilation) = (strides[axis].max(1), dilations[axis]);
        let covered = size.div_ceil(stride).checked_sub(1)?.checked_mul(stride)?;
        let extent = kernel.checked_sub(1)?.checked_mul(dilation)?.checked_add(1)?;
        let total = covered.checked_add(extent)?.saturating_sub(size);
        let before = if lower { total - total / 2 } else { total / 2 };
        (pads[axis], pads[axis + rank]) = (before, total - before);
    }
    Some(pads)
}
