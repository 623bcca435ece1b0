//! Fixing shapes of ONNX graphs and cutting parts out of them.

use std::fs;
use std::path::PathBuf;

use planish::artifact::manifest::Manifest;
use planish::artifact::value::ValueInfo;
use planish_onnx::{ImportOptions, import_with};

use crate::support::{golden, planish, planish_compile, repository, scratch, text};

/// The embeddings of the BERT by Optimum, and what its first layer makes of them.
const EMBEDDED: &str = "/embeddings/LayerNorm/LayerNormalization_output_0";
const FIRST: &str = "/encoder/layer.0/output/LayerNorm/LayerNormalization_output_0";

fn file(name: &str) -> PathBuf {
    repository().join("fixtures/graphs").join(name).join("model.onnx")
}

/// The types of inputs and outputs of the artifact that arguments give, verified twice.
#[track_caller]
fn interface(name: &str, more: &[&str]) -> Vec<String> {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&file(name), &out, &[more, &["--verify", "--debug=verify"]].concat()).succeeds();
    planish(["verify", text(&out), "--reference", text(&file(name))]).succeeds();
    let part = Manifest::read(&out).unwrap().parts.remove(0);
    let values =
        part.inputs.into_iter().map(|input| input.value).chain(part.outputs.into_iter().map(|output| output.value));
    let sizes = |value: &ValueInfo| value.dims().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    values.map(|value| format!("{} [{}]", value.name, sizes(&value))).collect()
}

#[track_caller]
fn refused(name: &str, more: &[&str], parts: &[&str]) {
    let folder = scratch();
    planish_compile(&file(name), &folder.path().join("out"), more).exits(1, parts);
}

#[test]
fn sizes_that_one_input_fixes_are_fixed_everywhere() {
    let expected =
        ["input_ids [2, 16]", "attention_mask [2, 16]", "token_type_ids [2, 16]", "last_hidden_state [2, 16, 48]"];
    assert_eq!(interface("optimum-bert", &["--shapes", "input_ids=2x16"]), expected);
}

#[test]
fn sums_of_known_sizes_are_known() {
    let llama = interface("optimum-llama", &["--shapes", "input_ids=1x4,past_key_values.0.key=1x2x5x16"]);
    assert!(llama.contains(&"attention_mask [1, 9]".to_owned()), "{llama:?}");
    assert!(llama.contains(&"past_key_values.1.value [1, 2, 5, 16]".to_owned()), "{llama:?}");
    let gpt2 = interface("optimum-gpt2", &["--shapes", "input_ids=2x4"]);
    assert!(gpt2.contains(&"attention_mask [2, past_sequence_length + 4]".to_owned()), "{gpt2:?}");
    // Of a sum with one known part the rest stays open.
    let shapes = [("past_key_values.0.key".to_owned(), vec![1, 2, 5, 16])].into();
    let options = ImportOptions { shapes, ..ImportOptions::default() };
    let graph = import_with(&file("optimum-llama"), &options).unwrap().graph;
    let mask = graph.inputs().iter().find(|v| graph.value(**v).name == "attention_mask").unwrap();
    assert_eq!(graph.ty(*mask).shape.to_string(), "[1, sequence_length + 5]");
}

#[test]
fn shapes_that_cannot_be_are_refused() {
    let refused = |shapes: &str, parts: &[&str]| refused("optimum-llama", &["--shapes", shapes], parts);
    refused("input_idz=1x4", &["no input `input_idz`", "`input_ids`"]);
    refused("input_ids=4", &["`input_ids` has 2 dimensions", "has 1"]);
    refused("past_key_values.0.key=1x2x5x12", &["dimension 3", "`past_key_values.0.key` is 16", "cannot be 12"]);
    refused("input_ids=1x4,position_ids=2x4", &["`position_ids`", "`batch_size`", "1 at another input", "not 2"]);
    refused("attention_mask=1x9", &["`past_sequence_length + sequence_length`", "its parts"]);
    let known = "input_ids=1x4,past_key_values.0.key=1x2x5x16,attention_mask=1x8";
    refused(known, &["dimension 1 of the input `attention_mask`", "which is 9 here, and not 8"]);
}

#[test]
fn the_command_line_names_what_it_cannot_take() {
    let folder = scratch();
    let out = folder.path().join("out");
    for shapes in ["input_ids", "input_ids=ax4", "=1x4", "input_ids="] {
        planish_compile(&file("optimum-bert"), &out, &["--shapes", shapes]).exits(2, &["NAME=SIZExSIZE"]);
    }
    planish_compile(&file("optimum-bert"), &out, &["--shapes", "input_ids=1x4,input_ids=1x4"]).exits(2, &["twice"]);
    let parts = ["--shapes", "ONNX graphs only", "--target onnx"];
    planish_compile(&golden("bert"), &out, &["--shapes", "input_ids=1x4"]).exits(1, &parts);
}

#[test]
fn a_part_between_two_values_is_a_model() {
    let cut = ["--inputs", &format!("{EMBEDDED},attention_mask"), "--outputs", FIRST];
    let expected = [
        format!("{EMBEDDED} [batch_size, sequence_length, 48]"),
        "attention_mask [batch_size, sequence_length]".to_owned(),
        format!("{FIRST} [batch_size, sequence_length, 48]"),
    ];
    assert_eq!(interface("optimum-bert", &cut), expected);
    let embeddings = interface("optimum-bert", &["--outputs", "/embeddings/Add_output_0"]);
    let expected = [
        "input_ids [batch_size, sequence_length]",
        "token_type_ids [batch_size, sequence_length]",
        "/embeddings/Add_output_0 [batch_size, sequence_length, 48]",
    ];
    assert_eq!(embeddings, expected);
}

#[test]
fn parts_that_need_more_or_less_than_is_given_are_refused() {
    let refused = |inputs: &str, outputs: &str, parts: &[&str]| {
        refused("optimum-bert", &["--inputs", inputs, "--outputs", outputs], parts);
    };
    refused(EMBEDDED, FIRST, &["still depends on the input `attention_mask`", "--inputs"]);
    refused(&format!("input_ids,attention_mask,{EMBEDDED}"), FIRST, &["no output depends on the input `input_ids`"]);
    refused(EMBEDDED, "layer.0/output/LayerNorm", &["no value `layer.0/output/LayerNorm`", FIRST]);
    refused("embeddings/LayerNorm", FIRST, &["no value `embeddings/LayerNorm`", EMBEDDED]);
    refused("/Shape_output_0", "/Shape_output_0", &["`/Shape_output_0` cannot be an input"]);
    refused(&format!("{EMBEDDED},{EMBEDDED}"), FIRST, &["are the same value"]);
}

/// What was cut is not what another cut of the same file gives.
#[test]
fn the_manifest_says_what_was_taken() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&file("optimum-bert"), &out, &["--shapes", "input_ids=1x4", "--outputs", EMBEDDED]).succeeds();
    let manifest: serde_json::Value = serde_json::from_slice(&fs::read(out.join("planish.json")).unwrap()).unwrap();
    let expected = serde_json::json!({"shapes": {"input_ids": [1, 4]}, "outputs": [EMBEDDED]});
    assert_eq!(manifest["source"]["import"], expected);
}
