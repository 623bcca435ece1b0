//! Operators that pick or replace elements by indices, or by what they are.

use planish_ir::DType;

use super::{Maybe, Node, around, axis, indices, of_integers, one, pick, position};
use crate::Tensor;
use crate::element::{Element, Float, Int, with_type};

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        "Gather" => one(gather(node)?),
        "GatherElements" => one(gather_elements(node)?),
        "GatherND" => one(gather_nd(node)?),
        "Scatter" | "ScatterElements" => one(scatter_elements(node)?),
        "ScatterND" => one(scatter_nd(node)?),
        "NonZero" => {
            let x = node.operand(0)?;
            let values = x.to_f64();
            let found: Vec<Vec<usize>> =
                indices(x.shape()).zip(values).filter(|(_, v)| *v != 0.0).map(|(index, _)| index).collect();
            let rank = x.shape().len();
            let rows = (0..rank).flat_map(|a| found.iter().map(move |index| index[a] as i128));
            one(of_integers(DType::I64, vec![rank, found.len()], &rows.collect::<Vec<_>>())?)
        }
        "Compress" => one(compress(node)?),
        _ => Ok(None),
    }
}

/// Indices into an axis of a size, counted from either end.
fn within(given: &[i64], size: usize) -> Result<Vec<usize>, String> {
    given
        .iter()
        .map(|&i| axis(i, size).map_err(|_| format!("the index {i} is out of range for {size} elements")))
        .collect()
}

fn gather(node: &Node<'_>) -> Result<Tensor, String> {
    let (x, index) = (node.operand(0)?, node.operand(1)?);
    let a = node.axis("axis", 0, x.shape().len())?;
    let (outer, size, inner) = around(x.shape(), a);
    let at = within(&node.integers(1)?.unwrap_or_default(), size)?;
    let shape = [&x.shape()[..a], index.shape(), &x.shape()[a + 1..]].concat();
    node.count(&shape)?;
    let rows = (0..outer).flat_map(|o| at.iter().map(move |i| (o * size + i) * inner));
    let picked: Vec<Option<usize>> = rows.flat_map(|from| (from..from + inner).map(Some)).collect();
    pick(x, None, shape, &picked)
}

fn gather_elements(node: &Node<'_>) -> Result<Tensor, String> {
    let (x, index) = (node.operand(0)?, node.operand(1)?);
    let a = node.axis("axis", 0, x.shape().len())?;
    let at = within(&node.integers(1)?.unwrap_or_default(), x.shape()[a])?;
    let picked: Vec<Option<usize>> = indices(index.shape())
        .zip(at)
        .map(|(mut own, i)| {
            own[a] = i;
            Some(position(&own, x.shape()))
        })
        .collect();
    pick(x, None, index.shape().to_vec(), &picked)
}

/// Where rows of indices point to: the first element of each slice, and the size of the slices.
fn slices(x: &[usize], index: &Tensor, given: &[i64], shared: usize) -> Result<(Vec<usize>, usize), String> {
    let Some((&depth, outer)) = index.shape().split_last() else { return Err("its indices are a scalar".to_owned()) };
    if shared + depth > x.len() || shared > outer.len() {
        return Err(format!("indices of shape {:?} do not fit {x:?}", index.shape()));
    }
    let inner: usize = x[shared + depth..].iter().product();
    let block: usize = x[shared..].iter().product();
    let rows: usize = outer[shared..].iter().product();
    let starts = (0..outer.iter().product()).map(|row: usize| {
        let own = &given[row * depth..(row + 1) * depth];
        let mut at = 0;
        for (&i, &size) in own.iter().zip(&x[shared..]) {
            at = at * size + within(&[i], size)?[0];
        }
        Ok(row / rows.max(1) * block + at * inner)
    });
    Ok((starts.collect::<Result<_, String>>()?, inner))
}

fn gather_nd(node: &Node<'_>) -> Result<Tensor, String> {
    let (x, index) = (node.operand(0)?, node.operand(1)?);
    let shared = usize::try_from(node.int("batch_dims", 0)).map_err(|_| "its batch_dims are negative")?;
    let (starts, inner) = slices(x.shape(), index, &node.integers(1)?.unwrap_or_default(), shared)?;
    let depth = index.shape()[index.shape().len() - 1];
    let shape = [&index.shape()[..index.shape().len() - 1], &x.shape()[shared + depth..]].concat();
    node.count(&shape)?;
    let picked: Vec<Option<usize>> = starts.into_iter().flat_map(|from| (from..from + inner).map(Some)).collect();
    pick(x, None, shape, &picked)
}

fn scatter_elements(node: &Node<'_>) -> Result<Tensor, String> {
    let (x, index) = (node.operand(0)?, node.operand(1)?);
    let a = node.axis("axis", 0, x.shape().len())?;
    let at = within(&node.integers(1)?.unwrap_or_default(), x.shape()[a])?;
    let places = indices(index.shape()).zip(at).map(|(mut own, i)| {
        own[a] = i;
        position(&own, x.shape())
    });
    replace(x, &places.collect::<Vec<_>>(), node.operand(2)?, &node.text("reduction", "none"))
}

fn scatter_nd(node: &Node<'_>) -> Result<Tensor, String> {
    let (x, index) = (node.operand(0)?, node.operand(1)?);
    let (starts, inner) = slices(x.shape(), index, &node.integers(1)?.unwrap_or_default(), 0)?;
    let places: Vec<usize> = starts.into_iter().flat_map(|from| from..from + inner).collect();
    replace(x, &places, node.operand(2)?, &node.text("reduction", "none"))
}

/// A tensor with elements replaced by, or combined with, updates, one after another.
fn replace(x: &Tensor, places: &[usize], updates: &Tensor, how: &str) -> Result<Tensor, String> {
    if places.len() != updates.data().len() {
        return Err(format!("there are {} updates for {} places", updates.data().len(), places.len()));
    }
    if places.iter().any(|&at| at >= x.data().len()) {
        return Err(format!("an index is out of range for {}", x.ty()));
    }
    let unknown = || format!("its reduction `{how}` is unknown");
    with_type!(x.dtype(),
        float T => combine::<T>(x, places, updates, |a, b| Some(match how {
            "none" => b,
            "add" => T::narrow(a.widen() + b.widen()),
            "mul" => T::narrow(a.widen() * b.widen()),
            "min" => if b < a { b } else { a },
            "max" => if b > a { b } else { a },
            _ => return None,
        })).ok_or_else(unknown),
        int T => combine::<T>(x, places, updates, |a, b| Some(match how {
            "none" => b,
            "add" => T::narrow(a.widen() + b.widen())?,
            "mul" => T::narrow(a.widen().checked_mul(b.widen())?)?,
            "min" => if b < a { b } else { a },
            "max" => if b > a { b } else { a },
            _ => return None,
        })).ok_or_else(unknown),
        bool => combine::<bool>(x, places, updates, |_, b| (how == "none").then_some(b)).ok_or_else(unknown))
}

fn combine<T: Element>(
    x: &Tensor,
    places: &[usize],
    updates: &Tensor,
    f: impl Fn(T, T) -> Option<T>,
) -> Option<Tensor> {
    let mut out = T::of(x).ok()?.to_vec();
    for (&at, &update) in places.iter().zip(T::of(updates).ok()?) {
        out[at] = f(out[at], update)?;
    }
    Tensor::new(x.shape().to_vec(), T::data(out))
}

fn compress(node: &Node<'_>) -> Result<Tensor, String> {
    let (x, condition) = (node.operand(0)?, bool::of(node.operand(1)?)?);
    let kept = |size: usize| condition.iter().take(size).enumerate().filter(|(_, keep)| **keep).map(|(i, _)| i);
    if node.ints("axis").is_none() && node.op.setting("axis").is_none() {
        let at: Vec<Option<usize>> = kept(x.data().len()).map(Some).collect();
        return pick(x, None, vec![at.len()], &at);
    }
    let a = node.axis("axis", 0, x.shape().len())?;
    let (outer, size, inner) = around(x.shape(), a);
    let rows: Vec<usize> = kept(size).collect();
    let mut shape = x.shape().to_vec();
    shape[a] = rows.len();
    let starts = (0..outer).flat_map(|o| rows.iter().map(move |i| (o * size + i) * inner));
    let picked: Vec<Option<usize>> = starts.flat_map(|from| (from..from + inner).map(Some)).collect();
    pick(x, None, shape, &picked)
}
