//! Towers of images and texts: their interfaces, and configurations in parts.

use planish_models::{LoadOptions, Task};
use serde_json::{Value, json};

use crate::support::{Draft, LENIENT, STRICT, assert_meaning, assert_says, golden, load_path, task};

/// The object of a key of a golden's configuration.
fn part_of(name: &str, key: &str) -> Value {
    Draft::of(name).config[key].clone()
}

/// A golden whose tower has another value of a key.
fn changed(name: &str, tower: &str, key: &str, value: Value) -> Draft {
    let mut part = part_of(name, tower);
    part[key] = value;
    Draft::of(name).with(tower, part)
}

/// The tower of a golden as a checkpoint of its own, with the tensors of some modules under other names.
fn alone(name: &str, tower: &str, class: &str, modules: &[&str], prefix: &str) -> Draft {
    let mut draft = Draft::of(name);
    draft.config = part_of(name, tower);
    draft.config["architectures"] = json!([class]);
    draft.config["projection_dim"] = json!(32);
    draft.tensors.retain(|tensor, _| modules.iter().any(|module| tensor.starts_with(module)));
    draft.renamed(|tensor| tensor.strip_prefix(prefix).unwrap_or(tensor).to_owned())
}

fn interface(draft: &Draft, options: LoadOptions) -> Vec<String> {
    let model = draft.load(options).unwrap();
    let graph = &model.parts[0].graph;
    let inputs = graph.inputs().iter().map(|v| format!("{}: {}", graph.value(*v).name, graph.ty(*v)));
    inputs.chain(graph.outputs().iter().map(|o| format!("{}: {}", o.name, graph.ty(o.value)))).collect()
}

#[test]
fn inputs_and_outputs_are_those_of_optimum() {
    let ids = "input_ids: i64[text_batch_size, sequence_length]";
    let mask = "attention_mask: i64[text_batch_size, sequence_length]";
    let expected = [
        ids,
        "pixel_values: f32[batch_size, 3, 16, 16]",
        mask,
        "logits_per_image: f32[batch_size, text_batch_size]",
        "logits_per_text: f32[text_batch_size, batch_size]",
        "text_embeds: f32[text_batch_size, 32]",
        "image_embeds: f32[batch_size, 32]",
    ];
    let features = LoadOptions { strict: true, ..task(Task::FeatureExtraction) };
    for options in [STRICT, features] {
        assert_eq!(interface(&Draft::of("clip"), options), expected);
    }
    let siglip = interface(&Draft::of("siglip"), STRICT);
    let pixels = "pixel_values: f32[image_batch_size, 3, 16, 16]";
    assert_eq!(siglip[..3], [ids, pixels, "logits_per_image: f32[image_batch_size, text_batch_size]"]);
}

#[test]
fn a_tower_may_be_alone() {
    let hidden = "last_hidden_state: f32[batch_size, sequence_length, 48]";
    // With its original names and with those in memory.
    for prefix in ["", "text_model."] {
        let draft = alone("clip", "text_config", "CLIPTextModel", &["text_model."], prefix);
        assert_eq!(interface(&draft, STRICT)[2..], [hidden, "pooler_output: f32[batch_size, 48]"]);
    }
    let modules = ["text_model.", "text_projection."];
    let draft = alone("clip", "text_config", "CLIPTextModelWithProjection", &modules, "");
    assert_eq!(interface(&draft, STRICT)[2..], ["text_embeds: f32[batch_size, 32]", hidden]);
    let pixels = "pixel_values: f32[batch_size, 3, 16, 16]";
    for prefix in ["", "vision_model."] {
        let draft = alone("clip", "vision_config", "CLIPVisionModel", &["vision_model."], prefix);
        let outputs = ["last_hidden_state: f32[batch_size, 17, 48]", "pooler_output: f32[batch_size, 48]"];
        assert_eq!(interface(&draft, STRICT), [pixels, outputs[0], outputs[1]]);
    }
}

#[test]
fn an_older_configuration_of_a_tower_counts() {
    let whole = load_path(&golden("clip"), STRICT).unwrap();
    let older = Draft::of("clip")
        .with("text_config_dict", part_of("clip", "text_config"))
        .with("text_config", json!({"hidden_size": 7, "hidden_act": "none"}))
        .with("vision_config_dict", part_of("clip", "vision_config"))
        .with("vision_config", Value::Null);
    assert_meaning(&older.load(STRICT).unwrap(), &whole);
    let absent = Draft::of("clip").with("text_config_dict", Value::Null);
    assert_meaning(&absent.load(STRICT).unwrap(), &whole);
}

#[test]
fn the_end_of_a_text_is_that_of_the_configuration() {
    let text = |end: Value| changed("clip", "text_config", "eos_token_id", end).load(STRICT).unwrap();
    let has_end = |end: Value| text(end).parts[0].graph.to_string().contains("text_model.end.id");
    assert_eq!([json!(129), json!(49407), json!(2)].map(has_end), [true, true, false]);
    for (end, words) in
        [(Value::Null, "is null"), (json!([2, 129]), "expected a token id"), (json!("2"), "expected a token id")]
    {
        let error = changed("clip", "text_config", "eos_token_id", end).error(LENIENT);
        assert_says(&error, &["of `text_config`", "`eos_token_id`", words]);
    }
}

#[test]
fn errors_and_warnings_name_the_tower() {
    let refused = |name: &str, tower: &str, key: &str, value: Value, words: &[&str]| {
        let of_tower = format!("of `{tower}`");
        let words: Vec<&str> = [of_tower.as_str()].into_iter().chain(words.iter().copied()).collect();
        assert_says(&changed(name, tower, key, value).error(LENIENT), &words);
    };
    refused("clip", "text_config", "model_type", json!("bert"), &["`model_type` is \"bert\"", "\"clip_text_model\""]);
    refused("clip", "vision_config", "hidden_act", json!("none"), &["`hidden_act`"]);
    refused("clip", "vision_config", "image_size", json!(3), &["images of 3 x 3", "patches of 4 x 4"]);
    refused("clip", "text_config", "num_attention_heads", json!(5), &["is not divisible by"]);
    refused("siglip", "vision_config", "vision_use_head", json!(false), &["no vector of an image"]);
    let warned = changed("clip", "text_config", "spurious", json!(3)).load(LENIENT).unwrap().warnings;
    assert!(warned.len() == 1 && warned[0].contains("of `text_config`: ignored keys: spurious"), "{warned:?}");
    assert_says(&Draft::of("clip").with("text_config", json!(3)).error(LENIENT), &["`text_config` is 3", "an object"]);
    let narrow = changed("siglip", "text_config", "projection_size", json!(40)).error(LENIENT);
    assert_says(&narrow, &["text_model.head.weight", "projection_size = 40"]);
}

#[test]
fn pixels_that_fill_no_patch_are_left_out() {
    let draft = changed("siglip", "vision_config", "image_size", json!(19));
    assert_eq!(interface(&draft, STRICT)[1], "pixel_values: f32[image_batch_size, 3, 19, 19]");
}
