//! Folders that are incomplete, contradict themselves, or hold something else.

use planish_testing::scratch;
use std::error::Error;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use planish_models::{Checkpoint, LoadOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Draft, Stored, assert_says, golden};

const INDEX: &str = "model.safetensors.index.json";

#[track_caller]
fn assert_refused(path: &Path, parts: &[&str]) {
    let error = Checkpoint::open(path).map(|_| ()).expect_err("this should not open").to_string();
    assert_says(&error, parts);
}

fn sharded() -> TempDir {
    Draft::of("bert").write_sharded()
}

fn edit_index(folder: &TempDir, edit: impl FnOnce(&mut Value)) {
    let path = folder.path().join(INDEX);
    let mut index: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut index);
    fs::write(path, index.to_string()).unwrap();
}

#[test]
fn a_folder_or_its_weight_file_will_do() {
    for path in [golden("bert"), golden("bert").join("model.safetensors")] {
        let checkpoint = Checkpoint::open(&path).unwrap();
        assert_eq!(checkpoint.name(), "bert");
        let sources = checkpoint.sources().unwrap();
        assert_eq!(sources.len(), 2);
        assert_eq!(sources[1].bytes, fs::metadata(golden("bert").join("model.safetensors")).unwrap().len());
        assert_eq!(checkpoint.companions().len(), 1);
    }
}

#[test]
fn names_come_from_folders_files_and_cache_entries() {
    let folder = scratch();
    let snapshot = folder.path().join("models--org--tiny-bert/snapshots/0123abcd");
    fs::create_dir_all(&snapshot).unwrap();
    for name in ["config.json", "model.safetensors"] {
        symlink(golden("bert").join(name).canonicalize().unwrap(), snapshot.join(name)).unwrap();
    }
    assert_eq!(Checkpoint::open(&snapshot).unwrap().name(), "tiny-bert");
    assert_eq!(Checkpoint::open(&snapshot.join("model.safetensors")).unwrap().name(), "tiny-bert");
    assert_eq!(Checkpoint::open(&snapshot.join(".")).unwrap().name(), "tiny-bert");

    let renamed = snapshot.join("mine.safetensors");
    symlink(snapshot.join("model.safetensors"), &renamed).unwrap();
    assert_eq!(Checkpoint::open(&renamed).unwrap().name(), "mine");
}

#[test]
fn companions_are_those_that_are_there() {
    let folder = Draft::of("bert").write();
    fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
    fs::write(folder.path().join("vocab.txt"), "[PAD]").unwrap();
    fs::write(folder.path().join("README.md"), "").unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let names = checkpoint.companions();
    assert_eq!(names, ["config.json", "tokenizer.json", "vocab.txt"]);
}

#[test]
fn missing_files_are_named() {
    assert_refused(Path::new("no/such/folder"), &["cannot read no/such/folder"]);
    let folder = Draft::of("bert").write();
    fs::remove_file(folder.path().join("config.json")).unwrap();
    assert_refused(folder.path(), &["there is no config.json"]);
    let weights = folder.path().join("model.safetensors");
    assert_refused(&weights, &["there is no config.json; a checkpoint folder has it beside the weights"]);
    for (added, named) in [
        (&["decoder.onnx"][..], "to compile the ONNX graph, pass the file: decoder.onnx"),
        (&["encoder.ONNX", "a"], "pass one of the .onnx files: decoder.onnx, encoder.ONNX"),
        (
            &["1.onnx", "2.onnx", "3.onnx"],
            "pass one of the .onnx files: 1.onnx, 2.onnx, 3.onnx, decoder.onnx and 1 more",
        ),
    ] {
        added.iter().for_each(|name| fs::write(folder.path().join(name), "").unwrap());
        assert_refused(folder.path(), &["there is no config.json", named]);
    }
    assert_refused(&weights, &["there is no config.json; a checkpoint folder has it beside the weights"]);

    let folder = Draft::of("bert").write();
    let weights = folder.path().join("model.safetensors");
    fs::rename(&weights, folder.path().join("other.safetensors")).unwrap();
    assert_refused(folder.path(), &["no model.safetensors", "other.safetensors"]);
    fs::remove_file(folder.path().join("other.safetensors")).unwrap();
    assert_refused(folder.path(), &["there are no weights", "model.safetensors", INDEX]);
}

#[test]
fn what_is_no_checkpoint_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("adapter_config.json", r#"{"peft_type": "LORA"}"#);
    write("adapter_model.safetensors", "");
    let adapter = ["adapter of the peft library", "LoRA", "with --adapter"];
    assert_refused(folder.path(), &adapter);
    // One that was saved beside the configuration of its model.
    write("config.json", "{}");
    assert_refused(folder.path(), &adapter);

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("model_index.json"), r#"{"_class_name": "FluxPipeline"}"#).unwrap();
    assert_refused(folder.path(), &["diffusers", "model_index.json", "optimum-cli export onnx", "DIR/unet/model.onnx"]);

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("weights.pt"), "").unwrap();
    assert_refused(folder.path(), &["there is no config.json, but weights.pt", "save_pretrained"]);
    assert_refused(&folder.path().join("weights.pt"), &["weights.pt", "only safetensors and GGUF are read"]);

    for (address, parts) in [
        ("https://huggingface.co/openai-community/gpt2", "is named OWNER/NAME: openai-community/gpt2"),
        ("https://huggingface.co/openai-community/gpt2/tree/main", "is named OWNER/NAME: openai-community/gpt2"),
        (
            "https://example.com/model.onnx",
            "planish does not download from there; get the model first, and name its folder or file",
        ),
    ] {
        assert_refused(Path::new(address), &[parts]);
    }
}

#[test]
fn what_the_system_says_is_the_source_alone() {
    let error = Checkpoint::open(Path::new("no/such/folder")).map(|_| ()).unwrap_err();
    let source = error.source().unwrap().to_string();
    assert_eq!(error.to_string(), "cannot read no/such/folder");
    assert_says(&source, &["No such file"]);
}

#[test]
fn other_formats_are_told_how_to_become_safetensors() {
    for name in ["pytorch_model.bin", "tf_model.h5"] {
        let folder = Draft::of("bert").write();
        let path = folder.path().join(name);
        fs::rename(folder.path().join("model.safetensors"), &path).unwrap();
        let advice = ["only safetensors and GGUF are read", "save_pretrained", "safe_serialization=True"];
        assert_refused(folder.path(), &[&[name], advice.as_slice()].concat());
        assert_refused(&path, &[&[name], advice.as_slice()].concat());
    }
    assert_refused(&golden("bert").join("config.json"), &["expected a checkpoint folder"]);
    // A folder is no GGUF file: the file is named itself.
    let folder = Draft::of("bert").write();
    fs::rename(folder.path().join("model.safetensors"), folder.path().join("tiny.gguf")).unwrap();
    assert_refused(folder.path(), &["a GGUF file is named itself: tiny.gguf"]);
    fs::remove_file(folder.path().join("config.json")).unwrap();
    assert_refused(folder.path(), &["there is no config.json; to compile a GGUF file, pass the file: tiny.gguf"]);
}

#[test]
fn configurations_must_be_json_objects() {
    for (text, parts) in [
        ("", ["config.json", "not JSON"]),
        ("{", ["config.json", "not JSON"]),
        ("[1, 2]", ["config.json", "not a JSON object"]),
        ("{\"a\": 1} x", ["config.json", "not JSON"]),
    ] {
        let folder = Draft::of("bert").write();
        fs::write(folder.path().join("config.json"), text).unwrap();
        assert_refused(folder.path(), &parts);
    }
    let folder = Draft::of("bert").write();
    fs::File::create(folder.path().join("config.json")).unwrap().set_len(1 << 30).unwrap();
    assert_refused(folder.path(), &["config.json", "1073741824 bytes"]);
}

#[test]
fn shards_stay_inside_the_folder() {
    for name in ["../model.safetensors", "/etc/passwd", "sub/model.safetensors", "..", ".", "", "./x.safetensors"] {
        let folder = sharded();
        edit_index(&folder, |index| index["weight_map"]["pooler.dense.bias"] = json!(name));
        assert_refused(folder.path(), &[INDEX, "`pooler.dense.bias`", "not a plain file name"]);
    }
    let folder = sharded();
    edit_index(&folder, |index| index["weight_map"]["pooler.dense.bias"] = json!(7));
    assert_refused(folder.path(), &["not a plain file name"]);
}

#[test]
fn index_and_shards_must_agree() {
    let folder = sharded();
    fs::remove_file(folder.path().join("model-00002-of-00003.safetensors")).unwrap();
    assert_refused(folder.path(), &[INDEX, "shard model-00002-of-00003.safetensors is missing", "download"]);

    let folder = sharded();
    edit_index(&folder, |index| index["weight_map"]["ghost"] = json!("model-00001-of-00003.safetensors"));
    assert_refused(folder.path(), &["`ghost` should be in model-00001-of-00003.safetensors"]);

    let folder = sharded();
    fs::copy(golden("bert").join("model.safetensors"), folder.path().join("model-00002-of-00003.safetensors")).unwrap();
    assert_refused(
        folder.path(),
        &["model-00002-of-00003.safetensors", "is in model-00001-of-00003.safetensors as well"],
    );

    for map in [Value::Null, json!([]), json!({})] {
        let folder = sharded();
        edit_index(&folder, |index| index["weight_map"] = map);
        assert_refused(folder.path(), &[INDEX, "`weight_map`"]);
    }
}

#[test]
fn one_shard_alone_is_refused() {
    let folder = sharded();
    assert_refused(
        &folder.path().join("model-00001-of-00003.safetensors"),
        &["one shard of several", "give the folder"],
    );
}

#[test]
fn missing_and_misshapen_tensors_are_named() {
    let mut draft = Draft::of("bert");
    let stored = draft.tensors.remove("encoder.layer.1.attention.self.query.weight").unwrap();
    let message = draft.error(LoadOptions::default());
    assert_says(
        &message,
        &[
            "tensor `encoder.layer.1.attention.self.query.weight` is missing from",
            "model.safetensors",
            "similar names there: ",
            "`encoder.layer.1.attention.self.key.weight`",
        ],
    );
    let mut prefixed = Draft::of("bert-mlm");
    prefixed.tensors.remove("bert.encoder.layer.0.output.dense.bias");
    assert_says(&prefixed.error(LoadOptions::default()), &["`bert.encoder.layer.0.output.dense.bias` is missing"]);

    let draft = draft.tensor("encoder.layer.1.attention.self.query.weight", Stored { shape: vec![24, 96], ..stored });
    let parts = ["`encoder.layer.1.attention.self.query.weight`", "[24, 96], expected [48, 48]", "hidden_size = 48"];
    assert_says(&draft.error(LoadOptions::default()), &parts);
}

#[test]
fn element_types_matter_only_where_a_tensor_is_used() {
    let bytes = Stored { dtype: safetensors::Dtype::F8_E4M3, shape: vec![48], bytes: vec![0; 48] };
    let draft = Draft::of("bert").tensor("cls.seq_relationship.bias", bytes.clone());
    assert!(draft.load(LoadOptions::default()).is_ok());
    let draft = draft.tensor("pooler.dense.bias", bytes);
    let parts = ["`pooler.dense.bias`", "F8_E4M3", "expected F32, F16 or BF16"];
    assert_says(&draft.error(LoadOptions::default()), &parts);
}

#[test]
fn unknown_tensors_are_one_warning() {
    let draft = Draft::of("bert")
        .tensor("encoder.layer.7.output.dense.bias", Stored::ramp(&[48]))
        .tensor("mystery", Stored::ramp(&[1]));
    let model = draft.load(LoadOptions::default()).unwrap();
    assert_eq!(model.warnings.len(), 1);
    assert_says(&model.warnings[0], &["2 unused tensors: encoder.layer.7.output.dense.bias, mystery"]);
    assert_says(
        &draft.error(LoadOptions { strict: true, task: None, ..LoadOptions::default() }),
        &["strict", "mystery"],
    );
}
