//! Whatever the files contain, loading ends in a model or an error.

use planish_testing::scratch;
use std::fs;
use std::os::unix::fs::symlink;

use planish_models::{ARCHITECTURES, LoadOptions, Task, WeightFile};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::support::{Draft, golden, load_path};

/// Values with the shapes, numbers and texts that configurations and headers are made of.
fn json_value() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<i64>().prop_map(|n| json!(n)),
        any::<u64>().prop_map(|n| json!(n)),
        (-2i64..200).prop_map(|n| json!(n)),
        any::<f64>().prop_map(|n| json!(n)),
    ];
    let text = prop_oneof!["\\PC{0,12}", Just("gelu".to_owned()), Just("absolute".to_owned()), Just("F32".to_owned())];
    let leaf = prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from), number, text.prop_map(Value::from)];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-z0-9_]{0,8}", inner), 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

/// Opens bytes as a weight file; the tensors of one that opens lie inside it.
fn open(bytes: &[u8]) {
    let folder = scratch();
    let path = folder.path().join("model.safetensors");
    fs::write(&path, bytes).unwrap();
    if let Ok(file) = WeightFile::open(&path) {
        for tensor in file.tensors().values() {
            assert!(tensor.offset + tensor.bytes <= file.bytes());
        }
    }
}

fn with_header(header: &Value, data: usize) -> Vec<u8> {
    let text = header.to_string();
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes.resize(bytes.len() + data, 7);
    bytes
}

/// Loads a golden's weights under another configuration.
fn load_config(name: &str, config: &Value, task: Option<Task>) {
    let folder = scratch();
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let weights = golden(name).canonicalize().unwrap().join("model.safetensors");
    symlink(weights, folder.path().join("model.safetensors")).unwrap();
    match load_path(folder.path(), LoadOptions { task, strict: false, ..LoadOptions::default() }) {
        Ok(model) => model.parts.iter().for_each(|part| planish_ir::verify(&part.graph).unwrap()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        open(&bytes);
    }

    #[test]
    fn random_bytes_under_a_fitting_length(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
        let mut file = (cut.min(bytes.len()) as u64).to_le_bytes().to_vec();
        file.extend(bytes);
        open(&file);
    }

    #[test]
    fn random_headers(
        tensors in prop::collection::vec(("[ab]{1,2}", json_value(), json_value(), json_value()), 0..3),
        data in 0usize..64,
    ) {
        let entry = |(name, dtype, shape, offsets): (String, Value, Value, Value)| {
            (name, json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}))
        };
        let header: Map<String, Value> = tensors.into_iter().map(entry).collect();
        open(&with_header(&Value::Object(header), data));
    }

    #[test]
    fn plausible_headers(
        tensors in prop::collection::vec(
            ("[a-d]", prop::sample::select(vec!["F32", "BF16", "F4", "U8", "X9"]),
             prop::collection::vec(0u64..5, 0..3), 0u64..64, 0u64..64),
            0..4,
        ),
        data in 0usize..64,
    ) {
        let header: Map<String, Value> = tensors
            .into_iter()
            .map(|(name, dtype, shape, a, b)| (name, json!({"dtype": dtype, "shape": shape, "data_offsets": [a, b]})))
            .collect();
        open(&with_header(&Value::Object(header), data));
    }

    #[test]
    fn files_of_a_sentence_model(
        class in prop::sample::select(vec!["Pooling", "Dense", "Normalize", "LayerNorm", "SpladePooling", "MultiVectorMask"]),
        key in prop::sample::select(vec![
            "embedding_dimension", "pooling_mode", "pooling_mode_max_tokens", "in_features", "out_features", "bias",
            "activation_function", "module_input_name", "dimension", "pooling_strategy", "skiplist_words",
        ]),
        values in prop::collection::vec(json_value(), 4),
        replaces in 0usize..4,
    ) {
        let folder = Draft::of("bert").write();
        let write = |name: &str, value: &Value| fs::write(folder.path().join(name), value.to_string()).unwrap();
        let of = |class: &str| format!("sentence_transformers.models.{class}");
        let mut modules = json!([{"type": of("Transformer"), "path": ""}, {"type": of(class), "path": "1_Module"}]);
        fs::create_dir(folder.path().join("1_Module")).unwrap();
        let mut config = json!({"embedding_dimension": 48, "in_features": 48, "out_features": 3, "dimension": 48});
        config[key] = values[0].clone();
        match replaces {
            0 => modules[1]["path"] = values[1].clone(),
            1 => modules = values[1].clone(),
            2 => config = values[1].clone(),
            _ => {}
        }
        write("modules.json", &modules);
        write("1_Module/config.json", &config);
        write("config_sentence_transformers.json", &json!({"truncate_dim": values[2], "model_type": values[3]}));
        fs::write(folder.path().join("1_Module/model.safetensors"), with_header(&values[2], 64)).unwrap();
        match load_path(folder.path(), LoadOptions::default()) {
            Ok(model) => model.parts.iter().for_each(|part| planish_ir::verify(&part.graph).unwrap()),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn bytes_of_a_layer_of_torch(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let folder = Draft::of("bert").write();
        for name in ["sparse_linear.pt", "colbert_linear.pt"] {
            fs::write(folder.path().join(name), &bytes).unwrap();
        }
        let error = load_path(folder.path(), LoadOptions::default()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("sparse_linear.pt"), "{error}");
    }

    #[test]
    fn a_golden_with_a_byte_of_its_header_changed(at in 0usize..5000, byte in any::<u8>()) {
        let folder = Draft::of("bert").write();
        let path = folder.path().join("model.safetensors");
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] = byte;
        fs::write(&path, bytes).unwrap();
        if let Err(error) = load_path(folder.path(), LoadOptions::default()) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn a_golden_with_a_setting_changed(
        name in prop::sample::select(vec![
            "bert", "bert-mlm", "bert-classify", "roberta-mlm", "distilbert-qa", "gemma2", "gpt2", "llama", "llama-yarn",
            "phi3", "phi3-longrope", "qwen2", "qwen3", "vit", "gpt-neox", "opt-350m-like", "marian",
        ]),
        key in any::<prop::sample::Index>(),
        value in json_value(),
        task in prop::option::of(prop::sample::select(Task::ALL)),
    ) {
        let mut config = Draft::of(name).config;
        let keys: Vec<String> = config.as_object().unwrap().keys().cloned().collect();
        config[key.get(&keys)] = value;
        load_config(name, &config, task);
    }

    #[test]
    fn a_golden_under_another_architecture(
        name in prop::sample::select(vec!["bert-mlm", "roberta-mlm", "distilbert-qa", "gpt2", "mistral", "vit", "opt", "marian"]),
        architecture in 0..ARCHITECTURES.len(),
        extra in prop::collection::vec(("[a-z_]{1,8}", json_value()), 0..3),
    ) {
        let mut config = Draft::of(name).config;
        config["model_type"] = json!(ARCHITECTURES[architecture].model_type);
        for (key, value) in extra {
            config[key] = value;
        }
        load_config(name, &config, None);
    }

    #[test]
    fn a_random_index(
        map in prop::collection::vec(("[a-c]{1,2}", prop_oneof![json_value(), Just(json!("s.safetensors"))]), 0..4),
    ) {
        let folder = Draft::of("bert").write();
        fs::rename(folder.path().join("model.safetensors"), folder.path().join("s.safetensors")).unwrap();
        let index = json!({"weight_map": Value::Object(map.into_iter().collect())});
        fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
        prop_assert!(load_path(folder.path(), LoadOptions::default()).is_err());
    }
}

#[test]
fn every_key_takes_every_kind_of_value() {
    let values = [
        Value::Null,
        json!(true),
        json!(0),
        json!(-1),
        json!(1),
        json!(3),
        json!(1.5),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("gelu"),
        json!([]),
        json!([1]),
        json!({}),
        json!({"0": "a"}),
    ];
    for name in [
        "bert-classify",
        "roberta-mlm",
        "distilbert-qa",
        "gemma2",
        "gpt2",
        "gpt-neox",
        "llama",
        "marian",
        "mistral",
        "opt-350m-like",
        "phi3-longrope",
        "qwen2",
        "vit",
    ] {
        let config = Draft::of(name).config;
        for key in config.as_object().unwrap().keys() {
            for value in &values {
                let mut config = config.clone();
                config[key] = value.clone();
                load_config(name, &config, None);
            }
        }
    }
}
