//! Feature maps: what convolutions take and give, [batch, channels, spatial ..], which become codes together.
//!
//! A runtime multiplies integers in a convolution where what it takes and what it gives are codes. So the results of sums and pools
//! of codes are codes too, up to the next operator of another kind, and an activation between a convolution and its result is the limit
//! of the codes where they have no numbers beyond it.

mod apply;
mod loss;
mod planner;

use std::collections::{HashMap, HashSet};

use planish_ir::handle::Handle;
use planish_ir::ops::{Binary, BinaryKind, Conv, Reshape, Transpose, Unary, UnaryKind};
use planish_ir::{DType, Graph, Node, NodeId, Op, ValueId, Weight};

use crate::processing::is_processing;

pub(super) use apply::apply;
pub(super) use loss::loss;
pub(super) use planner::{named, planned, planned_weights};

/// The pools whose results are means of codes.
const MEANS: [&str; 2] = ["AveragePool", "GlobalAveragePool"];

/// The values that are codes, and the convolutions between them.
#[derive(Default)]
pub(super) struct Maps {
    /// In the order in which the graph computes them.
    pub(super) maps: Vec<Map>,
    /// The convolutions that multiply codes.
    pub(super) convolutions: HashSet<NodeId>,
    places: HashMap<ValueId, usize>,
}

/// A feature map.
pub(super) struct Map {
    pub(super) value: ValueId,
    /// The convolutions that take it.
    pub(super) takers: Vec<NodeId>,
    pub(super) source: Source,
}

/// How a feature map comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// An operator on floats computes it, or it is an input of the graph.
    Floats,
    /// An operator on codes computes it.
    Codes,
    /// Its elements are those of another one.
    Elements(ValueId),
}

impl Maps {
    /// Those of a graph, of the values that a plan makes codes.
    pub(super) fn of(graph: &Graph, coded: &dyn Fn(ValueId) -> bool) -> Self {
        let results = Results::of(graph);
        let (mut maps, mut same) = (Self::default(), HashMap::new());
        for (id, node) in graph.nodes() {
            let output = node.outputs[0];
            if let Some(conv) = convolution(graph, node) {
                let end = results.end(graph, output);
                if coded(conv.x) && coded(end) {
                    maps.convolutions.insert(id);
                    let at = maps.touch(conv.x, &same);
                    maps.maps[at].takers.push(id);
                    let at = maps.touch(end, &same);
                    maps.maps[at].source = Source::Codes;
                }
                continue;
            }
            if let Some(of) = moved(&node.op).filter(|of| maps.is_computed(*of) || same.contains_key(of)) {
                same.insert(output, of);
            }
            let end = results.end(graph, output);
            let is_known = |value: &ValueId| maps.is_computed(*value) || same.contains_key(value);
            let Some(parts) = joined(&node.op).filter(|parts| parts.iter().all(is_known) && coded(end)) else {
                continue;
            };
            // What moves codes to an operator on codes gives codes.
            for part in parts.iter().filter(|part| same.contains_key(part)) {
                maps.touch(*part, &same);
            }
            let at = maps.touch(end, &same);
            maps.maps[at].source = Source::Codes;
        }
        maps
    }

    /// What is known of a value.
    pub(super) fn get(&self, value: ValueId) -> Option<&Map> {
        self.places.get(&value).map(|at| &self.maps[*at])
    }

    fn is_computed(&self, value: ValueId) -> bool {
        self.get(value).is_some_and(|map| map.source == Source::Codes)
    }

    fn touch(&mut self, value: ValueId, same: &HashMap<ValueId, ValueId>) -> usize {
        *self.places.entry(value).or_insert_with(|| {
            let source = same.get(&value).map_or(Source::Floats, |of| Source::Elements(*of));
            self.maps.push(Map { value, takers: Vec::new(), source });
            self.maps.len() - 1
        })
    }
}

/// The values around convolutions whose elements calibration measures: [batch, channels, spatial ..].
#[must_use]
pub fn feature_maps(graph: &Graph) -> Vec<ValueId> {
    Maps::of(graph, &|_| true).maps.into_iter().map(|map| map.value).collect()
}

/// A float32 convolution of a model with a stored weight of one to three spatial axes, and a known number of channels.
fn convolution<'a>(graph: &'a Graph, node: &'a Node) -> Option<&'a Conv> {
    let Op::Conv(conv) = &node.op else { return None };
    let weight = graph.weight(conv.weight).filter(|weight| (3..=5).contains(&weight.shape().len()))?;
    let is_plain = weight.dtype() == DType::F32 && weight.as_dequantized().is_none() && weight.as_codebook().is_none();
    let has_channels = graph.ty(conv.x).shape[1].as_constant().is_some();
    (is_plain && has_channels && !is_processing(graph, node) && graph.weight(conv.x).is_none()).then_some(conv)
}

/// The operand that an operator gives the elements of, some of them or in another order.
fn moved(op: &Op) -> Option<ValueId> {
    match op {
        Op::Reshape(Reshape { x, .. }) | Op::Transpose(Transpose { x, .. }) => Some(*x),
        Op::Foreign(op) if op.is("MaxPool") && op.results.0.len() == 1 => op.inputs.first().copied().flatten(),
        _ => None,
    }
}

/// The operands of an operator that runtimes compute on codes.
fn joined(op: &Op) -> Option<Vec<ValueId>> {
    match op {
        Op::Binary(Binary { kind: BinaryKind::Add, a, b }) => Some(vec![*a, *b]),
        Op::Concat(concat) => Some(concat.parts.clone()),
        Op::Foreign(op) if MEANS.iter().any(|name| op.is(name)) => Some(vec![op.inputs.first().copied().flatten()?]),
        _ => None,
    }
}

/// An operator that limits the elements of its operand: the operand, and the limits.
fn limits(graph: &Graph, op: &Op) -> Option<(ValueId, [f64; 2])> {
    let (none, all) = (f64::NEG_INFINITY, f64::INFINITY);
    match op {
        Op::Unary(Unary { kind: UnaryKind::Relu, x }) => Some((*x, [0.0, all])),
        Op::Binary(Binary { kind: kind @ (BinaryKind::Max | BinaryKind::Min), a, b }) => {
            let number = |value: ValueId| scalar(graph.weight(value)?);
            let (x, bound) = number(*b).map(|bound| (*a, bound)).or_else(|| Some((*b, number(*a)?)))?;
            Some((x, if *kind == BinaryKind::Max { [bound, all] } else { [none, bound] }))
        }
        _ => None,
    }
}

fn scalar(weight: &Weight) -> Option<f64> {
    let is_number = weight.elements() == 1 && weight.dtype() == DType::F32;
    weight.clone().read_numbers().ok().filter(|_| is_number)?.first().copied().filter(|bound| bound.is_finite())
}

/// Which operator takes a value that only one takes.
struct Results(HashMap<ValueId, NodeId>);

impl Results {
    fn of(graph: &Graph) -> Self {
        let uses = graph.use_counts();
        let mut alone = HashMap::new();
        for (id, node) in graph.nodes() {
            node.op.visit_operands(&mut |operand| {
                if uses[operand.index()] == 1 {
                    alone.insert(operand, id);
                }
            });
        }
        Self(alone)
    }

    /// What the activation after a value gives; the value itself where there is none, or where something else takes it.
    fn end(&self, graph: &Graph, value: ValueId) -> ValueId {
        let mut end = value;
        while let Some(node) = self.0.get(&end).map(|id| graph.node(*id)) {
            match limits(graph, &node.op) {
                Some((x, _)) if x == end => end = node.outputs[0],
                _ => break,
            }
        }
        end
    }
}
