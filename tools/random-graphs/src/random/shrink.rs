//! Smaller graphs that still show a fault: with one output, and with values that were computed as inputs.

use std::collections::HashSet;

use planish_onnx::proto::{DimensionValue, GraphProto};

use crate::attributes::{size, typed};
use crate::grow::{Grown, reads};

/// The smallest graph that is found of which `is_faulty` holds, as it does of the whole one.
pub(crate) fn shrink(whole: &Grown, is_faulty: &mut dyn FnMut(&Grown) -> bool) -> Grown {
    let mut best = whole.copied(|_| {});
    let outputs = whole.model.graph.iter().flat_map(|graph| graph.output.clone()).collect::<Vec<_>>();
    for output in outputs {
        let one = best.copied(|graph| graph.output = vec![output.clone()]);
        if is_faulty(&one) {
            best = one;
            break;
        }
    }
    // From the end: what is early then is not needed any more.
    let mut at = best.nodes();
    while at > 0 {
        at -= 1;
        let Some(made) = best.node_outputs(at) else { continue };
        let without = best.given(&made);
        if without.nodes() < best.nodes() && is_faulty(&without) {
            best = without;
            at = at.min(best.nodes());
        }
    }
    best
}

impl Grown {
    fn nodes(&self) -> usize {
        self.model.graph.as_ref().map_or(0, |graph| graph.node.len())
    }

    fn node_outputs(&self, at: usize) -> Option<Vec<String>> {
        Some(self.model.graph.as_ref()?.node.get(at)?.output.clone())
    }

    /// The same with a changed graph, and without what its outputs do not need.
    fn copied(&self, change: impl FnOnce(&mut GraphProto)) -> Self {
        let mut model = self.model.clone();
        if let Some(graph) = &mut model.graph {
            change(graph);
            let mut needed: HashSet<String> = graph.output.iter().map(|port| port.name.clone()).collect();
            let mut kept = Vec::new();
            for node in graph.node.drain(..).rev() {
                if node.output.iter().any(|name| needed.contains(name)) {
                    reads(&node, &mut needed);
                    kept.push(node);
                }
            }
            kept.reverse();
            graph.node = kept;
            graph.input.retain(|port| needed.contains(&port.name));
            graph.initializer.retain(|tensor| needed.contains(&tensor.name));
        }
        Self { model, feeds: self.feeds.clone(), values: self.values.clone() }
    }

    /// The same with these values as inputs.
    fn given(&self, names: &[String]) -> Self {
        let known: Vec<_> = self.values.iter().filter(|(name, _)| names.contains(name)).cloned().collect();
        if known.len() < names.iter().filter(|name| !name.is_empty()).count() {
            return self.copied(|_| {});
        }
        let mut given = self.copied(|graph| {
            graph.node.retain(|node| node.output != names);
            for (name, tensor) in &known {
                let dims = tensor.shape().iter().map(|dim| DimensionValue::DimValue(size(*dim))).collect();
                graph.input.push(typed(name, tensor.dtype(), Some(dims)));
            }
            let made: HashSet<&String> = graph.node.iter().flat_map(|node| &node.output).collect();
            graph.output.retain(|port| made.contains(&port.name));
        });
        given.feeds.extend(known);
        given
    }
}
