//! Operators that move elements.

use planish_eval::Tensor;
use planish_ir::DType;

use crate::attributes::{int, ints, size, text};
use crate::grow::{Growing, NONE, V};

/// A number as so many factors.
fn factors(g: &mut Growing<'_>, mut number: usize, count: usize) -> Vec<usize> {
    let mut factors = Vec::new();
    for _ in 1..count {
        let divisors: Vec<usize> = (1..=number).filter(|d| number.is_multiple_of(*d)).collect();
        let factor = g.one(&divisors);
        factors.push(factor);
        number /= factor;
    }
    factors.push(number);
    g.rng.shuffle(&mut factors);
    factors
}

pub(crate) fn reshape(g: &mut Growing<'_>) -> Option<V> {
    let x = g.pick(|t| t.data().len() <= 4096)?;
    let (shape, count) = (g.shape(x), g.rng.usize(1..=5));
    let mut to: Vec<i64> = factors(g, shape.iter().product(), count).into_iter().map(size).collect();
    for (at, dim) in to.iter_mut().enumerate() {
        if shape.get(at).copied().map(size) == Some(*dim) && g.rng.bool() {
            *dim = 0;
        }
    }
    if g.rng.bool() {
        let at = g.rng.usize(..to.len());
        to[at] = -1;
    }
    let to = g.indices(&to);
    g.op("Reshape", &[x, to], Vec::new())
}

/// A reshape to a shape that is computed.
pub(crate) fn reshape_by_shape(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(2..=9)?;
    let shape = g.op("Shape", &[x], Vec::new())?;
    let axis = g.rng.usize(..g.rank(x));
    let rest = g.value(x).data().len() / g.shape(x)[axis];
    let (at, rest) = (g.indices(&[size(axis)]), if g.rng.bool() { -1 } else { size(rest) });
    let dim = g.op("Gather", &[shape, at], vec![int("axis", 0)])?;
    let rest = g.indices(&[rest]);
    let to = g.op("Concat", &[dim, rest], vec![int("axis", 0)])?;
    g.op("Reshape", &[x, to], Vec::new())
}

pub(crate) fn shape(g: &mut Growing<'_>) -> Option<V> {
    let x = g.pick(|t| !t.shape().is_empty())?;
    let bounds = vec![int("start", g.rng.i64(-3..=3)), int("end", g.rng.i64(-3..=3))];
    match g.rng.u8(..3) {
        0 => g.op("Size", &[x], Vec::new()),
        1 => g.op("Shape", &[x], Vec::new()),
        _ => g.op("Shape", &[x], bounds),
    }
}

pub(crate) fn transpose(g: &mut Growing<'_>) -> Option<V> {
    let x = g.pick(|t| t.shape().len() > 1)?;
    if g.chance(0.2) {
        return g.op("Transpose", &[x], Vec::new());
    }
    let mut perm: Vec<i64> = (0..size(g.rank(x))).collect();
    g.rng.shuffle(&mut perm);
    g.op("Transpose", &[x], vec![ints("perm", &perm)])
}

pub(crate) fn squeeze(g: &mut Growing<'_>) -> Option<V> {
    let (op, x, axes, rank) = if g.rng.bool() {
        let x = g.pick(|t| t.shape().contains(&1))?;
        let shape = g.shape(x);
        let ones: Vec<usize> = (0..shape.len()).filter(|axis| shape[*axis] == 1).collect();
        let count = g.rng.usize(1..=ones.len());
        ("Squeeze", x, g.rng.choose_multiple(ones, count), shape.len())
    } else {
        let x = g.pick(|t| t.shape().len() < 5)?;
        let count = g.rng.usize(1..=2);
        let rank = g.rank(x) + count;
        ("Unsqueeze", x, g.rng.choose_multiple(0..rank, count), rank)
    };
    let axes: Vec<i64> = axes.into_iter().map(|axis| g.signed(axis, rank)).collect();
    let axes = g.indices(&axes);
    g.op(op, &[x, axes], Vec::new())
}

pub(crate) fn expand(g: &mut Growing<'_>) -> Option<V> {
    let x = g.pick(|t| t.data().len() < 400 && t.shape().len() <= 4)?;
    let shape = g.shape(x);
    if g.chance(0.3) && !shape.is_empty() {
        let repeats: Vec<i64> = shape.iter().map(|_| g.rng.i64(1..3)).collect();
        let repeats = g.indices(&repeats);
        return g.op("Tile", &[x, repeats], Vec::new());
    }
    let sizes = shape.iter().map(|&dim| if dim == 1 { g.one(&[1, 2, 3]) } else { g.one(&[1, size(dim)]) });
    let mut to: Vec<i64> = sizes.collect::<Vec<_>>();
    if g.chance(0.3) {
        to.insert(0, 2);
    } else if g.chance(0.2) && to.len() > 1 {
        to.remove(0);
    }
    let to = g.indices(&to);
    g.op("Expand", &[x, to], Vec::new())
}

pub(crate) fn slice(g: &mut Growing<'_>) -> Option<V> {
    let x = g.pick(|t| !t.shape().is_empty())?;
    let shape = g.shape(x);
    let count = g.rng.usize(1..=shape.len());
    let mut bounds: [Vec<i64>; 4] = Default::default();
    for axis in g.rng.choose_multiple(0..shape.len(), count) {
        let d = size(shape[axis]);
        let step = g.one(&[1, 1, 2, 3, -1, -1, -2]);
        let (start, end) = match step > 0 {
            true => (g.one(&[0, 0, 1, -2, -d, -d - 3, -i64::MAX]), g.one(&[d, i64::MAX, 1 << 31, -1, d - 1, d + 5])),
            false => (g.one(&[-1, d - 1, i64::MAX, d + 3, 1]), g.one(&[i64::MIN, -d - 1, 0, -d, -(1 << 31)])),
        };
        let axis = g.signed(axis, shape.len());
        bounds.iter_mut().zip([start, end, axis, step]).for_each(|(all, one)| all.push(one));
    }
    let operands = bounds.map(|bound| g.indices(&bound));
    let y = g.op("Slice", &[[x].as_slice(), &operands].concat(), Vec::new())?;
    (!g.value(y).data().is_empty()).then_some(y)
}

pub(crate) fn split(g: &mut Growing<'_>) -> Option<V> {
    let x = g.pick(|t| t.shape().iter().any(|dim| *dim > 1))?;
    let shape = g.shape(x);
    let axes: Vec<usize> = (0..shape.len()).filter(|axis| shape[*axis] > 1).collect();
    let axis = g.one(&axes);
    let (dim, along) = (shape[axis], int("axis", g.signed(axis, shape.len())));
    let parts = g.rng.usize(1..=dim.min(3));
    let results = if g.opset >= 18 && g.chance(0.4) {
        g.ops("Split", &[x], vec![along, int("num_outputs", size(parts))], parts)?
    } else {
        let mut cuts = g.rng.choose_multiple(1..dim, parts - 1);
        cuts.sort_unstable();
        cuts.push(dim);
        let sizes: Vec<i64> =
            cuts.iter().scan(0, |last, cut| Some(size(cut - std::mem::replace(last, *cut)))).collect();
        let sizes = g.indices(&sizes);
        g.ops("Split", &[x, sizes], vec![along], parts)?
    };
    Some(g.one(&results))
}

pub(crate) fn concat(g: &mut Growing<'_>) -> Option<V> {
    let x = g.pick(|t| !t.shape().is_empty())?;
    let (shape, dtype) = (g.shape(x), g.value(x).dtype());
    let axis = g.rng.usize(..shape.len());
    let fits = |t: &Tensor| {
        let same = |at: usize| at == axis || t.shape()[at] == shape[at];
        t.dtype() == dtype && t.shape().len() == shape.len() && (0..shape.len()).all(same)
    };
    let mut parts = vec![x];
    for _ in 0..g.rng.usize(..3) {
        parts.push(g.pick(fits)?);
    }
    if g.chance(0.4) && dtype == DType::F32 {
        let part = g.weight(&shape, 1.0);
        let at = g.rng.usize(..=parts.len());
        parts.insert(at, part);
    }
    let along = int("axis", g.signed(axis, shape.len()));
    g.op("Concat", &parts, vec![along])
}

pub(crate) fn pad(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(1..=5)?;
    let shape = g.shape(x);
    let mode = g.one(&["constant", "constant", "reflect", "edge", "wrap"]);
    let mut pads = [Vec::new(), Vec::new()];
    for &dim in &shape {
        let dim = size(dim);
        let mut ends = [g.one(&[0, 0, 1, 2, -1]), g.one(&[0, 0, 1, 2, -1])];
        if mode != "constant" {
            ends = ends.map(|end: i64| end.clamp(0, dim - 1));
        }
        if dim + ends[0] + ends[1] < 1 {
            ends = [0, 0];
        }
        pads.iter_mut().zip(ends).for_each(|(all, end)| all.push(end));
    }
    let value = if mode == "constant" && g.rng.bool() { g.number(-1.5) } else { NONE };
    let mut operands = vec![x];
    if g.opset >= 18 && g.chance(0.4) {
        let count = g.rng.usize(1..=shape.len());
        let axes = g.rng.choose_multiple(0..shape.len(), count);
        let chosen: Vec<i64> = pads.iter().flat_map(|all| axes.iter().map(|axis| all[*axis])).collect();
        let axes: Vec<i64> = axes.into_iter().map(size).collect();
        operands.extend([g.indices(&chosen), value, g.indices(&axes)]);
    } else {
        operands.push(g.indices(&pads.concat()));
        operands.extend(Some(value).filter(|value| *value != NONE));
    }
    g.op("Pad", &operands, vec![text("mode", mode)])
}

pub(crate) fn blocks(g: &mut Growing<'_>) -> Option<V> {
    let image = g.noise(&[1, 4, 4, 2], 1.0);
    let x = g.input(image);
    match g.rng.u8(..3) {
        0 => g.op("SpaceToDepth", &[x], vec![int("blocksize", 2)]),
        1 => {
            let mode = g.one(&["DCR", "CRD"]);
            g.op("DepthToSpace", &[x], vec![int("blocksize", 2), text("mode", mode)])
        }
        _ => {
            let x = g.float(1..=5)?;
            let rank = size(g.rank(x));
            let axis = g.rng.i64(-rank..=rank);
            g.op("Flatten", &[x], vec![int("axis", axis)])
        }
    }
}
