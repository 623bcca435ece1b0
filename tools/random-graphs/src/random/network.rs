//! Reductions, products, convolutions, norms and recurrent layers.

use planish_ir::DType;
use planish_onnx::proto::AttributeProto;

use crate::attributes::{float, int, ints, size, text};
use crate::grow::{Growing, NONE, V, filled};

/// A reduction over axes, which are an attribute before an opset.
pub(crate) fn reduced(g: &mut Growing<'_>, op: &str, x: V, axes: &[i64], keep: bool) -> Option<V> {
    let keep = int("keepdims", keep.into());
    if g.opset >= 18 || op == "ReduceSum" {
        let axes = g.indices(axes);
        return g.op(op, &[x, axes], vec![keep]);
    }
    g.op(op, &[x], vec![keep, ints("axes", axes)])
}

pub(crate) fn reduce(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(1..=5)?;
    let operators = [
        "ReduceSum",
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSumExp",
        "ReduceSumSquare",
    ];
    let (op, rank) = (g.one(&operators), g.rank(x));
    let count = g.rng.usize(1..=rank);
    let keep = g.rng.bool();
    if (g.opset >= 18 || op == "ReduceSum") && g.chance(0.15) {
        let none = int("noop_with_empty_axes", g.rng.i64(0..2));
        return g.op(op, &[x], vec![none, int("keepdims", keep.into())]);
    }
    let mut axes = g.rng.choose_multiple(0..rank, count);
    axes.sort_unstable();
    let axes: Vec<i64> = axes.into_iter().map(|axis| g.signed(axis, rank)).collect();
    reduced(g, op, x, &axes, keep)
}

pub(crate) fn product(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(1..=4)?;
    let (shape, inner) = (g.shape(x), g.last(x));
    let (features, scale) = (g.one(&[1, 2, 3, 4, 7, 8]), (inner as f64).powf(-0.5));
    if g.chance(0.15) {
        let vector = g.weight(&[inner], scale);
        return g.op("MatMul", &[x, vector], Vec::new());
    }
    if g.chance(0.15) && shape.len() >= 2 {
        let left = g.weight(&[3, shape[shape.len() - 2]], scale);
        let y = g.op("MatMul", &[left, x], Vec::new())?;
        let bias = g.weight(&[3, 1], 1.0);
        return g.op("Add", &[y, bias], Vec::new());
    }
    let leading = match g.rng.u8(..6) {
        0 if shape.len() > 2 => shape[..shape.len() - 2].to_vec(),
        1 => vec![1],
        _ => Vec::new(),
    };
    let weight = match g.chance(0.2) {
        true => {
            let turned = g.weight(&[features, inner], scale);
            g.op("Transpose", &[turned], vec![ints("perm", &[1, 0])])?
        }
        false => g.weight(&[leading, vec![inner, features]].concat(), scale),
    };
    let mut y = g.op("MatMul", &[x, weight], Vec::new())?;
    if g.chance(0.6) {
        let shape = g.one(&[vec![features], vec![features], vec![1, features], vec![1], vec![], vec![1, 1, features]]);
        let bias = g.weight(&shape, 1.0);
        let sum = g.either(y, bias);
        y = g.op("Add", &sum, Vec::new())?;
    }
    if g.chance(0.3) {
        let factor = if g.rng.bool() { g.number(0.125) } else { g.weight(&[features], 1.0) };
        y = g.op("Mul", &[y, factor], Vec::new())?;
    }
    Some(y)
}

pub(crate) fn gemm(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(2..=2)?;
    let shape = g.shape(x);
    let turned = [g.rng.bool(), g.rng.bool()];
    let (rows, inner) = if turned[0] { (shape[1], shape[0]) } else { (shape[0], shape[1]) };
    let features = g.one(&[1, 3, 4, 5]);
    let weight = g.weight(&if turned[1] { [features, inner] } else { [inner, features] }, 1.0);
    let shapes =
        [vec![features], vec![1, features], vec![rows, features], vec![rows, 1], vec![1], Vec::new(), vec![1, 1]];
    let mut operands = vec![x, weight];
    if g.chance(0.8) {
        let shape = g.one(&shapes);
        operands.push(g.weight(&shape, 1.0));
    }
    let mut attributes = vec![int("transA", turned[0].into()), int("transB", turned[1].into())];
    if g.chance(0.4) {
        attributes.push(float("alpha", 0.3));
    }
    if g.chance(0.4) {
        attributes.push(float("beta", g.one(&[0.7, 0.0])));
    }
    g.op("Gemm", &operands, attributes)
}

pub(crate) fn convolution(g: &mut Growing<'_>) -> Option<V> {
    let dims = g.one(&[1, 2, 2, 3]);
    let found = g
        .pick(|t| t.dtype() == DType::F32 && t.shape().len() == dims + 2 && t.shape()[2..].iter().all(|dim| *dim >= 3));
    let x = match found {
        Some(x) => x,
        None => {
            let mut shape = vec![g.one(&[1, 2]), g.one(&[1, 2, 4])];
            shape.extend((0..dims).map(|_| g.rng.usize(4..8)));
            let image = g.noise(&shape, 1.0);
            g.input(image)
        }
    };
    let channels = g.shape(x)[1];
    let divisors: Vec<usize> = [1, 2, 4].into_iter().filter(|group| channels.is_multiple_of(*group)).collect();
    let group = g.one(&divisors);
    let features = group * g.one(&[1, 2]);
    let kernel: Vec<usize> = (0..dims).map(|_| g.one(&[1, 2, 3])).collect();
    let mut attributes = vec![int("group", size(group))];
    let mut choices = |g: &mut Growing<'_>, name: &str, count: usize, of: [i64; 2], probability: f64| {
        let chosen: Vec<i64> = (0..count).map(|_| g.one(&of)).collect();
        if g.chance(probability) {
            attributes.push(ints(name, &chosen));
        }
    };
    choices(g, "strides", dims, [1, 2], 0.4);
    choices(g, "dilations", dims, [1, 2], 0.3);
    let scale = (channels as f64).powf(-0.5);
    let bias = if g.rng.bool() { g.weight(&[features], 1.0) } else { NONE };
    let transposed = dims < 3 && g.chance(0.25);
    if !transposed && g.chance(0.3) {
        attributes.push(text("auto_pad", g.one(&["SAME_UPPER", "SAME_LOWER", "VALID"])));
    } else {
        choices(g, "pads", 2 * dims, [0, 1], 0.5);
    }
    let shape = if transposed { [channels, features / group] } else { [features, channels / group] };
    let weight = g.weight(&[&shape[..], &kernel].concat(), scale);
    let op = if transposed { "ConvTranspose" } else { "Conv" };
    let operands = [x, weight, bias];
    let y = g.op(op, &operands[..if bias == NONE { 2 } else { 3 }], attributes)?;
    if g.chance(0.6) {
        return Some(y);
    }
    let mut parameters = vec![y];
    parameters.extend((0..3).map(|_| g.weight(&[features], 1.0)));
    let variance = g.positive(&[features], 1.0);
    parameters.push(g.constant(variance));
    g.op("BatchNormalization", &parameters, vec![float("epsilon", 1e-2)])
}

pub(crate) fn pool(g: &mut Growing<'_>) -> Option<V> {
    let x = g.pick(|t| {
        t.dtype() == DType::F32 && matches!(t.shape().len(), 3 | 4) && t.shape()[2..].iter().all(|dim| *dim >= 2)
    })?;
    let dims = g.rank(x) - 2;
    let op = g.one(&["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool"]);
    if op.starts_with("Global") {
        return g.op(op, &[x], Vec::new());
    }
    let stride = g.one(&[1, 2]);
    let mut attributes = vec![ints("kernel_shape", &vec![2; dims]), ints("strides", &vec![stride; dims])];
    if g.chance(0.4) {
        let pads: Vec<i64> = (0..2 * dims).map(|_| g.rng.i64(0..2)).collect();
        attributes.push(ints("pads", &pads));
    } else if g.chance(0.3) {
        attributes.push(text("auto_pad", g.one(&["SAME_UPPER", "SAME_LOWER"])));
    }
    if op == "AveragePool" && g.rng.bool() {
        attributes.push(int("count_include_pad", 1));
    }
    if op != "LpPool" && g.chance(0.3) {
        attributes.push(int("ceil_mode", 1));
    }
    g.op(op, &[x], attributes)
}

pub(crate) fn norm(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(2..=5)?;
    let (shape, rank) = (g.shape(x), g.rank(x));
    let eps = float("epsilon", g.one(&[1e-5, 1e-2]));
    let op = g.one(&[
        "LayerNormalization",
        "RMSNormalization",
        "InstanceNormalization",
        "GroupNormalization",
        "LRN",
        "Softmax",
        "Softmax",
        "LogSoftmax",
        "SkipLayerNormalization",
        "SimplifiedLayerNormalization",
        "Hardmax",
        "LpNormalization",
        "MeanVarianceNormalization",
    ]);
    match op {
        "Softmax" | "LogSoftmax" | "Hardmax" | "LpNormalization" => {
            let along = g.axis(x)?;
            g.op(op, &[x], vec![int("axis", along)])
        }
        "LayerNormalization" | "RMSNormalization" => {
            let from = g.one(&[rank - 1, rank - 1, 1]);
            let along = int("axis", g.signed(from, rank));
            let mut operands = vec![x, g.weight(&shape[from..], 1.0)];
            if op == "LayerNormalization" && g.chance(0.6) {
                operands.push(g.weight(&shape[from..], 1.0));
            }
            g.op(op, &operands, vec![along, eps])
        }
        "InstanceNormalization" => {
            let parameters = [x, g.weight(&shape[1..2], 1.0), g.weight(&shape[1..2], 1.0)];
            g.op(op, &parameters, vec![eps])
        }
        "GroupNormalization" => {
            let divisors: Vec<usize> = (1..=shape[1]).filter(|d| shape[1].is_multiple_of(*d)).collect();
            let groups = g.one(&divisors);
            let width = if g.opset < 21 { groups } else { shape[1] };
            let parameters = [x, g.weight(&[width], 1.0), g.weight(&[width], 1.0)];
            g.op(op, &parameters, vec![int("num_groups", size(groups))])
        }
        "LRN" => {
            let width = g.one(&[1, 3]);
            g.op(op, &[x], vec![int("size", width), float("alpha", 0.1), float("beta", 0.5)])
        }
        "MeanVarianceNormalization" => {
            let image = g.noise(&[2, 3, 4, 2], 1.0);
            let x = g.input(image);
            let axes = g.one(&[vec![0, 2, 3], vec![2, 3], vec![-1], vec![1]]);
            g.op(op, &[x], vec![ints("axes", &axes)])
        }
        "SkipLayerNormalization" => {
            let last = g.last(x);
            let operands = [x, x, g.weight(&[last], 1.0), g.weight(&[last], 1.0)];
            let count = if g.rng.bool() { 4 } else { 3 };
            g.microsoft(op, &operands[..count], vec![eps])
        }
        _ => {
            let last = g.last(x);
            let weight = g.weight(&[last], 1.0);
            g.op(op, &[x, weight], vec![int("axis", -1), eps])
        }
    }
}

pub(crate) fn einsum(g: &mut Growing<'_>) -> Option<V> {
    let equation = g.one(&[
        "ij,jk->ik",
        "bij,bjk->bik",
        "bij,kj->bik",
        "bij,bkj->bki",
        "i,j->ij",
        "ij->ji",
        "ij->i",
        "ii->i",
        "bhid,bhjd->bhij",
        "bihd,bjhd->bhij",
        "...ij,...jk->...ik",
        "bij->",
        "ij,ij->ij",
        "bhij,bjhd->bihd",
    ]);
    let sizes: Vec<usize> = (0..26).map(|_| g.rng.usize(1..5)).collect();
    let size_of = |letter: char| sizes[(letter as usize - 'a' as usize) % 26];
    let mut operands = Vec::new();
    for term in equation.split("->").next()?.split(',') {
        let leading = if term.starts_with("...") { vec![2] } else { Vec::new() };
        let shape: Vec<usize> = leading.into_iter().chain(term.trim_start_matches('.').chars().map(size_of)).collect();
        let numbers = g.noise(&shape, 1.0);
        operands.push(if operands.is_empty() || g.chance(0.6) { g.input(numbers) } else { g.constant(numbers) });
    }
    g.op("Einsum", &operands, vec![text("equation", equation)])
}

pub(crate) fn resize(g: &mut Growing<'_>) -> Option<V> {
    let shape = [1, g.one(&[1, 2]), g.rng.usize(2..6), g.rng.usize(2..6)];
    let image = g.noise(&shape, 1.0);
    let x = g.input(image);
    let mode = g.one(&["nearest", "linear", "cubic"]);
    let modes = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"];
    let mut attributes = vec![text("mode", mode), text("coordinate_transformation_mode", g.one(&modes))];
    if mode == "nearest" {
        attributes.push(text("nearest_mode", g.one(&["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])));
    }
    if g.rng.bool() {
        let scales = [1.0, 1.0, g.one(&[0.6, 1.0, 2.0, 1.5]), g.one(&[0.5, 1.0, 2.0])];
        let scales = g.constant(filled(DType::F32, &[4], &scales));
        return g.op("Resize", &[x, NONE, scales], attributes);
    }
    let sizes = [1, size(shape[1]), g.rng.i64(1..8), g.rng.i64(1..8)];
    let sizes = g.indices(&sizes);
    g.op("Resize", &[x, NONE, NONE, sizes], attributes)
}

pub(crate) fn recurrent(g: &mut Growing<'_>) -> Option<V> {
    let (op, gates) = g.one(&[("LSTM", 4), ("GRU", 3), ("RNN", 1)]);
    let (length, batch, inputs, hidden) = (3, 2, g.one(&[2, 3]), g.one(&[2, 4]));
    let (direction, count) = g.one(&[("forward", 1), ("reverse", 1), ("bidirectional", 2)]);
    let sequence = g.noise(&[length, batch, inputs], 1.0);
    let mut operands = vec![g.input(sequence)];
    operands.push(g.weight(&[count, gates * hidden, inputs], 1.0));
    operands.push(g.weight(&[count, gates * hidden, hidden], 1.0));
    if g.rng.bool() {
        operands.push(g.weight(&[count, 2 * gates * hidden], 1.0));
    }
    let mut attributes: Vec<AttributeProto> = vec![int("hidden_size", size(hidden)), text("direction", direction)];
    if op == "GRU" && g.rng.bool() {
        attributes.push(int("linear_before_reset", 1));
    }
    g.op(op, &operands, attributes)
}

/// ONNX Runtime's own operators.
pub(crate) fn contributed(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(2..=4)?;
    let last = g.last(x);
    match g.rng.u8(..6) {
        0 => {
            let weight = g.weight(&[3, last], 1.0);
            g.microsoft("FusedMatMul", &[x, weight], vec![float("alpha", 0.5), int("transB", 1)])
        }
        1 => {
            let bias = g.weight(&[last], 1.0);
            g.microsoft("BiasGelu", &[x, bias], Vec::new())
        }
        2 => {
            let bias = g.weight(&[last], 1.0);
            g.microsoft("FastGelu", &[x, bias], Vec::new())
        }
        3 => {
            let alpha = g.one(&[1.0, 1.702, 0.3]);
            g.microsoft("QuickGelu", &[x], vec![float("alpha", alpha)])
        }
        4 => g.microsoft("Gelu", &[x], Vec::new()),
        _ => {
            let x = g.float(2..=2)?;
            let (weight, bias) = (g.weight(&[g.last(x), 3], 1.0), g.weight(&[3], 1.0));
            let activation = text("activation", g.one(&["Relu", "Sigmoid", "Tanh"]));
            g.microsoft("FusedGemm", &[x, weight, bias], vec![activation, float("alpha", 0.5)])
        }
    }
}
