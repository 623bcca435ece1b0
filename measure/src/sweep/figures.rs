//! The figures in what the commands of a job print as JSON.

use serde_json::{Map, Value};

use super::JobKind;

/// Figures by their names, first those that do not depend on time.
pub(super) type Figures = [Map<String, Value>; 2];

/// The figures of what the last command of a job printed; none where it printed no JSON.
pub(super) fn figures(kind: JobKind, printed: &[u8]) -> Figures {
    let Ok(printed) = serde_json::from_slice::<Value>(printed) else { return Figures::default() };
    match kind {
        JobKind::Compile => [compiled(&printed["manifest"]), Map::new()],
        JobKind::Evaluate => {
            let mut figures = Map::new();
            flatten("", &printed, &mut figures);
            [figures, Map::new()]
        }
        JobKind::Bench => measured(&printed["cells"]),
    }
}

/// Of a manifest: sizes, and the worst of all outputs of the verification.
fn compiled(manifest: &Value) -> Map<String, Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut figures = Map::new();
    if let Some(parameters) = manifest["parameters"].as_u64() {
        figures.insert("parameters".to_owned(), parameters.into());
    }
    let bytes: u64 = list(&manifest["files"]).iter().filter_map(|file| file["bytes"].as_u64()).sum();
    figures.insert("bytes".to_owned(), bytes.into());
    let cases = list(&manifest["verification"]["cases"]);
    let outputs: Vec<Value> = cases.iter().flat_map(|case| list(&case["outputs"])).collect();
    let all = |name: &str| outputs.iter().filter_map(|of| of["figures"][name].as_f64()).collect::<Vec<f64>>();
    for (name, worse) in [("max_rel", f64::max as fn(f64, f64) -> f64), ("cosine", f64::min), ("top1", f64::min)] {
        if let Some(figure) = all(name).into_iter().reduce(worse) {
            figures.insert(format!("verification.{name}"), figure.into());
        }
    }
    figures
}

/// Of the cells of a benchmark. Where there are several, such as the prompt and the step of a decoder, names begin with the part.
fn measured(cells: &Value) -> Figures {
    const TIMED: [&str; 5] = ["latency_ms", "throughput", "load", "memory", "warmup"];
    let mut all = Figures::default();
    for cell in cells.as_array().into_iter().flatten() {
        let part = cell["shape"]["part"].as_str().map(|part| format!("{part}.")).unwrap_or_default();
        flatten(&format!("{part}accuracy."), &cell["accuracy"], &mut all[0]);
        if let Some(bytes) = cell["model"]["file_bytes"].as_u64() {
            all[0].insert("bytes".to_owned(), bytes.into());
        }
        for name in TIMED {
            flatten(&format!("{part}{name}."), &cell[name], &mut all[1]);
        }
    }
    all
}

/// The numbers in a value by their paths, with dots between names and places. Parts of a list of objects with the member `part`,
/// `output` or `metric` have these as names.
fn flatten(prefix: &str, value: &Value, into: &mut Map<String, Value>) {
    match value {
        Value::Number(_) => _ = into.insert(prefix.trim_end_matches('.').to_owned(), value.clone()),
        Value::Object(members) => {
            members.iter().for_each(|(name, value)| flatten(&format!("{prefix}{name}."), value, into));
        }
        Value::Array(values) => values.iter().enumerate().for_each(|(at, value)| {
            let named: Vec<&str> = ["part", "output", "metric"].iter().filter_map(|key| value[*key].as_str()).collect();
            let name = if named.is_empty() { at.to_string() } else { named.join(".") };
            flatten(&format!("{prefix}{name}."), value, into);
        }),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_worst_output_of_a_verification_counts() {
        let output =
            |max_rel: f64, cosine: f64| json!({"figures": {"max_rel": max_rel, "cosine": cosine, "top1": 1.0}});
        let printed = json!({"manifest": {
            "parameters": 5, "files": [{"bytes": 3}, {"bytes": 4}],
            "verification": {"cases": [{"outputs": [output(0.1, 0.9), {"figures": null}]}, {"outputs": [output(0.2, 1.0)]}]},
        }});
        let [figures, times] = figures(JobKind::Compile, printed.to_string().as_bytes());
        let expected = json!({"parameters": 5, "bytes": 7, "verification.max_rel": 0.2, "verification.cosine": 0.9,
            "verification.top1": 1.0});
        assert_eq!((Value::Object(figures), times.len()), (expected, 0));
    }

    #[test]
    fn times_of_a_benchmark_are_apart() {
        let printed = json!({"cells": [
            {"model": {"file_bytes": 9}, "shape": {"part": "prompt"}, "accuracy": {"cos": 1.0}, "latency_ms": {"p50": 2.5}},
            {"model": {"file_bytes": 9}, "shape": {"part": "step"}, "load": {"ms": 3.0}, "status": "failed"},
        ]});
        let [exact, timed] = figures(JobKind::Bench, printed.to_string().as_bytes());
        assert_eq!(Value::Object(exact), json!({"prompt.accuracy.cos": 1.0, "bytes": 9}));
        assert_eq!(Value::Object(timed), json!({"prompt.latency_ms.p50": 2.5, "step.load.ms": 3.0}));
        assert_eq!(figures(JobKind::Bench, b"not JSON"), Figures::default());
    }

    #[test]
    fn numbers_of_an_evaluation_have_paths() {
        let printed = json!({"data": {"name": "x", "bytes": 4}, "embeddings": {"mean_cosine": 0.5, "mean_cosine_ci95": [0.4, 0.6]},
            "outputs": [{"part": "model", "output": "y", "cosine": 1}]});
        let [exact, _] = figures(JobKind::Evaluate, printed.to_string().as_bytes());
        let names: Vec<&str> = exact.keys().map(String::as_str).collect();
        let expected = [
            "data.bytes",
            "embeddings.mean_cosine",
            "embeddings.mean_cosine_ci95.0",
            "embeddings.mean_cosine_ci95.1",
            "outputs.model.y.cosine",
        ];
        assert_eq!(names, expected);
    }
}
