//! Operators that move elements.

use planish_ir::{DType, Dim, Shape};

use super::super::nodes::{Node, axes, axis, slice_of};
use super::super::scope::Scope;
use super::elementwise::broadcast;
use super::{Partial, length, numbers};

pub(super) fn types(scope: &mut Scope, node: &Node<'_>) -> Result<Option<Vec<Partial>>, String> {
    let found = match node.proto.op_type.as_str() {
        "Reshape" => reshape(scope, node)?,
        "Expand" => expand(scope, node)?,
        "Tile" => {
            let x = first(scope, node)?;
            Partial::open(x.dtype, x.dims.len())
        }
        "Pad" => pad(scope, node)?,
        "Slice" => slice(scope, node)?,
        "Transpose" => {
            let x = first(scope, node)?;
            let rank = x.dims.len();
            let perm = match node.ints("perm")? {
                Some(perm) => perm.into_iter().map(|p| axis(p, rank)).collect::<Result<Vec<_>, _>>()?,
                None => (0..rank).rev().collect(),
            };
            Partial::new(x.dtype, perm.into_iter().map(|p| x.dims[p].clone()))
        }
        "Flatten" => {
            let x = scope.ty(node.input(0)?)?;
            let rank = i64::try_from(x.shape.rank()).unwrap_or(i64::MAX);
            let at = node.int_or("axis", 1)?;
            let at = usize::try_from(if at < 0 { at + rank } else { at }).unwrap_or(usize::MAX);
            let product = |dims: Option<&[Dim]>| Shape::new(dims?.to_vec()).elements();
            let sizes = [product(x.shape.get(..at)), product(x.shape.get(at..))];
            if sizes.iter().any(Option::is_none) {
                return Err(format!("{} at axis {at} does not fit 64 bits, or has no such axis", x.shape));
            }
            Partial::new(x.dtype, sizes)
        }
        "Unsqueeze" => {
            let (x, axes) = (first(scope, node)?, node.input(1)?);
            Partial::of_rank(x.dtype, length(scope, axes).map(|added| x.dims.len() + added))
        }
        "Squeeze" => squeeze(scope, node)?,
        "Concat" => concat(scope, node)?,
        "Split" => return split(scope, node).map(Some),
        "Gather" => {
            let (x, indices) = (first(scope, node)?, dims(scope, node, 1)?);
            let at = axis(node.int_or("axis", 0)?, x.dims.len())?;
            let around = (x.dims[..at].to_vec(), x.dims[at + 1..].to_vec());
            Partial::new(x.dtype, [around.0, indices, around.1].concat())
        }
        "GatherElements" => Partial::new(first(scope, node)?.dtype, dims(scope, node, 1)?),
        "GatherND" => gather_nd(scope, node)?,
        "DepthToSpace" => blocks(scope, node, true)?,
        "SpaceToDepth" => blocks(scope, node, false)?,
        "Compress" => {
            let x = first(scope, node)?;
            let mut dims = if node.int("axis")?.is_some() { x.dims } else { vec![None] };
            let at = axis(node.int_or("axis", 0)?, dims.len())?;
            dims[at] = None;
            Partial::new(x.dtype, dims)
        }
        "NonZero" => {
            let rank = i64::try_from(first(scope, node)?.dims.len()).unwrap_or(i64::MAX);
            Partial::new(DType::I64, [Some(Dim::constant(rank)), None])
        }
        "Unique" => return unique(scope, node).map(Some),
        "CenterCropPad" => {
            let x = first(scope, node)?;
            let sizes = numbers(scope, node, 1);
            let axes = node.ints("axes")?.unwrap_or_else(|| (0..).take(x.dims.len()).collect());
            let mut dims = x.dims;
            for (i, at) in axes.into_iter().enumerate() {
                let at = axis(at, dims.len())?;
                dims[at] = sizes.as_ref().and_then(|s| s.get(i).copied()).map(Dim::constant);
            }
            Partial::new(x.dtype, dims)
        }
        _ => return Ok(None),
    };
    Ok(Some(vec![found]))
}

fn first(scope: &Scope, node: &Node<'_>) -> Result<Partial, String> {
    Ok(scope.ty(node.input(0)?)?.into())
}

fn dims(scope: &Scope, node: &Node<'_>, index: usize) -> Result<Vec<Option<Dim>>, String> {
    Ok(Partial::from(scope.ty(node.input(index)?)?).dims)
}

/// A target that is known but for one size that does not divide evenly, or one of a known length.
fn reshape(scope: &Scope, node: &Node<'_>) -> Result<Partial, String> {
    let (x, target) = (first(scope, node)?, node.input(1)?);
    let Some(asked) = scope.known(target) else {
        return Ok(Partial::of_rank(x.dtype, length(scope, target)));
    };
    let keep_zero = node.int_or("allowzero", 0)? == 1;
    let dims = asked.elements.iter().enumerate().map(|(i, dim)| match dim.as_constant() {
        Some(0) if !keep_zero => x.dims.get(i).cloned().flatten(),
        Some(..0) => None,
        _ => Some(dim.clone()),
    });
    Ok(Partial::new(x.dtype, dims))
}

fn expand(scope: &Scope, node: &Node<'_>) -> Result<Partial, String> {
    let (x, target) = (first(scope, node)?, node.input(1)?);
    let asked = match scope.known(target) {
        Some(known) => known.elements.into_iter().map(Some).collect(),
        None => match length(scope, target) {
            Some(length) => vec![None; length],
            None => return Ok(Partial::unranked(x.dtype)),
        },
    };
    Ok(Partial::new(x.dtype, broadcast(&x.dims, &asked)?))
}

fn pad(scope: &Scope, node: &Node<'_>) -> Result<Partial, String> {
    let x = first(scope, node)?;
    let rank = x.dims.len();
    let axes = match node.has(3) {
        true => numbers(scope, node, 3),
        false => Some((0..).take(rank).collect()),
    };
    let pads = match node.version {
        ..11 => node.ints("pads")?.map(|p| p.into_iter().map(Dim::constant).collect()),
        _ => scope.known(node.input(1)?).map(|k| k.elements),
    };
    let (Some(axes), Some(pads)) = (axes, pads) else { return Ok(Partial::open(x.dtype, rank)) };
    if pads.len() != 2 * axes.len() {
        return Err(format!("it has {} pads for {} axes", pads.len(), axes.len()));
    }
    let mut dims = x.dims;
    for (i, &at) in axes.iter().enumerate() {
        let at = axis(at, rank)?;
        let around = pads[i].checked_add(&pads[i + axes.len()]);
        dims[at] = dims[at].take().and_then(|d| d.checked_add(&around?));
    }
    Ok(Partial::new(x.dtype, dims))
}

fn slice(scope: &Scope, node: &Node<'_>) -> Result<Partial, String> {
    let x = first(scope, node)?;
    let given = |index: usize, attribute: &str| match node.version {
        ..10 => node.ints(attribute),
        _ => Ok(numbers(scope, node, index)),
    };
    let count = match node.version {
        ..10 => node.ints("starts")?.map(|s| s.len()),
        _ => length(scope, node.input(1)?),
    };
    let named = if node.version < 10 { node.ints("axes")?.is_some() } else { node.has(3) };
    let axes = if named { given(3, "axes")? } else { count.map(|n| (0..).take(n).collect()) };
    let Some(axes) = axes else { return Ok(Partial::open(x.dtype, x.dims.len())) };
    let (starts, ends) = (given(1, "starts")?, given(2, "ends")?);
    let steps = if node.version >= 10 && node.has(4) { numbers(scope, node, 4) } else { Some(vec![1; axes.len()]) };
    let mut dims = x.dims;
    for (i, &at) in axes.iter().enumerate() {
        let at = axis(at, dims.len())?;
        let at_i = |values: &Option<Vec<i64>>| values.as_ref().and_then(|v| v.get(i).copied());
        dims[at] = match (dims[at].take(), at_i(&starts), at_i(&ends), at_i(&steps)) {
            (Some(size), Some(start), Some(end), Some(step)) => taken(&size, start, end, step)?,
            _ => None,
        };
    }
    Ok(Partial::new(x.dtype, dims))
}

/// How many elements a slice takes.
fn taken(size: &Dim, start: i64, end: i64, step: i64) -> Result<Option<Dim>, String> {
    let far = i64::from(i32::MAX);
    let whole = (step == 1 && start == 0 && end >= far) || (step == -1 && (start == -1 || start >= far) && end <= -far);
    match size.as_constant() {
        _ if step == 0 => Err("its step is 0".to_owned()),
        _ if whole => Ok(Some(size.clone())),
        // The first or the last one, which an axis of any size is taken to have.
        None if step == 1 && (start == 0 && end == 1 || start == -1 && end >= far) => Ok(Some(Dim::constant(1))),
        None => Ok(None),
        Some(size) => {
            let (_, count) = slice_of(size, start, end, step)?;
            Ok(Some(Dim::constant(count)))
        }
    }
}

/// Without the axes that are named.
fn squeeze(scope: &Scope, node: &Node<'_>) -> Result<Partial, String> {
    let x = first(scope, node)?;
    let given = if node.version < 13 { node.ints("axes")? } else { numbers(scope, node, 1) };
    let Some(given) = given else {
        let named = node.input(1).ok().and_then(|name| length(scope, name));
        return Ok(Partial::of_rank(x.dtype, named.and_then(|n| x.dims.len().checked_sub(n))));
    };
    let axes = axes(&given, x.dims.len())?;
    if let Some(size) = axes.iter().filter_map(|&a| x.dims[a].as_ref()?.as_constant()).find(|size| *size != 1) {
        return Err(format!("it squeezes an axis of size {size}"));
    }
    Ok(Partial::new(x.dtype, x.dims.into_iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, d)| d)))
}

fn concat(scope: &Scope, node: &Node<'_>) -> Result<Partial, String> {
    let mut sum = first(scope, node)?;
    let at = axis(node.int_or("axis", 0)?, sum.dims.len())?;
    for name in &node.proto.input[1..] {
        let part: Partial = scope.ty(name)?.into();
        if part.dims.len() != sum.dims.len() {
            return Err(format!("its operands have {} and {} dimensions", sum.dims.len(), part.dims.len()));
        }
        for (i, (all, one)) in sum.dims.iter_mut().zip(part.dims).enumerate() {
            if i == at {
                *all = all.take().zip(one).and_then(|(a, b)| a.checked_add(&b));
            } else if one.as_ref().is_some_and(|d| d.as_constant().is_some()) {
                *all = one;
            }
        }
    }
    Ok(sum)
}

fn split(scope: &Scope, node: &Node<'_>) -> Result<Vec<Partial>, String> {
    let x = first(scope, node)?;
    let at = axis(node.int_or("axis", 0)?, x.dims.len())?;
    let outputs = node.proto.output.len();
    let given = node.ints("split")?.is_some() || node.has(1);
    let sizes = node.ints("split")?.or_else(|| numbers(scope, node, 1));
    if let Some(sizes) = sizes.as_ref().filter(|sizes| sizes.iter().any(|size| *size < 0)) {
        return Err(format!("its sizes are {sizes:?}, expected none below 0"));
    }
    let parts = i64::try_from(outputs).unwrap_or(i64::MAX);
    let even = x.dims[at].as_ref().filter(|_| !given).and_then(|d| d.exact_div(&Dim::constant(parts)));
    let part = |i: usize| {
        let mut dims = x.dims.clone();
        dims[at] = sizes.as_ref().and_then(|s| s.get(i).copied()).map(Dim::constant).or_else(|| even.clone());
        Partial::new(x.dtype, dims)
    };
    Ok((0..outputs).map(part).collect())
}

fn gather_nd(scope: &Scope, node: &Node<'_>) -> Result<Partial, String> {
    let (x, indices) = (first(scope, node)?, dims(scope, node, 1)?);
    let shared = usize::try_from(node.int_or("batch_dims", 0)?).map_err(|_| "its batch_dims are negative")?;
    let Some((last, outer)) = indices.split_last() else { return Err("its indices are a scalar".to_owned()) };
    let depth = last.as_ref().and_then(Dim::as_constant).and_then(|d| usize::try_from(d).ok());
    let Some(depth) = depth else { return Ok(Partial::unranked(x.dtype)) };
    let rest =
        x.dims.get(shared.saturating_add(depth)..).ok_or("its indices have more parts than its data dimensions")?;
    Ok(Partial::new(x.dtype, [outer, rest].concat()))
}

/// Blocks of pixels as channels, or the way back.
fn blocks(scope: &Scope, node: &Node<'_>, to_space: bool) -> Result<Partial, String> {
    let x = first(scope, node)?;
    let [batch, channels, height, width] = &x.dims[..] else { return Err(format!("{x} is not a batch of images")) };
    let block = Dim::constant(node.int("blocksize")?.ok_or("it has no `blocksize`")?);
    let area = block.checked_mul(&block).ok_or("its block is too large")?;
    let times = |d: &Option<Dim>, by: &Dim| d.as_ref().and_then(|d| d.checked_mul(by));
    let over = |d: &Option<Dim>, by: &Dim| d.as_ref().and_then(|d| d.exact_div(by));
    let dims = match to_space {
        true => [over(channels, &area), times(height, &block), times(width, &block)],
        false => [times(channels, &area), over(height, &block), over(width, &block)],
    };
    Ok(Partial::new(x.dtype, [batch.clone()].into_iter().chain(dims)))
}

/// Distinct elements, where the first of each is, which one each is, and how often each occurs.
fn unique(scope: &mut Scope, node: &Node<'_>) -> Result<Vec<Partial>, String> {
    let x = scope.ty(node.input(0)?)?;
    let count = Some(scope.symbols.fresh(&format!("{}_count", node.proto.output.first().map_or("unique", |n| n))));
    let (dims, all) = match node.int("axis")? {
        Some(at) => {
            let at = axis(at, x.shape.rank())?;
            let mut dims: Vec<Option<Dim>> = x.shape.iter().cloned().map(Some).collect();
            let all = dims[at].take();
            dims[at].clone_from(&count);
            (dims, all)
        }
        None => (vec![count.clone()], Shape::new(x.shape.to_vec()).elements()),
    };
    let indices = |length: Option<Dim>| Partial::new(DType::I64, [length]);
    Ok(vec![Partial::new(x.dtype, dims), indices(count.clone()), indices(all), indices(count)])
}
