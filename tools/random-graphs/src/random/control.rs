//! Branches and loops.

use planish_ir::DType;
use planish_onnx::proto::GraphProto;

use crate::attributes::{graph, node, typed};
use crate::grow::{Growing, NONE, V, filled};

/// A graph of operators on a value around it, one after another; its result has this name.
fn branch(g: &mut Growing<'_>, x: V, name: &str) -> GraphProto {
    let outer = x.name();
    let mut last = outer.clone();
    let mut nodes = Vec::new();
    for at in 0..g.rng.usize(1..=2) {
        let op = g.one(&["Relu", "Tanh", "Add", "Neg", "Mul", "Sigmoid"]);
        let made = format!("{name}_{at}");
        let operands: &[&str] = if matches!(op, "Add" | "Mul") { &[&last, &outer] } else { &[&last] };
        nodes.push(node(op, operands, &[&made], Vec::new()));
        last = made;
    }
    GraphProto {
        name: name.to_owned(),
        node: nodes,
        output: vec![typed(&last, DType::F32, None)],
        ..GraphProto::default()
    }
}

pub(crate) fn choice(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(1..=4)?;
    let condition = if g.chance(0.3) {
        let value = f64::from(g.rng.u8(..2));
        g.constant(filled(DType::Bool, &[], &[value]))
    } else {
        let flat = g.op("ReduceSum", &[x], vec![crate::attributes::int("keepdims", 0)])?;
        let zero = g.number(0.0);
        g.op("Greater", &[flat, zero], Vec::new())?
    };
    let tag = format!("b{}", g.node_count());
    let branches =
        ["then", "else"].map(|side| graph(&format!("{side}_branch"), branch(g, x, &format!("{tag}_{side}"))));
    g.capturing("If", &[condition], &[x], branches.to_vec(), 1).map(|results| results[0])
}

pub(crate) fn rounds(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(1..=3)?;
    let tag = format!("l{}", g.node_count());
    let name = |part: &str| format!("{tag}_{part}");
    let [round, goes, again, state, scaled, next, seen] =
        ["round", "goes", "again", "state", "scaled", "next", "seen"].map(name);
    // Where there is no round, ONNX Runtime gives rows without their shape.
    let count = g.rng.i64(1..5);
    let (count, half) = (g.index(count), g.number(0.5));
    let goes_on = if g.chance(0.6) { g.constant(filled(DType::Bool, &[], &[1.0])) } else { NONE };
    let (outer, factor) = (x.name(), half.name());
    let body = GraphProto {
        name: tag.clone(),
        node: vec![
            node("Mul", &[&state, &factor], &[&scaled], Vec::new()),
            node("Add", &[&scaled, &outer], &[&next], Vec::new()),
            node("Identity", &[&goes], &[&again], Vec::new()),
            node("Tanh", &[&next], &[&seen], Vec::new()),
        ],
        input: vec![
            typed(&round, DType::I64, Some(Vec::new())),
            typed(&goes, DType::Bool, Some(Vec::new())),
            typed(&state, DType::F32, None),
        ],
        output: vec![typed(&again, DType::Bool, None), typed(&next, DType::F32, None), typed(&seen, DType::F32, None)],
        ..GraphProto::default()
    };
    let results = g.capturing("Loop", &[count, goes_on, x], &[half], vec![graph("body", body)], 2)?;
    Some(g.one(&results))
}

pub(crate) fn scan(g: &mut Growing<'_>) -> Option<V> {
    let x = g.float(2..=4)?;
    let tag = format!("s{}", g.node_count());
    let [state, row, next, seen] = ["state", "row", "next", "seen"].map(|part| format!("{tag}_{part}"));
    let shape = g.shape(x);
    let start = g.weight(&shape[1..], 1.0);
    let body = GraphProto {
        name: tag.clone(),
        node: vec![node("Add", &[&state, &row], &[&next], Vec::new()), node("Tanh", &[&next], &[&seen], Vec::new())],
        input: vec![typed(&state, DType::F32, None), typed(&row, DType::F32, None)],
        output: vec![typed(&next, DType::F32, None), typed(&seen, DType::F32, None)],
        ..GraphProto::default()
    };
    let inputs = crate::attributes::int("num_scan_inputs", 1);
    let results = g.ops("Scan", &[start, x], vec![graph("body", body), inputs], 2)?;
    Some(g.one(&results))
}
