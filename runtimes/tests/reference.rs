//! The reference interpreter after the runtimes' interface.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may panic")]

use std::path::Path;

use planish_eval::Tensor;
use planish_ir::text;
use planish_runtimes::{Libraries, Model, ReferenceRuntime, Runtime, Session, SessionOptions, runtimes};

fn session(threads: usize) -> Box<dyn Session> {
    let graph = r#"graph "rectify" {
      input %x: f32[batch_size, 2]
      %y = relu(%x) : f32[batch_size, 2]
      output rectified = %y
    }"#;
    let graph = text::parse(graph, &text::no_files).unwrap();
    let options = SessionOptions { threads };
    ReferenceRuntime::default().load(Model::Graph(&graph), options).unwrap()
}

fn tensor(elements: [f32; 4]) -> Tensor {
    Tensor::new(vec![2, 2], elements.to_vec()).unwrap()
}

#[test]
fn a_graph_runs_under_its_outside_names() {
    for threads in [0, 1, 2] {
        let mut session = session(threads);
        assert_eq!(session.inputs()[0].to_string(), "x: f32[batch_size, 2]");
        assert_eq!(session.outputs()[0].to_string(), "rectified: f32[batch_size, 2]");
        let outputs = session.run(&[("x", tensor([-1.0, 2.0, 0.5, -0.5]))]).unwrap();
        assert_eq!(outputs, [("rectified".to_owned(), tensor([0.0, 2.0, 0.5, 0.0]))]);
    }
}

#[test]
fn bound_inputs_stay_bound() {
    let mut session = session(0);
    let error = session.run_bound().unwrap_err().to_string();
    assert_eq!(error, "reference could not run the graph `rectify`: no inputs are bound");
    session.bind(&[("x", tensor([1.0; 4]))]).unwrap();
    session.run_bound().unwrap();
    session.run_bound().unwrap();
    assert!(session.bind(&[("y", tensor([1.0; 4]))]).is_err());
    session.run_bound().unwrap();
}

#[test]
fn onnx_files_are_interpreted() {
    let load = |path: &str| ReferenceRuntime::default().load(Model::onnx(Path::new(path)), SessionOptions::default());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/graphs/torch-gpt2/model.onnx");
    let session = load(file).unwrap();
    assert_eq!(session.inputs()[0].name, "input_ids");
    let error = load("m.onnx").err().unwrap().to_string();
    assert_eq!(error, "reference could not load m.onnx: cannot read m.onnx: No such file or directory (os error 2)");
}

#[test]
fn every_runtime_has_a_name_of_its_own() {
    let names: Vec<&str> = runtimes(Libraries::default()).iter().map(|runtime| runtime.name()).collect();
    assert_eq!(names, ["reference", "ort", "ort-cuda", "openvino", "trt", "cuda", "cuda-baseline", "cuda-emulator"]);
    assert_eq!(ReferenceRuntime::default().check().unwrap().location, "built in");
}
