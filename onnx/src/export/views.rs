//! Weights as nodes on ranges of weight files: what only moves or converts elements need not be copied for it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use planish_ir::weight::WeightExpr;
use planish_ir::{DType, Graph, Origin, Weight};

use super::dims::indices;
use super::nodes::{int, size};
use super::{Emitter, INLINE_BYTES, data_type};
use crate::proto::NodeProto;

/// A range of a file that weights are computed from.
pub(super) struct Leaf {
    pub(super) name: String,
    pub(super) weight: Weight,
    pub(super) origin: Origin,
}

/// Whether a weight is computed from ranges of files by transposing, cutting, joining, reshaping or converting alone.
#[must_use]
pub fn is_view(weight: &Weight) -> bool {
    match weight.expr() {
        WeightExpr::Stored(range) => range.source.file_path().is_some(),
        WeightExpr::Transpose(of, _) | WeightExpr::Reshape(of) => is_view(of),
        WeightExpr::Cast(of) => is_computed(weight) && is_computed(of) && is_view(of),
        WeightExpr::Gather(of, _, taken) => neighbours(taken).is_some() && is_view(of),
        WeightExpr::Concat(parts, _) => parts.iter().all(is_view),
        _ => false,
    }
}

/// Whether ONNX's operators that move and convert take the elements.
fn is_computed(weight: &Weight) -> bool {
    matches!(weight.dtype(), DType::F16 | DType::Bf16 | DType::F32 | DType::F64)
}

/// Consecutive indices.
fn neighbours(taken: &[usize]) -> Option<Range<usize>> {
    let (first, last) = (*taken.first()?, *taken.last()?);
    taken.iter().copied().eq(first..=last).then_some(first..last + 1)
}

impl Emitter<'_> {
    /// Emits nodes for the weights of a graph that are views; returns the names of these weights, and what they are computed
    /// from. The nodes come before all others.
    pub(super) fn views(&mut self, graph: &Graph) -> (HashSet<String>, Vec<Leaf>) {
        let rest = std::mem::take(&mut self.nodes);
        let (mut names, mut leaves, mut known) = (HashSet::new(), Vec::new(), HashMap::new());
        for (id, value, weight) in graph.weights() {
            let is_large = weight.bytes() >= INLINE_BYTES && weight.as_stored().is_none();
            if !is_large || !is_computed(weight) || !is_view(weight) {
                continue;
            }
            let name = self.name(id).to_owned();
            let origin = value.origin.clone();
            let before = self.nodes.len();
            let source = self.view(weight, &name, &origin, &mut known, &mut leaves);
            // A node that was made for it gives the weight under its name.
            match self.nodes[before..].last_mut().filter(|node| node.output == [source.clone()]) {
                Some(node) => {
                    node.output = vec![name.clone()];
                    known.retain(|_, own| *own != source);
                }
                None => self.view_node("Identity", vec![source], name.clone(), Vec::new()),
            }
            known.insert(weight.clone(), name.clone());
            names.insert(name);
        }
        self.nodes.extend(rest);
        (names, leaves)
    }

    /// The name of a value with the elements of a view.
    fn view(
        &mut self,
        weight: &Weight,
        like: &str,
        origin: &Origin,
        known: &mut HashMap<Weight, String>,
        leaves: &mut Vec<Leaf>,
    ) -> String {
        if let Some(name) = known.get(weight) {
            return name.clone();
        }
        let mut inputs: Vec<String> =
            weight.expr().children().iter().map(|of| self.view(of, like, origin, known, leaves)).collect();
        let name = self.fresh(&format!("{like}/stored"));
        let (operator, attributes) = match weight.expr() {
            WeightExpr::Transpose(_, perm) => ("Transpose", vec![indices("perm", perm)]),
            WeightExpr::Cast(_) => ("Cast", vec![int("to", data_type(weight.dtype()).into())]),
            WeightExpr::Concat(_, axis) => ("Concat", vec![int("axis", size(*axis))]),
            WeightExpr::Reshape(_) => {
                let shape: Vec<i64> = weight.shape().iter().copied().map(size).collect();
                inputs.push(self.constant(&shape));
                ("Reshape", Vec::new())
            }
            WeightExpr::Gather(_, axis, taken) => {
                let range = neighbours(taken).unwrap_or(0..0);
                let bounds = [size(range.start), size(range.end), size(*axis)];
                inputs.extend(bounds.map(|bound| self.constant(&[bound])));
                ("Slice", Vec::new())
            }
            _ => {
                leaves.push(Leaf { name: name.clone(), weight: weight.clone(), origin: origin.clone() });
                known.insert(weight.clone(), name.clone());
                return name;
            }
        };
        self.view_node(operator, inputs, name.clone(), attributes);
        known.insert(weight.clone(), name.clone());
        name
    }

    fn view_node(
        &mut self,
        operator: &str,
        input: Vec<String>,
        output: String,
        attribute: Vec<crate::proto::AttributeProto>,
    ) {
        self.nodes.push(NodeProto {
            name: output.clone(),
            input,
            output: vec![output],
            op_type: operator.to_owned(),
            attribute,
            ..NodeProto::default()
        });
    }
}
