//! Graphs whose weights have a scale for each block, read again: codes, scales and zero points stay what they are.

use std::fs;
use std::path::{Path, PathBuf};

use planish::artifact::manifest::Manifest;
use planish_ir::Op;
use planish_ir::ops::{Foreign, Setting};
use planish_onnx::proto::{DataType, NodeProto, OperatorSetIdProto, TensorProto};
use planish_testing::onnx::{f32, floats, graph, int, model, node};
use prost::Message;

use crate::support::{golden, planish, planish_compile, repository, scratch, text};

/// An operator and the bytes of its constants.
type Coded = (String, Vec<Option<Vec<u8>>>);

/// The operators of an artifact that take codes of blocks, with the bytes of their constants.
fn coded(artifact: &Path) -> Vec<Coded> {
    let graph = planish_onnx::import(&artifact.join("model.onnx")).unwrap().graph;
    let bytes = |op: &Foreign| -> Vec<Option<Vec<u8>>> {
        op.inputs.iter().map(|value| graph.weight((*value)?).map(|weight| weight.read().unwrap())).collect()
    };
    let operators = graph.nodes().filter_map(|(_, node)| match &node.op {
        Op::Foreign(op) if ["MatMulNBits", "GatherBlockQuantized", "DequantizeLinear"].contains(&op.op.0.as_str()) => {
            Some((op.op.0.clone(), bytes(op)))
        }
        _ => None,
    });
    let mut operators: Vec<Coded> = operators.collect();
    operators.sort();
    operators
}

/// The levels of the products of an artifact, each once.
fn levels(artifact: &Path) -> Vec<i64> {
    let graph = planish_onnx::import(&artifact.join("model.onnx")).unwrap().graph;
    let levels = graph.nodes().filter_map(|(_, node)| match &node.op {
        Op::Foreign(op) if op.op.0 == "MatMulNBits" => op.setting("accuracy_level"),
        _ => None,
    });
    let mut levels: Vec<i64> = levels.map(|level| if let Setting::Int(level) = level { *level } else { 0 }).collect();
    levels.sort_unstable();
    levels.dedup();
    levels
}

/// Compiles the graph of an artifact for a target, next to it.
fn again(artifact: &Path, target: &str, more: &[&str]) -> PathBuf {
    let out = artifact.with_file_name(format!("{}-{target}", artifact.file_name().unwrap().display()));
    let more = [&["--target", target, "--force", "--debug=verify"], more].concat();
    planish_compile(&artifact.join("model.onnx"), &out, &more).exits(0, &[]);
    out
}

#[test]
fn a_graph_of_codes_keeps_its_bytes() {
    for (name, options) in [
        ("llama", &["--int4", "--recipe", "block-size=16"][..]),
        ("llama", &["--int4", "--recipe=zero-points=true", "--recipe", "block-size=16"]),
        ("qwen2", &["--int8-weights"]),
        ("gpt2", &["--int4", "--recipe=zero-points=true", "--recipe", "block-size=32", "--keep", "@head=int4"]),
    ] {
        let folder = scratch();
        let first = folder.path().join("first");
        planish_compile(&golden(name), &first, &[options, &["--recipe", "accuracy-level=float"]].concat())
            .exits(0, &[]);
        let second = again(&first, "ort", &["--verify"]);
        assert!(coded(&first).len() > 4);
        assert!(coded(&second) == coded(&first), "{name} {options:?}");
        // By way of the operators of ONNX itself.
        let standard = again(&first, "onnx", &["--verify"]);
        assert!(coded(&standard).iter().all(|(op, _)| op == "DequantizeLinear"), "{name} {options:?}");
        assert!(coded(&again(&standard, "onnx", &[])) == coded(&standard), "{name} {options:?}");
        let layers = |artifact: &Path| -> Vec<Coded> {
            coded(artifact).into_iter().filter(|(op, _)| op == "MatMulNBits").collect()
        };
        assert!(layers(&again(&standard, "ort", &["--verify"])) == layers(&first), "{name} {options:?}");
    }
}

#[test]
fn the_level_of_products_is_that_of_the_graph_or_the_option() {
    let folder = scratch();
    let first = folder.path().join("first");
    planish_compile(&golden("llama"), &first, &["--int4", "--recipe", "block-size=16"]).exits(0, &[]);
    assert_eq!(levels(&first), [4]);
    assert_eq!(levels(&again(&first, "ort", &["--verify"])), [4]);
    let floats = again(&first, "ort", &["--recipe", "accuracy-level=float"]);
    assert_eq!(levels(&floats), [1]);
    assert!(!Manifest::read(&floats).unwrap().integer_inputs);
    assert_eq!(levels(&again(&floats, "ort", &[])), [1]);
    assert_eq!(levels(&again(&floats, "ort", &["--recipe", "accuracy-level=int8"])), [4]);
}

/// The codes of a checkpoint keep, and the level of their products is chosen.
#[test]
fn a_quantized_checkpoint_takes_a_level() {
    let model = repository().join("fixtures/quantized/gptq");
    let folder = scratch();
    let compile = |level: &[&str]| {
        let out = folder.path().join("out");
        planish_compile(&model, &out, &[&["--force", "--verify"], level].concat()).exits(0, &[]);
        planish(["verify", text(&out)]).exits(0, &[]);
        (levels(&out), coded(&out), Manifest::read(&out).unwrap().integer_inputs)
    };
    let usual = compile(&[]);
    let integers = compile(&["--recipe", "accuracy-level=int8"]);
    assert_eq!((&usual.0[..], usual.2), (&[1][..], false));
    assert_eq!((&integers.0[..], integers.2), (&[4][..], true));
    assert!(!usual.1.is_empty() && usual.1 == integers.1);
    // With --int4, what is quantized here has the same level as what has codes already.
    let out = folder.path().join("both");
    planish_compile(&model, &out, &["--int4", "--recipe", "accuracy-level=float"]).exits(0, &[]);
    assert_eq!(levels(&out), [1]);
    let kept = |of: &[Coded]| of.iter().filter(|operator| usual.1.contains(operator)).count();
    assert_eq!(kept(&coded(&out)), usual.1.len());
}

#[test]
fn a_level_is_refused_where_it_changes_nothing() {
    let folder = scratch();
    let out = folder.path().join("out");
    let level = |model: &str, more: &[&str]| {
        let more = [&["--recipe", "accuracy-level=int8"], more].concat();
        planish_compile(&golden(model), &out, &more)
    };
    level("llama", &["--int4", "--target", "ort-cuda"]).exits(2, &["not for target ort-cuda", "multiplies floats"]);
    level("llama", &["--target", "onnx"]).exits(2, &["not for target onnx", "choose --target ort"]);
    level("bert", &[]).exits(0, &["--recipe accuracy-level changed nothing"]);
}

/// DequantizeLinear takes codes of 2 bits from opset 25 on, and MatMulNBits at each opset.
#[test]
fn codes_of_2_bits_choose_the_opset_of_the_target() {
    let codes = TensorProto {
        name: "w".to_owned(),
        data_type: DataType::Uint8.into(),
        dims: vec![2, 1, 8],
        raw_data: (0..16).map(|at| at * 13).collect::<Vec<u8>>().into(),
        ..TensorProto::default()
    };
    let attributes = [("K", 32), ("N", 2), ("bits", 2), ("block_size", 32)].map(|(name, value)| int(name, value));
    let product =
        NodeProto { domain: "com.microsoft".to_owned(), ..node("y = MatMulNBits(x, w, s)", attributes.to_vec()) };
    let scales = floats("s", &[2, 1], &[0.5, 0.25]);
    let mut graph = graph(vec![f32("x", "batch, 32")], vec![codes, scales], vec![product], &[]);
    graph.output = vec![f32("y", "batch, 2")];
    let mut model = model(20, graph);
    model.opset_import.push(OperatorSetIdProto { domain: "com.microsoft".to_owned(), version: 1 });
    let folder = scratch();
    let path = folder.path().join("bits.onnx");
    fs::write(&path, model.encode_to_vec()).unwrap();
    for (target, opset) in [("onnx", 25), ("ort", 20)] {
        let out = folder.path().join(target);
        planish_compile(&path, &out, &["--target", target, "--debug=verify"]).exits(0, &[]);
        assert_eq!(Manifest::read(&out).unwrap().opset, opset, "{target}");
    }
}
