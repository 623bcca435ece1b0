//! Adapters of low rank beside a checkpoint, from the command line on.

use std::fs;

use serde_json::Value;

use crate::support::{golden, planish, planish_compile, repository, scratch, text};

#[test]
fn an_artifact_is_compared_with_the_sum() {
    let folder = scratch();
    let adapter = folder.path().join("style");
    fs::create_dir(&adapter).unwrap();
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        fs::copy(repository().join("fixtures/adapters/llama").join(name), adapter.join(name)).unwrap();
    }
    let out = folder.path().join("out");
    let twice = format!("{}=-0.5", text(&adapter));
    let more = ["--adapter", text(&adapter), "--adapter", &twice, "--verify"];
    planish_compile(&golden("llama"), &out, &more).succeeds();
    let manifest: Value = serde_json::from_slice(&fs::read(out.join("planish.json")).unwrap()).unwrap();
    let adapters = manifest["source"]["adapters"].as_array().unwrap();
    assert_eq!(adapters.iter().map(|a| a["weight"].as_f64().unwrap()).collect::<Vec<_>>(), [1.0, -0.5]);
    assert_eq!(adapters[0]["path"], "../style");
    planish(["verify", text(&out)]).succeeds();
    // Without them it is another model.
    let other = folder.path().join("other");
    planish_compile(&golden("llama"), &other, &[]).succeeds();
    fs::copy(other.join("model.onnx"), out.join("model.onnx")).unwrap();
    planish(["verify", text(&out)]).exits(3, &[]);

    // An adapter that has changed since, and one that is no more there.
    let config = adapter.join("adapter_config.json");
    let said = fs::read_to_string(&config).unwrap();
    fs::write(&config, said.replace("\"lora_alpha\": 5", "\"lora_alpha\": 6")).unwrap();
    planish(["verify", text(&out)]).exits(1, &["adapter_config.json", "has changed"]);
    fs::rename(&adapter, folder.path().join("moved")).unwrap();
    planish(["verify", text(&out)]).exits(1, &["style", "there is no adapter_config.json"]);
}

#[test]
fn values_of_the_option_are_checked() {
    let folder = scratch();
    let adapter = repository().join("fixtures/adapters/llama");
    let out = folder.path().join("out");
    let refused = |model: &str, value: &str, code: i32, parts: &[&str]| {
        planish_compile(&golden(model), &out, &["--adapter", value]).exits(code, parts);
        assert!(!out.exists());
    };
    refused("llama", &format!("{}=often", text(&adapter)), 2, &["the weight after `=` is not a number"]);
    refused("llama", &format!("{}=inf", text(&adapter)), 2, &["is not a number"]);
    refused("llama", "nowhere", 1, &["nowhere: there is no adapter_config.json"]);
    refused("bert", text(&adapter), 1, &["the graph has no separate weight for it", "it was trained for llama"]);
    planish_compile(&golden("llama"), &out, &[]).succeeds();
    let again = planish_compile(&out, &folder.path().join("again"), &["--adapter", text(&adapter)]);
    again.exits(1, &["is an ONNX graph", "compile the checkpoint"]);
}
