//! What artifacts of ONNX graphs are compared with, and on which inputs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use planish_onnx::proto::{DataType, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto};
use prost::Message;
use serde_json::Value;

use crate::support::{Done, Draft, command, planish, planish_compile, repository, scratch, text};
use planish_testing::onnx::{
    f32, floats, graph, graph_attribute, int, integers, model, node, text as attribute_text, typed,
};

fn write(path: PathBuf, graph: GraphProto) -> PathBuf {
    let domain = OperatorSetIdProto { domain: "com.microsoft".to_owned(), version: 1 };
    let mut model: ModelProto = model(20, graph);
    model.opset_import.push(domain);
    fs::write(&path, model.encode_to_vec()).unwrap();
    path
}

/// An artifact's report of its verification.
fn verification(artifact: &Path) -> Value {
    let manifest: Value = serde_json::from_slice(&fs::read(artifact.join("planish.json")).unwrap()).unwrap();
    manifest["verification"].clone()
}

fn labels(report: &Value) -> Vec<&str> {
    report["cases"].as_array().unwrap().iter().map(|case| case["label"].as_str().unwrap()).collect()
}

/// `y`, how far the rows of `h = relu(x)` are from those of `b`: an operator of ONNX Runtime that the reference
/// interpreter does not know.
fn unknown(folder: &Path) -> PathBuf {
    let distance = node("y = CDist(h, b)", vec![attribute_text("metric", "euclidean")]);
    let distance = NodeProto { domain: "com.microsoft".to_owned(), ..distance };
    let nodes = vec![node("h = Relu(x)", vec![]), distance, node("z = Neg(y)", vec![])];
    let constants = vec![floats("b", &[3, 2], &[0.5, -0.5, 1.0, 2.0, 0.0, 1.0])];
    let mut graph = graph(vec![f32("x", "batch, 2")], constants, nodes, &[]);
    graph.output = vec![f32("z", "batch, 3")];
    graph.value_info = vec![f32("y", "batch, 3")];
    write(folder.join("unknown.onnx"), graph)
}

#[test]
fn what_the_interpreter_lacks_is_held_against_the_source_on_onnx_runtime() {
    let folder = scratch();
    let (path, out) = (unknown(folder.path()), folder.path().join("out"));
    let done = planish_compile(&path, &out, &["--verify"]).succeeds();
    let said = "2 cases against the source on ONNX Runtime without optimization, worst";
    assert!(done.stdout.contains(said), "{}", done.stdout);
    assert_eq!(verification(&out)["reference"], "source-on-onnx-runtime");
    let done = planish(["verify", text(&out)]).succeeds();
    assert!(done.stdout.contains("held against the source on ONNX Runtime without optimization; float32"));
    // Without that runtime nothing says what is right.
    planish(["verify", text(&out), "--runtime-option", "ort-lib=/nonexistent"]).exits(4, &["/nonexistent"]);
    // A part of it is compared with the same part.
    planish_compile(&path, &out, &["--verify", "--inputs", "h", "--outputs", "y"]).succeeds();
    assert_eq!(verification(&out)["reference"], "imported-on-onnx-runtime");
    planish(["verify", text(&out)]).succeeds();
    // What the interpreter can run it does.
    planish_compile(&path, &out, &["--verify", "--outputs", "h"]).succeeds();
    assert_eq!(verification(&out)["reference"], "interpreter");
}

/// ONNX Runtime ends the process on an Einsum whose equation names more dimensions than an operand has, which
/// only a run knows here. What the interpreter finds wrong is not run on ONNX Runtime.
#[test]
fn a_wrong_graph_is_not_run_on_onnx_runtime() {
    let folder = scratch();
    let sum = node("y = Einsum(h, b)", vec![attribute_text("equation", "abc,cd->abd")]);
    let constants = vec![floats("b", &[2, 2], &[0.5, -0.5, 1.0, 2.0])];
    let graph = graph(vec![f32("x", "batch, 2")], constants, vec![node("h = Squeeze(x)", vec![]), sum], &["y"]);
    let path = write(folder.path().join("wrong.onnx"), graph);
    planish_compile(&path, &folder.path().join("out"), &["--verify"]).exits(1, &["at `y`", "abc"]);
}

/// Int8 in and out, and between a product with a float weight, which ONNX Runtime quantizes in a Gemm.
fn dequantized(folder: &Path, product: Vec<NodeProto>) -> PathBuf {
    let zero = TensorProto {
        name: "z".to_owned(),
        data_type: DataType::Int8.into(),
        raw_data: vec![0u8].into(),
        ..TensorProto::default()
    };
    let weight: Vec<f32> = (0u8..20).map(|i| (f32::from(i) * 1.7).sin()).collect();
    let constants = vec![
        floats("s", &[], &[0.05]),
        zero,
        floats("w", &[4, 5], &weight),
        floats("b", &[5], &[0.1, -0.7, 0.3, 0.9, 0.5]),
    ];
    let begin = vec![node("f = DequantizeLinear(x, s, z)", vec![])];
    let end = vec![node("y = QuantizeLinear(g, s, z)", vec![])];
    let nodes = [begin, product, end].concat();
    let mut graph = graph(vec![typed("x", DataType::Int8, "batch, 4")], constants, nodes, &[]);
    graph.output = vec![typed("y", DataType::Int8, "batch, 5")];
    write(folder.join("dequantized.onnx"), graph)
}

#[test]
fn float_weights_between_quantized_tensors_stay_float() {
    let folder = scratch();
    for product in [
        vec![node("g = MatMul(f, w)", vec![])],
        vec![node("m = MatMul(f, w)", vec![]), node("g = Add(m, b)", vec![])],
        vec![node("g = Gemm(f, w, b)", vec![])],
    ] {
        let path = dequantized(folder.path(), product);
        for target in ["ort", "onnx"] {
            let out = folder.path().join(target);
            planish_compile(&path, &out, &["--verify", "--target", target, "--force"]).succeeds();
            let report = verification(&out);
            assert_eq!(report["tolerances"]["basis"], "quantized");
            assert_eq!(report["reference"], "source-on-onnx-runtime");
            for case in report["cases"].as_array().unwrap() {
                assert_eq!(case["outputs"][0]["figures"]["max_abs"], 0.0, "{report}");
            }
        }
    }
}

/// Positions from tables that are looked up in: by ids, and by a range.
#[test]
fn tables_of_positions_bound_sequences() {
    let folder = scratch();
    let table: Vec<f32> = (0u8..20).map(f32::from).collect();
    let tables = || {
        vec![
            floats("t", &[20, 1], &table),
            integers("zero", &[], &[0]),
            integers("one", &[], &[1]),
            floats("half", &[], &[0.5]),
        ]
    };
    let dims = "batch_size, sequence_length";
    let ids = typed("position_ids", DataType::Int64, dims);
    let x = || f32("x", &format!("{dims}, 1"));
    let scaled = vec![
        node("h = Mul(t, half)", vec![]),
        node("p = Gather(h, position_ids)", vec![]),
        node("y = Add(x, p)", vec![]),
    ];
    let ranged = vec![
        node("sizes = Shape(x)", vec![]),
        node("length = Gather(sizes, one)", vec![]),
        node("i = Range(zero, length, one)", vec![]),
        node("p = Gather(t, i)", vec![]),
        node("y = Add(x, p)", vec![]),
    ];
    for (inputs, nodes) in [(vec![x(), ids], scaled), (vec![x()], ranged)] {
        let mut graph = graph(inputs, tables(), nodes, &[]);
        graph.output = vec![f32("y", &format!("{dims}, 1"))];
        let (path, out) = (write(folder.path().join("table.onnx"), graph), folder.path().join("out"));
        planish_compile(&path, &out, &["--verify"]).succeeds();
        let report = verification(&out);
        assert!(labels(&report).contains(&"1 x 20") && report["skipped"].is_null(), "{report}");
        let done = planish(["verify", text(&out), "--max-length", "4", "--json"]).succeeds();
        let report: Value = serde_json::from_str(&done.stdout).unwrap();
        assert_eq!(labels(&report).first(), Some(&"1 x 1"));
        assert!(labels(&report).contains(&"1 x 4") && !labels(&report).contains(&"1 x 20"));
    }
}

#[test]
fn images_of_open_sides_are_tried() {
    let folder = scratch();
    let out = folder.path().join("out");
    let vit = repository().join("fixtures/graphs/optimum-vit/model.onnx");
    let done = planish_compile(&vit, &out, &["--verify"]).succeeds();
    assert_eq!(labels(&verification(&out)), ["batch of 1, sides of 16", "batch of 3, sides of 16"]);
    let said = "batch of 1, sides of 32 was not run, batch of 1, sides of 16 instead: ";
    assert!(done.stdout.contains(said), "{}", done.stdout);
}

#[test]
fn terabytes_are_refused_in_a_sentence() {
    let folder = scratch();
    let compile = |dims: &str, dtype: DataType| {
        let mut graph = graph(vec![typed("x", dtype, dims)], vec![], vec![node("y = Identity(x)", vec![])], &[]);
        graph.output = vec![typed("y", dtype, dims)];
        let path = write(folder.path().join("huge.onnx"), graph);
        let done = planish_compile(&path, &folder.path().join("out"), &["--verify"])
            .exits(1, &["nothing can be verified", "1073741824 bytes at most", "`x`, "]);
        // No size is open.
        assert!(!done.stderr.contains("--shapes"), "{}", done.stderr);
    };
    compile("1099511627776", DataType::Float);
    compile("1099511627776, 7", DataType::Int64);
    compile("1099511627776, 0", DataType::Int64);
}

/// The artifact may be anywhere: it knows the way to its source, and whether that is as it was.
#[test]
fn verify_finds_the_source_where_it_was() {
    let folder = scratch();
    fs::create_dir_all(folder.path().join("sources/deep")).unwrap();
    let model = Draft::of("bert").write(folder.path().join("sources/deep/model"));
    let graph = unknown(&folder.path().join("sources/deep"));
    for (source, other) in [(model, "config.json"), (graph, "unknown.onnx")] {
        let out = folder.path().join("artifacts/out");
        planish_compile(&source, &out, &[]).succeeds();
        let done = planish(["verify", text(&out)]).succeeds();
        assert!(done.stdout.contains(&format!("verified against {}: ", text(&source))), "{}", done.stdout);
        let file = if source.is_dir() { source.join(other) } else { source.clone() };
        let mut bytes = fs::read(&file).unwrap();
        // Another constant of the graph, a blank after the configuration.
        match bytes.windows(4).position(|four| four == 0.5f32.to_le_bytes()) {
            Some(at) => bytes[at..at + 4].copy_from_slice(&0.25f32.to_le_bytes()),
            None => bytes.push(b' '),
        }
        fs::write(&file, bytes).unwrap();
        let parts = [other, "has changed since the artifact was compiled from it", "--reference"];
        planish(["verify", text(&out)]).exits(1, &parts);
    }
}

/// Texts go in and come out.
#[test]
fn graphs_of_texts_are_verified() {
    let folder = scratch();
    let out = folder.path().join("out");
    let strings = repository().join("fixtures/onnx/strings.onnx");
    planish_compile(&strings, &out, &["--verify"]).succeeds();
    let report = verification(&out);
    assert_eq!(report["reference"], "source-on-onnx-runtime");
    assert_eq!(report["cases"][1]["outputs"][0]["figures"]["max_abs"], 0.0);
}

/// A source that the interpreter does not run is halved, and what it would have rounded is named.
#[test]
fn what_only_the_interpreter_rounds_is_named_where_it_cannot() {
    let folder = scratch();
    let nodes = vec![node("m = MatMul(x, w)", vec![]), node("y = Det(m)", vec![])];
    let constants = vec![floats("w", &[2, 2], &[0.5, -0.25, 1.0, 0.75])];
    let mut graph = graph(vec![f32("x", "batch, 2, 2")], constants, nodes, &[]);
    graph.output = vec![f32("y", "batch")];
    let (path, out) = (write(folder.path().join("half.onnx"), graph), folder.path().join("out"));
    let done = planish_compile(&path, &out, &["--verify", "--fp16", "--target", "onnx"]).exits(0, &[]);
    assert!(done.stdout.contains("float32: Det `y`"), "{}", done.stdout);
    let skipped = &verification(&out)["skipped"][0];
    assert_eq!(skipped["label"], "the artifact with each result rounded");
}

/// A graph of a loop whose condition stays true and of which each round computes for a while.
fn endless(dims: &str) -> GraphProto {
    let square = graph(
        vec![typed("i", DataType::Int64, ""), typed("c", DataType::Bool, ""), f32("s", "256, 256")],
        vec![],
        vec![node("o = Identity(c)", vec![]), node("t = MatMul(s, s)", vec![])],
        &["o", "t"],
    );
    let nodes = vec![
        node("m = MatMul(x, r)", vec![]),
        node("k = ReduceSum(m)", vec![int("keepdims", 0)]),
        node("s = Add(w, k)", vec![]),
        node("t = Loop(_, go, s)", vec![graph_attribute("body", square)]),
        node("y = MatMul(m, t)", vec![]),
    ];
    let always = TensorProto {
        name: "go".to_owned(),
        data_type: DataType::Bool.into(),
        raw_data: vec![1].into(),
        ..TensorProto::default()
    };
    let constants = vec![floats("r", &[1, 256], &[0.5; 256]), floats("w", &[256, 256], &[0.001; 256 * 256]), always];
    let mut graph = graph(vec![f32("x", dims)], constants, nodes, &[]);
    graph.output = vec![f32("y", &format!("{}, 256", dims.split(',').next().unwrap()))];
    graph
}

/// Few rounds of much work take hours; the time of loops is bounded, and larger cases are not begun.
#[test]
fn endless_loops_of_much_work_end() {
    let folder = scratch();
    for (dims, hint) in [("batch, 1", true), ("2, 1", false)] {
        let (path, out) = (write(folder.path().join("endless.onnx"), endless(dims)), folder.path().join("out"));
        let start = Instant::now();
        let parts =
            ["nothing can be verified", "`Loop`: ", "the loops of the run take more than 20 s: they are in round "];
        let done = planish_compile(&path, &out, &["--verify"]).exits(1, &parts);
        assert_eq!(done.stderr.contains("--shapes"), hint, "{}", done.stderr);
        assert!(start.elapsed() < Duration::from_secs(60), "it took {:?}", start.elapsed());
    }
}

/// The most bytes that a process held in memory at once, and what it said.
fn peak(mut command: Command) -> (u64, Done) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
        peak = peak.max(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10);
        thread::sleep(Duration::from_millis(1));
    }
    (peak, child.wait_with_output().unwrap().into())
}

/// How many elements there are depends on what the input holds.
#[test]
fn sizes_that_only_a_run_knows_stay_within_a_gigabyte() {
    let folder = scratch();
    let nodes = vec![
        node("sum = ReduceSum(x)", vec![int("keepdims", 0)]),
        node("size = Abs(sum)", vec![]),
        node("many = Mul(size, factor)", vec![]),
        node("count = Cast(many)", vec![int("to", i64::from(DataType::Int64 as i32))]),
        node("shape = Reshape(count, one)", vec![]),
        node("y = ConstantOfShape(shape)", vec![]),
    ];
    let constants = vec![floats("factor", &[], &[1e9]), integers("one", &[1], &[1])];
    let mut graph = graph(vec![f32("x", "2, 3")], constants, nodes, &[]);
    graph.output = vec![f32("y", "n")];
    let (path, out) = (write(folder.path().join("many.onnx"), graph), folder.path().join("out"));
    let (peak, done) = peak(command([Path::new("compile"), &path, Path::new("--verify"), Path::new("-o"), &out]));
    let done = done.exits(1, &["nothing can be verified", "`ConstantOfShape`: a result of f32[", "and may use 2684"]);
    assert!(peak < 1 << 30, "it took {peak} bytes");
    // The bytes of the tensor, and not those of what computes it.
    let (_, rest) = done.stderr.split_once("a result of f32[").unwrap();
    let (elements, rest) = rest.split_once("] takes ").unwrap();
    let (bytes, _) = rest.split_once(" bytes").unwrap();
    assert_eq!(elements.parse::<u64>().unwrap() * 4, bytes.parse::<u64>().unwrap(), "{}", done.stderr);
}
