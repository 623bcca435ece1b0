//! The forms of graphs that a recipe chooses: all compute what the model does.

use std::fs;

use serde_json::json;

use crate::engine::read;
use crate::support::{golden, planish_compile, scratch};

/// The members of a recipe with the values beside their defaults on target ort, and an operator that the graph has then.
const FORMS: [(&str, &str, Option<&str>); 4] = [
    ("token_order", "batch-major", None),
    ("attention", "operator", Some("MultiHeadAttention")),
    ("projections", "joined", None),
    ("biases", "kept", None),
];

#[test]
fn every_form_gives_what_the_model_does_and_is_another_graph() {
    let folder = scratch();
    let (usual, out) = (folder.path().join("usual"), folder.path().join("out"));
    for name in ["bert", "distilbert-qa", "vit"] {
        planish_compile(&golden(name), &usual, &["--verify"]).exits(0, &[]);
        let default = fs::read(usual.join("model.onnx")).unwrap();
        for (member, value, operator) in FORMS {
            let recipe = format!("--recipe={}={value}", member.replace('_', "-"));
            planish_compile(&golden(name), &out, &[&recipe, "--verify"]).exits(0, &[]);
            assert_eq!(read(&out.join("planish.json"))["recipe"][member], json!(value), "{name}");
            let graph = fs::read(out.join("model.onnx")).unwrap();
            assert_ne!(graph, default, "{name} {recipe}");
            let has = |of: &[u8], word: &str| of.windows(word.len()).any(|bytes| bytes == word.as_bytes());
            if let Some(operator) = operator {
                assert!(has(&graph, operator) && !has(&default, operator), "{name} {operator}");
            }
            // What was recorded gives the same graph again.
            let again = folder.path().join("again");
            let recorded = out.join("planish.json");
            planish_compile(&golden(name), &again, &["--recipe", recorded.to_str().unwrap(), "--force"]).exits(0, &[]);
            assert_eq!(fs::read(again.join("model.onnx")).unwrap(), graph, "{name} {recipe}");
        }
    }
}

/// All forms at once, of models with several parts, with caches, and with integers.
#[test]
fn forms_go_together() {
    let folder = scratch();
    let out = folder.path().join("out");
    let all: Vec<String> = FORMS.iter().map(|(member, value, _)| format!("--recipe={member}={value}")).collect();
    for (name, more) in
        [("t5", &[][..]), ("gpt2", &[]), ("whisper", &[]), ("llama", &["--int4"]), ("bert", &["--int8"])]
    {
        let all: Vec<&str> = all.iter().map(String::as_str).chain(["--verify"]).chain(more.iter().copied()).collect();
        planish_compile(&golden(name), &out, &all).exits(0, &[]);
    }
    // Target onnx has two of them.
    let onnx = ["--target", "onnx", "--recipe=projections=joined", "--recipe=biases=absorbed", "--verify"];
    planish_compile(&golden("bert"), &out, &onnx).exits(0, &[]);
}

#[test]
fn a_target_without_the_form_refuses_it() {
    let folder = scratch();
    let out = folder.path().join("out");
    let refused = |more: &[&str], part: &str| {
        planish_compile(&golden("bert"), &out, more).exits(2, &[part]);
        assert!(!out.exists());
    };
    let onnx = ["--target", "onnx", "--recipe=attention=operator"];
    refused(&onnx, "--recipe attention is not for target onnx; it is for target ort");
    let cuda = ["--target", "cuda", "--recipe=token-order=batch-major"];
    refused(&cuda, "--recipe token-order is not for target cuda; it is for target ort");
    let gpu = ["--target", "ort-cuda", "--recipe=biases=kept"];
    refused(&gpu, "--recipe biases is not for target ort-cuda; it is for target onnx, ort");
    refused(&["--recipe=attention=flash"], "`attention` of the recipe");
}
