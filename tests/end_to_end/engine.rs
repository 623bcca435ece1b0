//! Engines of TensorRT from the command line: profiles, errors of usage, and what is left without the library.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Done, golden, names, planish, planish_compile, scratch, text};

/// Where no library is.
const NOWHERE: [&str; 4] = ["--target", "trt", "--runtime-option", "trt-lib=/nonexistent"];

/// A golden compiled without a library.
pub(crate) fn without_library(name: &str, out: &Path, more: &[&str]) -> Done {
    planish_compile(&golden(name), out, &[&NOWHERE[..], more].concat())
}

/// A JSON file.
pub(crate) fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The ranges of symbols of each part's profiles, as options say them.
pub(crate) fn ranges(folder: &Path) -> BTreeMap<String, Vec<String>> {
    let range = |range: &Value| format!("{}:{}:{}", range["min"], range["opt"], range["max"]);
    let profile = |profile: &Value| {
        let symbols = profile["symbols"].as_object().unwrap().iter();
        symbols.map(|(symbol, sizes)| format!("{symbol}={}", range(sizes))).collect::<Vec<_>>().join(",")
    };
    let parts = read(&folder.join("profiles.json"));
    let parts = parts["parts"].as_array().unwrap().iter();
    let profiles = |part: &Value| part["profiles"].as_array().unwrap().iter().map(profile).collect();
    parts.map(|part| (part["name"].as_str().unwrap().to_owned(), profiles(part))).collect()
}

#[test]
fn profiles_follow_from_the_model() {
    /// A part with its profiles.
    type Part = (&'static str, &'static [&'static str]);
    let cases: &[(&str, &[Part])] = &[
        ("bert", &[("model", &["batch_size=1:1:32,sequence_length=1:32:32"])]),
        ("vit", &[("model", &["batch_size=1:1:32"])]),
        (
            "gpt2",
            &[(
                "model",
                &[
                    "batch_size=1:1:4,past_sequence_length=0:0:0,sequence_length=1:64:64",
                    "batch_size=1:1:4,past_sequence_length=1:32:63,sequence_length=1:1:1",
                ],
            )],
        ),
        (
            "llama",
            &[(
                "model",
                &[
                    "batch_size=1:1:4,past_sequence_length=0:0:0,sequence_length=1:64:64",
                    "batch_size=1:1:4,past_sequence_length=1:32:63,sequence_length=1:1:1",
                ],
            )],
        ),
        (
            "t5",
            &[
                ("encoder_model", &["batch_size=1:1:4,encoder_sequence_length=1:128:1024"]),
                (
                    "decoder_model",
                    &["batch_size=1:1:4,decoder_sequence_length=1:128:1024,encoder_sequence_length=1:128:1024"],
                ),
                (
                    "decoder_with_past_model",
                    &["batch_size=1:1:4,decoder_sequence_length=1:1:1,encoder_sequence_length=1:128:1024,\
                       past_decoder_sequence_length=1:512:1023"],
                ),
            ],
        ),
    ];
    let folder = scratch();
    for (model, expected) in cases {
        let out = folder.path().join(model);
        without_library(model, &out, &[]).exits(4, &[]);
        let expected = expected.iter().map(|(part, profiles)| {
            ((*part).to_owned(), profiles.iter().map(|profile| (*profile).to_owned()).collect::<Vec<_>>())
        });
        assert_eq!(ranges(&out), expected.collect(), "{model}");
    }
}

#[test]
fn sums_of_symbols_have_the_sums_of_their_sizes() {
    let folder = scratch();
    let out = folder.path().join("out");
    let shapes = "batch_size=1:2:3,past_sequence_length=0:16:48,sequence_length=1:4:16";
    without_library("gpt2", &out, &["--shapes", shapes]).exits(4, &[]);
    let profiles = read(&out.join("profiles.json"));
    let inputs = &profiles["parts"][0]["profiles"][0]["inputs"];
    assert_eq!(inputs[0], json!({"name": "input_ids", "min": [1, 1], "opt": [2, 4], "max": [3, 16]}));
    assert_eq!(inputs[1], json!({"name": "attention_mask", "min": [1, 1], "opt": [2, 20], "max": [3, 64]}));
    let name = "past_key_values.0.key";
    assert_eq!(inputs[3], json!({"name": name, "min": [1, 4, 0, 12], "opt": [2, 4, 16, 12], "max": [3, 4, 48, 12]}));
}

/// A part takes the symbols that it has: profiles that differ in others are one.
#[test]
fn parts_take_their_symbols() {
    let folder = scratch();
    let out = folder.path().join("out");
    let shapes = |past: &str| {
        format!(
            "batch_size=1,encoder_sequence_length=1:8:16,decoder_sequence_length=1,past_decoder_sequence_length={past}"
        )
    };
    let (first, second) = (shapes("1:2:3"), shapes("4:5:6"));
    without_library("t5", &out, &["--shapes", &first, "--shapes", &second]).exits(4, &[]);
    let counts: Vec<usize> = ranges(&out).values().map(Vec::len).collect();
    assert_eq!(counts, [1, 2, 1], "decoder_model, decoder_with_past_model, encoder_model");
}

#[test]
fn ranges_that_do_not_fit_are_errors_of_usage() {
    let folder = scratch();
    let out = folder.path().join("out");
    let cases: &[(&str, &str, &[&str])] = &[
        ("bert", "batch=1,sequence_length=1:8:16", &["`batch`", "the model has `batch_size` (of input_ids"]),
        ("bert", "batch_size=1:8:32", &["`sequence_length` has no range", "input_ids, attention_mask", "--shapes"]),
        ("bert", "batch_size=8:1:32,sequence_length=8", &["batch_size=8:1:32 of input_ids", "do not rise"]),
        ("bert", "batch_size=1:9:8,sequence_length=8", &["batch_size=1:9:8", "do not rise"]),
        ("bert", "batch_size=0:1:8,sequence_length=8", &["batch_size=0:1:8", "may be 0"]),
        ("bert", "batch_size=1,sequence_length=1:8:33", &["sequence_length=1:8:33", "takes 32 tokens at most"]),
        ("gpt2", "batch_size=1,sequence_length=0:1:2,past_sequence_length=0", &["sequence_length=0:1:2", "may be 0"]),
        ("gpt2", "batch_size=1,sequence_length=1,past_sequence_length=0:1:65", &["past_key_values.0.key", "64 tokens"]),
        (
            "gpt2",
            "batch_size=1,sequence_length=64,past_sequence_length=64",
            &["past_sequence_length=64,sequence_length=64", "128 tokens", "takes 64 at most"],
        ),
        ("gpt2", "batch_size=1,sequence_length=1:2:4,past_sequence_length=0:1:61", &["65 tokens"]),
        ("bert", "batch_size=1:8:4294967295,sequence_length=8", &["4294967295", "2147483647"]),
        ("vit", "batch_size=1,height=16", &["`height`", "`batch_size` (of pixel_values)"]),
        ("bert", "batch_size=1:2,sequence_length=8", &["1:2", "MIN:OPT:MAX"]),
        ("bert", "batch_size=1,batch_size=2,sequence_length=8", &["`batch_size` twice"]),
    ];
    for (model, shapes, parts) in cases {
        let more = ["--target", "trt", "--shapes", shapes];
        planish_compile(&golden(model), &out, &more).exits(2, parts);
        assert_eq!(names(folder.path()), [""; 0], "{shapes}");
    }
    for option in ["engine.refit=true", "engine.gpu=sm89", "engine.workspace=1GiB"] {
        planish_compile(&golden("bert"), &out, &["--recipe", option]).exits(2, &["`engine`", "add --target trt"]);
    }
    planish_compile(&golden("gpt2"), &out, &["--target", "trt", "--package", "genai"])
        .exits(2, &["onnxruntime-genai", "onnx, ort, openvino, ort-cuda"]);
    planish_compile(&golden("bert"), &out, &["--shapes", "batch_size=1:8:32"])
        .exits(2, &["batch_size", "--target trt"]);
    for (option, part) in [
        ("engine.gpu=sm90", "sm89, sm120"),
        ("engine.trt-flags=FP16", "STRICT_NANS"),
        ("engine.tiling=some", "fast"),
        ("engine.tile=1", "--tile"),
    ] {
        planish_compile(&golden("bert"), &out, &["--target", "trt", "--recipe", option])
            .exits(2, &["`engine` of the recipe", part]);
    }
}

#[test]
fn without_the_library_the_graph_and_its_profiles_stay() {
    let folder = scratch();
    let out = folder.path().join("out");
    let done = without_library("bert", &out, &["--fp16"]).exits(4, &["no engine", "planish build-engine"]);
    assert!(done.stdout.contains("model.onnx"), "{}", done.stdout);
    let kept = names(&out);
    assert!(["model.onnx", "profiles.json"].iter().all(|name| kept.iter().any(|other| other == name)), "{kept:?}");
    assert!(!kept.iter().any(|name| name.ends_with(".engine")), "{kept:?}");
    let done =
        planish(["build-engine", text(&out), "--runtime-option", "trt-lib=/nonexistent"]).exits(4, &["/nonexistent"]);
    assert!(!done.stderr.contains("planish build-engine"), "{}", done.stderr);
    let printed = planish(["build-engine", text(&out), "--runtime-option", "trt-lib=/nonexistent", "--print-trtexec"])
        .exits(4, &[]);
    assert!(printed.stdout.starts_with("# planish keeps the ONNX files only with --keep-onnx"), "{}", printed.stdout);
    assert_eq!(names(&out), kept);
    assert!(done.stderr.contains("the builder of engines is unavailable: no TensorRT"), "{}", done.stderr);
    planish(["refit-engine", text(&out)]).exits(1, &["has no engine of model", "planish build-engine"]);
    planish(["verify", text(&out)]).succeeds();
    planish(["build-engine", text(&out), "--shapes", "batch_size=1"]).exits(2, &["`sequence_length` has no range"]);
    let other = folder.path().join("other");
    planish_compile(&golden("bert"), &other, &[]).succeeds();
    planish(["build-engine", text(&other)]).exits(1, &["target ort", "--target trt"]);
}
