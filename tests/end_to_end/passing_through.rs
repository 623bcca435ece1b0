//! Graphs whose operators no graph here has: compiled, they compute on ONNX Runtime what the file itself computes there.

use std::path::{Path, PathBuf};

use planish_eval::Tensor;
use planish_ir::DType;
use planish_ir::{Dim, Symbol};
use planish_runtimes::ort::{OnnxRuntime, OptimizationLevel, OrtOptions};
use planish_runtimes::{Model, Port, Runtime, SessionOptions};

use crate::support::{planish, planish_compile, repository, scratch, text};

fn file(name: &str) -> PathBuf {
    repository().join("fixtures/graphs-more").join(format!("{name}.onnx"))
}

/// Two rows of seven tokens, or three of what is past, by the names that exporters give.
fn operand(port: &Port) -> Tensor {
    let symbol = |symbol: &Symbol| match symbol {
        name if name.contains("past") => 3,
        name if name.contains("seq") => 7,
        _ => 2,
    };
    let symbols = port.ty.shape.iter().flat_map(Dim::symbols);
    let shape = port.ty.shape.evaluate(&symbols.map(|s| (s.clone(), symbol(s))).collect()).unwrap();
    let count = shape.iter().product::<usize>();
    let value = |i: usize| match port.name.as_str() {
        name if name.contains("mask") => 1.0,
        name if name.contains("position") => (i % 7 + 3) as f64,
        name if name.contains("type") => (i % 2) as f64,
        _ if port.ty.dtype.is_integer() => (3 + i * 5 % 11) as f64,
        _ => (i as f64 * 0.7).sin(),
    };
    let values: Vec<f64> = (0..count).map(value).collect();
    Tensor::from_f64(port.ty.dtype, shape, &values).unwrap()
}

/// What a model gives, without what ONNX Runtime makes of it when it loads it.
fn outputs(model: &Path) -> Vec<(String, Tensor)> {
    let options = OrtOptions { optimization: OptimizationLevel::Disabled, ..OrtOptions::default() };
    let runtime = OnnxRuntime::new(None).options(options);
    let mut session = runtime.load(Model::onnx(model), SessionOptions::default()).unwrap();
    let given: Vec<(String, Tensor)> = session.inputs().iter().map(|p| (p.name.clone(), operand(p))).collect();
    let given: Vec<(&str, Tensor)> = given.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    session.run(&given).unwrap()
}

#[track_caller]
fn computes_the_same(name: &str, targets: &[&str], tolerance: f64) {
    let (folder, file) = (scratch(), file(name));
    let expected = outputs(&file);
    for target in targets {
        let out = folder.path().join(target);
        planish_compile(&file, &out, &["--target", target]).exits(0, &[]);
        for (name, found) in outputs(&out.join("model.onnx")) {
            let (_, expected) = expected.iter().find(|(n, _)| *n == name).unwrap();
            assert_eq!((found.dtype(), found.shape()), (expected.dtype(), expected.shape()), "{name}");
            let (a, b) = (found.to_f64(), expected.to_f64());
            let largest = b.iter().fold(1.0, |m: f64, v| m.max(v.abs()));
            let error = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / largest;
            assert!(error <= tolerance, "{target}: `{name}` is off by {error:e}");
        }
    }
}

#[test]
fn products_with_weights_of_four_bits() {
    computes_the_same("nb4asym-bert", &["ort", "onnx"], 1e-5);
    computes_the_same("nb4qdq-llama", &["ort", "onnx"], 1e-5);
}

#[test]
fn quantized_operators() {
    computes_the_same("qop-bert", &["ort"], 1e-6);
}

#[test]
fn what_the_transformer_optimizer_writes() {
    computes_the_same("opt16-bert", &["ort"], 2e-2);
}

#[test]
fn loops_lists_and_outputs_that_are_given_twice() {
    for name in ["hand-os_while", "hand-seqs", "hand-dup_out"] {
        computes_the_same(name, &["ort", "onnx"], 0.0);
    }
}

/// Text passes, and is shown. That it is what the source gives is tested with verification.
#[test]
fn inputs_of_text() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&file("hand-strings"), &out, &[]).succeeds();
    let graph = planish_onnx::import(&out.join("model.onnx")).unwrap().graph;
    assert_eq!(graph.ty(graph.inputs()[0]).dtype, DType::String);
    let shown = planish(["inspect", text(&out)]).succeeds().stdout;
    assert!(shown.contains("x string[n]"), "{shown}");
}
