//! ONNX Runtime prints nothing of its own, whatever it meets.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may panic")]

use std::path::Path;
use std::process::Command;

use planish_eval::Tensor;
use planish_runtimes::ort::OnnxRuntime;
use planish_runtimes::{Model, Runtime, SessionOptions};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/onnx");

/// Run by the test below in a process of its own: loading a file that is not a model and looking up a
/// row that is not there are errors that ONNX Runtime logs.
#[test]
#[ignore = "the other test's child"]
fn fail_to_load_and_to_run() {
    let load = |name: &str| {
        OnnxRuntime::new(None).load(Model::onnx(&Path::new(FIXTURES).join(name)), SessionOptions::default())
    };
    assert!(load("make_tiny.py").is_err());
    let ids = Tensor::new(vec![1, 1], vec![99i64]).unwrap();
    let keep = Tensor::new(vec![1, 1], vec![true]).unwrap();
    assert!(load("embed.onnx").unwrap().run(&[("input_ids", ids), ("keep", keep)]).is_err());
}

#[test]
fn nothing_is_printed() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "fail_to_load_and_to_run", "--nocapture"])
        .output()
        .unwrap();
    assert!(child.status.success());
    assert_eq!(String::from_utf8_lossy(&child.stderr), "");
    let printed = String::from_utf8_lossy(&child.stdout);
    assert!(printed.contains("1 passed") && !printed.contains("onnxruntime"), "{printed}");
}
