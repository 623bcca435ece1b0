//! OpenVINO runs the files of `fixtures/onnx`. `make test` puts its library into `.deps`.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may panic")]

use std::path::{Path, PathBuf};

use planish_eval::Tensor;
use planish_ir::DType;
use planish_runtimes::openvino::OpenVino;
use planish_runtimes::{Model, Runtime, RuntimeError, RuntimeValue, Session, SessionOptions};

fn file(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/onnx")).join(name)
}

fn load(path: &Path) -> Result<Box<dyn Session>, RuntimeError> {
    OpenVino::new(None).load(Model::onnx(path), SessionOptions { threads: 1 })
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
    let found = OpenVino::new(None).check().unwrap();
    assert_eq!((found.product, &*found.version), ("openvino", "2026.4.1"));
    assert!(found.location.contains("libopenvino_c.so.2641"), "{}", found.location);
    let elsewhere = OpenVino::new(Some(file("embed.onnx"))).check().unwrap_err();
    assert_eq!(elsewhere.runtime, "openvino");
    assert!(elsewhere.to_string().contains("this process has already loaded"), "{elsewhere}");
}

#[test]
fn integers_and_booleans_go_in_and_floats_come_out() {
    let mut session = load(&file("embed.onnx")).unwrap();
    let shown: Vec<String> = session.inputs().iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["input_ids: i64[input_ids_dim_0, input_ids_dim_1]", "keep: bool[keep_dim_0, keep_dim_1]"]);
    let row = |id: i16| (0..4).map(move |k| f32::from(id * 4 + k - 16) / 8.0);
    let expected: Vec<f32> = [0, 7, 3, 4].into_iter().flat_map(row).chain([0.0; 8]).collect();
    let expected = [
        ("y".to_owned(), Tensor::new(vec![2, 3, 4], expected).unwrap()),
        ("count".to_owned(), Tensor::new(vec![2], vec![10i64, 6]).unwrap()),
    ];
    assert_eq!(session.run(&embed_inputs()).unwrap(), expected);
    // Values of one run are inputs of another.
    let given = embed_inputs().map(|(name, tensor)| (name, RuntimeValue::from(tensor)));
    let given: Vec<(&str, &RuntimeValue)> = given.iter().map(|(name, value)| (*name, value)).collect();
    let outputs = session.run_values(&given).unwrap();
    assert_eq!(outputs[0].1.to_tensor().unwrap(), expected[0].1);
    session.bind(&embed_inputs()).unwrap();
    session.run_bound().unwrap();
}

#[test]
fn inputs_without_elements_are_taken() {
    let mut session = load(&file("embed.onnx")).unwrap();
    let empty = |dtype| Tensor::zeros(dtype, vec![2, 0]).unwrap();
    let outputs = session.run(&[("keep", empty(DType::Bool)), ("input_ids", empty(DType::I64))]).unwrap();
    assert_eq!(outputs[0].1.shape(), [2, 0, 4]);
}

#[test]
fn what_is_wrong_with_a_file_or_an_input_is_said() {
    let missing = load(Path::new("m.onnx")).err().unwrap().to_string();
    assert!(missing.starts_with("openvino could not load m.onnx: "), "{missing}");
    let mut session = load(&file("embed.onnx")).unwrap();
    let unbound = session.run_bound().unwrap_err().to_string();
    assert!(unbound.contains("no inputs are bound"), "{unbound}");
    let [(_, keep), _] = embed_inputs();
    let absent = session.run(&[("keep", keep)]).unwrap_err().to_string();
    assert!(absent.contains("the input `input_ids"), "{absent}");
}
