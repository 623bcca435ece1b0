//! Checkpoints as transformers 5 saves them, next to those of transformers 4: both give the same graph. The goldens are
//! of transformers 5 with its original names of tensors.

use serde_json::{Map, Value, json};

use crate::support::{Draft, STRICT, assert_same, assert_says, golden};

/// Every golden that has rotary embeddings.
const ROTARY: &[&str] = &[
    "gemma",
    "gemma2",
    "gpt-neox",
    "gpt-neox-sequential",
    "llama",
    "llama-dynamic",
    "llama-yarn",
    "mistral",
    "phi3",
    "phi3-longrope",
    "qwen2",
    "qwen3",
];

fn rope_parameters(draft: &Draft) -> Map<String, Value> {
    draft.config["rope_parameters"].as_object().unwrap().clone()
}

/// The configuration as transformers 4 wrote it.
fn as_transformers_4(name: &str) -> Draft {
    let draft = Draft::of(name);
    let dtype = draft.config["dtype"].clone();
    let mut draft = draft.without("dtype").with("torch_dtype", dtype).without("layer_types");
    if ROTARY.contains(&name) {
        let mut scaling = rope_parameters(&draft);
        draft = draft.without("rope_parameters");
        for key in ["rope_theta", "partial_rotary_factor"] {
            if let Some(value) = scaling.remove(key) {
                draft = draft.with(key, value);
            }
        }
        let plain = scaling.get("rope_type") == Some(&json!("default"));
        draft = draft.with("rope_scaling", if plain { Value::Null } else { scaling.into() });
    }
    draft
}

#[test]
fn configurations_of_both_versions_mean_the_same() {
    let all = std::fs::read_dir(golden("")).unwrap().map(|entry| entry.unwrap().path());
    let names: Vec<String> = all
        .filter(|path| path.join("config.json").is_file())
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    assert!(names.len() >= 25, "{names:?}");
    for name in names {
        assert_same(&as_transformers_4(&name), &name);
    }
}

#[test]
fn parameters_of_rotary_embeddings_by_types_of_layers() {
    for name in ROTARY {
        let draft = Draft::of(name);
        let own = rope_parameters(&draft);
        let both = json!({"full_attention": own.clone(), "sliding_attention": own.clone()});
        assert_same(&draft.with("rope_parameters", both), name);
        let one = json!({"full_attention": own, "sliding_attention": null});
        assert_same(&Draft::of(name).with("rope_parameters", one), name);
    }
}

#[test]
fn parameters_that_differ_between_layers_are_refused() {
    let of = |theta: f64| json!({"rope_theta": theta, "rope_type": "default"});
    let with = |value: Value| Draft::of("qwen3").with("rope_parameters", value).error(STRICT);
    let message = with(json!({"full_attention": of(1e6), "sliding_attention": of(1e4)}));
    assert_says(
        &message,
        &["`rope_parameters` differs between layers of the types full_attention and sliding_attention"],
    );
    let message = with(json!({"full_attention": of(1e6), "rope_theta": {}}));
    assert_says(&message, &["`rope_parameters` is given by the types of layers and has `rope_theta`"]);
    let message = with(json!({"full_attention": 3}));
    assert_says(&message, &["`rope_parameters.full_attention` is 3, expected an object"]);
    let message = with(json!({"full_attention": {"rope_type": "linear"}}));
    assert_says(&message, &["`rope_parameters.full_attention.factor` is missing"]);
}

/// A name as `save_pretrained(save_original_format=False)` has it.
fn renamed(names: &[(&str, &str)], name: &str) -> String {
    names.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
}

const VIT: &[(&str, &str)] = &[
    ("encoder.layer.", "layers."),
    ("attention.attention.query", "attention.q_proj"),
    ("attention.attention.key", "attention.k_proj"),
    ("attention.attention.value", "attention.v_proj"),
    ("attention.output.dense", "attention.o_proj"),
    ("intermediate.dense", "mlp.fc1"),
    ("output.dense", "mlp.fc2"),
];

/// Of the architectures that are there transformers 5.24 renames tensors of these two only.
#[test]
fn names_of_tensors_of_both_forms() {
    let draft = Draft::of("vit").renamed(|name| renamed(VIT, name));
    for name in ["layers.0.attention.q_proj.weight", "layers.1.attention.o_proj.bias", "layers.1.mlp.fc2.weight"] {
        let is_there = draft.tensors.keys().any(|n| n.trim_start_matches("vit.") == name);
        assert!(is_there, "{name} is not in {:?}", draft.tensors.keys());
    }
    assert_same(&draft, "vit");
    let draft = Draft::of("gpt-neox").renamed(|name| renamed(&[("embed_out.", "lm_head.")], name));
    assert!(draft.tensors.contains_key("lm_head.weight"));
    assert_same(&draft, "gpt-neox");
}

/// What is missing is called by the name that the hub's checkpoints have.
#[test]
fn missing_tensors_are_called_by_their_original_names() {
    let mut draft = Draft::of("vit").renamed(|name| renamed(VIT, name));
    draft.tensors.retain(|name, _| !name.ends_with("layers.1.attention.q_proj.weight"));
    assert_says(&draft.error(STRICT), &["tensor `encoder.layer.1.attention.attention.query.weight` is missing"]);
}
