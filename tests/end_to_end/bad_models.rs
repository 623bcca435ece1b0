//! Checkpoints that are wrong, through the command: exit code 1, a message that says what and
//! where, and nothing left after.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::Dtype;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Draft, Stored, names, planish_compile, scratch};

/// A copy of a golden in a folder of its own, to be spoiled.
fn model() -> (TempDir, PathBuf) {
    let folder = scratch();
    let model = Draft::of("bert").write(folder.path().join("model"));
    (folder, model)
}

/// Asserts that a model is refused, with each of some parts in the message.
#[track_caller]
fn assert_refused(model: &Path, parts: &[&str]) {
    let folder = model.parent().unwrap();
    let done = planish_compile(model, &folder.join("out"), &["--json"]).exits(1, parts);
    assert_eq!(done.stdout, "", "only a document goes to standard output");
    assert!(done.stderr.starts_with("error: ") || done.stderr.starts_with("warning: "), "{}", done.stderr);
    let model = model.file_name().unwrap().to_str().unwrap();
    assert_eq!(names(folder), [model], "something was left behind");
}

#[track_caller]
fn assert_weights_refused(change: impl FnOnce(Vec<u8>) -> Vec<u8>, parts: &[&str]) {
    let (_folder, model) = model();
    let path = model.join("model.safetensors");
    fs::write(&path, change(fs::read(&path).unwrap())).unwrap();
    assert_refused(&model, &[&["model.safetensors"], parts].concat());
}

/// A weight file of this header and as many zeros.
fn weights(header: &Value, data: usize) -> Vec<u8> {
    let header = header.to_string();
    let mut bytes = u64::try_from(header.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[track_caller]
fn assert_draft_refused(change: impl FnOnce(&mut Draft), parts: &[&str]) {
    let (folder, mut draft) = (scratch(), Draft::of("bert"));
    change(&mut draft);
    assert_refused(&draft.write(folder.path().join("model")), parts);
}

#[track_caller]
fn assert_key_refused(key: &str, value: Value, parts: &[&str]) {
    assert_draft_refused(|draft| draft.config[key] = value, &[&["config.json"], parts].concat());
}

#[test]
fn weights_cut_short() {
    assert_weights_refused(|_| Vec::new(), &["0 bytes", "cut short"]);
    assert_weights_refused(|bytes| bytes[..100].to_vec(), &["header ends at byte", "cut short"]);
    assert_weights_refused(|bytes| bytes[..bytes.len() - 1].to_vec(), &["pooler.dense.weight", "cut short"]);
}

#[test]
fn headers_beyond_the_file() {
    let long = |length: u64| move |bytes: Vec<u8>| [&length.to_le_bytes(), &bytes[8..]].concat();
    assert_weights_refused(long(1_000_000), &["header ends at byte 1000008", "cut short"]);
    assert_weights_refused(long(u64::MAX), &["18446744073709551615", "not a safetensors file"]);
}

#[test]
fn headers_that_are_no_json() {
    assert_weights_refused(
        |mut bytes| {
            bytes[8] = b'!';
            bytes
        },
        &["header is malformed"],
    );
}

#[test]
fn overlapping_tensors() {
    let tensor = |begin: u64| json!({"dtype": "F32", "shape": [2], "data_offsets": [begin, begin + 8]});
    assert_weights_refused(
        |_| weights(&json!({"a": tensor(0), "b": tensor(4)}), 12),
        &["`a` and `b` overlap at byte 4"],
    );
}

#[test]
fn tensors_out_of_range() {
    let tensor = |end: u64| json!({"a": {"dtype": "U8", "shape": [end], "data_offsets": [0, end]}});
    assert_weights_refused(|_| weights(&tensor(9), 8), &["tensor `a` ends at byte 9", "the file has 8"]);
    assert_weights_refused(|_| weights(&tensor(u64::MAX), 8), &["tensor `a`"]);
}

#[test]
fn missing_tensors() {
    let name = "encoder.layer.1.output.dense.weight";
    assert_draft_refused(|draft| drop(draft.tensors.remove(name)), &[name, "is missing", "model.safetensors"]);
}

#[test]
fn wrong_shapes() {
    let name = "encoder.layer.0.attention.self.key.weight";
    let stored = Stored { dtype: Dtype::F32, shape: vec![48, 47], bytes: vec![0; 4 * 48 * 47] };
    assert_draft_refused(
        |draft| drop(draft.tensors.insert(name.to_owned(), stored)),
        &[name, "model.safetensors", "[48, 47]", "[48, 48]"],
    );
}

#[test]
fn element_types_of_no_weights() {
    let name = "pooler.dense.bias";
    let stored = Stored { dtype: Dtype::I64, shape: vec![48], bytes: vec![0; 8 * 48] };
    assert_draft_refused(|draft| drop(draft.tensors.insert(name.to_owned(), stored)), &[name, "I64"]);
}

#[test]
fn unknown_architectures() {
    assert_key_refused("model_type", json!("rwkv"), &["\"rwkv\"", "bert", "camembert", "distilbert", "roberta"]);
    let nothing = |draft: &mut Draft| {
        draft.config["model_type"] = json!(null);
        draft.config["architectures"] = json!(null);
    };
    assert_draft_refused(nothing, &["config.json", "`model_type` is missing", "roberta"]);
    assert_key_refused("architectures", json!(["BertForNextSentencePrediction"]), &["BertForNextSentencePrediction"]);
}

#[test]
fn config_values() {
    for key in ["hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings", "intermediate_size"] {
        for value in [json!("48"), json!(0), json!(-1), json!(1_u64 << 40), json!(48.5), json!([48]), json!(1e300)] {
            let shown = value.to_string();
            assert_key_refused(key, value, &[key, &shown]);
        }
    }
    assert_key_refused("layer_norm_eps", json!("small"), &["layer_norm_eps", "\"small\""]);
    assert_key_refused("layer_norm_eps", json!(-1e-12), &["layer_norm_eps", "a positive number"]);
    assert_key_refused("hidden_act", json!("softplus"), &["hidden_act", "softplus"]);
    assert_key_refused("pad_token_id", json!(131), &["pad_token_id", "131"]);
    assert_key_refused("is_decoder", json!(true), &["is_decoder"]);
}

/// Within bounds each, but the tensors are not that large.
#[test]
fn config_values_that_the_weights_contradict() {
    assert_draft_refused(
        |draft| draft.config["num_hidden_layers"] = json!(16_777_216),
        &["encoder.layer.2.", "is missing"],
    );
    assert_draft_refused(|draft| draft.config["vocab_size"] = json!(16_777_216), &["word_embeddings", "16777216"]);
}

#[test]
fn sizes_that_do_not_divide() {
    assert_key_refused("num_attention_heads", json!(5), &["num_attention_heads = 5", "hidden_size = 48"]);
}

#[test]
fn configs_that_are_no_objects() {
    for (text, part) in
        [("", "not JSON"), ("{\"model_type\": ", "not JSON"), ("[]", "not a JSON object"), ("\u{0}", "not JSON")]
    {
        let (_folder, model) = model();
        fs::write(model.join("config.json"), text).unwrap();
        assert_refused(&model, &["config.json", part]);
    }
}

#[test]
fn missing_files() {
    let without = |name: &str, parts: &[&str]| {
        let (_folder, model) = model();
        fs::remove_file(model.join(name)).unwrap();
        assert_refused(&model, parts);
    };
    without("config.json", &["there is no config.json", "beside the weights"]);
    without("model.safetensors", &["there are no weights", "model.safetensors.index.json"]);
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&folder.path().join("nowhere"), &out, &[]).exits(1, &["nowhere", "No such file"]);
    fs::write(folder.path().join("pytorch_model.bin"), "x").unwrap();
    planish_compile(&folder.path().join("pytorch_model.bin"), &out, &[]).exits(1, &["safe_serialization=True"]);
}

#[test]
fn warnings_are_errors_where_strict() {
    let (folder, mut draft) = (scratch(), Draft::of("bert"));
    draft.config["flash_everything"] = json!(1);
    let model = draft.write(folder.path().join("model"));
    let out = folder.path().join("out");
    planish_compile(&model, &out, &["--debug=strict"]).exits(1, &["flash_everything"]);
    assert!(!out.exists());
    let done = planish_compile(&model, &out, &[]).exits(0, &["flash_everything"]);
    assert!(done.stderr.starts_with("warning: ") && done.stderr.lines().count() == 1, "{}", done.stderr);
}
