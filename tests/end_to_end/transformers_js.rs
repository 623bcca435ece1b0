//! Artifacts for Transformers.js. That the library runs them is a matter of tests/compat.

use std::fs;

use serde_json::Value;

use crate::support::{golden, names, planish_compile, scratch};

const PACKAGE: &[&str] = &["--package", "transformers-js"];

#[test]
fn both_decoders_are_in_one_graph_too() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("t5"), &out, &[PACKAGE, &["--verify"]].concat()).succeeds();
    let graphs =
        ["decoder_model.onnx", "decoder_model_merged.onnx", "decoder_with_past_model.onnx", "encoder_model.onnx"];
    assert_eq!(names(&out.join("onnx")), graphs);
    let manifest: Value = serde_json::from_slice(&fs::read(out.join("planish.json")).unwrap()).unwrap();
    assert_eq!(manifest["runtime_package"], "transformers-js");
    assert!(manifest["companions"].as_array().unwrap().contains(&"onnx/decoder_model_merged.onnx".into()));
    let bytes = |name: &str| fs::metadata(out.join("onnx").join(name)).unwrap().len();
    // Weights of both are stored once.
    assert!(bytes(graphs[1]) < bytes(graphs[0]) + bytes(graphs[2]) / 2);
    // Weights of 4 bits are in files beside the decoders, and within the graph of both.
    let rounded = folder.path().join("rounded");
    planish_compile(&golden("t5"), &rounded, &[PACKAGE, &["--target", "ort", "--int4", "--block-size", "16"]].concat())
        .succeeds();
    assert!(names(&rounded.join("onnx")).iter().any(|name| name == graphs[1]));
}

#[test]
fn a_model_of_one_graph_is_in_the_folder_that_the_library_looks_into() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("bert"), &out, PACKAGE).succeeds();
    assert_eq!(names(&out.join("onnx")), ["model.onnx"]);
    assert!(names(&out).contains(&"config.json".to_owned()));
    planish_compile(&golden("bert"), &out, &[PACKAGE, &["--target", "trt"]].concat())
        .exits(2, &["--package transformers-js: Transformers.js loads ONNX files"]);
}
