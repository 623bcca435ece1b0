//! Convolutions, pooling and what else works on [batch, channels, spatial ...].

use planish_ir::{DType, Dim, TensorType};

use super::super::nodes::{Node, axis};
use super::super::scope::Scope;
use super::{Partial, numbers};
use crate::import::known::Known;

pub(super) fn types(scope: &mut Scope, node: &Node<'_>) -> Result<Option<Vec<Partial>>, String> {
    let ty = |index: usize| -> Result<TensorType, String> { scope.ty(node.input(index)?) };
    let found = match node.proto.op_type.as_str() {
        "Conv" | "DeformConv" => convolution(node, &ty(0)?, &ty(1)?, ty(0)?.dtype)?,
        "ConvInteger" => convolution(node, &ty(0)?, &ty(1)?, DType::I32)?,
        "QLinearConv" => convolution(node, &ty(0)?, &ty(3)?, ty(7)?.dtype)?,
        "ConvTranspose" => transposed(node, &ty(0)?, &ty(1)?)?,
        "MaxPool" | "AveragePool" | "LpPool" => {
            let x = ty(0)?;
            let kernel = node.ints("kernel_shape")?.ok_or("it has no `kernel_shape`")?;
            let dims = windows(node, &x, &kernel.into_iter().map(Dim::constant).collect::<Vec<_>>())?;
            let dims = outer(&x, 2)?.into_iter().chain(dims).collect::<Vec<_>>();
            return Ok(Some(vec![Partial::new(x.dtype, dims.clone()), Partial::new(DType::I64, dims)]));
        }
        "GlobalMaxPool" | "GlobalAveragePool" | "GlobalLpPool" => {
            let x = ty(0)?;
            let ones = vec![Some(Dim::constant(1)); x.shape.rank().saturating_sub(2)];
            Partial::new(x.dtype, outer(&x, 2)?.into_iter().chain(ones))
        }
        "MaxUnpool" => {
            let x = ty(0)?;
            match numbers(scope, node, 2) {
                Some(sizes) => Partial::known(x.dtype, &sizes.into_iter().map(Dim::constant).collect::<Vec<_>>()),
                None => Partial::new(x.dtype, outer(&x, 2)?.into_iter().chain(vec![None; x.shape.rank() - 2])),
            }
        }
        "MaxRoiPool" => {
            let size = node.ints("pooled_shape")?.ok_or("it has no `pooled_shape`")?;
            let channels = outer(&ty(0)?, 2)?.pop().flatten();
            let sizes = size.into_iter().map(|s| Some(Dim::constant(s)));
            Partial::new(ty(0)?.dtype, [outer(&ty(1)?, 1)?.pop().flatten(), channels].into_iter().chain(sizes))
        }
        "RoiAlign" => {
            let size = |name: &str| -> Result<Option<Dim>, String> { Ok(Some(Dim::constant(node.int_or(name, 1)?))) };
            let channels = outer(&ty(0)?, 2)?.pop().flatten();
            let rois = outer(&ty(1)?, 1)?.pop().flatten();
            Partial::new(ty(0)?.dtype, [rois, channels, size("output_height")?, size("output_width")?])
        }
        "Resize" => resize(scope, node)?,
        "Upsample" => {
            let x = ty(0)?;
            let scales = if node.version < 9 { node.floats("scales")? } else { reals(scope, node, 1) };
            scaled(&x, scales.as_deref(), &(0..x.shape.rank()).collect::<Vec<_>>())?
        }
        "GridSample" => {
            let (x, grid) = (ty(0)?, ty(1)?);
            let spatial = grid.shape.get(1..grid.shape.rank().saturating_sub(1)).unwrap_or_default();
            Partial::new(x.dtype, outer(&x, 2)?.into_iter().chain(spatial.iter().cloned().map(Some)))
        }
        "AffineGrid" => {
            let theta = ty(0)?;
            let Some(rank) = super::length(scope, node.input(1)?) else {
                return Ok(Some(vec![Partial::unranked(theta.dtype)]));
            };
            let sizes = numbers(scope, node, 1);
            let spatial = (2..rank).map(|i| sizes.as_ref().and_then(|s| s.get(i).copied()).map(Dim::constant));
            let coordinates = i64::try_from(rank).unwrap_or(0).saturating_sub(2);
            let dims = outer(&theta, 1)?.into_iter().chain(spatial).chain([Some(Dim::constant(coordinates))]);
            Partial::new(theta.dtype, dims)
        }
        "Col2Im" => {
            let x = ty(0)?;
            let [batch, columns, _] = &x.shape[..] else { return Err(format!("{x} does not have three dimensions")) };
            let Some(rank) = super::length(scope, node.input(1)?) else {
                return Ok(Some(vec![Partial::unranked(x.dtype)]));
            };
            let image = numbers(scope, node, 1);
            let block = numbers(scope, node, 2).and_then(|b| b.into_iter().try_fold(1i64, i64::checked_mul));
            let channels = block.and_then(|b| columns.exact_div(&Dim::constant(b)));
            let spatial = (0..rank).map(|i| image.as_ref().and_then(|s| s.get(i).copied()).map(Dim::constant));
            Partial::new(x.dtype, [Some(batch.clone()), channels].into_iter().chain(spatial))
        }
        _ => return Ok(None),
    };
    Ok(Some(vec![found]))
}

/// The first dimensions of a type.
fn outer(ty: &TensorType, count: usize) -> Result<Vec<Option<Dim>>, String> {
    let dims =
        ty.shape.get(..count).ok_or_else(|| format!("its operand is {ty}, expected at least {count} dimensions"))?;
    Ok(dims.iter().cloned().map(Some).collect())
}

pub(super) fn convolution(
    node: &Node<'_>,
    x: &TensorType,
    weight: &TensorType,
    dtype: DType,
) -> Result<Partial, String> {
    let channels = outer(weight, 1)?.pop().flatten();
    let batch = outer(x, 1)?.pop().flatten();
    let kernel = weight.shape.get(2..).unwrap_or_default();
    Ok(Partial::new(dtype, [batch, channels].into_iter().chain(windows(node, x, kernel)?)))
}

/// How a window moves over each spatial dimension.
struct Moves {
    strides: Vec<i64>,
    dilations: Vec<i64>,
    /// The padding before and after in all; none where it is such that only strides make a result smaller.
    pads: Option<Vec<i64>>,
}

impl Moves {
    fn of(node: &Node<'_>, rank: usize) -> Result<Self, String> {
        let list = |name: &str, default: i64, length: usize| -> Result<Vec<i64>, String> {
            let given = node.ints(name)?.filter(|v| !v.is_empty()).unwrap_or_else(|| vec![default; length]);
            if given.len() != length {
                return Err(format!("its {name} are {given:?}, expected {length} numbers"));
            }
            match given.iter().find(|v| v.unsigned_abs() > u64::from(i32::MAX.unsigned_abs())) {
                Some(v) => Err(format!("its {name} are {given:?}, and {v} does not fit 32 bits")),
                None => Ok(given),
            }
        };
        let strides = list("strides", 1, rank)?;
        if strides.iter().any(|&s| s < 1) {
            return Err(format!("its strides are {strides:?}, expected positive ones"));
        }
        let pads = match node.text_or("auto_pad", "NOTSET")?.as_str() {
            "NOTSET" => {
                let pads = list("pads", 0, 2 * rank)?;
                Some((0..rank).map(|i| pads[i] + pads[i + rank]).collect())
            }
            "VALID" => Some(vec![0; rank]),
            "SAME_UPPER" | "SAME_LOWER" => None,
            other => return Err(format!("its auto_pad is `{other}`")),
        };
        Ok(Self { strides, dilations: list("dilations", 1, rank)?, pads })
    }

    /// What a window of a size covers along an axis.
    fn extent(&self, axis: usize, kernel: &Dim) -> Option<Dim> {
        let one = Dim::constant(1);
        kernel.checked_sub(&one)?.checked_mul(&Dim::constant(self.dilations[axis]))?.checked_add(&one)
    }
}

/// How many places a window has along each spatial dimension.
fn windows(node: &Node<'_>, x: &TensorType, kernel: &[Dim]) -> Result<Vec<Option<Dim>>, String> {
    let spatial = x.shape.get(2..).unwrap_or_default();
    if spatial.len() != kernel.len() {
        return Err(format!("a window of {} dimensions moves over {x}", kernel.len()));
    }
    let moves = Moves::of(node, kernel.len())?;
    let up = node.int_or("ceil_mode", 0)? == 1;
    let place = |(i, (size, kernel)): (usize, (&Dim, &Dim))| {
        let stride = moves.strides[i];
        let Some(pads) = &moves.pads else { return over(size, stride, true) };
        let room = size.checked_add(&Dim::constant(pads[i]))?.checked_sub(&moves.extent(i, kernel)?)?;
        let mut count = over(&room, stride, up)?.checked_add(&Dim::constant(1))?;
        // A window that would start in the padding after is left out.
        if up && let (Some(n), Some(size)) = (count.as_constant(), size.as_constant()) {
            let before = node.ints("pads").ok()?.and_then(|p| p.get(i).copied()).unwrap_or(0);
            if (n - 1).saturating_mul(stride) >= size.saturating_add(before) {
                count = Dim::constant(n - 1);
            }
        }
        Some(count)
    };
    Ok(spatial.iter().zip(kernel).enumerate().map(place).collect())
}

/// A quotient, where it is known.
fn over(size: &Dim, by: i64, up: bool) -> Option<Dim> {
    match size.as_constant() {
        Some(size) => Some(Dim::constant(size.div_euclid(by) + i64::from(up && size.rem_euclid(by) != 0))),
        None => size.exact_div(&Dim::constant(by)),
    }
}

fn transposed(node: &Node<'_>, x: &TensorType, weight: &TensorType) -> Result<Partial, String> {
    let (spatial, kernel) = (x.shape.get(2..).unwrap_or_default(), weight.shape.get(2..).unwrap_or_default());
    if spatial.len() != kernel.len() || x.shape.rank() < 3 {
        return Err(format!("its operands are {x} and {weight}"));
    }
    let groups = Dim::constant(node.int_or("group", 1)?);
    let channels = weight.shape[1].checked_mul(&groups);
    let moves = Moves::of(node, kernel.len())?;
    let asked = node.ints("output_shape")?.filter(|s| !s.is_empty());
    let extra = node.ints("output_padding")?;
    let size = |i: usize| {
        if let Some(asked) = &asked {
            let skipped = asked.len().checked_sub(kernel.len())?;
            return asked.get(i + skipped).copied().map(Dim::constant);
        }
        let stride = Dim::constant(moves.strides[i]);
        let Some(pads) = &moves.pads else { return spatial[i].checked_mul(&stride) };
        let added = extra.as_ref().and_then(|e| e.get(i).copied()).unwrap_or(0).checked_sub(pads[i])?;
        let steps = spatial[i].checked_sub(&Dim::constant(1))?.checked_mul(&stride)?;
        steps.checked_add(&moves.extent(i, &kernel[i])?)?.checked_add(&Dim::constant(added))
    };
    let dims = [Some(x.shape[0].clone()), channels].into_iter().chain((0..kernel.len()).map(size));
    Ok(Partial::new(x.dtype, dims))
}

/// A constant of binary32 numbers as an operand, where it is given and not empty.
fn reals(scope: &Scope, node: &Node<'_>, index: usize) -> Option<Vec<f32>> {
    let weight = scope.weight(node.input(index).ok()?)?;
    if weight.dtype() != DType::F32 || weight.elements() > crate::import::known::MAX_ELEMENTS || weight.elements() == 0
    {
        return None;
    }
    let bytes = weight.read().ok()?;
    Some(bytes.chunks_exact(4).filter_map(|b| b.try_into().ok().map(f32::from_le_bytes)).collect())
}

fn resize(scope: &Scope, node: &Node<'_>) -> Result<Partial, String> {
    let x = scope.ty(node.input(0)?)?;
    let rank = x.shape.rank();
    let axes = match node.ints("axes")? {
        Some(axes) => axes.into_iter().map(|a| axis(a, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).collect::<Vec<_>>(),
    };
    let (scales, sizes) = if node.version < 11 { (1, 9) } else { (2, 3) };
    if node.has(sizes) && node.text_or("keep_aspect_ratio_policy", "stretch")? == "stretch" {
        let mut out: Partial = x.into();
        let asked: Option<Known> = scope.known(node.input(sizes)?);
        for (i, &at) in axes.iter().enumerate() {
            out.dims[at] = asked.as_ref().and_then(|k| k.elements.get(i).cloned());
        }
        return Ok(out);
    }
    let scales = if node.has(sizes) { None } else { reals(scope, node, scales) };
    scaled(&x, scales.as_deref(), &axes)
}

/// Dimensions times factors, rounded down.
fn scaled(x: &TensorType, scales: Option<&[f32]>, axes: &[usize]) -> Result<Partial, String> {
    let mut out: Partial = x.clone().into();
    if scales.is_some_and(|s| s.len() != axes.len()) {
        return Err(format!("it has {} scales for {} axes", scales.map_or(0, <[f32]>::len), axes.len()));
    }
    for (i, &at) in axes.iter().enumerate() {
        let dim = out.dims[at].take();
        out.dims[at] = scales.and_then(|s| {
            let (dim, scale) = (dim?, s[i]);
            match dim.as_constant() {
                Some(size) => Some(Dim::constant((size as f32 * scale).floor() as i64)),
                None if scale.fract() == 0.0 => dim.checked_mul(&Dim::constant(scale as i64)),
                None => None,
            }
        });
    }
    Ok(out)
}
