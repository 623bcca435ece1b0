//! Graphs whose sizes, rounds and branches only a run knows (`fixtures/onnx/run_time`): the reference interpreter
//! computes what ONNX Runtime does, and keeps to its limit of memory.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may panic")]

use std::path::PathBuf;

use planish_eval::{Limits, Tensor};
use planish_ir::{DType, Weight, text};
use planish_runtimes::ort::{OnnxRuntime, OptimizationLevel, OrtOptions};
use planish_runtimes::{Model, ReferenceRuntime, Runtime, SessionOptions};

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/onnx/run_time")).join(name)
}

/// Numbers from -2 to 2.
fn x(rows: usize, seed: u64) -> Tensor {
    let numbers = Tensor::from_weight(&Weight::uniform(DType::F32, vec![rows, 4], seed).unwrap()).unwrap();
    let twice: Vec<f64> = numbers.to_f64().iter().map(|v| v * 2.0).collect();
    Tensor::from_f64(DType::F32, vec![rows, 4], &twice).unwrap()
}

#[track_caller]
fn assert_same(name: &str, found: &[(String, Tensor)], expected: &[(String, Tensor)]) {
    assert_eq!(found.len(), expected.len());
    for ((output, found), (_, expected)) in found.iter().zip(expected) {
        assert_eq!((found.dtype(), found.shape()), (expected.dtype(), expected.shape()), "{name}: {output}");
        for (a, b) in found.to_f64().into_iter().zip(expected.to_f64()) {
            assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{name}: {output}: {a} is not {b}");
        }
    }
}

#[test]
fn what_only_a_run_knows_is_computed() {
    let options = OrtOptions { optimization: OptimizationLevel::Disabled, ..OrtOptions::default() };
    let (threads, ort) = (SessionOptions { threads: 1 }, OnnxRuntime::new(None).options(options));
    for name in ["open_sizes", "non_zero", "counts", "loop_grows", "loop_while", "scan", "kept"] {
        let path = file(&format!("{name}.onnx"));
        let mut reference = ReferenceRuntime::default().load(Model::onnx(&path), threads).unwrap();
        let mut runtime = ort.load(Model::onnx(&path), threads).unwrap();
        // The same session, at other sizes.
        for (rows, seed) in [(5, 1), (2, 2), (7, 3), (5, 4)] {
            let x = x(rows, seed);
            let expected = runtime.run(&[("x", x.clone())]).unwrap();
            assert_same(name, &reference.run(&[("x", x)]).unwrap(), &expected);
        }
    }
}

#[test]
fn a_run_keeps_to_its_memory() {
    let path = file("counts.onnx");
    let run = |memory| {
        let reference = ReferenceRuntime { limits: Limits { memory, ..Limits::default() } };
        let outputs = reference.load(Model::onnx(&path), SessionOptions::default()).unwrap().run(&[("x", x(5, 1))]);
        outputs.map(|_| ()).map_err(|e| e.to_string())
    };
    run(Some(1 << 20)).unwrap();
    let error = run(Some(300)).unwrap_err();
    assert!(error.contains("reference could not run the graph `counts`: at `"), "{error}");
    assert!(error.contains(" bytes; the run uses ") && error.ends_with(" and may use 300"), "{error}");
}

/// Sizes that no memory holds are errors, of weights and of results, whatever the operator.
#[test]
fn sizes_that_no_memory_holds() {
    let run = |statements: &str, memory| {
        let graph = format!("graph \"large\" {{\ninput %x: f32[1, 4]\n{statements}\noutput y = %y\n}}");
        let graph = text::parse(&graph, &text::no_files).unwrap();
        let reference = ReferenceRuntime { limits: Limits { memory, ..Limits::default() } };
        let mut session = reference.load(Model::Graph(&graph), SessionOptions::default()).unwrap();
        session.run(&[("x", x(1, 1))])
    };
    let large = 1u64 << 58;
    let foreign = |inputs: &str, op: &str| {
        format!(
            "weight @n = dense([{large}, 4]) : i64[2]\n%y = foreign([{inputs}], []) \
             {{domain = \"ai.onnx\", op = \"{op}\", version = 18, captures = [], results = [f32[a, b]]}} : f32[a, b]"
        )
    };
    for statements in [
        format!("%y = expand(%x) {{shape = [{large}, 4]}} : f32[{large}, 4]"),
        format!("%y = iota() {{dtype = i64, length = {large}}} : i64[{large}]"),
        format!("weight @w = uniform(1) : f32[{large}, 4]\n%y = linear(%x, @w) : f32[1, {large}]"),
        foreign("%x, @n", "Expand"),
        foreign("%x, @n", "Tile"),
        foreign("@n", "ConstantOfShape"),
    ] {
        let error = run(&statements, None).unwrap_err().to_string();
        assert!(error.contains("does not fit in memory: it takes "), "{error}");
    }
    let weight = "weight @w = uniform(1) : f32[1000, 4]\n%y = linear(%x, @w) : f32[1, 1000]";
    let error = run(weight, Some(1 << 10)).unwrap_err().to_string();
    assert!(error.contains("weight `w` (unknown origin): f32[1000, 4] takes 16000 bytes; the run uses 0"), "{error}");
    run(weight, Some(1 << 15)).unwrap();
}
