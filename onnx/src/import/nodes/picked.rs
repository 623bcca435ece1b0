//! Elements of known integers that are picked, laid out otherwise or reduced: the result is known too. What a rule here does not
//! follow is left to the rules of tensors, which say what is wrong.

use planish_ir::{DType, Dim};

use super::super::known::{Known, less};
use super::super::scope::Scope;
use super::{Node, axes, axes_since, axis, slice_of};

pub(super) fn rule(scope: &mut Scope, node: &Node<'_>) -> Result<bool, String> {
    let op = node.proto.op_type.as_str();
    let follows = matches!(op, "Transpose" | "Expand" | "Concat" | "Slice" | "Gather" | "GatherND" | "NonZero");
    if !follows && !op.starts_with("Reduce") {
        return Ok(false);
    }
    let operands: Option<Vec<Known>> =
        node.proto.input.iter().filter(|name| !name.is_empty()).map(|name| scope.known(name)).collect();
    let Some((x, rest)) = operands.as_deref().and_then(<[Known]>::split_first) else { return Ok(false) };
    let known = match op {
        "Transpose" => transposed(node, x),
        "Expand" => expanded(x, rest),
        "Concat" => joined(node, x, rest),
        "Slice" => sliced(scope, node, x),
        "Gather" => gathered(node, x, rest),
        "GatherND" => gathered_by_rows(node, x, rest),
        "NonZero" => non_zero(x),
        _ => reduced(scope, node, x),
    };
    let Some(known) = known else { return Ok(false) };
    scope.set_known(node.output()?, known);
    Ok(true)
}

fn transposed(node: &Node<'_>, x: &Known) -> Option<Known> {
    let rank = x.shape.len();
    let perm: Vec<usize> = match node.ints("perm").ok()? {
        Some(perm) => perm.iter().map(|&p| axis(p, rank)).collect::<Result<_, _>>().ok()?,
        None => (0..rank).rev().collect(),
    };
    if perm.len() != rank {
        return None;
    }
    let shape = perm.iter().map(|&p| x.shape[p]).collect();
    x.pick(shape, |at| {
        let mut from = vec![0; rank];
        perm.iter().zip(at).for_each(|(&axis, &index)| from[axis] = index);
        Some(from)
    })
}

fn expanded(x: &Known, rest: &[Known]) -> Option<Known> {
    let [asked] = rest else { return None };
    let sizes: Vec<usize> = asked.constants()?.iter().map(|&size| usize::try_from(size).ok()).collect::<Option<_>>()?;
    let ones = Known::of(DType::I64, sizes, |_| Some(Dim::constant(1)))?;
    Known::map(x.dtype, [x, &ones], |[x, _]| Some(x.clone()))
}

fn joined(node: &Node<'_>, x: &Known, rest: &[Known]) -> Option<Known> {
    let axis = axis(node.int_or("axis", 0).ok()?, x.shape.len()).ok()?;
    let other = |part: &Known| part.shape.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, d)| *d).collect();
    let sizes: Vec<usize> = other(x);
    if rest.iter().any(|part| part.shape.len() != x.shape.len() || other(part) != sizes || part.dtype != x.dtype) {
        return None;
    }
    let parts: Vec<&Known> = std::iter::once(x).chain(rest).collect();
    let mut shape = x.shape.clone();
    shape[axis] = parts.iter().map(|part| part.shape[axis]).sum();
    let element = |at: &[usize]| {
        let mut at = at.to_vec();
        let part = parts.iter().find(|part| match at[axis].checked_sub(part.shape[axis]) {
            Some(rest) => {
                at[axis] = rest;
                false
            }
            None => true,
        })?;
        part.at(&at).cloned()
    };
    Known::of(x.dtype, shape, element)
}

fn sliced(scope: &Scope, node: &Node<'_>, x: &Known) -> Option<Known> {
    let starts = node.parameter(scope, "starts", 1, 10).ok()??;
    let ends = node.parameter(scope, "ends", 2, 10).ok()??;
    let along = node.parameter(scope, "axes", 3, 10).ok()?.unwrap_or_else(|| (0..).take(starts.len()).collect());
    let steps = if node.version >= 10 { node.parameter(scope, "steps", 4, 10).ok()? } else { None };
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), along.len(), steps.len()] != [starts.len(); 3] {
        return None;
    }
    let mut picked: Vec<Vec<usize>> = x.shape.iter().map(|&size| (0..size).collect()).collect();
    for (((&start, &end), &at), &step) in starts.iter().zip(&ends).zip(&along).zip(&steps) {
        let axis = axis(at, x.shape.len()).ok()?;
        picked[axis] = positions(start, end, step, x.shape[axis])?;
    }
    let shape = picked.iter().map(Vec::len).collect();
    x.pick(shape, |at| Some(at.iter().zip(&picked).map(|(&i, of)| of[i]).collect()))
}

/// Where a slice of an axis of some size takes its elements.
fn positions(start: i64, end: i64, step: i64, size: usize) -> Option<Vec<usize>> {
    let (first, count) = slice_of(i64::try_from(size).ok()?, start, end, step).ok()?;
    (0..count).map(|i| usize::try_from(first + i * step).ok()).collect()
}

fn gathered(node: &Node<'_>, x: &Known, rest: &[Known]) -> Option<Known> {
    let [indices] = rest else { return None };
    let along = axis(node.int_or("axis", 0).ok()?, x.shape.len()).ok()?;
    let picked = indices.constants()?.iter().map(|&i| axis(i, x.shape[along])).collect::<Result<Vec<_>, _>>().ok()?;
    let inner = indices.shape.len();
    let shape = [&x.shape[..along], &indices.shape, &x.shape[along + 1..]].concat();
    x.pick(shape, |at| {
        let index = flat(&indices.shape, &at[along..along + inner]);
        Some([&at[..along], &[*picked.get(index)?], &at[along + inner..]].concat())
    })
}

/// Each row of the indices names a place by its leading axes.
fn gathered_by_rows(node: &Node<'_>, x: &Known, rest: &[Known]) -> Option<Known> {
    let ([indices], 0) = (rest, node.int_or("batch_dims", 0).ok()?) else { return None };
    let (picked, (&depth, rows)) = (indices.constants()?, indices.shape.split_last()?);
    if depth > x.shape.len() {
        return None;
    }
    let shape = [rows, &x.shape[depth..]].concat();
    x.pick(shape, |at| {
        let row = flat(rows, &at[..rows.len()]) * depth;
        let place = (0..depth).map(|i| axis(*picked.get(row + i)?, x.shape[i]).ok());
        Some([place.collect::<Option<Vec<_>>>()?.as_slice(), &at[rows.len()..]].concat())
    })
}

/// The places of elements that are not 0: a row an axis.
fn non_zero(x: &Known) -> Option<Known> {
    let rank = Some(x.shape.len()).filter(|rank| *rank > 0)?;
    let found: Vec<usize> =
        x.constants()?.iter().enumerate().filter(|(_, value)| **value != 0).map(|(at, _)| at).collect();
    let index = |axis: usize, at: usize| at / x.shape[axis + 1..].iter().product::<usize>() % x.shape[axis];
    let places = (0..rank).flat_map(|axis| found.iter().map(move |&at| index(axis, at)));
    let elements = places.map(|i| i64::try_from(i).ok().map(Dim::constant)).collect::<Option<Vec<_>>>()?;
    Known::new(DType::I64, vec![rank, found.len()], elements)
}

fn reduced(scope: &Scope, node: &Node<'_>, x: &Known) -> Option<Known> {
    let join: fn(&Dim, &Dim) -> Option<Dim> = match node.proto.op_type.as_str() {
        "ReduceMax" => |a, b| Some(if less(a, b)? { b.clone() } else { a.clone() }),
        "ReduceMin" => |a, b| Some(if less(a, b)? { a.clone() } else { b.clone() }),
        "ReduceSum" => Dim::checked_add,
        "ReduceProd" => Dim::checked_mul,
        _ => return None,
    };
    let given = node.parameter(scope, "axes", 1, axes_since(&node.proto.op_type)).ok()?.unwrap_or_default();
    if given.is_empty() && node.int_or("noop_with_empty_axes", 0).ok()? == 1 {
        return Some(x.clone());
    }
    let rank = x.shape.len();
    let over = if given.is_empty() { (0..rank).collect() } else { axes(&given, rank).ok()? };
    let kept = |axis: usize| !over.contains(&axis);
    let sizes: Vec<usize> = (0..rank).map(|axis| if kept(axis) { x.shape[axis] } else { 1 }).collect();
    let inside: Vec<usize> = (0..rank).map(|axis| if kept(axis) { 1 } else { x.shape[axis] }).collect();
    let count = product(&inside).filter(|count| *count > 0)?;
    let element = |at: &[usize]| {
        let one = |i: usize| {
            let offset = unflat(&inside, i);
            x.at(&at.iter().zip(offset).map(|(a, b)| a + b).collect::<Vec<_>>())
        };
        (1..count).try_fold(one(0)?.clone(), |joined, i| join(&joined, one(i)?))
    };
    let known = Known::of(x.dtype, sizes, element)?;
    if node.int_or("keepdims", 1).ok()? == 1 {
        return Some(known);
    }
    known.reshape((0..rank).filter(|axis| kept(*axis)).map(|axis| x.shape[axis]).collect())
}

fn product(sizes: &[usize]) -> Option<usize> {
    sizes.iter().try_fold(1usize, |n, &d| n.checked_mul(d))
}

/// The place of an element among all, row-major.
fn flat(shape: &[usize], at: &[usize]) -> usize {
    shape.iter().zip(at).fold(0, |place, (size, index)| place * size + index)
}

/// The indices of the element at a place, row-major.
fn unflat(shape: &[usize], mut place: usize) -> Vec<usize> {
    let mut at = vec![0; shape.len()];
    for (index, size) in at.iter_mut().zip(shape).rev() {
        *index = place % size;
        place /= size;
    }
    at
}
