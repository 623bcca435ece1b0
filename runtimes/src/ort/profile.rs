//! Profiles that ONNX Runtime writes: a list of events in the format of Chrome's traces, with times in microseconds.

use std::io;
use std::time::Duration;

use planish_eval::Tensor;
use planish_files::Kind;
use serde::Deserialize;

use super::session::OrtSession;
use crate::{NodeRun, Port, ProfiledSession, RunProfile, RuntimeError, Session};

/// What ONNX Runtime puts after the name of a node for the event that is its whole run.
const RUN: &str = "_kernel_time";

/// A session whose runs ONNX Runtime records.
pub(super) struct OrtProfile(OrtSession);

impl OrtProfile {
    pub(super) fn new(session: OrtSession) -> Self {
        Self(session)
    }
}

impl ProfiledSession for OrtProfile {
    fn inputs(&self) -> &[Port] {
        self.0.inputs()
    }

    fn bind(&mut self, inputs: &[(&str, Tensor)]) -> Result<(), RuntimeError> {
        self.0.bind(inputs)
    }

    fn run_bound(&mut self) -> Result<(), RuntimeError> {
        self.0.run_bound()
    }

    fn finish(mut self: Box<Self>) -> Result<Vec<RunProfile>, RuntimeError> {
        let file = self.0.end_profiling()?;
        let failed = |reason: String| self.0.failed("profile", format!("{}: {reason}", file.display()));
        let bytes = planish_files::read(&file, &Kind::PROFILE).map_err(|e| failed(io::Error::from(e).to_string()))?;
        let events: Vec<Event> = serde_json::from_slice(&bytes).map_err(|e| failed(e.to_string()))?;
        Ok(runs(events))
    }
}

/// An event of a profile.
#[derive(Deserialize)]
struct Event {
    cat: String,
    name: String,
    ts: u64,
    dur: u64,
    #[serde(default)]
    args: Arguments,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Arguments {
    op_name: String,
    provider: String,
    node_index: String,
}

/// The runs that events tell of, with the nodes of each.
fn runs(events: Vec<Event>) -> Vec<RunProfile> {
    let (mut nodes, others): (Vec<Event>, Vec<Event>) = events.into_iter().partition(|event| event.cat == "Node");
    nodes.retain(|event| event.name.ends_with(RUN));
    nodes.sort_by_key(|event| event.ts);
    let mut runs: Vec<Event> = others.into_iter().filter(|event| event.name == "model_run").collect();
    runs.sort_by_key(|event| event.ts);
    let one = |run: &Event| {
        let from = nodes.partition_point(|node| node.ts < run.ts);
        let end = run.ts.saturating_add(run.dur);
        let inside = nodes.iter().skip(from).take_while(|node| node.ts <= end);
        let nodes = inside.map(|node| node_run(node, run.ts)).collect();
        RunProfile::nested(Duration::from_micros(run.dur), nodes)
    };
    runs.iter().map(one).collect()
}

fn node_run(event: &Event, start: u64) -> NodeRun {
    NodeRun {
        name: event.name.strip_suffix(RUN).unwrap_or(&event.name).to_owned(),
        index: event.args.node_index.parse().unwrap_or(0),
        operator: event.args.op_name.clone(),
        provider: event.args.provider.clone(),
        start: Duration::from_micros(event.ts.saturating_sub(start)),
        total: Duration::from_micros(event.dur),
        own: Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::ort::OnnxRuntime;
    use crate::{Model, Runtime, SessionOptions};

    use super::*;

    #[test]
    fn runs_are_recorded_with_their_nodes_and_providers() {
        let folder = tempfile::tempdir().unwrap();
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/onnx/residual.onnx"));
        let runtime = OnnxRuntime::new(None);
        let profiler = runtime.profiler().unwrap();
        let options = SessionOptions { threads: 1 };
        let mut session = profiler.load_profiled(Model::onnx(file), options, folder.path()).unwrap();
        let tensor = |port: &Port| {
            let shape: Vec<usize> = port.ty.shape.iter().map(|d| d.as_constant().map_or(2, |d| d as usize)).collect();
            Tensor::zeros(port.ty.dtype, shape).unwrap()
        };
        let inputs: Vec<(String, Tensor)> =
            session.inputs().iter().map(|port| (port.name.clone(), tensor(port))).collect();
        let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
        session.bind(&inputs).unwrap();
        for _ in 0..3 {
            session.run_bound().unwrap();
        }
        let runs = session.finish().unwrap();
        assert_eq!(runs.len(), 3);
        for run in &runs {
            assert!(!run.nodes.is_empty() && run.nodes_total() <= run.total, "{run:?}");
            assert!(run.nodes.iter().all(|node| node.provider == "CPUExecutionProvider"), "{run:?}");
            let names = |run: &RunProfile| run.nodes.iter().map(|n| (n.name.clone(), n.index)).collect::<Vec<_>>();
            assert_eq!(names(run), names(&runs[0]));
        }
    }

    #[test]
    fn events_of_one_file_become_runs() {
        let text = r#"[
            {"cat": "Session", "name": "session_initialization", "ts": 0, "dur": 90, "args": {}},
            {"cat": "Node", "name": "a_kernel_time", "ts": 101, "dur": 4, "args": {"op_name": "Add", "node_index": "7"}},
            {"cat": "Session", "name": "model_run", "ts": 100, "dur": 10},
            {"cat": "Node", "name": "a_kernel_time", "ts": 201, "dur": 6, "args": {"op_name": "Add", "node_index": "7"}},
            {"cat": "Node", "name": "a_fence_after", "ts": 207, "dur": 1},
            {"cat": "Session", "name": "model_run", "ts": 200, "dur": 8}
        ]"#;
        let runs = runs(serde_json::from_str(text).unwrap());
        let times: Vec<u128> = runs.iter().map(|run| run.nodes_total().as_micros()).collect();
        assert_eq!(times, [4, 6]);
        let node = &runs[1].nodes[0];
        assert_eq!((node.name.as_str(), node.index, node.start.as_micros()), ("a", 7, 1));
        assert_eq!((node.operator.as_str(), runs[1].nodes.len()), ("Add", 1));
    }
}
