//! Checkpoints of multimodal models, of which the text model is taken.

use serde_json::{Value, json};

use planish_models::{LoadOptions, Task};

use crate::support::{self, Draft, STRICT, Stored, assert_says, meaning};

/// Loading the text model with warnings.
const LENIENT: LoadOptions = LoadOptions { task: Some(Task::TextGeneration), ..support::LENIENT };

/// A golden as the text model of a whole one, with a tower of one tensor. `rename` has the whole's names of tensors.
fn whole(golden: &str, kind: &str, class: &str, rename: impl Fn(&str) -> String) -> Draft {
    let mut draft = Draft::of(golden).renamed(rename);
    let mut text = draft.config.take();
    text.as_object_mut().unwrap().remove("architectures");
    draft.config =
        json!({"model_type": kind, "architectures": [class], "text_config": text, "vision_config": {"depth": 1}});
    draft.tensor("vision_tower.patches.weight", Stored::ramp(&[2, 3]))
}

#[test]
fn a_whole_model_gives_what_its_text_model_gives() {
    let newer = |name: &str| name.replacen("model.", "model.language_model.", 1);
    let older = |name: &str| format!("language_model.{name}");
    let expected = meaning(&Draft::of("gemma3").load(STRICT).unwrap().parts[0].graph);
    for draft in [
        whole("gemma3", "gemma3", "Gemma3ForConditionalGeneration", newer),
        whole("gemma3", "gemma3", "Gemma3ForConditionalGeneration", older),
    ] {
        let loaded = draft.load(LENIENT).unwrap();
        assert_eq!(meaning(&loaded.parts[0].graph), expected);
        assert_eq!((loaded.architecture, loaded.warnings.len()), ("gemma3_text", 1), "{:?}", loaded.warnings);
        assert_says(&loaded.warnings[0], &["text model of gemma3", "left out: vision_tower (1 tensors)"]);
        assert_says(&draft.error(LoadOptions { strict: true, ..LENIENT }), &["left out: vision_tower"]);
    }
}

#[test]
fn the_head_that_is_stored_counts() {
    let named = |name: &str| format!("language_model.{name}");
    // Llama's golden has a head of its own, whatever the default of the whole is.
    let draft = whole("llama", "mistral3", "Mistral3ForConditionalGeneration", named);
    assert!(draft.tensors.contains_key("language_model.lm_head.weight"));
    let expected = meaning(&Draft::of("llama").load(STRICT).unwrap().parts[0].graph);
    assert_eq!(meaning(&draft.load(LENIENT).unwrap().parts[0].graph), expected);
    let error = draft.with("tie_word_embeddings", Value::Bool(true)).error(LENIENT);
    assert_says(&error, &["`language_model.lm_head.weight`", "differs from", "tie_word_embeddings"]);
}

#[test]
fn a_whole_whose_text_model_may_compute_something_else_is_refused() {
    let named = |name: &str| format!("language_model.{name}");
    let draft = whole("gemma", "fuyu", "FuyuForCausalLM", named);
    let parts = ["`text_config`", "\"gemma\"", "type fuyu", "gemma3", "export the whole"];
    assert_says(&draft.error(LENIENT), &parts);
    let draft = whole("gemma", "paligemma", "PaliGemmaForConditionalGeneration", named);
    assert_says(&draft.error(LENIENT), &["prompt of a paligemma see each other", "image-text-to-text"]);
    let draft = whole("llama", "llava", "LlavaForConditionalGeneration", named).with("text_config", json!([1]));
    assert_says(&draft.error(LENIENT), &["`text_config` is [1], expected an object"]);
}

#[test]
fn errors_about_the_text_model_say_so() {
    let mut draft = whole("llama", "llava", "LlavaForConditionalGeneration", |name| format!("language_model.{name}"));
    draft.config["text_config"]["hidden_act"] = json!("mystery");
    assert_says(&draft.error(LENIENT), &["config.json", "of the text model", "`hidden_act`", "mystery"]);
}

/// A checkpoint of fixtures/seeing.
fn seeing(name: &str) -> Draft {
    Draft::at(&support::golden("").join("../seeing").join(name))
}

#[test]
fn a_model_with_a_tower_sees_unless_its_text_model_is_asked_for() {
    for (name, kind) in [("llava", "llava"), ("gemma3-vision", "gemma3"), ("smolvlm", "smolvlm")] {
        let loaded = seeing(name).load(STRICT).unwrap();
        assert_eq!((loaded.architecture, loaded.task), (kind, Some(Task::ImageTextToText)));
        let names: Vec<&str> = loaded.parts.iter().map(|part| part.name).collect();
        assert_eq!(names, ["vision_encoder", "embed_tokens", "decoder_model_merged"]);
        let text = seeing(name).load(LENIENT).unwrap();
        assert_eq!((text.task, text.parts.len()), (Some(Task::TextGeneration), 1));
        assert_says(&text.warnings[0], &["this is the text model of", kind, "left out"]);
    }
}

#[test]
fn settings_of_towers_and_projections_are_honoured_or_refused() {
    let wrong = |name: &str, key: &str, value: Value| seeing(name).with(key, value).error(support::LENIENT);
    assert_says(&wrong("llava", "vision_feature_layer", json!(4)), &["`vision_feature_layer` is 4", "from -3 to 2"]);
    assert_says(&wrong("llava", "vision_feature_layer", json!([])), &["`vision_feature_layer` is []"]);
    assert_says(&wrong("llava", "vision_feature_select_strategy", json!("all")), &["\"all\"", "\"full\""]);
    assert_says(&wrong("llava", "vision_config", Value::Null), &["`vision_config` is missing"]);
    let tower = wrong("llava", "vision_config", json!({"model_type": "dinov2"}));
    assert_says(&tower, &["`vision_config.model_type` is \"dinov2\"", "siglip_vision_model"]);
    assert_says(&wrong("smolvlm", "scale_factor", json!(3)), &["scale_factor = 3", "4 x 4 patches"]);
    assert_says(&wrong("gemma3-vision", "mm_tokens_per_image", json!(25)), &["mm_tokens_per_image", "5 x 5 patches"]);
    let blind = seeing("llava").with("text_config", json!({"model_type": "bert"})).error(support::LENIENT);
    assert_says(&blind, &["bert", "text-generation"]);
}
