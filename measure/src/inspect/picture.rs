//! What a drawing of graphs shows: a box for each input, node and output, and which uses which. Constants
//! are left out.

use std::collections::HashMap;

use planish_compiler::source::modules::{numbered, of_name};
use planish_ir::{Graph, ValueId};

/// Boxes and arrows.
#[derive(Debug, Default)]
pub struct Picture {
    pub(super) boxes: Vec<Shape>,
    /// From one box to a later one, each pair once, in the order of the later ones.
    pub(super) arrows: Vec<(usize, usize)>,
}

/// A box.
#[derive(Debug)]
pub(super) struct Shape {
    /// The operator, `input` or `output`.
    pub(super) title: String,
    /// The name of the value.
    pub(super) name: String,
    /// The value's type.
    pub(super) ty: String,
    /// Whether it is an input or output of a graph.
    pub(super) port: bool,
    /// The part and the layer that it is in.
    pub(super) group: Option<String>,
}

impl Picture {
    /// The picture of graphs, one beside the other, by the names of their parts.
    #[must_use]
    pub fn of(graphs: &[(String, Graph)]) -> Self {
        let mut picture = Self::default();
        for (part, graph) in graphs {
            picture.add(part, graph, graphs.len() > 1);
        }
        picture
    }

    fn add(&mut self, part: &str, graph: &Graph, several: bool) {
        let group = |name: &str| {
            let module = of_name(name).unwrap_or_default();
            let layer = numbered(&module);
            match several {
                true => Some(format!("{part} {}", layer.unwrap_or_default()).trim_end().to_owned()),
                false => layer.map(str::to_owned),
            }
        };
        let mut makers: HashMap<ValueId, usize> = HashMap::new();
        for &input in graph.inputs() {
            makers.insert(input, self.boxes.len());
            self.port("input", &graph.value(input).name, graph, input, several.then(|| part.to_owned()));
        }
        for (_, node) in graph.nodes() {
            let this = self.boxes.len();
            self.uses(node.op.operands().iter().filter_map(|v| makers.get(v).copied()), this);
            makers.extend(node.outputs.iter().map(|v| (*v, this)));
            let Some(first) = node.outputs.first().map(|v| graph.value(*v)) else { continue };
            self.boxes.push(Shape {
                title: node.op.kind().to_owned(),
                name: first.name.clone(),
                ty: first.ty.to_string(),
                port: false,
                group: group(&first.name),
            });
        }
        for output in graph.outputs() {
            self.uses(makers.get(&output.value).copied().into_iter(), self.boxes.len());
            self.port("output", &output.name, graph, output.value, several.then(|| part.to_owned()));
        }
    }

    fn port(&mut self, title: &str, name: &str, graph: &Graph, value: ValueId, group: Option<String>) {
        let ty = graph.ty(value).to_string();
        self.boxes.push(Shape { title: title.to_owned(), name: name.to_owned(), ty, port: true, group });
    }

    fn uses(&mut self, makers: impl Iterator<Item = usize>, user: usize) {
        let mut makers: Vec<usize> = makers.collect();
        makers.sort_unstable();
        makers.dedup();
        self.arrows.extend(makers.into_iter().map(|maker| (maker, user)));
    }
}
