//! Attention as exporters write it, and what nearly is one.

use planish_eval::Tensor;
use planish_ir::DType;
use planish_onnx::proto::ModelProto;

use crate::attributes::{float, int, ints, size};
use crate::grow::{Growing, V, filled};
use crate::runner::Tensors;

/// The sizes of an attention.
struct Sizes {
    batch: usize,
    queries: usize,
    keys: usize,
    heads: usize,
    key_heads: usize,
    head: usize,
    value: usize,
}

impl Sizes {
    fn of(g: &mut Growing<'_>) -> Self {
        let (heads, head, queries): (usize, usize, usize) =
            (g.one(&[1, 2, 4]), g.one(&[1, 2, 4, 6]), g.one(&[1, 3, 5]));
        let divisors: Vec<usize> = [1, 2, 4].into_iter().filter(|count| heads.is_multiple_of(*count)).collect();
        Self {
            batch: g.one(&[1, 2]),
            queries,
            keys: if g.chance(0.7) { queries } else { g.one(&[1, 2, 7]) },
            heads,
            key_heads: if g.chance(0.75) { heads } else { g.one(&divisors) },
            head,
            value: if g.chance(0.8) { head } else { g.one(&[1, 3]) },
        }
    }

    /// Shapes of what is added to the scores or selects from them.
    fn mask(&self, g: &mut Growing<'_>) -> Vec<usize> {
        let Self { batch, queries, keys, heads, .. } = *self;
        g.one(&[
            vec![batch, 1, queries, keys],
            vec![1, 1, queries, keys],
            vec![batch, 1, 1, keys],
            vec![1, heads, queries, keys],
            vec![queries, keys],
            vec![keys],
            vec![heads, 1, 1],
            vec![batch, heads, queries, keys],
            vec![1, 1, queries, 1],
            vec![queries, 1],
        ])
    }
}

pub(crate) fn attention(g: &mut Growing<'_>) -> Option<V> {
    let sizes = Sizes::of(g);
    let features = sizes.heads * sizes.head;
    let tokens = g.noise(&[sizes.batch, sizes.queries, features], 1.0);
    let x = g.input(tokens);
    let other = match sizes.keys == sizes.queries {
        true => x,
        false => {
            let tokens = g.noise(&[sizes.batch, sizes.keys, features], 1.0);
            g.input(tokens)
        }
    };
    let bias = g.chance(0.6);
    let mut query = projected(g, x, [sizes.heads, sizes.head], bias)?;
    let mut key = projected(g, other, [sizes.key_heads, sizes.head], bias)?;
    let mut value = projected(g, other, [sizes.key_heads, sizes.value], bias)?;
    if g.chance(0.3) && sizes.head.is_multiple_of(2) {
        let turn = g.noise(&[2, 1, 1, sizes.queries, sizes.head], 1.0).to_f64();
        let half = turn.len() / 2;
        let table = |g: &mut Growing<'_>, numbers: &[f64]| {
            g.constant(filled(DType::F32, &[1, 1, sizes.queries, sizes.head], numbers))
        };
        let tables = [table(g, &turn[..half]), table(g, &turn[half..])];
        query = turned(g, query, sizes.head, tables)?;
        if sizes.keys == sizes.queries {
            key = turned(g, key, sizes.head, tables)?;
        }
    }
    if sizes.key_heads != sizes.heads {
        key = repeated(g, key, &sizes, sizes.head)?;
        value = repeated(g, value, &sizes, sizes.value)?;
    }
    let scores = scores(g, query, key, &sizes)?;
    let scores = masked(g, scores, &sizes)?;
    let axis = g.one(&[-1, -1, -1, 3, 3, 2]);
    let mut weights = g.op("Softmax", &[scores], vec![int("axis", axis)])?;
    if g.chance(0.15) {
        let shape = g.one(&[vec![], vec![sizes.heads, 1, 1], vec![sizes.queries, sizes.keys]]);
        let factor = g.weight(&shape, 1.0);
        weights = g.op("Mul", &[weights, factor], Vec::new())?;
    }
    let y = g.op("MatMul", &[weights, value], Vec::new())?;
    let perm = if g.chance(0.9) { [0, 2, 1, 3] } else { [0, 1, 3, 2] };
    let y = g.op("Transpose", &[y], vec![ints("perm", &perm)])?;
    let rows = if g.rng.bool() { size(sizes.queries) } else { -1 };
    let to = g.indices(&[size(sizes.batch), rows, size(sizes.heads * sizes.value)]);
    let y = g.op("Reshape", &[y, to], Vec::new())?;
    if g.rng.bool() {
        return Some(y);
    }
    let weight = g.weight(&[sizes.heads * sizes.value, 4], 0.5);
    g.op("MatMul", &[y, weight], Vec::new())
}

/// A projection, [batch, heads, tokens, size].
fn projected(g: &mut Growing<'_>, x: V, [heads, head]: [usize; 2], bias: bool) -> Option<V> {
    let inner = g.last(x);
    let weight = g.weight(&[inner, heads * head], (inner as f64).powf(-0.5));
    let mut y = g.op("MatMul", &[x, weight], Vec::new())?;
    if bias {
        let bias = g.weight(&[heads * head], 1.0);
        y = g.op("Add", &[y, bias], Vec::new())?;
    }
    let to = [0, if g.rng.bool() { 0 } else { -1 }, size(heads), size(head)];
    let to = g.indices(&to);
    let y = g.op("Reshape", &[y, to], Vec::new())?;
    g.op("Transpose", &[y], vec![ints("perm", &[0, 2, 1, 3])])
}

/// Rotary embedding, or nearly.
fn turned(g: &mut Growing<'_>, x: V, head: usize, [cosines, sines]: [V; 2]) -> Option<V> {
    let half = size(head / 2);
    let part = |g: &mut Growing<'_>, from: i64, to: i64| {
        let operands = [x, g.indices(&[from]), g.indices(&[to]), g.indices(&[3])];
        g.op("Slice", &operands, Vec::new())
    };
    let (first, mut second) = (part(g, 0, half)?, part(g, half, i64::MAX)?);
    if g.chance(0.9) {
        second = g.op("Neg", &[second], Vec::new())?;
    }
    let halves = if g.chance(0.85) { [second, first] } else { [first, second] };
    let turned = g.op("Concat", &halves, vec![int("axis", -1)])?;
    let a = g.op("Mul", &[x, cosines], Vec::new())?;
    let b = g.op("Mul", &[turned, sines], Vec::new())?;
    g.op("Add", &[a, b], Vec::new())
}

/// Keys or values for each head of the queries.
fn repeated(g: &mut Growing<'_>, x: V, sizes: &Sizes, head: usize) -> Option<V> {
    let (batch, heads, keys, head) = (size(sizes.batch), size(sizes.key_heads), size(sizes.keys), size(head));
    let times = size(sizes.heads) / heads;
    if g.chance(0.3) {
        let repeats = g.indices(&[1, times, 1, 1]);
        return g.op("Tile", &[x, repeats], Vec::new());
    }
    let axis = g.indices(&[2]);
    let wide = g.op("Unsqueeze", &[x, axis], Vec::new())?;
    let to = g.indices(&[batch, heads, times, keys, head]);
    let wide = g.op("Expand", &[wide, to], Vec::new())?;
    let to = g.indices(&[batch, heads * times, keys, head]);
    g.op("Reshape", &[wide, to], Vec::new())
}

/// The scaled products of queries and keys.
fn scores(g: &mut Growing<'_>, mut query: V, key: V, sizes: &Sizes) -> Option<V> {
    let exact = (sizes.head as f64).powf(-0.5);
    let scale = g.one(&[exact, exact, 0.3, 1.0]);
    let place = g.one(&["scores", "query", "key", "both", "divided", "none"]);
    let times = |g: &mut Growing<'_>, x: V, factor: f64| {
        let factor = g.number(factor);
        g.op("Mul", &[x, factor], Vec::new())
    };
    match place {
        "query" => query = times(g, query, scale)?,
        "both" => query = times(g, query, scale.sqrt())?,
        _ => {}
    }
    let mut key = g.op("Transpose", &[key], vec![ints("perm", &[0, 1, 3, 2])])?;
    match place {
        "key" => key = times(g, key, scale)?,
        "both" => key = times(g, key, scale.sqrt())?,
        _ => {}
    }
    let mut scores = g.op("MatMul", &[query, key], Vec::new())?;
    match place {
        "scores" => scores = times(g, scores, scale)?,
        "divided" => {
            let by = g.number(1.0 / scale);
            scores = g.op("Div", &[scores, by], Vec::new())?;
        }
        _ => {}
    }
    if g.chance(0.15) {
        let (by, cap) = (g.one(&[5.0, 2.0]), g.one(&[5.0, 3.0]));
        let by = g.number(by);
        let inner = g.op("Div", &[scores, by], Vec::new())?;
        let inner = g.op("Tanh", &[inner], Vec::new())?;
        scores = times(g, inner, cap)?;
    }
    Some(scores)
}

/// Scores with a mask.
fn masked(g: &mut Growing<'_>, scores: V, sizes: &Sizes) -> Option<V> {
    let shape = sizes.mask(g);
    let least = g.one(&[-1e4, -5e3, -5.0]);
    let lowest = |g: &mut Growing<'_>| g.number(least);
    match g.one(&[
        "none",
        "add",
        "add input",
        "where",
        "where not",
        "where input",
        "causal",
        "triangle",
        "slopes",
        "times",
    ]) {
        "none" => Some(scores),
        "add" => {
            let kept = g.booleans(&shape);
            let numbers: Vec<f64> =
                kept.to_f64().into_iter().map(|kept| if kept > 0.0 { 0.0 } else { least }).collect();
            let mask = g.constant(filled(DType::F32, &shape, &numbers));
            g.op("Add", &[scores, mask], Vec::new())
        }
        "add input" => {
            let mask = g.noise(&shape, 1.0);
            let mask = g.input(mask);
            g.op("Add", &[mask, scores], Vec::new())
        }
        "where" | "where input" | "where not" => {
            let kept = g.booleans(&shape);
            let kept = if g.rng.bool() { g.constant(kept) } else { g.input(kept) };
            let lowest = lowest(g);
            let operands = if g.chance(0.7) { [kept, scores, lowest] } else { [kept, lowest, scores] };
            g.op("Where", &operands, Vec::new())
        }
        kind @ ("causal" | "triangle") => {
            let offset = if kind == "causal" { 0 } else { g.one(&[-1, 0, 1]) };
            let kept = triangle(sizes.queries, sizes.keys, offset, kind == "causal");
            let (kept, lowest) = (g.constant(kept), lowest(g));
            g.op("Where", &[kept, scores, lowest], Vec::new())
        }
        "slopes" => {
            let slopes = g.weight(&[sizes.heads, 1, sizes.keys], 1.0);
            g.op("Add", &[scores, slopes], Vec::new())
        }
        _ => {
            let factor = g.weight(&shape, 1.0);
            g.op("Mul", &[scores, factor], Vec::new())
        }
    }
}

/// Which keys a query sees: those up to it, or those from it on.
fn triangle(queries: usize, keys: usize, offset: i64, lower: bool) -> Tensor {
    let sees = |query: i64, key: i64| if lower { key <= query + offset } else { key >= query + offset };
    let rows = (0..size(queries)).flat_map(|query| (0..size(keys)).map(move |key| f64::from(sees(query, key))));
    filled(DType::Bool, &[queries, keys], &rows.collect::<Vec<f64>>())
}

/// ONNX's own operator.
pub(crate) fn operator(g: &mut Growing<'_>) -> Option<V> {
    if g.opset < 23 {
        return None;
    }
    let (key_heads, keys) = (g.one(&[1, 2]), g.one(&[3, 5]));
    let mut operand = |shape: [usize; 4]| {
        let numbers = g.noise(&shape, 1.0);
        g.input(numbers)
    };
    let mut operands = vec![operand([2, 2, 3, 4]), operand([2, key_heads, keys, 4]), operand([2, key_heads, keys, 4])];
    match g.rng.u8(..3) {
        0 => operands.push(g.weight(&[3, keys], 1.0)),
        1 => {
            let kept = g.booleans(&[2, 1, 3, keys]);
            operands.push(g.constant(kept));
        }
        _ => {}
    }
    let mut attributes = Vec::new();
    if g.chance(0.4) {
        attributes.push(int("is_causal", 1));
    }
    if g.chance(0.4) {
        attributes.push(float("scale", 0.3));
    }
    if g.chance(0.3) {
        attributes.push(float("softcap", 2.0));
    }
    g.op("Attention", &operands, attributes)
}

/// Whether operands of the operator fit each other, as ONNX wants them: ONNX Runtime takes others where it has no kernel
/// for the operator's opset.
pub(crate) fn operands_fit(model: &ModelProto, feeds: &Tensors) -> bool {
    let shape = |name: &String| feeds.iter().find(|(fed, _)| fed == name).map_or(&[][..], |(_, tensor)| tensor.shape());
    let mut nodes = model.graph.iter().flat_map(|graph| &graph.node);
    nodes.all(|node| match node.input.as_slice() {
        [query, key, value, ..] if node.op_type == "Attention" => match (shape(query), shape(key), shape(value)) {
            ([rows, .., size], [b, heads, keys, s], [n, h, v, _]) => [rows, size, heads, keys, b] == [b, s, h, v, n],
            _ => true,
        },
        _ => true,
    })
}
