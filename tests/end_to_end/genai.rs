//! Artifacts for onnxruntime-genai. That the library runs them is a matter of tests/compat.

use std::fs;
use std::path::Path;

use safetensors::Dtype;
use serde_json::{Value, json};

use crate::support::{Draft, Stored, golden, names, planish, planish_compile, repository, scratch, tensors, text};

const PACKAGE: &[&str] = &["--package", "genai"];

fn document(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Compiles and returns what genai_config.json says.
fn config(model: &Path, out: &Path) -> Value {
    planish_compile(model, out, PACKAGE).succeeds();
    document(&out.join("genai_config.json"))
}

#[test]
fn the_configuration_of_a_decoder() {
    let folder = scratch();
    let out = folder.path().join("out");
    let expected = json!({
        "model": {
            "type": "decoder",
            "context_length": 64,
            "vocab_size": 139,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 2,
            "decoder": {
                "filename": "model.onnx",
                "session_options": {"provider_options": []},
                "head_size": 16,
                "hidden_size": 64,
                "num_attention_heads": 4,
                "num_hidden_layers": 2,
                "num_key_value_heads": 2,
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "position_ids": "position_ids",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {"early_stopping": false, "max_length": 64, "past_present_share_buffer": true, "top_k": 50},
    });
    assert_eq!(config(&golden("llama"), &out), expected);
    let files =
        ["README.md", "config.json", "genai_config.json", "generation_config.json", "model.onnx", "planish.json"];
    assert_eq!(names(&out), files);
    let manifest = document(&out.join("planish.json"));
    assert_eq!(manifest["runtime_package"], "genai");
    assert_eq!(
        manifest["companions"],
        json!(["config.json", "generation_config.json", "README.md", "genai_config.json"])
    );

    assert_eq!(manifest["cache_in_place"], json!(true));

    // The file is planish's own: the folder may be replaced. The graph is the same without it.
    let graph = fs::read(out.join("model.onnx")).unwrap();
    planish_compile(&golden("llama"), &out, &["--recipe", "cache=in-place"]).succeeds();
    assert_eq!(names(&out), ["README.md", "config.json", "generation_config.json", "model.onnx", "planish.json"]);
    assert!(fs::read(out.join("model.onnx")).unwrap() == graph);
    assert_eq!(document(&out.join("planish.json"))["runtime_package"], "optimum");
}

/// States have the names that the library's builder gives them. Where no layer has a recurrence it wants to know the layers with convolutions.
#[test]
fn states_have_names_too() {
    let folder = scratch();
    let out = folder.path().join("out");
    let decoder = |name: &str| {
        planish_compile(&golden(name), &out, PACKAGE).exits(0, &["this model's convolutions go on from padding"]);
        document(&out.join("genai_config.json"))["model"]["decoder"].clone()
    };
    let found = decoder("qwen3-5");
    let (inputs, outputs) = (&found["inputs"], &found["outputs"]);
    assert_eq!(inputs["past_conv_names"], "past.%d.conv");
    assert_eq!(inputs["past_recurrent_names"], "past.%d.recurrent");
    assert_eq!(inputs["past_key_names"], "past_key_values.%d.key");
    assert_eq!(outputs["present_recurrent_names"], "present.%d.recurrent");
    assert_eq!((found.get("layer_types"), &found["num_hidden_layers"]), (None, &json!(2)));
    let found = decoder("lfm2");
    assert_eq!(found["layer_types"], json!(["conv", "full_attention", "conv"]));
    assert_eq!(found["inputs"].get("past_recurrent_names"), None);
    let found = decoder("mamba");
    assert_eq!(found["inputs"]["past_recurrent_names"], "past.%d.recurrent");
    assert_eq!((found["inputs"].get("past_key_names"), &found["num_key_value_heads"]), (None, &json!(1)));
}

/// Of a text of states there is no longest one, and beams would keep the states of others.
#[test]
fn what_the_library_does_not_do_for_states_is_said() {
    let folder = scratch();
    let (model, out) = (Draft::of("mamba2").write(folder.path().join("model")), folder.path().join("out"));
    let parts = ["convolutions go on from padding", "leaves the states of recurrences where they are"];
    planish_compile(&model, &out, PACKAGE).exits(0, &parts);
    assert_eq!(document(&out.join("genai_config.json"))["model"]["context_length"], 131_072);
    fs::write(model.join("generation_config.json"), json!({"num_beams": 4}).to_string()).unwrap();
    let refused = planish_compile(&model, &folder.path().join("refused"), PACKAGE);
    refused.exits(1, &["`num_beams` of", "is 4", "set it to 1"]);
}

#[test]
fn settings_come_from_the_generation_config() {
    let folder = scratch();
    let model = Draft::of("gpt2").write(folder.path().join("model"));
    let out = folder.path().join("out");
    let write = |document: Value| fs::write(model.join("generation_config.json"), document.to_string()).unwrap();
    write(json!({"eos_token_id": [2, 7], "pad_token_id": -1, "bos_token_id": 137, "do_sample": true, "top_k": 20,
                 "temperature": 0.5, "top_p": null, "num_beams": 1, "transformers_version": "5"}));
    let found = config(&model, &out);
    assert_eq!(found["model"]["eos_token_id"], json!([2, 7]));
    assert_eq!(found["model"]["pad_token_id"], 2, "the first that ends a text");
    assert_eq!(found["model"].get("bos_token_id"), None, "it is in no vocabulary");
    let expected = json!({"early_stopping": false, "max_length": 64, "past_present_share_buffer": false,
                          "do_sample": true, "num_beams": 1, "temperature": 0.5, "top_k": 20});
    assert_eq!(found["search"], expected);
    write(json!({"min_length": 3, "suppress_tokens": [4], "bad_words_ids": [], "max_new_tokens": 9}));
    let lost = "onnxruntime-genai has no suppress_tokens, which";
    planish_compile(&model, &out, PACKAGE).exits(0, &[lost]);
    assert_eq!(document(&out.join("genai_config.json"))["search"]["min_length"], 3);
    for (key, bad) in [("do_sample", json!(1)), ("temperature", json!("hot")), ("top_k", json!(true))] {
        write(json!({key: bad}));
        planish_compile(&model, &out, PACKAGE).exits(1, &[key, "generation_config.json", "onnxruntime-genai"]);
    }
}

#[test]
fn other_models_are_refused_by_name() {
    let folder = scratch();
    for (model, task) in
        [("t5", "text2text-generation"), ("bert", "feature-extraction"), ("vit", "image-classification")]
    {
        planish_compile(&golden(model), &folder.path().join("out"), PACKAGE)
            .exits(1, &[model, task, "onnxruntime-genai", "text-generation", "leave out --package"]);
    }
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn a_cache_that_is_to_be_computed_anew_is_warned_of() {
    let folder = scratch();
    let parts = ["onnxruntime-genai keeps the cache of a text that reaches 9 tokens", "`planish generate`"];
    planish_compile(&golden("phi3-longrope"), &folder.path().join("out"), PACKAGE).exits(0, &parts);
}

#[test]
fn padding_after_a_prompt_takes_up_a_sliding_window() {
    let folder = scratch();
    let mut draft = Draft::of("mistral");
    draft.config["sliding_window"] = 5.into();
    let model = draft.write(folder.path().join("model"));
    let done = planish_compile(&model, &folder.path().join("out"), PACKAGE).exits(0, &["sliding window", "one length"]);
    assert!(done.stderr.starts_with("warning: onnxruntime-genai"), "{}", done.stderr);
}

/// Where the operator does not take the heads of a model, or a copy is asked for, there are two buffers.
#[test]
fn a_cache_that_is_copied_has_a_buffer_of_its_own() {
    let folder = scratch();
    let out = folder.path().join("out");
    let shared = |document: Value| document["search"]["past_present_share_buffer"].clone();
    assert_eq!(shared(config(&golden("gpt2"), &out)), json!(false));
    for more in [&["--recipe", "cache=copy"][..], &["--target", "onnx"], &["--no-fusion"]] {
        planish_compile(&golden("llama"), &out, &[PACKAGE, more].concat()).succeeds();
        assert_eq!(shared(document(&out.join("genai_config.json"))), json!(false), "{more:?}");
    }
}

#[test]
fn the_configuration_of_a_whisper() {
    let speech = repository().join("fixtures/speech");
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&speech, &out, PACKAGE)
        .exits(1, &["takes windows of 3000 frames", "the encoder takes 100", "leave out --package genai"]);

    // The model of fixtures/speech for windows of 30 s.
    let read = |name: &str| document(&speech.join(name));
    let mut draft = Draft { config: read("config.json"), tensors: tensors(&speech.join("model.safetensors")) };
    draft.config["max_source_positions"] = 1500.into();
    let zeros = Stored { dtype: Dtype::F32, shape: vec![1500, 32], bytes: vec![0; 4 * 1500 * 32] };
    draft.tensors.insert("model.encoder.embed_positions.weight".to_owned(), zeros);
    let model = draft.write(folder.path().join("model"));
    for name in ["generation_config.json", "tokenizer.json"] {
        fs::copy(speech.join(name), model.join(name)).unwrap();
    }
    let mut processor = read("preprocessor_config.json");
    for (key, value) in [("chunk_length", 30), ("n_samples", 480_000), ("nb_max_frames", 3000)] {
        processor[key] = value.into();
    }
    fs::write(model.join("preprocessor_config.json"), processor.to_string()).unwrap();
    planish_compile(&model, &out, &[PACKAGE, &["--verify"]].concat())
        .exits(0, &["onnxruntime-genai has no", "lang_to_id"]);
    let config = document(&out.join("genai_config.json"));
    let sizes = json!({
        "session_options": {"provider_options": []}, "head_size": 16, "hidden_size": 32, "num_attention_heads": 2,
        "num_hidden_layers": 2, "num_key_value_heads": 2,
    });
    let section = |mut other: Value| {
        other.as_object_mut().unwrap().extend(sizes.as_object().unwrap().clone());
        other
    };
    let expected = json!({
        "type": "whisper", "context_length": 64, "vocab_size": 103, "bos_token_id": 40, "eos_token_id": 40, "pad_token_id": 40,
        "decoder_start_token_id": 41,
        "encoder": section(json!({
            "filename": "encoder_model.onnx",
            "inputs": {"audio_features": "audio_features"},
            "outputs": {
                "encoder_hidden_states": "last_hidden_state",
                "cross_present_key_names": "present.%d.encoder.key",
                "cross_present_value_names": "present.%d.encoder.value",
            },
        })),
        "decoder": section(json!({
            "filename": "decoder_with_past_model.onnx",
            "inputs": {
                "input_ids": "input_ids",
                "past_key_names": "past_key_values.%d.decoder.key",
                "past_value_names": "past_key_values.%d.decoder.value",
                "cross_past_key_names": "past_key_values.%d.encoder.key",
                "cross_past_value_names": "past_key_values.%d.encoder.value",
            },
            "outputs": {
                "logits": "logits",
                "present_key_names": "present.%d.decoder.key",
                "present_value_names": "present.%d.decoder.value",
            },
        })),
    });
    assert_eq!(config["model"], expected);
    let processor = document(&out.join("audio_processor_config.json"));
    let last = &processor["feature_extraction"]["sequence"][2]["operation"]["attrs"];
    assert_eq!(*last, json!({"chunk_size": 30, "hop_length": 160, "n_fft": 400, "n_mel": 80}));
    let manifest = document(&out.join("planish.json"));
    let companions = manifest["companions"].as_array().unwrap();
    assert!(
        companions.contains(&"genai_config.json".into()) && companions.contains(&"audio_processor_config.json".into())
    );

    // Its encoder gives keys and values, and the text is that of the usual package.
    let usual = folder.path().join("usual");
    planish_compile(&model, &usual, &[]).succeeds();
    let recording = repository().join("fixtures/sounds/files/plain.wav");
    let said = |artifact: &Path| {
        let words =
            ["transcribe", text(artifact), text(&recording), "--json", "--temperature", "0", "--language", "en"];
        let found: Value = serde_json::from_str(&planish(words).exits(0, &[]).stdout).unwrap();
        found["recordings"][0]["segments"][0]["tokens"].clone()
    };
    assert!(said(&usual).as_array().is_some_and(|tokens| tokens.len() > 2));
    assert_eq!(said(&out), said(&usual));
}
