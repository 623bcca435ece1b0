//! Inputs, constants and what they are called.

use planish_onnx::ImportOptions;
use planish_onnx::proto::{AttributeProto, AttributeType, DataType, DimensionValue, ModelProto, TensorProto};

use planish_testing::onnx::{attribute, f32, floats, graph, import_bytes, import_with, ints, model, node};

/// `x + w` where `w` has a value and is an input too.
fn with_default(ir_version: i64) -> ModelProto {
    let constants = vec![floats("w", &[2], &[1.0, 2.0])];
    let sum = graph(vec![f32("x", "n, 2"), f32("w", "2")], constants, vec![node("y = Add(x, w)", vec![])], &["y"]);
    ModelProto { ir_version, ..model(17, sum) }
}

fn inputs(model: &ModelProto, names: &[&str]) -> (Vec<String>, Vec<String>) {
    let inputs = names.iter().map(|name| (*name).to_owned()).collect();
    let (graph, warnings) = import_with(model, &ImportOptions { inputs, ..ImportOptions::default() }).unwrap();
    (graph.inputs().iter().map(|v| graph.value(*v).name.clone()).collect(), warnings)
}

#[test]
fn inputs_with_a_value_become_constants_with_a_warning() {
    let (names, warnings) = inputs(&with_default(8), &[]);
    assert_eq!(names, ["x"]);
    let [warning] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert!(warning.starts_with("1 of its inputs have values in the file and become constants: `w`; "), "{warning}");
    // In the first versions of the format each constant was an input.
    assert_eq!(inputs(&with_default(3), &[]), (vec!["x".to_owned()], vec![]));
}

#[test]
fn inputs_with_a_value_stay_where_they_are_named() {
    assert_eq!(inputs(&with_default(8), &["x", "w"]), (vec!["x".to_owned(), "w".to_owned()], vec![]));
}

/// A convolution with a step determines how many places it has.
#[test]
fn a_convolution_stays_after_a_cut() {
    let constants = vec![floats("w", &[1, 1, 3], &[1.0; 3])];
    let nodes = vec![
        node("a = Relu(x)", vec![]),
        node("c = Conv(a, w)", vec![ints("strides", &[2])]),
        node("y = Relu(c)", vec![]),
    ];
    let model = model(17, graph(vec![f32("x", "n, 1, m")], constants, nodes, &["y"]));
    assert_eq!(inputs(&model, &["a"]).0, ["a"]);
}

/// Elements that graphs do not have are an error where they are used only.
#[test]
fn constants_of_other_elements() {
    let texts = || TensorProto {
        name: "t".to_owned(),
        dims: vec![1],
        data_type: DataType::Complex64.into(),
        float_data: vec![1.0, 0.0],
        ..TensorProto::default()
    };
    let value = AttributeProto { t: Some(texts()), ..attribute("value", AttributeType::Tensor) };
    let nodes = vec![node("u = Constant()", vec![value]), node("y = Relu(x)", vec![])];
    let mut model = model(17, graph(vec![f32("x", "2")], vec![texts()], nodes, &["y"]));
    import_with(&model, &ImportOptions::default()).unwrap();
    model.graph.as_mut().unwrap().node[1] = node("y = Add(x, t)", vec![]);
    let error = import_with(&model, &ImportOptions::default()).err().unwrap();
    assert!(
        error.ends_with("1 node cannot be imported:\n  Add `y`: `t`: elements of type complex64 are not supported"),
        "{error}"
    );
}

/// A shape may fix one size and keep another, and gives one that the file does not.
#[test]
fn shapes_in_part() {
    let shaped = |shape: Vec<i64>, known: bool| {
        let mut model = model(17, graph(vec![f32("x", "n, m")], vec![], vec![node("y = Relu(x)", vec![])], &["y"]));
        if !known {
            let input = &mut model.graph.as_mut().unwrap().input[0];
            input.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().shape = None;
        }
        let shapes = if shape.is_empty() { Default::default() } else { [("x".to_owned(), shape)].into() };
        let imported = import_with(&model, &ImportOptions { shapes, ..ImportOptions::default() });
        imported.map(|(graph, _)| graph.ty(graph.inputs()[0]).to_string())
    };
    assert_eq!(shaped(vec![1, -1], true).unwrap(), "f32[1, m]");
    assert_eq!(shaped(vec![1, -1], false).unwrap(), "f32[1, x_dim_1]");
    // Without, the graph is taken as it is.
    let mut model = model(17, graph(vec![f32("x", "")], vec![], vec![node("y = Relu(x)", vec![])], &["y"]));
    model.graph.as_mut().unwrap().input[0].r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().shape = None;
    let (graph, warnings) = import_with(&model, &ImportOptions::default()).unwrap();
    assert_eq!(graph.type_of(graph.outputs()[0].value).to_string(), "f32[*]");
    assert!(warnings[0].contains("--shapes x=... gives it"), "{warnings:?}");
}

#[test]
fn outputs_that_are_given_twice() {
    let twice = graph(vec![f32("x", "2")], vec![], vec![node("y = Relu(x)", vec![])], &["y", "y"]);
    let (graph, warnings) = import_with(&model(17, twice), &ImportOptions::default()).unwrap();
    assert_eq!(graph.outputs().len(), 1);
    assert_eq!(warnings, ["the output `y` is given twice; it is kept once"]);
}

#[test]
fn pointers_of_git_lfs() {
    let error = import_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n").err().unwrap();
    assert!(error.contains("`git lfs pull` fetches that"), "{error}");
}

fn types(dims: &[&str]) -> Vec<String> {
    let names = ["a", "b", "c"];
    let inputs = names.iter().zip(dims).map(|(name, dims)| f32(name, dims)).collect();
    let model = model(17, graph(inputs, vec![], vec![], &names[..dims.len()]));
    let (graph, _) = import_with(&model, &ImportOptions::default()).unwrap();
    graph.inputs().iter().map(|v| graph.ty(*v).to_string()).collect()
}

/// A size of -1 is an open one, and a text that is a number is a name.
#[test]
fn sizes_that_are_open() {
    assert_eq!(types(&["-1, 3", "-1"]), ["f32[a_dim_0, 3]", "f32[b_dim_0]"]);
    let named = |text: &str| {
        let mut model = with_default(3);
        let input = &mut model.graph.as_mut().unwrap().input[0];
        let shape = input.r#type.as_mut().unwrap().tensor_type.as_mut().unwrap().shape.as_mut().unwrap();
        shape.dim[0].value = Some(DimensionValue::DimParam(text.to_owned()));
        let shapes = [("x".to_owned(), vec![5, 2])].into();
        let (open, _) = import_with(&model, &ImportOptions::default()).unwrap();
        let (fixed, _) = import_with(&model, &ImportOptions { shapes, ..ImportOptions::default() }).unwrap();
        [open, fixed].map(|graph| graph.ty(graph.inputs()[0]).to_string())
    };
    assert_eq!(named("-1"), ["f32[dim_1, 2]", "f32[5, 2]"]);
    assert_eq!(named("0"), ["f32[dim_0, 2]", "f32[5, 2]"]);
    assert_eq!(named("2"), ["f32[dim_2, 2]", "f32[5, 2]"]);
}
