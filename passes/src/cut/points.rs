//! The places where a graph can be cut.

use std::collections::{BTreeMap, HashMap};

use planish_ir::handle::Handle;
use planish_ir::{Bindings, DType, Def, Graph, InputRole, NodeId, Symbol, ValueId};

/// A place to cut at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// How many of the nodes that the outputs need are before it.
    pub(super) at: usize,
    /// The value that goes on.
    pub(super) value: ValueId,
    /// The cost of the nodes before it.
    pub(super) before: u64,
    /// The cost of all nodes.
    pub(super) all: u64,
    /// The bytes of the value; absent where its size is not known.
    bytes: Option<u64>,
}

/// The places, in their order. Of several between which nothing costs anything it is the one with the smallest value.
pub(super) fn find(graph: &Graph, costs: &[u64], bindings: &Bindings) -> Vec<Point> {
    let nodes = graph.needed_nodes();
    let all = costs.iter().fold(0u64, |sum, cost| sum.saturating_add(*cost));
    let crossing = crossing(graph, &nodes);
    let symbols = determined(graph, &nodes);
    let mut points: Vec<Point> = Vec::new();
    let mut before = 0u64;
    for (at, (count, value)) in crossing.into_iter().enumerate().skip(1) {
        before = before.saturating_add(costs.get(at - 1).copied().unwrap_or(0));
        if count > 1 || before == 0 || before == all {
            continue;
        }
        // Where nothing goes on, a stage would compute what the next one computes again.
        let Some(value) = value.filter(|value| is_sent(graph, *value)) else { continue };
        if !has_symbols(graph, value, at, &symbols) {
            continue;
        }
        let point = Point {
            at,
            value,
            before,
            all,
            bytes: graph.type_of(value).as_tensor().and_then(|ty| ty.bytes_in(bindings)),
        };
        let size = |point: &Point| point.bytes.unwrap_or(u64::MAX);
        match points.last_mut().filter(|last| last.before == before) {
            Some(last) if size(&point) < size(last) => *last = point,
            Some(_) => {}
            None => points.push(point),
        }
    }
    points
}

/// Which values follow from weights, sizes, masks, positions and token types alone, by their index: a stage computes them again.
pub(super) fn light(graph: &Graph) -> Vec<bool> {
    let mut light: Vec<bool> = graph.values().map(|(_, value)| matches!(value.def, Def::Weight(_))).collect();
    for &input in graph.inputs() {
        let role = graph.interface.input(&graph.value(input).name);
        light[input.index()] = role.is_mask() || matches!(role, InputRole::Positions | InputRole::TokenTypes);
    }
    for (_, node) in graph.nodes() {
        let own = node.op.operands().iter().all(|value| light[value.index()]);
        let own = own && node.op.determined_symbols().next().is_none();
        node.outputs.iter().for_each(|value| light[value.index()] = own);
    }
    light
}

/// For each place how many values go on there, and one of them.
fn crossing(graph: &Graph, nodes: &[NodeId]) -> Vec<(usize, Option<ValueId>)> {
    let light = light(graph);
    // Numbers that come from outside go on as any hidden state does.
    let is_hidden = |input: &&ValueId| {
        let role = graph.interface.input(&graph.value(**input).name);
        let given_again = role.cache().is_some() || role == InputRole::EncoderStates || light[input.index()];
        !given_again && graph.type_of(**input).dtype().is_none_or(DType::is_float)
    };
    let mut lives: BTreeMap<ValueId, (usize, usize)> =
        graph.inputs().iter().filter(is_hidden).map(|input| (*input, (0, 0))).collect();
    for (at, &id) in nodes.iter().enumerate() {
        let node = graph.node(id);
        for value in node.op.operands() {
            lives.entry(value).and_modify(|(_, last)| *last = at);
        }
        let computed = node.outputs.iter().filter(|value| !light[value.index()]);
        lives.extend(computed.map(|value| (*value, (at, at))));
    }
    // A value goes on at each place after its node, up to the one before its last user.
    let mut begin: Vec<Vec<ValueId>> = vec![Vec::new(); nodes.len() + 1];
    let mut end: Vec<usize> = vec![0; nodes.len() + 2];
    for (value, (first, last)) in &lives {
        if last > first {
            begin[first + 1].push(*value);
            end[last + 1] += 1;
        }
    }
    let mut open = 0;
    let mut latest: Vec<ValueId> = Vec::new();
    let mut found = Vec::with_capacity(nodes.len());
    for at in 0..nodes.len() {
        open = open + begin[at].len() - end[at];
        latest.append(&mut begin[at]);
        latest.retain(|value| lives.get(value).is_some_and(|(_, last)| *last >= at));
        found.push((open, latest.first().copied()));
    }
    found
}

/// A result of a node that is a tensor of a known number of dimensions, and whose elements are numbers.
fn is_sent(graph: &Graph, value: ValueId) -> bool {
    let is_input = matches!(graph.value(value).def, Def::Input);
    !is_input && graph.type_of(value).as_tensor().is_some_and(|ty| ty.dtype != DType::String)
}

/// The symbols that nodes determine, with the places of the node and of the last node that has them.
fn determined(graph: &Graph, nodes: &[NodeId]) -> HashMap<Symbol, (usize, usize)> {
    let mut symbols: HashMap<Symbol, (usize, usize)> = HashMap::new();
    for (at, &id) in nodes.iter().enumerate() {
        symbols.extend(graph.node(id).op.determined_symbols().map(|symbol| (symbol.clone(), (at, at))));
    }
    if symbols.is_empty() {
        return symbols;
    }
    for (at, &id) in nodes.iter().enumerate() {
        let node = graph.node(id);
        let mut see = |symbol: &Symbol| {
            symbols.entry(symbol.clone()).and_modify(|(_, last)| *last = at);
        };
        node.outputs
            .iter()
            .flat_map(|value| graph.type_of(*value).dims())
            .flat_map(|dim| dim.symbols())
            .for_each(&mut see);
        node.op.visit_dims(&mut |dim| dim.symbols().for_each(&mut see));
    }
    symbols
}

/// Whether the nodes behind a place know the symbols that they have: a node before it may determine one, and then the value that
/// goes on has it.
fn has_symbols(graph: &Graph, value: ValueId, at: usize, symbols: &HashMap<Symbol, (usize, usize)>) -> bool {
    let has = |symbol: &Symbol| {
        graph.type_of(value).dims().any(|dim| dim.as_multiple().is_some_and(|(own, _)| own == symbol))
    };
    symbols.iter().all(|(symbol, (first, last))| *first >= at || *last < at || has(symbol))
}
