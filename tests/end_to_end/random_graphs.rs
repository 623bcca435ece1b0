//! Random graphs through passes, export and ONNX Runtime, against the reference interpreter.

use planish_testing::scratch;
use std::sync::atomic::{AtomicUsize, Ordering};

use planish_ir::{Graph, Op, text};
use planish_onnx::{DEFAULT_OPSET, ExportError, ExportOptions, OPSETS, Placement, export};
use planish_passes::{ORT, Options, PassError, Pipeline, TARGETS};
use planish_runtimes::{Model, Runtime};
use planish_testing::evaluation::{difference, inputs, outputs, tolerance};
use planish_testing::random_graph;
use proptest::prelude::*;

use crate::support::{ONE_THREAD, onnx_runtime};

/// Compiles a graph and runs it on ONNX Runtime: `None` where the target has no kernel for an
/// element type that the graph has.
fn compare(graph: &Graph, options: &Options, seed: u64) -> Result<Option<()>, String> {
    // ONNX Runtime's operator gives zeros for a query that sees no key, the interpreter their mean.
    let masked = |op: &Op| matches!(op, Op::Attention(p) if p.mask.is_some() && p.past_key.is_some());
    if options.target == &ORT && options.opset >= 23 && graph.nodes().any(|(_, node)| masked(&node.op)) {
        return Ok(None);
    }
    let mut legal = graph.clone();
    match Pipeline::new(options.clone()).run(&mut legal, &mut |_, _| {}) {
        Err(PassError::Unsupported { .. }) => return Ok(None),
        other => other.map_err(|e| e.to_string())?,
    };
    let folder = scratch();
    let placement = Placement::Copy;
    let export_options = ExportOptions {
        opset: options.opset,
        placement,
        external_above: u64::MAX,
        data_suffix: "_data",
        metadata: &[],
        progress: &|_| {},
    };
    match export(&legal, "model", folder.path(), &export_options) {
        Err(ExportError::NoForm { operators, .. }) if operators.iter().all(|o| o.op == "iota") => return Ok(None),
        other => other.map_err(|e| e.to_string())?,
    };
    let model = folder.path().join("model.onnx");
    let mut session = onnx_runtime().load(Model::onnx(&model), ONE_THREAD).map_err(|e| e.to_string())?;
    let inputs = inputs(graph, seed);
    let expected = outputs(graph, &inputs)?;
    // What nothing depends on stays an input of the graph, so all are given.
    let given: Vec<_> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let actual = session.run(&given).map_err(|e| e.to_string())?;
    // ONNX Runtime sums in float32: what cancels is as far off as what entered, which is about 1.
    match difference(tolerance(graph), 1.0, &expected, &actual) {
        Some(difference) => Err(difference),
        None => Ok(Some(())),
    }
}

#[test]
fn onnx_runtime_gives_what_the_interpreter_gives() {
    let compared = AtomicUsize::new(0);
    let config = ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(choices in random_graph::choices(), seed: u64)| {
        let graph = random_graph::build(&choices);
        for &target in TARGETS {
            let opset = [*OPSETS.start(), DEFAULT_OPSET, *OPSETS.end()][(seed % 3) as usize];
            let options = Options { fusion: seed % 5 != 0, ..Options::new(target, opset) };
            match compare(&graph, &options, seed) {
                Ok(done) => compared.fetch_add(usize::from(done.is_some()), Ordering::Relaxed),
                Err(message) => return Err(TestCaseError::fail(format!("{options:?}: {message}\n{graph}"))),
            };
        }
    });
    assert!(compared.into_inner() >= 30, "graphs that ONNX Runtime has kernels for are compared");
}

/// A reshape in whatever form it is written gives what it says, also of no elements.
#[test]
fn reshapes_of_every_form() {
    let forms = [
        ("b, s, 6", "b*s, 6"),
        ("b, s, 6", "b, s, 2, 3"),
        ("b, s", "b, 1, 1, s"),
        ("b, 1, s, 1", "b, s"),
        ("b*s, 6", "s, b, 2, 3"),
        ("b, s", "s, b"),
        ("b, 0, 3", "b, 3, 0"),
        ("0, 3", "3, 0"),
        ("b, s, 4", "b, s*4"),
        ("b, s", "b*s, 1"),
    ];
    for (from, to) in forms {
        let statements = format!(
            "graph \"reshape\" {{\ninput %b: f32[b]\ninput %s: f32[s]\ninput %x: f32[{from}]\n\
             %y = reshape(%x) {{shape = [{to}]}} : f32[{to}]\n\
             %z = neg(%y) : f32[{to}]\noutput y = %z\n}}"
        );
        let graph = text::parse(&statements, &text::no_files).unwrap();
        for (b, s) in [(2, 3), (1, 1), (0, 3), (2, 0), (0, 0)] {
            run_reshape(&graph, b, s).unwrap_or_else(|e| panic!("{from} to {to}, b = {b}, s = {s}: {e}"));
        }
    }
}

fn run_reshape(graph: &Graph, b: usize, s: usize) -> Result<(), String> {
    use planish_eval::{Tensor, evaluate};
    let folder = scratch();
    let options = ExportOptions {
        opset: DEFAULT_OPSET,
        placement: Placement::Copy,
        external_above: u64::MAX,
        data_suffix: "_data",
        metadata: &[],
        progress: &|_| {},
    };
    export(graph, "model", folder.path(), &options).map_err(|e| e.to_string())?;
    let bindings =
        [("b", b), ("s", s)].map(|(name, size)| (planish_ir::Symbol::new(name), i64::try_from(size).unwrap())).into();
    let given: Vec<(&str, Tensor)> = graph
        .inputs()
        .iter()
        .map(|v| {
            let shape = graph.ty(*v).shape.evaluate(&bindings).unwrap();
            let numbers: Vec<f32> = (0..shape.iter().product::<usize>()).map(|i| i as f32).collect();
            (graph.value(*v).name.as_str(), Tensor::new(shape, numbers).unwrap())
        })
        .collect();
    let model = folder.path().join("model.onnx");
    let mut session = onnx_runtime().load(Model::onnx(&model), ONE_THREAD).map_err(|e| e.to_string())?;
    let actual = session.run(&given).map_err(|e| e.to_string())?;
    let expected = evaluate(graph, &given).map_err(|e| e.to_string())?;
    if actual == expected { Ok(()) } else { Err(format!("{actual:?}, expected {expected:?}")) }
}
