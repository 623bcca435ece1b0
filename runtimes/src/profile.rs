//! The times of the nodes of a run.

use std::path::Path;
use std::time::Duration;

use planish_eval::Tensor;

use crate::{Model, Port, RuntimeError, SessionOptions};

/// Loads models so that the time of each node is known.
pub trait Profiler {
    /// Makes a model ready to run. Files that the runtime writes lie in `folder`, which outlives the session.
    ///
    /// # Errors
    /// As [`Runtime::load`](crate::Runtime::load).
    fn load_profiled(
        &self,
        model: Model<'_>,
        options: SessionOptions,
        folder: &Path,
    ) -> Result<Box<dyn ProfiledSession>, RuntimeError>;
}

/// A loaded model whose runs are recorded.
pub trait ProfiledSession {
    /// The inputs, in the model's order.
    fn inputs(&self) -> &[Port];

    /// As [`Session::bind`](crate::Session::bind).
    ///
    /// # Errors
    /// As there.
    fn bind(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError>;

    /// As [`Session::run_bound`](crate::Session::run_bound), recorded.
    ///
    /// # Errors
    /// As there.
    fn run_bound(&mut self) -> Result<(), RuntimeError>;

    /// The runs so far, in order. A runtime that records no more than so many nodes leaves out the last runs.
    ///
    /// # Errors
    /// When the runtime does not say what it recorded.
    fn finish(self: Box<Self>) -> Result<Vec<RunProfile>, RuntimeError>;
}

/// What one run was made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunProfile {
    /// The time of the run.
    pub total: Duration,
    /// The nodes in the order in which they started.
    pub nodes: Vec<NodeRun>,
}

/// A node in one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRun {
    /// The name of the node. What the runtime put in the place of others has a name of its own.
    pub name: String,
    /// Tells nodes of one name from each other; the same in all runs.
    pub index: usize,
    /// The operator, e.g. `MatMul`.
    pub operator: String,
    /// What ran it, e.g. `CPUExecutionProvider`.
    pub provider: String,
    /// When it started, after the start of the run.
    pub start: Duration,
    /// Its time, that of nodes inside it included.
    pub total: Duration,
    /// Its time without the nodes inside it, such as those of the branch of an `If`.
    pub own: Duration,
}

impl RunProfile {
    /// The time of all nodes.
    #[must_use]
    pub fn nodes_total(&self) -> Duration {
        self.nodes.iter().map(|node| node.own).sum()
    }

    /// The nodes with times of their own, where `nodes` have their whole times: a node that starts before another one
    /// has ended is inside it.
    pub(crate) fn nested(total: Duration, mut nodes: Vec<NodeRun>) -> Self {
        nodes.sort_by(|a, b| a.start.cmp(&b.start).then(b.total.cmp(&a.total)));
        // The nodes that have not ended, innermost last, by their places and ends.
        let mut open: Vec<(usize, Duration)> = Vec::new();
        let mut inside = vec![Duration::ZERO; nodes.len()];
        for (at, node) in nodes.iter().enumerate() {
            while open.pop_if(|(_, end)| *end <= node.start).is_some() {}
            if let Some((outer, _)) = open.last() {
                inside[*outer] += node.total;
            }
            open.push((at, node.start + node.total));
        }
        for (node, inside) in nodes.iter_mut().zip(inside) {
            node.own = node.total.saturating_sub(inside);
        }
        Self { total, nodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_inside_others_are_not_counted_twice() {
        let micros = Duration::from_micros;
        let node = |name: &str, start, total| NodeRun {
            name: name.to_owned(),
            index: 0,
            operator: String::new(),
            provider: String::new(),
            start: micros(start),
            total: micros(total),
            own: Duration::ZERO,
        };
        // An `If` of 10 with two nodes inside, the second of which has one inside; and nodes before and after it.
        let nodes = vec![
            node("inner", 6, 2),
            node("before", 0, 3),
            node("first", 4, 1),
            node("second", 5, 4),
            node("if", 3, 10),
            node("after", 13, 5),
        ];
        let run = RunProfile::nested(micros(20), nodes);
        let times: Vec<(&str, u128)> = run.nodes.iter().map(|n| (n.name.as_str(), n.own.as_micros())).collect();
        assert_eq!(times, [("before", 3), ("if", 5), ("first", 1), ("second", 2), ("inner", 2), ("after", 5)]);
        assert_eq!(run.nodes_total(), micros(18));
    }
}
