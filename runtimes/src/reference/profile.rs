//! The times of the nodes of the interpreter: from one result to the next.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use planish_eval::Tensor;
use planish_ir::handle::Handle;
use planish_ir::{Def, NodeId, ValueId};

use super::{NAME, ReferenceSession};
use crate::{NodeRun, Port, ProfiledSession, RunProfile, RuntimeError, Session};

/// A session whose runs are recorded.
pub(super) struct ReferenceProfile {
    session: ReferenceSession,
    runs: Vec<RunProfile>,
}

impl ReferenceProfile {
    pub(super) fn new(session: ReferenceSession) -> Self {
        Self { session, runs: Vec::new() }
    }

    /// A node that took from one time to another.
    fn node(&self, id: NodeId, start: Duration, end: Duration) -> NodeRun {
        let graph = &self.session.graph;
        let node = graph.node(id);
        let name = node.outputs.first().map(|value| graph.value(*value).name.clone()).unwrap_or_default();
        let total = end.saturating_sub(start);
        let operator = node.op.kind().to_owned();
        NodeRun { name, index: id.index(), operator, provider: NAME.to_owned(), start, total, own: total }
    }
}

impl ProfiledSession for ReferenceProfile {
    fn inputs(&self) -> &[Port] {
        Session::inputs(&self.session)
    }

    fn bind(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError> {
        self.session.bind(inputs)
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        let begin = Instant::now();
        let mut seen: Vec<(ValueId, Duration)> = Vec::new();
        self.session.run_bound_with(&mut |value| seen.push((value, begin.elapsed())))?;
        let total = begin.elapsed();
        // A node ends when its last result is there, and the next one starts.
        let (mut nodes, mut places, mut start) = (Vec::<NodeRun>::new(), HashMap::new(), Duration::ZERO);
        for (value, end) in seen {
            if let Def::Node { node, .. } = self.session.graph.value(value).def {
                let place = *places.entry(node).or_insert(nodes.len());
                match nodes.get_mut(place) {
                    Some(known) => *known = self.node(node, known.start, end),
                    None => nodes.push(self.node(node, start, end)),
                }
            }
            start = end;
        }
        self.runs.push(RunProfile { total, nodes });
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Vec<RunProfile>, RuntimeError> {
        Ok(self.runs)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use planish_ir::text;

    use crate::{Model, ReferenceRuntime, Runtime, SessionOptions};

    use super::*;

    #[test]
    fn each_node_has_its_time() {
        let graph = "graph \"g\" {\ninput %x: f32[n, 4]\n%y = relu(%x) : f32[n, 4]
            %a, %b = split(%y) {axis = 1, sizes = [2, 2]} : f32[n, 2], f32[n, 2]\noutput a = %a\noutput b = %b\n}";
        let graph = text::parse(graph, &text::no_files).unwrap();
        let runtime = ReferenceRuntime::default();
        for threads in [0, 1] {
            let options = SessionOptions { threads };
            let profiler = runtime.profiler().unwrap();
            let mut session = profiler.load_profiled(Model::Graph(&graph), options, Path::new("unused")).unwrap();
            session.bind(&[("x", Tensor::new(vec![2, 4], vec![1f32; 8]).unwrap())]).unwrap();
            session.run_bound().unwrap();
            let runs = session.finish().unwrap();
            let nodes: Vec<(&str, &str)> =
                runs[0].nodes.iter().map(|n| (n.name.as_str(), n.operator.as_str())).collect();
            assert_eq!(nodes, [("y", "relu"), ("a", "split")]);
            assert!(runs[0].nodes_total() <= runs[0].total, "{runs:?}");
        }
    }
}
