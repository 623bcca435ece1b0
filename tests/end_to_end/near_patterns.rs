//! Graphs that ONNX Runtime would make something else of when it loads them, if they were written as they were read: each is
//! compiled, verified on ONNX Runtime with all its optimizations, and gives what the source gives.

use std::fs;
use std::path::Path;

use planish_eval::Tensor;
use planish_onnx::proto::{DataType, GraphProto, NodeProto, TensorProto};
use planish_runtimes::{Model, ReferenceRuntime, Runtime};
use planish_testing::onnx::{f32, floats, graph, graph_attribute, int, integers, ints, model, node};
use prost::Message;

use crate::support::{ONE_THREAD, onnx_runtime, planish_compile, scratch};

fn code(name: &str, elements: DataType, code: i32) -> TensorProto {
    TensorProto { name: name.to_owned(), data_type: elements.into(), int32_data: vec![code], ..TensorProto::default() }
}

/// Compiles a graph of `x`, [n, m, 4], for each target that runs on processors, and verifies the artifacts.
#[track_caller]
fn is_verified(opset: i64, nodes: Vec<NodeProto>, constants: Vec<TensorProto>) {
    let folder = scratch();
    let source = folder.path().join("model.onnx");
    let graph: GraphProto = graph(vec![f32("x", "n, m, 4")], constants, nodes, &["y"]);
    fs::write(&source, model(opset, graph).encode_to_vec()).unwrap();
    for target in ["onnx", "ort"] {
        let options = ["--target", target, "--verify", "--debug=verify"];
        planish_compile(&source, &folder.path().join(target), &options).exits(0, &[]);
    }
}

fn pair(result: &str) -> Vec<NodeProto> {
    vec![node("q = QuantizeLinear(x, s, z)", vec![]), node(&format!("{result} = DequantizeLinear(q, s, z)"), vec![])]
}

#[test]
fn a_pair_of_i8_on_three_dimensions() {
    for opset in [20, 21, 24] {
        is_verified(opset, pair("y"), vec![floats("s", &[], &[0.1]), code("z", DataType::Int8, 6)]);
    }
}

#[test]
fn a_pair_of_i8_that_is_moved() {
    let mut nodes = pair("d");
    nodes.push(node("t = Transpose(d)", vec![]));
    nodes.push(node("y = Reshape(t, to)", vec![]));
    let constants = vec![floats("s", &[1], &[0.1]), code("z", DataType::Int8, 6), integers("to", &[2], &[4, -1])];
    let constants = constants.into_iter().map(|constant| match constant.name.as_str() {
        "z" => TensorProto { dims: vec![1], ..constant },
        _ => constant,
    });
    is_verified(21, nodes, constants.collect());
}

#[test]
fn a_pair_of_i8_before_a_pool() {
    let mut nodes = pair("d");
    nodes.push(node("p = MaxPool(d)", vec![ints("kernel_shape", &[2])]));
    nodes.push(node("y = PRelu(p, slope)", vec![]));
    let slope = floats("slope", &[1, 1, 1], &[0.8]);
    is_verified(24, nodes, vec![floats("s", &[], &[0.1]), code("z", DataType::Int8, 0), slope]);
}

#[test]
fn a_branch_reads_a_pair_that_is_moved() {
    for (elements, opset) in [(DataType::Uint8, 20), (DataType::Int8, 21)] {
        let branch = |op: &str| {
            let inner = node(&format!("{op}_of = {op}(r)"), vec![]);
            let made = format!("{op}_of");
            graph(vec![], vec![], vec![inner], &[&made])
        };
        let mut nodes = vec![node("t = ReduceSum(x)", vec![int("keepdims", 0)]), node("c = Greater(t, zero)", vec![])];
        nodes.extend(pair("d"));
        nodes.push(node("r = Reshape(d, to)", vec![]));
        let branches =
            vec![graph_attribute("then_branch", branch("Neg")), graph_attribute("else_branch", branch("Abs"))];
        nodes.push(node("y = If(c)", branches));
        let constants = vec![
            floats("s", &[], &[0.1]),
            code("z", elements, 5),
            floats("zero", &[], &[0.0]),
            integers("to", &[2], &[-1, 4]),
        ];
        is_verified(opset, nodes, constants);
    }
}

/// A norm of what is less its mean, one way round or the other in the quotient and in the square.
#[test]
fn the_mean_less_the_operand() {
    for (shifted, squared) in [("u, x", "u, x"), ("u, x", "x, u"), ("x, u", "u, x")] {
        for weight in [&[4][..], &[1], &[]] {
            let count = weight.iter().product::<i64>();
            let nodes = vec![
                node("u = ReduceMean(x, last)", vec![]),
                node(&format!("d = Sub({shifted})"), vec![]),
                node(&format!("k = Sub({squared})"), vec![]),
                node("e = Mul(k, k)", vec![]),
                node("v = ReduceMean(e, last)", vec![]),
                node("a = Add(v, eps)", vec![]),
                node("r = Sqrt(a)", vec![]),
                node("n = Div(d, r)", vec![]),
                node("w = Mul(n, weight)", vec![]),
                node("y = Add(w, bias)", vec![]),
            ];
            let constants = vec![
                integers("last", &[1], &[-1]),
                floats("eps", &[], &[1e-5]),
                floats("weight", weight, &[0.5, 2.0, -1.0, 3.0][..usize::try_from(count).unwrap()]),
                floats("bias", &[4], &[1.0, 2.0, 3.0, 4.0]),
            ];
            is_verified(18, nodes, constants);
        }
    }
}

/// ONNX Runtime moves a Transpose after a Pad.
#[test]
fn pads_of_some_axes_after_a_transpose() {
    let nodes = vec![
        node("t = Transpose(x)", vec![ints("perm", &[2, 0, 1])]),
        node("p = Pad(t, pads, _, axes)", vec![]),
        node("y = Transpose(p)", vec![ints("perm", &[1, 2, 0])]),
    ];
    is_verified(18, nodes, vec![integers("pads", &[2], &[1, -1]), integers("axes", &[1], &[0])]);
}

/// Products of integers where one side is a vector.
#[test]
fn products_of_integers_with_vectors() {
    for (weight, dims) in [(&[4][..], "n, 4"), (&[4, 3], "4"), (&[4], "4")] {
        let folder = scratch();
        let source = folder.path().join("model.onnx");
        let codes: Vec<i32> =
            (0..weight.iter().product::<i64>()).map(|code| i32::try_from(code).unwrap() - 5).collect();
        let codes = TensorProto { dims: weight.to_vec(), int32_data: codes, ..code("w", DataType::Int8, 0) };
        let nodes = vec![
            node("q, s, z = DynamicQuantizeLinear(x)", vec![]),
            node("m = MatMulInteger(q, w, z)", vec![]),
            node("f = Cast(m)", vec![int("to", i32::from(DataType::Float).into())]),
            node("y = Mul(f, s)", vec![]),
        ];
        let graph = graph(vec![f32("x", dims)], vec![codes], nodes, &["y"]);
        fs::write(&source, model(20, graph).encode_to_vec()).unwrap();
        for target in ["onnx", "ort"] {
            let options = ["--target", target, "--verify"];
            planish_compile(&source, &folder.path().join(target), &options).exits(0, &[]);
        }
    }
}

/// Names of many outputs are looked up, not searched for.
#[test]
fn many_outputs() {
    const PARTS: usize = 20_000;
    let folder = scratch();
    let source = folder.path().join("model.onnx");
    let names: Vec<String> = (0..PARTS).map(|part| format!("o{part}")).collect();
    let split = node(&format!("{} = Split(x)", names.join(", ")), vec![int("axis", 1), int("num_outputs", 20_000)]);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let graph = graph(vec![f32("x", "n, 20000")], vec![], vec![split], &names);
    fs::write(&source, model(20, graph).encode_to_vec()).unwrap();
    let start = std::time::Instant::now();
    planish_compile(&source, &folder.path().join("out"), &["--target", "onnx"]).exits(0, &[]);
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

/// A norm over features of which there may be one, with a weight of more.
#[test]
fn a_norm_whose_weight_broadcasts() {
    for (form, features) in [("div", "n"), ("inverse", "n"), ("reciprocal", "n"), ("div", "1"), ("inverse", "1")] {
        for centered in [true, false] {
            let folder = scratch();
            let source = folder.path().join("model.onnx");
            let mut nodes = vec![node("u = ReduceMean(x, last)", vec![]), node("c = Sub(x, u)", vec![])];
            let x = if centered { "c" } else { "x" };
            nodes.push(node(&format!("e = Pow({x}, two)"), vec![]));
            nodes.extend(["v = ReduceMean(e, last)", "a = Add(v, eps)", "r = Sqrt(a)"].map(|text| node(text, vec![])));
            nodes.extend(match form {
                "div" => vec![node(&format!("d = Div({x}, r)"), vec![])],
                "inverse" => vec![node("i = Div(one, r)", vec![]), node(&format!("d = Mul({x}, i)"), vec![])],
                _ => vec![node("i = Reciprocal(r)", vec![]), node(&format!("d = Mul({x}, i)"), vec![])],
            });
            nodes.extend(["w = Mul(d, weight)", "y = Add(w, bias)"].map(|text| node(text, vec![])));
            let constants = vec![
                integers("last", &[1], &[-1]),
                floats("two", &[], &[2.0]),
                floats("one", &[], &[1.0]),
                floats("eps", &[], &[0.01]),
                floats("weight", &[3], &[0.5, 2.0, -1.0]),
                floats("bias", &[3], &[1.0, 2.0, 3.0]),
            ];
            let graph = graph(vec![f32("x", &format!("m, {features}"))], constants, nodes, &["y"]);
            fs::write(&source, model(18, graph).encode_to_vec()).unwrap();
            let target = folder.path().join("out");
            for options in [&["--target", "onnx"][..], &["--target", "ort"], &["--target", "onnx", "--no-fusion"]] {
                planish_compile(&source, &target, &[options, &["--force"]].concat()).exits(0, &[]);
                for size in [1, 3].into_iter().filter(|size| features == "n" || *size == 1) {
                    let x: Vec<f32> = (0..2 * size).map(|i| (i as f32 * 1.3).sin()).collect();
                    let x = Tensor::new(vec![2, size], x).unwrap();
                    let found = run(&onnx_runtime(), &target.join("model.onnx"), &x);
                    let expected = run(&ReferenceRuntime::default(), &source, &x);
                    assert_eq!(found.shape(), [2, 3], "{form} {options:?}");
                    let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-5;
                    let [found, expected] = [found, expected].map(|tensor| tensor.to_f64());
                    assert!(found.iter().zip(&expected).all(close), "{form}, {size}: {found:?}, {expected:?}");
                }
            }
        }
    }
}

/// `y` of a model of `x`.
fn run(runtime: &dyn Runtime, path: &Path, x: &Tensor) -> Tensor {
    let mut session = runtime.load(Model::onnx(path), ONE_THREAD).unwrap();
    session.run(&[("x", x.clone())]).unwrap().remove(0).1
}
