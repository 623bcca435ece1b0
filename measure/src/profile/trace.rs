//! A trace in the format of Chrome (Trace Event Format), which chrome://tracing and ui.perfetto.dev show.

use std::collections::HashMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};

use super::{PartProfile, Profile};

#[derive(Serialize)]
struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Value>,
    #[serde(rename = "displayTimeUnit")]
    unit: &'static str,
}

/// The document: for each part the recorded run of the median time, with a track of the modules and one of the nodes.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn trace(profile: &Profile) -> Result<String, serde_json::Error> {
    let mut events = Vec::new();
    for (process, part) in profile.parts.iter().enumerate() {
        let named = |name: &str, thread: Option<u32>, label: &str| json!({"ph": "M", "name": name, "pid": process, "tid": thread.unwrap_or(0), "args": {"name": label}});
        events.push(named("process_name", None, &part.name));
        events.push(named("thread_name", Some(LAYERS), "modules"));
        events.push(named("thread_name", Some(NODES), "nodes"));
        of_part(part, process, &mut events);
    }
    serde_json::to_string(&Trace { events, unit: "ms" })
}

/// The tracks.
const LAYERS: u32 = 1;
const NODES: u32 = 2;

fn of_part(part: &PartProfile, process: usize, events: &mut Vec<Value>) {
    let modules: HashMap<&str, &str> = part.nodes.iter().map(|n| (n.name.as_str(), n.module.as_str())).collect();
    // Nodes of one module that run one after another are one span.
    let mut spans: Vec<(&str, Duration, Duration)> = Vec::new();
    for node in &part.run.nodes {
        let module = modules.get(node.name.as_str()).copied().unwrap_or_default();
        let (start, end) = (node.start, node.start + node.total);
        match spans.last_mut() {
            Some((last, _, until)) if *last == module => *until = end.max(*until),
            // What runs inside a node of another module is in its span.
            Some((_, _, until)) if start < *until => {}
            _ => spans.push((module, start, end)),
        }
        events.push(json!({
            "ph": "X", "name": node.name, "cat": node.operator, "pid": process, "tid": NODES,
            "ts": micros(node.start), "dur": micros(node.total),
            "args": {"operator": node.operator, "provider": node.provider, "module": module},
        }));
    }
    for (module, start, end) in spans {
        let name = if module.is_empty() { planish_compiler::source::modules::OUTSIDE } else { module };
        events.push(json!({
            "ph": "X", "name": name, "cat": "module", "pid": process, "tid": LAYERS,
            "ts": micros(start), "dur": micros(end.saturating_sub(start)),
        }));
    }
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}
