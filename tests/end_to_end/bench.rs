//! `planish bench`: what is measured, and in which order it is listed.

use std::fs;

use serde_json::Value;

use crate::support::{golden, names, planish, planish_compile, scratch};

#[test]
fn artifacts_of_a_model_are_measured_together() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (name, model) in [("a", "bert"), ("b", "bert-classify"), ("a2", "bert")] {
        planish_compile(&golden(model), folder.path().join(name).as_path(), &[]).succeeds();
    }
    // The references stand beside the artifacts, under their names.
    for model in ["bert", "bert-classify"] {
        fs::create_dir(folder.path().join(model)).unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(golden(model).join(file), folder.path().join(model).join(file)).unwrap();
        }
    }
    let json = path("figures.json");
    let quick = ["--time", "0", "--iterations", "3", "--threads", "1", "--seq", "4,8", "--json", &json];
    let done = planish([&["bench", &path("a"), &path("b"), &path("a2")], &quick[..]].concat()).succeeds();
    assert_eq!(done.stdout.lines().filter(|line| line.starts_with("| ")).count(), 7, "{}", done.stdout);
    let document: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let cells = document["cells"].as_array().unwrap();
    let order: Vec<&str> = cells.iter().map(|cell| cell["model"]["id"].as_str().unwrap()).collect();
    assert_eq!(order, ["a", "a2", "a", "a2", "b", "b"]);
    assert!(cells.iter().all(|cell| cell["latency_ms"]["p50"].is_f64()), "{document}");
    assert_eq!(names(folder.path()), ["a", "a2", "b", "bert", "bert-classify", "figures.json"]);
}
