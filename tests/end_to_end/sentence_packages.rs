//! Artifacts for sentence-transformers and for Text Embeddings Inference. That the former loads them is a matter of tests/compat; no
//! test runs the latter.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{golden, names, planish, planish_compile, repository, scratch, text};

const SENTENCE_TRANSFORMERS: &[&str] = &["--package", "sentence-transformers"];
const SERVER: &[&str] = &["--package", "text-embeddings-inference"];

fn document(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The names of the outputs of an artifact.
fn outputs(out: &Path) -> Vec<String> {
    let manifest = document(&out.join("planish.json"));
    let outputs = manifest["parts"][0]["outputs"].as_array().unwrap();
    outputs.iter().map(|output| output["name"].as_str().unwrap().to_owned()).collect()
}

/// A copy of a golden with files in it, some of them changed.
fn copy(name: &str, to: PathBuf, files: &[(&str, Value)]) -> PathBuf {
    fs::create_dir_all(to.join("1_Pooling")).unwrap();
    for file in ["config.json", "model.safetensors", "modules.json", "1_Pooling/config.json"] {
        let from = golden(name).join(file);
        if from.is_file() {
            fs::copy(from, to.join(file)).unwrap();
        }
    }
    fs::copy(repository().join("fixtures/speech/tokenizer.json"), to.join("tokenizer.json")).unwrap();
    files.iter().for_each(|(file, value)| fs::write(to.join(file), value.to_string()).unwrap());
    to
}

/// A masked language model of which SPLADE is made.
fn splade(to: PathBuf) -> PathBuf {
    let class = |name: &str| format!("sentence_transformers.sparse_encoder.models.{name}");
    let modules = json!([
        {"idx": 0, "name": "0", "path": "", "type": class("MLMTransformer")},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": class("SpladePooling")},
    ]);
    copy("bert-mlm", to, &[("modules.json", modules), ("1_Pooling/config.json", json!({"pooling_strategy": "max"}))])
}

#[test]
fn the_library_finds_modules_and_the_graph() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("bert-sentence"), &out, &[SENTENCE_TRANSFORMERS, &["--verify"]].concat()).succeeds();
    let files =
        ["1_Pooling", "README.md", "config.json", "modules.json", "onnx", "planish.json", "sentence_bert_config.json"];
    assert_eq!(names(&out), files);
    assert_eq!(names(&out.join("onnx")), ["model.onnx"]);
    assert_eq!(outputs(&out), ["token_embeddings", "sentence_embedding", "last_hidden_state"]);
    assert_eq!(document(&out.join("planish.json"))["runtime_package"], "sentence-transformers");
    planish(["verify", text(&out)]).succeeds();
    // A pooling that was asked for has modules too.
    planish_compile(&golden("bert"), &out, &[SENTENCE_TRANSFORMERS, &["--recipe", "pooling=cls,normalize"]].concat())
        .succeeds();
    assert_eq!(document(&out.join("modules.json"))[2]["path"], "2_Normalize");
    // A model that scores texts has no modules.
    planish_compile(&golden("bert-classify"), &out, SENTENCE_TRANSFORMERS).succeeds();
    assert_eq!(outputs(&out), ["logits"]);
}

/// The library makes the vectors of SPLADE of the scores of tokens.
#[test]
fn a_sparse_model_gives_scores_of_tokens_too() {
    let folder = scratch();
    let (model, out) = (splade(folder.path().join("model")), folder.path().join("out"));
    planish_compile(&model, &out, &[]).succeeds();
    assert_eq!(outputs(&out), ["sentence_embedding"]);
    planish_compile(&model, &out, &[SENTENCE_TRANSFORMERS, &["--verify"]].concat()).succeeds();
    assert_eq!(outputs(&out), ["sentence_embedding", "logits"]);
    planish(["verify", text(&out)]).succeeds();
}

#[test]
fn other_models_are_refused_by_name() {
    let folder = scratch();
    let out = folder.path().join("out");
    for package in [SENTENCE_TRANSFORMERS, SERVER] {
        planish_compile(&golden("bert"), &out, package)
            .exits(1, &[package[1], "sentence models", "bert is for feature-extraction", "--recipe pooling=mean"]);
        planish_compile(&golden("gpt2"), &out, package).exits(1, &["gpt2 is for text-generation"]);
        planish_compile(&golden("bert-sentence"), &out, &[package, &["--target", "trt"]].concat())
            .exits(2, &["loads ONNX files, and target trt has engines"]);
    }
    planish_compile(&golden("bert-sentence"), &out, &[SERVER, &["--target", "ort-cuda"]].concat())
        .exits(2, &["on processors, and target ort-cuda is for GPUs", "targets onnx, ort, openvino, or"]);
    let model = copy("bert", folder.path().join("model"), &[]);
    planish_compile(&model, &out, &[SENTENCE_TRANSFORMERS, &["--task", "sentence-similarity"]].concat())
        .exits(1, &["give `--recipe pooling=mean`"]);
    assert_eq!(names(folder.path()), ["model"]);
}

#[test]
fn the_server_finds_what_it_reads() {
    let folder = scratch();
    let out = folder.path().join("out");
    // Configurations of newer versions of sentence-transformers have other keys.
    let pooling = json!({"embedding_dimension": 48, "pooling_mode": "mean", "include_prompt": true});
    let model = copy("bert-sentence", folder.path().join("model"), &[("1_Pooling/config.json", pooling)]);
    planish_compile(&model, &out, &[SERVER, &["--verify"]].concat()).succeeds();
    let files = ["1_Pooling", "README.md", "config.json", "modules.json", "onnx", "planish.json", "tokenizer.json"];
    assert_eq!(names(&out), files);
    let expected = json!({
        "embedding_dimension": 48, "include_prompt": true, "pooling_mode": "mean",
        "pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": false,
    });
    assert_eq!(document(&out.join("1_Pooling/config.json")), expected);
    assert_eq!(document(&out.join("config.json")), document(&model.join("config.json")));
    let manifest = document(&out.join("planish.json"));
    let named = manifest["companions"].as_array().unwrap().iter().filter(|name| **name == "config.json").count();
    assert_eq!(named, 1);
    planish(["verify", text(&out)]).succeeds();

    let pooling = json!({"word_embedding_dimension": 48, "pooling_mode_max_tokens": true});
    let other = copy("bert-sentence", folder.path().join("max"), &[("1_Pooling/config.json", pooling)]);
    planish_compile(&other, &out, SERVER).exits(0, &["has not the pooling of this model (max)", "--pooling mean"]);
    assert!(fs::read_to_string(out.join("README.md")).unwrap().contains(" --dtype float32 --pooling mean`"));
    let classifier = copy("bert-classify", folder.path().join("classifier"), &[]);
    planish_compile(&classifier, &out, SERVER).succeeds();
    assert_eq!(outputs(&out), ["logits"]);
}

/// DistilBERT has the sizes under other names, with which the server does not start.
#[test]
fn the_configuration_has_the_keys_that_the_server_needs() {
    let folder = scratch();
    let out = folder.path().join("out");
    let mut config = document(&golden("distilbert-qa").join("config.json"));
    config["architectures"] = json!(["DistilBertModel"]);
    let model = copy("distilbert-qa", folder.path().join("model"), &[("config.json", config.clone())]);
    planish_compile(&model, &out, &[SERVER, &["--recipe", "pooling=cls"]].concat()).succeeds();
    let found = document(&out.join("config.json"));
    assert_eq!(
        (&found["hidden_size"], &found["num_hidden_layers"], found.get("n_layer")),
        (&config["dim"], &config["n_layers"], None)
    );
}

#[test]
fn what_the_server_does_not_start_with_is_refused() {
    let folder = scratch();
    let out = folder.path().join("out");
    let refused = |model: &Path, more: &[&str], parts: &[&str]| {
        planish_compile(model, &out, &[SERVER, more].concat()).exits(1, parts);
    };
    refused(&golden("bert-sentence"), &[], &["there is no tokenizer.json beside the model"]);
    refused(&splade(folder.path().join("splade")), &[], &["runs SPLADE on its own backend (candle)"]);
    let model = copy("bert-sentence", folder.path().join("model"), &[]);
    let half = ["--target", "onnx", "--fp16", "--recipe", "io=half"];
    refused(&model, &half, &["takes `sentence_embedding` of type f32", "leave out --recipe io=half"]);
    let mut config = document(&model.join("config.json"));
    config["architectures"] = json!(["BertForSequenceClassification"]);
    let other = copy("bert-sentence", folder.path().join("other"), &[("config.json", config.clone())]);
    refused(
        &other,
        &[],
        &["`architectures` of config.json is [\"BertForSequenceClassification\"]", "sentence-similarity"],
    );
    config.as_object_mut().unwrap().remove("architectures");
    let none = copy("bert-sentence", folder.path().join("none"), &[("config.json", config)]);
    refused(&none, &[], &["does not start without `architectures` in config.json; add it there"]);
}
