//! ONNX files as users bring them, through the command.

use std::fs;
use std::path::{Path, PathBuf};

use onnx_protobuf::{Message as _, ModelProto as Written};
use planish_onnx::proto::{
    AttributeProto, AttributeType, DataType, GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto,
};
use prost::Message;
use safetensors::tensor::Dtype;

use crate::support::{Stored, numbered, planish, planish_compile, repository, scratch, text, write_tensors};
use planish_testing::onnx::{attribute, f32, floats, graph, graph_attribute, integers, model, node, typed};

fn write(folder: &Path, model: &ModelProto) -> PathBuf {
    let path = folder.join("model.onnx");
    fs::write(&path, model.encode_to_vec()).unwrap();
    path
}

/// `x` times a constant of `size * size` that is one where rows and columns are the same and zero elsewhere, doubled.
fn product(size: u16) -> GraphProto {
    let element = |i: u32| if i.is_multiple_of(u32::from(size) + 1) { 2.0f32 } else { 0.0 };
    let raw: Vec<u8> = (0..u32::from(size) * u32::from(size)).flat_map(|i| element(i).to_le_bytes()).collect();
    let weight = TensorProto {
        dims: vec![size.into(); 2],
        data_type: DataType::Float.into(),
        raw_data: raw.into(),
        ..TensorProto::default()
    };
    let value = AttributeProto { t: Some(weight), ..attribute("value", AttributeType::Tensor) };
    let inputs = vec![typed("i", DataType::Int64, ""), typed("c", DataType::Bool, ""), f32("s", &format!("1, {size}"))];
    let nodes = vec![
        node("w = Constant()", vec![value]),
        node("t = MatMul(s, w)", vec![]),
        node("again = Identity(c)", vec![]),
    ];
    let outputs = vec![typed("again", DataType::Bool, ""), f32("t", &format!("1, {size}"))];
    GraphProto { output: outputs, ..graph(inputs, vec![], nodes, &[]) }
}

/// A loop whose number of rounds only a run knows runs with the large constant of its body.
#[test]
fn a_large_constant_in_a_loop() {
    let folder = scratch();
    let call = node("y = Loop(n, __, x)", vec![graph_attribute("body", product(40))]);
    let mut graph = graph(vec![typed("n", DataType::Int64, ""), f32("x", "1, 40")], vec![], vec![call], &[]);
    graph.output = vec![f32("y", "1, 40")];
    let path = write(folder.path(), &model(17, graph));
    for target in ["onnx", "ort"] {
        let out = folder.path().join(target);
        planish_compile(&path, &out, &["--target", target]).succeeds();
        let stored = |dtype, shape: &[usize], bytes: Vec<u8>| Stored { dtype, shape: shape.to_vec(), bytes };
        let x: Vec<u8> = (0..40u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
        let inputs = [
            ("n".to_owned(), stored(Dtype::I64, &[], 3i64.to_le_bytes().to_vec())),
            ("x".to_owned(), stored(Dtype::F32, &[1, 40], x)),
        ];
        let (given, results) = (folder.path().join("in.safetensors"), folder.path().join("out.safetensors"));
        write_tensors(&given, &inputs.into());
        planish(["run", text(&out), "--inputs", text(&given), "--outputs", text(&results)]).exits(0, &[]);
        let [(_, y)] = &numbered(&results, "")[..] else { panic!("one output") };
        let expected: Vec<f64> = (0..40).map(|i| f64::from(8 * i)).collect();
        assert_eq!(y.to_f64(), expected);
    }
}

/// Today's package `onnx` writes version 14 and opset 28. ONNX Runtime 1.32 has no kernel for the QuantizeLinear and
/// DequantizeLinear of opset 28, and those of opset 24 mean the same. The scale is an input, so they pass through.
#[test]
fn the_newest_opset_is_written_in_an_older_one() {
    let folder = scratch();
    let zero = TensorProto {
        name: "z".to_owned(),
        data_type: DataType::Uint8.into(),
        int32_data: vec![128],
        ..TensorProto::default()
    };
    let nodes = vec![
        node("q = QuantizeLinear(x, s, z)", vec![]),
        node("d = DequantizeLinear(q, s, z)", vec![]),
        node("e = Mish(d)", vec![]),
        node("y = SwiGLU(e, d)", vec![]),
    ];
    let graph = graph(vec![f32("x", "n, 4"), f32("s", "")], vec![zero], nodes, &["y"]);
    let path = write(folder.path(), &ModelProto { ir_version: 14, ..model(28, graph) });
    for target in ["onnx", "ort"] {
        let out = folder.path().join(target);
        let done = planish_compile(&path, &out, &["--target", target, "--verify"]).succeeds();
        assert!(!done.stderr.contains("warning"), "{}", done.stderr);
        let written = ModelProto::decode(&fs::read(out.join("model.onnx")).unwrap()[..]).unwrap();
        assert_eq!((written.opset_import[0].version, written.ir_version), (24, 12), "{target}");
    }
}

/// A version that is newer than known is a warning, and an operator that is not known an error.
#[test]
fn versions_that_are_newer_than_known() {
    let folder = scratch();
    let of = |op: &str| {
        let graph = graph(vec![f32("x", "n, 4")], vec![], vec![node(&format!("y = {op}(x)"), vec![])], &["y"]);
        write(folder.path(), &ModelProto { ir_version: 15, ..model(29, graph) })
    };
    let out = folder.path().join("out");
    let newer = ["version 15 of the format is newer than 14", "opset 29, which is newer than 28"];
    planish_compile(&of("Relu"), &out, &["--target", "ort"]).exits(0, &newer);
    planish_compile(&of("Novel"), &out, &["--force"]).exits(1, &["it is not an operator of ONNX up to opset 28"]);
}

#[test]
fn dimensions_of_any_name_are_verified() {
    for dims in ["N, 4", "s0, unk__5", "?, 4", "a, b, 4"] {
        let folder = scratch();
        let sum = vec![node("h = Relu(x)", vec![]), node("y = Add(h, one)", vec![])];
        let path = write(
            folder.path(),
            &model(17, graph(vec![f32("x", dims)], vec![floats("one", &[], &[1.0])], sum, &["y"])),
        );
        planish_compile(&path, &folder.path().join("out"), &["--verify"]).succeeds();
    }
}

/// A slice that reaches beyond the axis where that is short.
#[test]
fn slices_of_short_axes_are_verified() {
    let folder = scratch();
    let constants =
        vec![integers("from", &[1], &[-5]), integers("far", &[1], &[i64::MAX]), integers("axis", &[1], &[1])];
    let nodes = vec![
        node("a = Slice(x, from, far, axis)", vec![]),
        node("s = Shape(a)", vec![]),
        node("y = ConstantOfShape(s)", vec![]),
    ];
    let sliced = graph(vec![f32("x", "batch, sequence, 2")], constants, nodes, &["y", "a"]);
    let path = write(folder.path(), &model(17, sliced));
    planish_compile(&path, &folder.path().join("out"), &["--verify"]).succeeds();
}

#[test]
fn metadata_is_carried_over() {
    let folder = scratch();
    let mut model = model(17, graph(vec![f32("x", "n, 2")], vec![], vec![node("y = Relu(x)", vec![])], &["y"]));
    model.metadata_props = vec![StringStringEntryProto { key: "names".to_owned(), value: "{0: 'a'}".to_owned() }];
    let (path, out) = (write(folder.path(), &model), folder.path().join("out"));
    planish_compile(&path, &out, &[]).succeeds();
    let written = Written::parse_from_bytes(&fs::read(out.join("model.onnx")).unwrap()).unwrap();
    let metadata: Vec<_> = written.metadata_props.iter().map(|e| (e.key.as_str(), e.value.as_str())).collect();
    assert_eq!(metadata, [("names", "{0: 'a'}")]);
}

/// A task is not taken on trust.
#[test]
fn tasks_that_the_outputs_are_not_of() {
    let folder = scratch();
    let bert = repository().join("fixtures/graphs/optimum-bert/model.onnx");
    let warning = "the task fill-mask has an output `logits`, and the graph has last_hidden_state";
    planish_compile(&bert, &folder.path().join("a"), &["--task", "fill-mask"]).exits(0, &[warning]);
    planish_compile(&bert, &folder.path().join("b"), &["--task", "fill-mask", "--debug=strict"]).exits(1, &[warning]);
    planish_compile(&bert, &folder.path().join("c"), &["--task", "feature-extraction"]).succeeds();
}

#[test]
fn files_by_their_endings() {
    let folder = scratch();
    let place = |name: &str| folder.path().join(name);
    let bert = repository().join("fixtures/graphs/optimum-bert/model.onnx");
    fs::create_dir(place("optimum")).unwrap();
    fs::copy(&bert, place("optimum/model.onnx")).unwrap();
    fs::write(place("optimum/config.json"), "{\"model_type\": \"bert\"}").unwrap();
    let advice = "an ONNX graph is named by its file: model.onnx";
    planish_compile(&place("optimum"), &place("a"), &[]).exits(1, &[advice]);
    planish(["inspect", text(&place("optimum"))]).exits(1, &[advice]);
    fs::copy(&bert, place("model.pb")).unwrap();
    planish_compile(&place("model.pb"), &place("b"), &[]).exits(1, &["or an .onnx file"]);
    fs::copy(&bert, place("MODEL.ONNX")).unwrap();
    planish_compile(&place("MODEL.ONNX"), &place("c"), &[]).succeeds();
}

/// One size is fixed, and the other stays.
#[test]
fn shapes_in_part() {
    let folder = scratch();
    let bert = repository().join("fixtures/graphs/optimum-bert/model.onnx");
    let out = folder.path().join("out");
    planish_compile(&bert, &out, &["--shapes", "input_ids=1x?", "--verify"]).succeeds();
    let written = fs::read_to_string(out.join("planish.json")).unwrap();
    assert!(written.contains("\"sequence_length\"") && !written.contains("\"batch_size\""), "{written}");
}

/// Names of any characters are text of one line, and of XML.
#[test]
fn names_with_control_characters() {
    let folder = scratch();
    let strange = NodeProto { output: vec!["a\nb\u{1}".to_owned()], ..node("y = Relu(x)", vec![]) };
    let path = write(folder.path(), &model(17, graph(vec![f32("x", "n, 2")], vec![], vec![strange], &["a\nb\u{1}"])));
    let (svg, dot) = (folder.path().join("a.svg"), folder.path().join("a.dot"));
    planish(["inspect", text(&path), "--svg", text(&svg), "--dot", text(&dot)]).exits(0, &[]);
    for file in [svg, dot] {
        let written = fs::read_to_string(file).unwrap();
        assert!(!written.contains('\u{1}') && !written.contains("a\nb"), "{written}");
    }
}
