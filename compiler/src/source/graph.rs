//! What the graph of an ONNX file says of its task and its ids.

use planish_ir::interface::{CacheEntry, CacheKind, CacheTensor};
use planish_ir::ops::{Cast, Embedding, Expand, Foreign, Gather, Reshape};
use planish_ir::{Dim, Graph, InputRole, Op, OutputRole, Symbol, ValueId};
use planish_models::{IdRange, Task, names};

/// A graph with logits that gives the keys of its first layer back, or a state, generates text.
pub(super) fn task(graph: &Graph) -> Option<Task> {
    let interface = &graph.interface;
    let is_growing = |entry: &CacheEntry| matches!(entry.kind, CacheKind::Growing { .. });
    let is_first = |entry: &CacheEntry| entry.layer == 0 && entry.tensor == CacheTensor::Key && is_growing(entry);
    let counts = |entry: &CacheEntry| is_first(entry) || entry.kind.is_state();
    let mut taken = interface.inputs.values().filter_map(|role| role.cache()).filter(counts);
    let cached = taken.any(|entry| interface.present(entry).is_some());
    let scores = interface.output_of(OutputRole::Logits).is_some();
    (cached && scores && interface.input_of(InputRole::TokenIds).is_some()).then_some(Task::TextGeneration)
}

/// What a graph lacks of a task that it is said to be for.
pub(super) fn other_task(graph: &Graph, task: Task) -> Option<String> {
    let outputs: Vec<&str> = graph.outputs().iter().map(|o| o.name.as_str()).collect();
    let missing = task.outputs().iter().find(|role| graph.interface.output_of(**role).is_none())?;
    let missing = names::output(*missing).unwrap_or_default();
    Some(format!("the task {task} has an output `{missing}`, and the graph has {}", outputs.join(", ")))
}

/// What picks elements along an axis of a known size.
struct Pick {
    /// The indices, before what only shapes or casts them.
    ids: ValueId,
    /// The size of the axis.
    end: i64,
}

/// Everything in a graph that picks elements along an axis of a known size, such as rows of tables.
fn picks(graph: &Graph) -> Vec<Pick> {
    let pick = |ids: ValueId, of: ValueId, axis: usize| {
        let end = graph.ty(of).shape.get(axis).and_then(Dim::as_constant)?;
        Some(Pick { ids: unshaped(graph, ids), end })
    };
    let of_node = |op: &Op| match op {
        Op::Embedding(Embedding { ids, weight }) => vec![pick(*ids, *weight, 0)],
        Op::Gather(Gather { x, indices, axis }) => vec![pick(*indices, *x, *axis)],
        Op::Foreign(foreign) if foreign.op.0 == "EmbedLayerNormalization" => {
            embeddings(foreign).into_iter().map(|(ids, table)| pick(ids?, table?, 0)).collect()
        }
        _ => Vec::new(),
    };
    graph.nodes().flat_map(|(_, node)| of_node(&node.op)).flatten().collect()
}

/// The ids and the tables of ONNX Runtime's operator for the embeddings of BERT: of tokens, segments and positions.
fn embeddings(op: &Foreign) -> [(Option<ValueId>, Option<ValueId>); 3] {
    let input = |at: usize| op.inputs.get(at).copied().flatten();
    [(0, 2), (1, 4), (8, 3)].map(|(ids, table)| (input(ids), input(table)))
}

/// What a value is made of by nothing but casts and other shapes.
fn unshaped(graph: &Graph, mut value: ValueId) -> ValueId {
    while let Some(Op::Reshape(Reshape { x, .. }) | Op::Cast(Cast { x, .. }) | Op::Expand(Expand { x, .. })) =
        graph.producer(value).map(|node| &node.op)
    {
        value = *x;
    }
    value
}

/// The inputs that pick rows of a table, with the number of its rows.
pub(super) fn id_ranges(graph: &Graph) -> Vec<IdRange> {
    let mut ranges: Vec<IdRange> = Vec::new();
    for Pick { ids, end } in picks(graph) {
        if !graph.inputs().contains(&ids) {
            continue;
        }
        let input = graph.value(ids).name.clone();
        match ranges.iter_mut().find(|r| r.input == input) {
            Some(range) => range.end = range.end.min(end),
            None => ranges.push(IdRange { input, end }),
        }
    }
    ranges
}

/// The longest sequence that tables of positions allow: one that ids of positions or a range as long as a sequence
/// pick rows of, and those of which as many rows are taken as a sequence is long.
pub(super) fn max_positions(graph: &Graph, ranges: &[IdRange]) -> Option<usize> {
    let picked = ranges
        .iter()
        .filter(|range| graph.interface.input(&range.input) == InputRole::Positions)
        .map(|range| range.end);
    let sliced = graph.nodes().filter_map(|(_, node)| {
        let Op::Slice(slice) = &node.op else { return None };
        graph.weight(slice.x)?;
        let as_long = slice.start.as_constant() == Some(0) && slice.end.as_symbol().is_some();
        graph.ty(slice.x).shape[slice.axis].as_constant().filter(|_| as_long)
    });
    // Rows are counted by the first dimension of inputs.
    let rows: Vec<&Symbol> = graph.inputs().iter().filter_map(|v| graph.ty(*v).shape.first()?.as_symbol()).collect();
    let ranged = picks(graph).into_iter().filter_map(|Pick { ids, end }| {
        let Some(Op::Iota(iota)) = graph.producer(ids).map(|node| &node.op) else { return None };
        let mut parts = iota.length.summands();
        let as_long =
            |(count, symbols): (i64, &[Symbol])| count == 1 && symbols.len() == 1 && !rows.contains(&&symbols[0]);
        parts.all(as_long).then_some(end)
    });
    picked.chain(sliced).chain(ranged).min().and_then(|longest| usize::try_from(longest).ok())
}
