//! Artifacts for NVIDIA Triton Inference Server. No test runs the server.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::support::{golden, names, planish, planish_compile, repository, scratch};

const PACKAGE: [&str; 2] = ["--package", "triton"];

fn manifest(out: &Path) -> Value {
    serde_json::from_slice(&fs::read(out.join("planish.json")).unwrap()).unwrap()
}

fn compile(model: &str, out: &Path, more: &[&str]) {
    planish_compile(&golden(model), out, &[&PACKAGE[..], more].concat()).exits(0, &[]);
}

/// The fields of a message in the text format of protobuf. Fails where the text is not in that format.
struct Reader<'a>(&'a str);

impl Reader<'_> {
    fn document(text: &str) -> Value {
        let mut reader = Reader(text);
        let message = reader.message();
        assert_eq!(reader.0, "", "after the last field");
        message
    }

    fn skip_blanks(&mut self) {
        self.0 = self.0.trim_start();
    }

    fn takes(&mut self, mark: char) -> bool {
        self.skip_blanks();
        let rest = self.0.strip_prefix(mark);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn word(&mut self) -> String {
        self.skip_blanks();
        let end = self.0.find(|c: char| !c.is_ascii_alphanumeric() && !"_-".contains(c)).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word.to_owned()
    }

    fn message(&mut self) -> Value {
        let mut fields = Map::new();
        loop {
            let name = self.word();
            if name.is_empty() {
                self.skip_blanks();
                return fields.into();
            }
            let has_colon = self.takes(':');
            let value = self.value(has_colon);
            assert!(fields.insert(name.clone(), value).is_none(), "{name} has two values");
        }
    }

    /// A value. Only messages and lists of them may follow a name without a colon.
    fn value(&mut self, has_colon: bool) -> Value {
        if self.takes('{') {
            let message = self.message();
            assert!(self.takes('}'), "no end of a message at `{}`", self.0);
            return message;
        }
        if self.takes('[') {
            let mut items = Vec::new();
            while !self.takes(']') {
                assert!(items.is_empty() || self.takes(','), "no comma at `{}`", self.0);
                items.push(self.value(has_colon));
            }
            return items.into();
        }
        assert!(has_colon, "no colon at `{}`", self.0);
        if self.takes('"') {
            let (text, rest) = self.0.split_once('"').unwrap();
            assert!(!text.contains(['\\', '\n']), "{text}");
            self.0 = rest;
            return text.into();
        }
        let word = self.word();
        word.parse::<i64>().map_or_else(|_| word.into(), Value::from)
    }
}

/// The contents of config.pbtxt of a part, which must be as in fixtures/triton and must fit what the manifest says of it.
fn config(out: &Path, name: &str, part: usize, snapshot: &str) -> Value {
    let text = fs::read_to_string(out.join(name).join("config.pbtxt")).unwrap();
    let snapshot = repository().join("fixtures/triton").join(snapshot);
    assert_eq!(text, fs::read_to_string(&snapshot).unwrap(), "{}", snapshot.display());
    let config = Reader::document(&text);
    let manifest = manifest(out);
    let is_batched = config["max_batch_size"].as_i64().unwrap() > 0;
    for (side, values) in [("input", "inputs"), ("output", "outputs")] {
        let expected: Vec<Value> = manifest["parts"][part][values]
            .as_array()
            .unwrap()
            .iter()
            .map(|value| {
                let dims = value["shape"].as_array().unwrap().iter().skip(is_batched.into());
                let dims: Vec<i64> = dims.map(|dim| dim.as_i64().unwrap_or(-1)).collect();
                let data_type = match value["dtype"].as_str().unwrap() {
                    "f32" => "TYPE_FP32",
                    "f16" => "TYPE_FP16",
                    "i64" => "TYPE_INT64",
                    other => panic!("{other}"),
                };
                json!({"name": value["name"], "data_type": data_type, "dims": dims})
            })
            .collect();
        assert_eq!(config[side], Value::from(expected), "{name}: {side}");
    }
    let model = config["default_model_filename"].as_str().unwrap();
    assert!(out.join(name).join("1").join(model).is_file(), "{model}");
    config
}

#[test]
fn an_encoder_on_onnx_runtime() {
    let folder = scratch();
    let out = folder.path().join("out");
    compile("bert", &out, &["--verify"]);
    assert_eq!(names(&out), ["README.md", "bert", "config.json", "planish.json"]);
    assert_eq!(names(&out.join("bert")), ["1", "config.pbtxt"]);
    assert_eq!(names(&out.join("bert/1")), ["model.onnx"]);
    let written = manifest(&out);
    assert_eq!(written["runtime_package"], "triton");
    assert_eq!(written["companions"], json!(["config.json", "README.md", "bert/config.pbtxt"]));
    assert_eq!(written["parts"][0]["files"], json!(["bert/1/model.onnx"]));
    let config = config(&out, "bert", 0, "bert-ort.pbtxt");
    assert_eq!(config["max_batch_size"], 32);
    assert_eq!(config["instance_group"], json!([{"count": 1, "kind": "KIND_CPU"}]));

    // Commands find the files.
    planish(["verify".as_ref(), out.as_os_str()]).exits(0, &[]);
    planish(["inspect".as_ref(), out.as_os_str()]).exits(0, &[]);
    let cells = ["--batch", "1", "--seq", "8", "--set", "iterations=1"].map(AsRef::as_ref);
    planish(["bench".as_ref(), out.as_os_str()].into_iter().chain(cells)).exits(0, &[]);

    // The folders are planish's own: an artifact of another layout may replace them, and the other way round.
    planish_compile(&golden("bert"), &out, &[]).succeeds();
    assert_eq!(names(&out), ["README.md", "config.json", "model.onnx", "planish.json"]);
    compile("bert", &out, &["--target", "ort-cuda"]);
    let text = fs::read_to_string(out.join("bert/config.pbtxt")).unwrap();
    assert_eq!(Reader::document(&text)["instance_group"], json!([{"count": 1, "kind": "KIND_GPU"}]));
    // What the user put there is not.
    fs::create_dir(out.join("bert/2")).unwrap();
    fs::write(out.join("bert/1/notes"), "").unwrap();
    planish_compile(&golden("bert"), &out, &PACKAGE).exits(1, &["bert/1/notes, bert/2;"]);
}

#[test]
fn a_decoder_with_a_cache_on_any_runtime() {
    let folder = scratch();
    let out = folder.path().join("out");
    compile("gpt2", &out, &["--target", "onnx", "--verify"]);
    let config = config(&out, "gpt2", 0, "gpt2-onnx.pbtxt");
    assert_eq!((&config["max_batch_size"], &config["instance_group"]), (&json!(4), &Value::Null));
}

#[test]
fn a_model_of_images() {
    let folder = scratch();
    let out = folder.path().join("out");
    compile("vit", &out, &["--verify"]);
    config(&out, "vit", 0, "vit-ort.pbtxt");
}

#[test]
fn each_part_is_a_model_of_its_own() {
    let folder = scratch();
    let out = folder.path().join("out");
    compile("t5", &out, &["--verify", "--weights", "link"]);
    let parts = ["encoder_model", "decoder_model", "decoder_with_past_model"];
    for (index, part) in parts.iter().enumerate() {
        config(&out, &format!("t5-{part}"), index, &format!("t5-{part}-ort.pbtxt"));
    }
    let models = names(&out).into_iter().filter(|name| name.starts_with("t5-")).collect::<Vec<_>>();
    assert_eq!(models, ["t5-decoder_model", "t5-decoder_with_past_model", "t5-encoder_model"]);
    // Each model has links of its own, for ONNX Runtime loads weights from the folder of the graph only.
    assert!(manifest(&out)["linked"].as_array().unwrap().contains(&json!("t5-encoder_model/1/model.safetensors")));
    planish(["verify".as_ref(), out.as_os_str()]).exits(0, &[]);
}

#[test]
fn a_graph_of_a_fixed_shape_has_no_batch() {
    let folder = scratch();
    let out = folder.path().join("out");
    let graph = repository().join("fixtures/graphs/optimum-bert/model.onnx");
    let more = ["--shapes", "input_ids=1x7", "--verify"];
    planish_compile(&graph, &out, &[&PACKAGE[..], &more].concat()).exits(0, &[]);
    let text = fs::read_to_string(out.join("optimum-bert/config.pbtxt")).unwrap();
    let config = Reader::document(&text);
    assert_eq!((&config["max_batch_size"], &config["dynamic_batching"]), (&json!(0), &Value::Null));
    assert_eq!(config["input"][0]["dims"], json!([1, 7]));
}

/// With the tokenizer there are a model that reads texts and an ensemble of both, which tests/compat holds against the server's protocol.
#[test]
fn a_tokenizer_comes_before_the_model() {
    let folder = scratch();
    let (model, out) = (folder.path().join("model"), folder.path().join("out"));
    fs::create_dir_all(model.join("1_Pooling")).unwrap();
    for name in ["config.json", "model.safetensors", "modules.json", "1_Pooling/config.json"] {
        fs::copy(golden("bert-sentence").join(name), model.join(name)).unwrap();
    }
    let settings = json!({"max_seq_length": 32, "do_lower_case": true});
    fs::write(model.join("sentence_bert_config.json"), settings.to_string()).unwrap();
    let more = [&PACKAGE[..], &["--recipe", "tokenizer=true"]].concat();
    planish_compile(&model, &out, &more).exits(1, &["there is no tokenizer.json beside the model"]);
    fs::copy(repository().join("fixtures/speech/tokenizer.json"), model.join("tokenizer.json")).unwrap();
    planish_compile(&model, &out, &more).exits(0, &[]);
    let expected = ["model", "model-text", "model-tokenizer"];
    assert_eq!(names(&out).iter().filter(|name| name.starts_with("model")).collect::<Vec<_>>(), expected);
    assert_eq!(names(&out.join("model-tokenizer/1")), ["model.py", "tokenizer.json"]);
    let config = |name: &str| fs::read_to_string(out.join(name).join("config.pbtxt")).unwrap();
    let text = config("model-tokenizer");
    assert!(text.starts_with("backend: \"python\"\nmax_batch_size: 32\n"), "{text}");
    for (key, value) in [("max_length", "32"), ("lower_case", "true"), ("attention_mask", "mask")] {
        let parameter = format!("parameters {{\n  key: \"{key}\"\n  value {{ string_value: \"{value}\" }}\n}}");
        assert!(text.contains(&parameter), "{parameter}: {text}");
    }
    let text = config("model-text");
    let outputs = text.split("ensemble_scheduling").next().unwrap();
    assert!(text.starts_with("platform: \"ensemble\"\nmax_batch_size: 32\n"), "{text}");
    assert!(outputs.contains("sentence_embedding") && !outputs.contains("token_embeddings"), "{outputs}");
    // The folders are planish's own, and commands find the model among them.
    planish(["verify".as_ref(), out.as_os_str()]).exits(0, &[]);
    planish_compile(&model, &out, &PACKAGE).exits(0, &[]);
    assert!(!out.join("model-text").exists());

    let refused = |name: &str, more: &[&str], code: i32, parts: &[&str]| {
        let all = [&["--recipe", "tokenizer=true"], more].concat();
        planish_compile(&golden(name), &folder.path().join("refused"), &all).exits(code, parts);
    };
    refused("bert", &[], 2, &["`tokenizer` of the recipe", "add --package triton"]);
    refused("t5", &PACKAGE, 1, &["for models of one graph, and this one has 3"]);
}

#[test]
fn types_that_the_server_does_not_take_are_refused() {
    let folder = scratch();
    let more = ["--target", "onnx", "--bf16", "--recipe", "io=half"];
    planish_compile(&golden("gpt2"), &folder.path().join("out"), &[&PACKAGE[..], &more].concat())
        .exits(1, &["backend onnxruntime has no tensors of bf16", "without --recipe io=half"]);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[cfg(all(feature = "tensorrt-rtx", not(feature = "tensorrt")))]
#[test]
fn engines_that_the_server_does_not_load_are_refused() {
    let folder = scratch();
    let more = [&PACKAGE[..], &["--target", "trt", "--fp16"]].concat();
    planish_compile(&golden("bert"), &folder.path().join("out"), &more)
        .exits(2, &["this planish builds engines of TensorRT-RTX", "--target ort-cuda"]);
    assert_eq!(names(folder.path()), [""; 0]);
}
