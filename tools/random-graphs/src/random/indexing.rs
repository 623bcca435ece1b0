//! Operators that gather, scatter, search and make sequences.

use planish_ir::DType;

use crate::attributes::{int, size, tensor, text, to};
use crate::grow::{Growing, V, filled, integers};

/// Indices of a type for dimensions of these sizes, [.., sizes].
fn positions(g: &mut Growing<'_>, leading: &[usize], sizes: &[usize], negative: bool) -> Vec<i64> {
    let rows = leading.iter().product::<usize>();
    let one = |g: &mut Growing<'_>, dim: usize| g.rng.i64(if negative { -size(dim) } else { 0 }..size(dim));
    (0..rows).flat_map(|_| sizes.iter().map(|dim| one(g, *dim)).collect::<Vec<_>>()).collect()
}

pub(crate) fn gather(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(1..=5)?;
    let axis = g.rng.usize(..g.rank(x));
    let dim = g.shape(x)[axis];
    let along = int("axis", g.signed(axis, g.rank(x)));
    let shape = g.one(&[vec![], vec![1], vec![2], vec![2, 2], vec![3]]);
    let found = positions(g, &shape, &[dim], true);
    let numbers: Vec<f64> = found.iter().map(|at| *at as f64).collect();
    let dtype = g.one(&[DType::I64, DType::I64, DType::I32]);
    let indices = g.constant(filled(dtype, &shape, &numbers));
    g.op("Gather", &[x, indices], vec![along])
}

/// Rows of a table.
pub(crate) fn look_up(g: &mut Growing<'_>) -> Option<V> {
    let (rows, columns) = (g.rng.usize(2..9), g.rng.usize(1..8));
    let table = g.weight(&[rows, columns], 1.0);
    let limit = rows as f64;
    let fits = |v: &f64| *v >= -limit && *v < limit;
    let indices = match g.pick(|t| t.dtype() == DType::I64 && t.to_f64().iter().all(fits)) {
        Some(indices) if g.rng.bool() => indices,
        _ => {
            let negative = g.chance(0.3);
            let found = positions(g, &[2, 3], &[rows], negative);
            g.input(integers(&[2, 3], &found))
        }
    };
    g.op("Gather", &[table, indices], Vec::new())
}

pub(crate) fn elements(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(1..=4)?;
    let shape = g.shape(x);
    let axis = g.rng.usize(..shape.len());
    let along = int("axis", g.signed(axis, shape.len()));
    let part: Vec<usize> = shape.iter().map(|dim| g.rng.usize(1..=*dim)).collect();
    let mut found = positions(g, &part, &[shape[axis]], true);
    if g.rng.bool() {
        let indices = g.constant(integers(&part, &found));
        return g.op("GatherElements", &[x, indices], vec![along]);
    }
    let reductions: &[&str] = match g.opset {
        18.. => &["none", "add", "mul", "max", "min"],
        16.. => &["none", "add"],
        _ => &["none"],
    };
    let reduction = g.one(reductions);
    if reduction == "none" {
        // No element is written twice: which one stays would not be known.
        let inner: usize = part[axis + 1..].iter().product();
        found.iter_mut().enumerate().for_each(|(at, index)| *index = size(at / inner % part[axis]));
    }
    let indices = g.constant(integers(&part, &found));
    let updates = g.weight(&part, 1.0);
    let mut attributes = vec![along];
    if g.opset >= 16 {
        attributes.push(text("reduction", reduction));
    }
    g.op("ScatterElements", &[x, indices, updates], attributes)
}

pub(crate) fn slices(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(1..=4)?;
    let shape = g.shape(x);
    if g.rng.bool() {
        let batch = if shape.len() > 1 { g.rng.usize(..2) } else { 0 };
        let depth = g.rng.usize(1..=shape.len() - batch);
        let leading = [&shape[..batch], &[g.rng.usize(1..4)]].concat();
        let found = positions(g, &leading, &shape[batch..batch + depth], true);
        let indices = g.constant(integers(&[leading, vec![depth]].concat(), &found));
        return g.op("GatherND", &[x, indices], vec![int("batch_dims", size(batch))]);
    }
    let depth = g.rng.usize(1..=shape.len());
    let count: usize = shape[..depth].iter().product();
    let rows = g.rng.usize(1..=count.min(3));
    let mut found = Vec::new();
    for row in g.rng.choose_multiple(0..count, rows) {
        let mut rest = row;
        let mut index: Vec<i64> = shape[..depth]
            .iter()
            .rev()
            .map(|dim| {
                let at = rest % dim;
                rest /= dim;
                size(at)
            })
            .collect();
        index.reverse();
        found.extend(index);
    }
    let indices = g.constant(integers(&[rows, depth], &found));
    let updates = g.weight(&[&[rows][..], &shape[depth..]].concat(), 1.0);
    g.op("ScatterND", &[x, indices, updates], Vec::new())
}

pub(crate) fn search(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(1..=4)?;
    let axis = g.axis(x)?;
    let along = int("axis", axis);
    match g.rng.u8(..4) {
        0 => {
            let op = g.one(&["ArgMax", "ArgMin"]);
            let (keep, last) = (int("keepdims", g.rng.i64(0..2)), int("select_last_index", g.rng.i64(0..2)));
            g.op(op, &[x], vec![along, keep, last])
        }
        1 => {
            let dim = g.shape(x)[usize::try_from(axis.rem_euclid(size(g.rank(x)))).ok()?];
            let count = g.rng.i64(1..=size(dim));
            let count = g.indices(&[count]);
            let largest = int("largest", g.rng.i64(0..2));
            let results = g.ops("TopK", &[x, count], vec![along, largest, int("sorted", 1)], 2)?;
            Some(g.one(&results))
        }
        2 => {
            let relu = g.op("Relu", &[x], Vec::new())?;
            g.op("NonZero", &[relu], Vec::new())
        }
        _ => {
            let dim = g.shape(x)[usize::try_from(axis.rem_euclid(size(g.rank(x)))).ok()?];
            let mut kept: Vec<f64> = (0..dim).map(|_| f64::from(g.rng.u8(..2))).collect();
            kept[0] = 1.0;
            let kept = g.constant(filled(DType::Bool, &[dim], &kept));
            g.op("Compress", &[x, kept], vec![along])
        }
    }
}

pub(crate) fn sequence(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(1..=4)?;
    match g.rng.u8(..5) {
        0 => {
            let length = g.op("Size", &[x], Vec::new())?;
            let (start, step) = (g.index(0), g.one(&[1, 2, 3]));
            let step = g.index(step);
            let range = g.op("Range", &[start, length, step], Vec::new())?;
            g.op("Cast", &[range], vec![to(DType::F32)])
        }
        1 => {
            let shape = g.op("Shape", &[x], Vec::new())?;
            g.op("ConstantOfShape", &[shape], vec![tensor("value", &filled(DType::F32, &[1], &[1.5]))])
        }
        2 => {
            let found = positions(g, &[2, 3], &[4], true);
            let indices = integers(&[2, 3], &found);
            let indices = if g.rng.bool() { g.constant(indices) } else { g.input(indices) };
            let depth = g.index(4);
            let values = g.constant(filled(DType::F32, &[2], &[0.2, 1.5]));
            let axis = g.one(&[-1, 0, 1]);
            g.op("OneHot", &[indices, depth, values], vec![int("axis", axis)])
        }
        3 => {
            let x = g.float(2..=4)?;
            let upper = int("upper", g.rng.i64(0..2));
            let diagonal = g.rng.i64(-2..=2);
            let diagonal = g.index(diagonal);
            g.op("Trilu", &[x, diagonal], vec![upper])
        }
        _ => {
            let dtype = g.one(&[DType::I64, DType::I32]);
            let axis = g.axis(x)?;
            let axis = g.constant(filled(dtype, &[], &[axis as f64]));
            let flags = vec![int("exclusive", g.rng.i64(0..2)), int("reverse", g.rng.i64(0..2))];
            g.op("CumSum", &[x, axis], flags)
        }
    }
}
