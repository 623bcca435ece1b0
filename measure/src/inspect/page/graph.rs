//! The graph as data for the script of the page.

use std::collections::{BTreeMap, HashMap};

use planish_compiler::source::modules::Modules;
use planish_ir::handle::Handle;
use planish_ir::{Graph, ValueId, Weight};
use serde::Serialize;

use crate::inspect::Opened;

/// A graph, with lists in place of objects: there may be tens of thousands of nodes.
#[derive(Serialize)]
struct PartGraph {
    name: String,
    layers: Vec<String>,
    /// Names and types of values that are no weights, and of weights; an entry is `[name, type]` or
    /// `[name, type, bytes, file]`.
    values: Vec<Entry>,
    nodes: Vec<Node>,
    inputs: Vec<usize>,
    /// Names of outputs, and their values.
    outputs: Vec<(String, usize)>,
}

/// The most characters of the attributes of a node: a foreign operator may have a whole graph in one.
const MOST_ATTRIBUTES: usize = 500;

/// A node: its layer, operator, name, operands, results and attributes; operands and results are places in `values`.
#[derive(Serialize)]
struct Node(usize, String, String, Vec<usize>, Vec<usize>, String);

#[derive(Serialize)]
#[serde(untagged)]
enum Entry {
    Value(String, String),
    Weight(String, String, u64, String),
}

/// The graphs of a model as JSON that an element of HTML may hold.
pub(super) fn json(opened: &Opened) -> String {
    let graphs: Vec<PartGraph> = opened.graphs.iter().map(|(name, graph)| part(opened, name, graph)).collect();
    serde_json::to_string(&graphs).unwrap_or_default().replace('<', "\\u003c")
}

fn part(opened: &Opened, name: &str, graph: &Graph) -> PartGraph {
    let names = opened.names(name);
    let modules = Modules::of(graph, &names);
    let named: HashMap<&str, &str> =
        names.results.iter().map(|(node, result)| (result.as_str(), node.as_str())).collect();
    let (mut layers, mut places) = (Vec::new(), BTreeMap::new());
    let mut values = Values { graph, entries: Vec::new(), places: HashMap::new() };
    let inputs = graph.inputs().iter().map(|value| values.place(*value)).collect();
    let mut nodes = Vec::new();
    for (id, node) in graph.nodes() {
        let layer = modules.layer(id);
        let at = *places.entry(layer.to_owned()).or_insert_with(|| {
            layers.push(layer.to_owned());
            layers.len() - 1
        });
        let result = node.outputs.first().map_or("", |value| graph.value(*value).name.as_str());
        let operands = node.op.operands().iter().map(|value| values.place(*value)).collect();
        let results = node.outputs.iter().map(|value| values.place(*value)).collect();
        let name = named.get(result).copied().unwrap_or(result).to_owned();
        let mut attributes = node.op.attributes_text();
        if let Some((end, _)) = attributes.char_indices().nth(MOST_ATTRIBUTES) {
            attributes.truncate(end);
            attributes.push('…');
        }
        nodes.push(Node(at, node.op.kind().to_owned(), name, operands, results, attributes));
    }
    let outputs = graph.outputs().iter().map(|output| (output.name.clone(), values.place(output.value))).collect();
    PartGraph { name: name.to_owned(), layers, values: values.entries, nodes, inputs, outputs }
}

/// The values that nodes name, each once.
struct Values<'a> {
    graph: &'a Graph,
    entries: Vec<Entry>,
    places: HashMap<usize, usize>,
}

impl Values<'_> {
    fn place(&mut self, id: ValueId) -> usize {
        if let Some(place) = self.places.get(&id.index()) {
            return *place;
        }
        let (name, ty) = (self.graph.value(id).name.clone(), self.graph.type_of(id).to_string());
        self.entries.push(match self.graph.weight(id) {
            Some(weight) => Entry::Weight(name, ty, weight.bytes(), file(weight)),
            None => Entry::Value(name, ty),
        });
        self.places.insert(id.index(), self.entries.len() - 1);
        self.entries.len() - 1
    }
}

/// The name of the file that a weight is in, or made of; empty where it is in the graph.
fn file(weight: &Weight) -> String {
    let mut found = String::new();
    weight.visit_leaves(&mut |leaf| {
        let path = leaf.as_stored().and_then(|range| range.source.file_path());
        if let Some(name) = path.and_then(|path| path.file_name()).filter(|_| found.is_empty()) {
            found = name.to_string_lossy().into_owned();
        }
    });
    found
}
