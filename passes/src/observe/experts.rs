//! Observers of mixtures of experts: outputs with the experts that tokens take.

use planish_ir::{Graph, Op, ValueId};

/// What the names of the outputs begin with.
const PREFIX: &str = "observed/experts/";

/// A mixture of experts of a graph, by the values of its node.
#[derive(Clone, Copy, Debug)]
pub struct Mixture {
    /// What it gives.
    pub result: ValueId,
    /// What experts take: [.., features].
    pub x: ValueId,
    /// The experts of each token: `i32` or `i64`, [.., k].
    pub indices: ValueId,
    /// How many experts there are.
    pub experts: usize,
}

/// The mixtures of experts of a graph, in its order, where the number of experts is fixed.
#[must_use]
pub fn mixtures(graph: &Graph) -> Vec<Mixture> {
    let mixture = |op: &Op, result| {
        let Op::Experts(experts) = op else { return None };
        let count = graph.ty(experts.gate).shape.first()?.as_constant()?;
        Some(Mixture { result, x: experts.x, indices: experts.indices, experts: usize::try_from(count).ok()? })
    };
    graph.nodes().filter_map(|(_, node)| mixture(&node.op, *node.outputs.first()?)).collect()
}

/// Adds the indices of the experts that tokens take as outputs `observed/experts/RESULT`. A graph that has such outputs
/// stays as it is.
pub fn observe_choices(graph: &mut Graph) {
    if graph.outputs().iter().any(|output| observed_choices(&output.name).is_some()) {
        return;
    }
    for mixture in mixtures(graph) {
        let name = format!("{PREFIX}{}", graph.value(mixture.result).name);
        graph.add_output(&name, mixture.indices);
    }
}

/// The result of the mixture whose indices an output of [`observe_choices`] holds; `None` for other outputs.
#[must_use]
pub fn observed_choices(output: &str) -> Option<&str> {
    output.strip_prefix(PREFIX)
}
