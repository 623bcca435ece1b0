//! Graphs whose inputs have no first dimension in common: a file of tensors is one sample, in the shapes of one run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use planish::artifact::manifest::Manifest;
use planish::calibrate::Calibration;
use planish_onnx::proto::DataType;
use planish_testing::onnx::{f32, floats, graph, int, integers, model, node, text as attribute_text, typed};
use prost::Message;
use safetensors::tensor::Dtype;
use serde_json::Value;

use crate::calibrate::{numbers, planish_calibrate};
use crate::support::{Stored, planish, planish_compile, scratch, text, write_tensors};

const FEATURES: usize = 32;

fn weight(name: &str, rows: i64, columns: i64) -> planish_onnx::proto::TensorProto {
    let numbers = numbers().skip(name.len()).map(|x| (x % 1000) as f32 / 1000.0 - 0.5);
    floats(name, &[rows, columns], &numbers.take((rows * columns) as usize).collect::<Vec<_>>())
}

/// Two layers that add up what the neighbours of a node have: x [nodes, 32], edge_index [2, edges], edge_weight [edges, 1].
fn gnn(folder: &Path) -> PathBuf {
    let mut nodes = vec![
        node("from = Gather(edge_index, zero)", vec![int("axis", 0)]),
        node("to = Gather(edge_index, one)", vec![int("axis", 0)]),
        node("to1 = Unsqueeze(to, axis)", vec![]),
    ];
    for (layer, [x, y]) in [["x", "h"], ["r", "logits"]].into_iter().enumerate() {
        nodes.extend([
            node(&format!("m{layer} = MatMul({x}, neighbour.{layer}.weight)"), vec![]),
            node(&format!("s{layer} = MatMul({x}, own.{layer}.weight)"), vec![]),
            node(&format!("g{layer} = Gather(m{layer}, from)"), vec![int("axis", 0)]),
            node(&format!("w{layer} = Mul(g{layer}, edge_weight)"), vec![]),
            node(&format!("shape{layer} = Shape(w{layer})"), vec![]),
            node(&format!("to2{layer} = Expand(to1, shape{layer})"), vec![]),
            node(
                &format!("{y} = ScatterElements(s{layer}, to2{layer}, w{layer})"),
                vec![int("axis", 0), attribute_text("reduction", "add")],
            ),
        ]);
        if layer == 0 {
            nodes.push(node("r = Relu(h)", vec![]));
        }
    }
    let constants = vec![
        weight("neighbour.0.weight", 32, 48),
        weight("own.0.weight", 32, 48),
        weight("neighbour.1.weight", 48, 32),
        weight("own.1.weight", 48, 32),
        integers("zero", &[], &[0]),
        integers("one", &[], &[1]),
        integers("axis", &[1], &[1]),
    ];
    let inputs =
        vec![f32("x", "nodes, 32"), typed("edge_index", DataType::Int64, "2, edges"), f32("edge_weight", "edges, 1")];
    let path = folder.join("gnn.onnx");
    fs::write(&path, model(18, graph(inputs, constants, nodes, &["logits"])).encode_to_vec()).unwrap();
    path
}

/// A graph of so many nodes and edges, with a change.
fn sample(path: &Path, [nodes, edges]: [usize; 2], change: impl Fn(&mut BTreeMap<String, Stored>)) {
    let floats = |count: usize| -> Vec<u8> {
        numbers().skip(nodes).take(count).flat_map(|x| ((x % 2000) as f32 / 1000.0 - 1.0).to_le_bytes()).collect()
    };
    let ids = numbers().take(2 * edges).flat_map(|x| (x % nodes as u64).to_le_bytes()).collect();
    let mut tensors = BTreeMap::from([
        ("x".to_owned(), Stored { dtype: Dtype::F32, shape: vec![nodes, FEATURES], bytes: floats(nodes * FEATURES) }),
        ("edge_index".to_owned(), Stored { dtype: Dtype::I64, shape: vec![2, edges], bytes: ids }),
        ("edge_weight".to_owned(), Stored { dtype: Dtype::F32, shape: vec![edges, 1], bytes: floats(edges) }),
    ]);
    change(&mut tensors);
    write_tensors(path, &tensors);
}

/// A folder of graphs, no two of one size.
fn samples(folder: &Path, count: usize) -> PathBuf {
    let data = folder.join("graphs");
    fs::create_dir(&data).unwrap();
    (0..count).for_each(|at| sample(&data.join(format!("{at:02}.safetensors")), [9 + at, 20 + 3 * at], |_| {}));
    data
}

#[test]
fn calibrate_takes_the_tensors_of_runs() {
    let folder = scratch();
    let (model, data) = (gnn(folder.path()), samples(folder.path(), 6));
    let table = |data: &Path, more: &[&str]| {
        let (done, table) = planish_calibrate(&model, data, more);
        (done.exits(0, &[]).stdout, Calibration::read(&table).unwrap())
    };
    let (summary, all) = table(&data, &[]);
    assert!(summary.contains("6 samples of graphs") && summary.contains("2 inputs of linear layers"), "{summary}");
    // Each node is a row: 9 to 14 of them.
    assert!(summary.contains("69 tokens"), "{summary}");
    assert_eq!(all, table(&data, &["--threads", "1"]).1, "the same on any number of threads");
    assert_eq!(table(&data, &["--samples", "2"]).1.samples, 2);
    let (_, one) = table(&data.join("03.safetensors"), &[]);
    assert_eq!((one.samples, one.data.name.as_str()), (1, "03.safetensors"));
    let shards = ["1/2", "2/2"].map(|shard| {
        table(&data, &["--shard", shard]);
        let to = folder.path().join(format!("{}.json", shard.replace('/', "-")));
        fs::rename(data.with_extension("table.json"), &to).unwrap();
        to
    });
    let merged = folder.path().join("merged.json");
    planish(["calibrate", "--merge", text(&shards[0]), text(&shards[1]), "-o", text(&merged)]).exits(0, &[]);
    assert_eq!(Calibration::read(&merged).unwrap(), all);
}

#[test]
fn what_does_not_fit_says_what_is_expected() {
    let folder = scratch();
    let model = gnn(folder.path());
    let path = folder.path().join("one.safetensors");
    let fails = |change: &dyn Fn(&mut BTreeMap<String, Stored>), parts: &[&str]| {
        sample(&path, [10, 30], change);
        planish_calibrate(&model, &path, &[]).0.exits(1, parts);
    };
    let whole = |dtype, shape: &[usize], bytes| Stored { dtype, shape: shape.to_vec(), bytes: vec![0; bytes] };
    fails(
        &|all| _ = all.insert("x".to_owned(), whole(Dtype::F32, &[10, 31], 1240)),
        &["one.safetensors: `x` is f32[10, 31]; the model takes f32[nodes, 32], and a file has the inputs of one run"],
    );
    fails(
        &|all| _ = all.insert("edge_index".to_owned(), whole(Dtype::I32, &[2, 30], 240)),
        &["`edge_index` is i32[2, 30]; the model takes i64[2, edges]"],
    );
    fails(
        &|all| _ = all.insert("edge_weight".to_owned(), whole(Dtype::F32, &[7, 1], 28)),
        &["`edges` is 30 in `edge_index` and 7 in `edge_weight`: inputs of one run have the same"],
    );
    fails(
        &|all| _ = all.remove("edge_weight"),
        &["the input `edge_weight` is missing", "edge_index: i64[2, edges], edge_weight: f32[edges, 1]"],
    );
    fails(
        &|all| all.get_mut("edge_index").unwrap().bytes[..8].copy_from_slice(&99i64.to_le_bytes()),
        &["one.safetensors: ort could not run", "idx=99"],
    );
    sample(&path, [10, 30], |_| {});
    planish_calibrate(&model, &path, &["--batch", "8"])
        .0
        .exits(1, &["--batch 8 is for inputs with their first dimension"]);
    let texts = folder.path().join("texts.txt");
    fs::write(&texts, "a text\n").unwrap();
    let parts = ["the model takes no text", "x: f32[nodes, 32]", "a file for each sample, with the shapes of one run"];
    planish_calibrate(&model, &texts, &[]).0.exits(1, &parts);
    planish(["calibrate", text(&model)]).exits(2, &["--data <PATH>"]);
}

#[test]
fn such_graphs_are_compiled_and_evaluated() {
    let folder = scratch();
    let (model, data) = (gnn(folder.path()), samples(folder.path(), 10));
    let out = folder.path().join("out");
    let compile = |more: &[&str]| planish_compile(&model, &out, &[&["--force"], more].concat()).exits(0, &[]);
    compile(&["--int8", "--calibrate", text(&data), "--max-loss", "cos=0.9"]);
    let manifest = Manifest::read(&out).unwrap();
    let evaluation = manifest.evaluation.unwrap();
    assert_eq!((manifest.calibration.unwrap().samples, evaluation.samples), (8, 2));
    // The nodes of the 5th and the 10th graph.
    assert_eq!(evaluation.predictions.unwrap().count, 13 + 18);
    let done = planish(["evaluate", text(&out), "--data", text(&data), "--held-out", "--json"]).exits(0, &[]);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!((&report["samples"], &report["data"]["name"]), (&2.into(), &"graphs".into()));

    for method in ["gptq", "awq"] {
        compile(&["--int4", "--recipe", &format!("weight-method={method}"), "--calibrate", text(&data)]);
    }
    let one = data.join("00.safetensors");
    let both = ["--int8", "--calibrate", text(&one), "--max-loss", "cos=0.9"];
    planish_compile(&model, &out, &[&["--force"], &both[..]].concat())
        .exits(1, &["00.safetensors has fewer than 5 samples", "--evaluate"]);
}

#[test]
fn bench_and_verify_suggest_tensors_and_take_them() {
    let folder = scratch();
    let (model, data) = (gnn(folder.path()), samples(folder.path(), 1).join("00.safetensors"));
    let fast = ["--set", "peaks=false,time=0.01,warmup=0.01,iterations=2"];
    let bench = |model: &Path, more: &[&str]| planish([&["bench", text(model)], &fast[..], more].concat());
    bench(&model, &[]).exits(3, &["the inputs are made from a seed, and need not fit this model: --inputs FILE"]);
    let measured = bench(&model, &["--inputs", text(&data), "--json"]).exits(0, &[]);
    let document: Value = serde_json::from_str(&measured.stdout).unwrap();
    assert_eq!(document["cells"][0]["shape"]["batch"], 1, "nodes are no rows of a batch");

    // Nodes far after those that are made up.
    let path = folder.path().join("far.onnx");
    let nodes = vec![
        node("far = Add(ids, much)", vec![]),
        node("some = Gather(x, far)", vec![int("axis", 0)]),
        node("y = MatMul(some, w)", vec![]),
    ];
    let inputs = vec![f32("x", "nodes, 32"), typed("ids", DataType::Int64, "some")];
    let constants = vec![weight("w", 32, 32), integers("much", &[1], &[5])];
    fs::write(&path, planish_testing::onnx::model(18, graph(inputs, constants, nodes, &["y"])).encode_to_vec())
        .unwrap();
    let run = folder.path().join("far.safetensors");
    sample(&run, [12, 4], |all| {
        all.retain(|name, _| name == "x");
        all.insert("ids".to_owned(), Stored { dtype: Dtype::I64, shape: vec![2], bytes: vec![0; 16] });
    });
    let out = folder.path().join("out");
    planish_compile(&path, &out, &["--verify"]).exits(1, &["nothing can be verified", "compile --evaluate FILE"]);
    let done = planish_compile(&path, &out, &["--verify", "--evaluate", text(&run)]);
    done.exits(0, &["the artifact was compared on data alone"]);
    planish(["verify", text(&out)]).exits(1, &["`planish verify --data FILE`"]);
    planish(["verify", text(&out), "--data", text(&run)]).exits(0, &["the comparison is on --data alone"]);
    planish(["profile", text(&out)]).exits(1, &["the inputs are made from a seed", "--inputs FILE"]);
    planish(["profile", text(&out), "--inputs", text(&run), "--runs", "1"]).exits(0, &[]);
}
