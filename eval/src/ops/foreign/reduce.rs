//! Reductions, running sums and products, and order. Floats compute in `f64` and round once.

use std::cmp::Ordering;

use planish_ir::DType;

use super::{Maybe, Node, around, axes, indices, of_integers, of_numbers, one, pick, position};
use crate::Tensor;
use crate::ops::normalize::softmax;

pub(super) fn run(node: &Node<'_>) -> Maybe {
    match node.name() {
        name if name.starts_with("Reduce") => one(reduce(node)?),
        "ArgMax" => one(extreme(node, Ordering::Greater)?),
        "ArgMin" => one(extreme(node, Ordering::Less)?),
        "TopK" => Ok(Some(top_k(node)?)),
        "CumSum" => one(running(node, |a, b| a + b, 0.0)?),
        "CumProd" => one(running(node, |a, b| a * b, 1.0)?),
        "Softmax" => one(lines(node, softmax)?),
        "LogSoftmax" => one(lines(node, |row| {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum = libm::log(row.iter().map(|v| libm::exp(v - max)).sum::<f64>());
            row.iter_mut().for_each(|v| *v -= max + sum);
        })?),
        "Hardmax" => one(lines(node, |row| {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let first = row.iter().position(|v| *v == max);
            row.iter_mut().enumerate().for_each(|(i, v)| *v = f64::from(u8::from(Some(i) == first)));
        })?),
        _ => Ok(None),
    }
}

fn reduce(node: &Node<'_>) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let given = node.parameter("axes", 1)?.filter(|a| !a.is_empty());
    let function: fn(&[f64]) -> f64 = match node.name() {
        "ReduceSum" => |v| v.iter().sum(),
        "ReduceMean" => |v| v.iter().sum::<f64>() / v.len() as f64,
        // Of no elements, the largest is the least that there is.
        "ReduceMax" if x.dtype() == DType::Bool => |v| v.iter().copied().fold(0.0, f64::max),
        "ReduceMax" => |v| v.iter().copied().fold(f64::NEG_INFINITY, |m, v| if v > m || v.is_nan() { v } else { m }),
        "ReduceMin" => |v| v.iter().copied().fold(f64::INFINITY, |m, v| if v < m || v.is_nan() { v } else { m }),
        "ReduceProd" => |v| v.iter().product(),
        "ReduceL1" => |v| v.iter().map(|v| v.abs()).sum(),
        "ReduceL2" => |v| v.iter().map(|v| v * v).sum::<f64>().sqrt(),
        "ReduceSumSquare" => |v| v.iter().map(|v| v * v).sum(),
        "ReduceLogSum" => |v| libm::log(v.iter().sum()),
        "ReduceLogSumExp" => |v| {
            let max = v.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if max.is_finite() { max + libm::log(v.iter().map(|v| libm::exp(v - max)).sum()) } else { max }
        },
        other => return Err(format!("the reduction {other} is not known")),
    };
    if given.is_none() && node.int("noop_with_empty_axes", 0) == 1 {
        // Each element is reduced by itself.
        let values: Vec<f64> = x.to_f64().iter().map(|v| function(&[*v])).collect();
        return of_numbers(x.dtype(), x.shape(), &values);
    }
    let over = axes(given.as_deref(), x.shape().len())?;
    let mut kept = x.shape().to_vec();
    over.iter().for_each(|&a| kept[a] = 1);
    let mut groups = vec![Vec::new(); node.count(&kept)?];
    for (mut index, value) in indices(x.shape()).zip(x.to_f64()) {
        over.iter().for_each(|&a| index[a] = 0);
        groups[position(&index, &kept)].push(value);
    }
    let values: Vec<f64> = groups.iter().map(|g| function(g)).collect();
    if node.int("keepdims", 1) != 1 {
        kept = kept.iter().enumerate().filter(|(a, _)| !over.contains(a)).map(|(_, &d)| d).collect();
    }
    of_numbers(x.dtype(), &kept, &values)
}

/// Which element along an axis is the largest or the smallest, the first or the last of them.
fn extreme(node: &Node<'_>, wanted: Ordering) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let a = node.axis("axis", 0, x.shape().len())?;
    let (outer, size, inner) = around(x.shape(), a);
    if size == 0 {
        return Err(format!("{} has no element along axis {a}", x.ty()));
    }
    let last = node.int("select_last_index", 0) == 1;
    let values = x.to_f64();
    let mut found = Vec::with_capacity(outer * inner);
    for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
        let at = |k: usize| values[(o * size + k) * inner + i];
        let better = |k: usize, best: usize| match at(k).partial_cmp(&at(best)) {
            Some(Ordering::Equal) => last,
            order => order == Some(wanted),
        };
        found.push((1..size).fold(0, |best, k| if better(k, best) { k } else { best }) as i128);
    }
    let mut shape = x.shape().to_vec();
    match node.int("keepdims", 1) {
        1 => shape[a] = 1,
        _ => drop(shape.remove(a)),
    }
    of_integers(DType::I64, shape, &found)
}

/// The largest or smallest elements along an axis, and where they are; of equal ones the first.
fn top_k(node: &Node<'_>) -> Result<Vec<Tensor>, String> {
    let x = node.operand(0)?;
    let a = node.axis("axis", -1, x.shape().len())?;
    let (outer, size, inner) = around(x.shape(), a);
    let k = match node.integers(1)? {
        Some(k) => k.first().copied().unwrap_or(0),
        None => node.int("k", 0),
    };
    let k = usize::try_from(k).ok().filter(|&k| k <= size).ok_or_else(|| format!("{} has no {k} elements", x.ty()))?;
    let largest = node.int("largest", 1) == 1;
    let values = x.to_f64();
    let mut shape = x.shape().to_vec();
    shape[a] = k;
    let mut places = vec![None; node.count(&shape)?];
    let mut ranks = vec![0i128; places.len()];
    for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
        let at = |n: usize| (o * size + n) * inner + i;
        let mut order: Vec<usize> = (0..size).collect();
        order.sort_by(|&a, &b| {
            let ascending = values[at(a)].total_cmp(&values[at(b)]);
            if largest { ascending.reverse() } else { ascending }
        });
        for (n, &from) in order.iter().take(k).enumerate() {
            places[(o * k + n) * inner + i] = Some(at(from));
            ranks[(o * k + n) * inner + i] = from as i128;
        }
    }
    Ok(vec![pick(x, None, shape.clone(), &places)?, of_integers(DType::I64, shape, &ranks)?])
}

fn running(node: &Node<'_>, f: fn(f64, f64) -> f64, neutral: f64) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    let given = node.integers(1)?.and_then(|a| a.first().copied()).ok_or("it has no axis")?;
    let (outer, size, inner) = around(x.shape(), super::axis(given, x.shape().len())?);
    let (exclusive, reverse) = (node.int("exclusive", 0) == 1, node.int("reverse", 0) == 1);
    let mut values = x.to_f64();
    for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
        let mut sum = neutral;
        for n in 0..size {
            let n = if reverse { size - 1 - n } else { n };
            let at = (o * size + n) * inner + i;
            let next = f(sum, values[at]);
            values[at] = if exclusive { sum } else { next };
            sum = next;
        }
    }
    match x.dtype().is_float() {
        true => of_numbers(x.dtype(), x.shape(), &values),
        false => of_integers(x.dtype(), x.shape().to_vec(), &values.iter().map(|v| *v as i128).collect::<Vec<_>>()),
    }
}

/// A function of all elements along an axis; before opset 13 of those along it and all after it.
fn lines(node: &Node<'_>, f: fn(&mut [f64])) -> Result<Tensor, String> {
    let x = node.operand(0)?;
    if x.shape().is_empty() {
        return of_numbers(x.dtype(), x.shape(), &{
            let mut one = x.to_f64();
            f(&mut one);
            one
        });
    }
    let flat = node.op.version < 13;
    let a = node.axis("axis", if flat { 1 } else { -1 }, x.shape().len())?;
    let (outer, mut size, mut inner) = around(x.shape(), a);
    if flat {
        (size, inner) = (size * inner, 1);
    }
    let mut values = x.to_f64();
    for (o, i) in (0..outer).flat_map(|o| (0..inner).map(move |i| (o, i))) {
        let mut row: Vec<f64> = (0..size).map(|n| values[(o * size + n) * inner + i]).collect();
        f(&mut row);
        row.into_iter().enumerate().for_each(|(n, v)| values[(o * size + n) * inner + i] = v);
    }
    of_numbers(x.dtype(), x.shape(), &values)
}
