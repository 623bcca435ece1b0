//! ONNX Runtime runs the files of `fixtures/onnx`. `make test` puts its library into `.deps`.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may panic")]

use std::path::PathBuf;

use half::f16;
use planish_eval::Tensor;
use planish_ir::Graph;
use planish_runtimes::ort::{OnnxRuntime, OptimizationLevel, OrtOptions};
use planish_runtimes::{Model, Runtime, RuntimeError, RuntimeValue, Session, SessionOptions};

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/onnx")).join(name)
}

fn load(name: &str, options: OrtOptions) -> Result<Box<dyn Session>, RuntimeError> {
    OnnxRuntime::new(None).options(options).load(Model::onnx(&file(name)), SessionOptions { threads: 1 })
}

fn embed_inputs() -> [(&'static str, Tensor); 2] {
    [
        // Not in the model's order: names decide.
        ("keep", Tensor::new(vec![2, 3], vec![true, true, true, true, false, false]).unwrap()),
        ("input_ids", Tensor::new(vec![2, 3], vec![0i64, 7, 3, 4, 1, 1]).unwrap()),
    ]
}

#[test]
fn the_library_is_found_and_said_where() {
    let found = OnnxRuntime::new(None).check().unwrap();
    assert_eq!(found.version, "1.32.0");
    assert!(found.location.contains("libonnxruntime.so.1.32.0"), "{}", found.location);

    let elsewhere = OnnxRuntime::new(Some(file("embed.onnx"))).check().unwrap_err();
    assert!(elsewhere.to_string().contains("this process has already loaded"), "{elsewhere}");
}

#[test]
fn ports_have_names_types_and_symbols() {
    let session = load("embed.onnx", OrtOptions::default()).unwrap();
    let shown = |ports: &[planish_runtimes::Port]| ports.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        shown(session.inputs()),
        ["input_ids: i64[batch_size, sequence_length]", "keep: bool[batch_size, sequence_length]"]
    );
    assert_eq!(shown(session.outputs()), ["y: f32[batch_size, sequence_length, 4]", "count: i64[batch_size]"]);
}

#[test]
fn integers_and_booleans_go_in_and_floats_come_out() {
    for optimization in [OptimizationLevel::Disabled, OptimizationLevel::Basic, OptimizationLevel::All] {
        let options = OrtOptions { spin: false, optimization, ..OrtOptions::default() };
        let outputs = load("embed.onnx", options).unwrap().run(&embed_inputs()).unwrap();
        let row = |id: i16| (0..4).map(move |k| f32::from(id * 4 + k - 16) / 8.0);
        let expected: Vec<f32> = [0, 7, 3, 4].into_iter().flat_map(row).chain([0.0; 8]).collect();
        let expected = [
            ("y".to_owned(), Tensor::new(vec![2, 3, 4], expected).unwrap()),
            ("count".to_owned(), Tensor::new(vec![2], vec![10i64, 6]).unwrap()),
        ];
        assert_eq!(outputs, expected, "{optimization:?}");
    }
}

#[test]
fn half_precision_and_empty_tensors_pass() {
    let mut session = load("half.onnx", OrtOptions::compiled()).unwrap();
    let x: Vec<f16> = [0.1, -2.5, 3.0, 65504.0].map(f16::from_f32).to_vec();
    let outputs = session.run(&[("x", Tensor::new(vec![2, 2], x.clone()).unwrap())]).unwrap();
    let twice: Vec<f16> = x.iter().map(|v| v + v).collect();
    let wide: Vec<f64> = x.iter().map(|v| v.to_f64()).collect();
    assert_eq!(outputs[0].1, Tensor::new(vec![2, 2], twice).unwrap());
    assert_eq!(outputs[1].1, Tensor::new(vec![2, 2], wide).unwrap());

    let outputs = session.run(&[("x", Tensor::new(vec![0, 2], Vec::<f16>::new()).unwrap())]).unwrap();
    assert_eq!(outputs[0].1.shape(), [0, 2]);
}

#[test]
fn what_a_run_gives_feeds_the_next_and_outlives_the_session() {
    let x: Vec<f16> = [0.5, -2.5, 3.0, 8.0].map(f16::from_f32).to_vec();
    let mut value = RuntimeValue::from(Tensor::new(vec![2, 2], x).unwrap());
    let mut session = load("half.onnx", OrtOptions::default()).unwrap();
    for _ in 0..3 {
        let mut outputs = session.run_values(&[("x", &value)]).unwrap();
        assert_eq!((outputs[0].0.as_str(), outputs[1].0.as_str()), ("y", "z"));
        value = outputs.swap_remove(0).1;
        value = value.take_rows(&[1, 0]).unwrap();
    }
    let of_bool = RuntimeValue::from(Tensor::new(vec![2, 2], vec![true; 4]).unwrap());
    let error = session.run_values(&[("x", &of_bool)]).err().unwrap().to_string();
    assert!(error.contains("was given bool[2, 2]"), "{error}");
    drop(session);
    let mut other = load("half.onnx", OrtOptions::default()).unwrap();
    let z = &other.run_values(&[("x", &value)]).unwrap()[1].1;
    assert_eq!((z.shape(), z.as_f32()), (&[2, 2][..], None));
    assert_eq!(z.to_tensor().unwrap().to_f64(), [24.0, 64.0, 4.0, -20.0]);
    assert!(z.take_rows(&[0, 2]).is_none());
}

#[test]
fn bound_inputs_are_kept_until_others_are_bound() {
    let mut session = load("embed.onnx", OrtOptions::default()).unwrap();
    let error = session.run_bound().unwrap_err().to_string();
    assert!(error.contains("embed.onnx") && error.ends_with("no inputs are bound"), "{error}");
    session.bind(&embed_inputs()).unwrap();
    session.run_bound().unwrap();
    session.run_bound().unwrap();
    let [keep, ids] = embed_inputs();
    assert!(session.bind(&[keep, (ids.0, Tensor::new(vec![2, 4], vec![0i64; 8]).unwrap())]).is_ok());
    let error = session.run_bound().unwrap_err().to_string();
    assert!(error.starts_with("ort could not run") && error.contains("embed.onnx"), "{error}");
}

#[test]
fn wrong_inputs_are_refused_by_name() {
    let mut session = load("embed.onnx", OrtOptions::default()).unwrap();
    let [keep, ids] = embed_inputs();
    let error = session.run(std::slice::from_ref(&ids)).unwrap_err().to_string();
    assert!(error.contains("the input `keep` is missing"), "{error}");
    let error = session.run(&[keep.clone(), ids.clone(), ("mask", ids.1.clone())]).unwrap_err().to_string();
    assert!(error.contains("there is no input `mask`"), "{error}");
    let error = session.run(&[keep.clone(), ("input_ids", keep.1.clone())]).unwrap_err().to_string();
    assert!(error.contains("was given bool[2, 3]"), "{error}");
    let flat = Tensor::new(vec![3], vec![1i64, 2, 3]).unwrap();
    let error = session.run(&[keep, ("input_ids", flat)]).unwrap_err().to_string();
    assert!(error.contains("was given i64[3]"), "{error}");
}

/// Texts are bytes of one dimension more, on the way in and on the way out.
#[test]
fn texts_are_given_as_bytes() {
    let mut session = load("strings.onnx", OrtOptions::default()).unwrap();
    let bytes = |shape: &[usize], text: &[u8]| Tensor::new(shape.to_vec(), text.to_vec()).unwrap();
    let texts = bytes(&[3, 5], "one\0\0zw\u{f6}l\0\0\0\0\0".as_bytes());
    let given = session.run(&[("x", texts)]).unwrap();
    assert_eq!(given, [("y".to_owned(), bytes(&[3, 5], "one\0\0zw\u{f6}l\0\0\0\0\0".as_bytes()))]);
    let error = session.run(&[("x", bytes(&[1, 2], &[0xFF, 0]))]).unwrap_err().to_string();
    assert!(error.contains("text 0 is not UTF-8"), "{error}");
    let numbers = Tensor::new(vec![1], vec![1i64]).unwrap();
    let error = session.run(&[("x", numbers)]).unwrap_err().to_string();
    assert!(error.contains("the input `x: string[n]` was given i64[1]"), "{error}");
}

#[test]
fn files_that_are_no_model_and_types_without_a_dtype_are_errors() {
    let error = |name: &str| load(name, OrtOptions::default()).err().unwrap().to_string();
    assert!(error("absent.onnx").contains("absent.onnx` does not exist"), "{}", error("absent.onnx"));
    assert!(error("make_tiny.py").contains("ort could not load"), "{}", error("make_tiny.py"));
    assert!(error("lists.onnx").contains("the input `x` is a Sequence<"), "{}", error("lists.onnx"));
    let graph = Graph::new("g");
    let refused = OnnxRuntime::new(None).load(Model::Graph(&graph), SessionOptions::default()).err().unwrap();
    assert!(
        refused.to_string().contains("the graph `g`: it is a graph in memory, and the runtime takes ONNX files"),
        "{refused}"
    );
}
