//! What each layer of a part takes: nodes, the bytes of its weights by their types, and operations.

use std::collections::{BTreeMap, HashSet};

use planish_artifact::units::{bytes_text, flops_text};
use planish_compiler::source::modules::{Modules, NodeNames};
use planish_ir::cost::stored_bytes;
use planish_ir::{Graph, ValueId};
use serde::Serialize;

use crate::inspect::PartCost;
use crate::page::KINDS;

/// The layers of a part, and the colours of types.
#[derive(Serialize)]
pub(super) struct Layers {
    /// The class and the name of each type.
    types: Vec<(String, String)>,
    rows: Vec<Layer>,
}

/// A layer.
#[derive(Serialize)]
struct Layer {
    name: String,
    nodes: usize,
    /// Its weights by types.
    pieces: Vec<Piece>,
    bytes: String,
    flops: String,
    /// The share of all operations.
    share: String,
}

/// The weights of one type in a layer.
#[derive(Serialize)]
struct Piece {
    class: String,
    /// The width of the bar in hundredths of that of the largest layer.
    width: String,
    tip: String,
}

impl Layers {
    /// The layers of a graph, in its order. A weight that several layers read counts in the first one.
    pub(super) fn of(graph: &Graph, names: &NodeNames, costs: Option<&PartCost>) -> Self {
        let modules = Modules::of(graph, names);
        let mut order: Vec<String> = Vec::new();
        let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
        let mut bytes: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        let mut counted: HashSet<ValueId> = HashSet::new();
        for (id, node) in graph.nodes() {
            let layer = modules.layer(id).to_owned();
            if !nodes.contains_key(&layer) {
                order.push(layer.clone());
            }
            *nodes.entry(layer.clone()).or_insert(0) += 1;
            let of_layer = bytes.entry(layer).or_default();
            for operand in node.op.operands() {
                if let Some(weight) = graph.weight(operand).filter(|_| counted.insert(operand)) {
                    *of_layer.entry(weight.dtype().to_string()).or_insert(0) += stored_bytes(weight);
                }
            }
        }
        let mut totals: BTreeMap<&String, u64> = BTreeMap::new();
        bytes.values().flatten().for_each(|(dtype, count)| *totals.entry(dtype).or_insert(0) += count);
        let mut types: Vec<(&String, u64)> = totals.into_iter().collect();
        types.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let class = |dtype: &String| {
            let at = types.iter().position(|(name, _)| *name == dtype).unwrap_or(0);
            format!("o{}", at.min(KINDS - 1))
        };
        let largest = bytes.values().map(|types| types.values().sum::<u64>()).max().unwrap_or(0).max(1);
        let row = |name: &String| {
            let own = &bytes[name];
            let piece = |(dtype, count): (&String, &u64)| Piece {
                class: class(dtype),
                width: format!("{:.2}", *count as f64 / largest as f64 * 100.0),
                tip: format!("{dtype}: {}", bytes_text(*count)),
            };
            let work = costs.and_then(|costs| costs.layers.iter().find(|layer| layer.name == *name));
            Layer {
                name: name.clone(),
                nodes: nodes[name],
                pieces: own.iter().filter(|(_, count)| **count > 0).map(piece).collect(),
                bytes: bytes_text(own.values().sum()),
                flops: work.map_or_else(String::new, |layer| flops_text(layer.work.flops)),
                share: work.map_or_else(String::new, |layer| format!("{:.1} %", layer.share * 100.0)),
            }
        };
        Self {
            types: types.iter().map(|(dtype, _)| (class(dtype), (*dtype).clone())).collect(),
            rows: order.iter().map(row).collect(),
        }
    }
}
