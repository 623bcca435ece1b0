//! OPT: the forms in which its checkpoints come, and what is refused.

use serde_json::json;

use crate::support::{Draft, LENIENT, STRICT, Stored, assert_refused, assert_same, assert_says, text};

const NAME: &str = "opt";
const SMALL: &str = "opt-350m-like";

#[test]
fn positions_begin_at_the_third_row() {
    let graph = text(&Draft::of(NAME).load(STRICT).unwrap(), "model");
    for line in [
        "input %position_ids: i64[batch_size, sequence_length]",
        "@decoder.embed_positions.offset = dense([2])",
        "%decoder.embed_positions.rows = add(%position_ids, @decoder.embed_positions.offset)",
        "%decoder.embed_positions = embedding(@decoder.embed_positions.weight, %decoder.embed_positions.rows)",
    ] {
        assert!(graph.contains(line), "{line} is not in {graph}");
    }
}

#[test]
fn names_and_defaults_make_no_difference() {
    for name in [NAME, SMALL] {
        assert_same(&Draft::of(name).renamed(|n| n.trim_start_matches("model.").to_owned()), name);
        let embeddings = Draft::of(name).tensors["model.decoder.embed_tokens.weight"].clone();
        assert_same(&Draft::of(name).tensor("lm_head.weight", embeddings), name);
        let keys = ["_remove_final_layer_norm", "enable_bias", "layer_norm_elementwise_affine", "tie_word_embeddings"];
        let old = keys.into_iter().fold(Draft::of(name), Draft::without).with("activation_dropout", json!(0.1));
        assert_same(&old.without("activation_function"), name);
    }
    assert_same(&Draft::of(NAME).without("word_embed_proj_dim").without("do_layer_norm_before"), NAME);
    let galactica = Draft::of(NAME).with("learned_embeddings", json!(true)).with("scale_embeddings", json!(false));
    assert_same(&galactica, NAME);
}

#[test]
fn the_norm_after_the_layers_may_be_missing() {
    let last = |draft: Draft, line: &str| {
        let graph = text(&draft.load(STRICT).unwrap(), "model");
        assert!(graph.contains(line), "{line} is not in {graph}");
    };
    last(Draft::of(NAME), "%lm_head = linear(%decoder.final_layer_norm, @decoder.embed_tokens.weight)");
    let mut removed = Draft::of(NAME).with("_remove_final_layer_norm", json!(true));
    removed.tensors.retain(|name, _| !name.starts_with("model.decoder.final_layer_norm."));
    last(removed, "%lm_head = linear(%decoder.layers.1.final_layer_norm.add, @decoder.embed_tokens.weight)");
    last(Draft::of(SMALL), "%decoder.project_out = linear(%decoder.layers.1.final_layer_norm, ");
    last(Draft::of(SMALL), "%lm_head = linear(%decoder.project_out, @decoder.embed_tokens.weight)");
}

#[test]
fn projections_may_have_no_biases_and_norms_no_weights() {
    let mut draft = Draft::of(NAME).with("enable_bias", json!(false));
    draft.tensors.retain(|name, _| !name.ends_with(".bias") || name.contains("layer_norm"));
    let graph = text(&draft.load(STRICT).unwrap(), "model");
    let line = "linear(%decoder.layers.1.activation_fn, @decoder.layers.1.fc2.weight) :";
    assert!(graph.contains(line), "{line} is not in {graph}");
    let mut draft = draft.with("layer_norm_elementwise_affine", json!(false));
    draft.tensors.retain(|name, _| !name.contains("layer_norm"));
    let graph = text(&draft.load(STRICT).unwrap(), "model");
    let line = "layer_norm(%decoder.layers.1.final_layer_norm.add, @layer_norm.ones)";
    assert!(graph.contains(line), "{line} is not in {graph}");
}

#[test]
fn the_head_may_be_its_own() {
    let untied = Draft::of(SMALL).with("tie_word_embeddings", json!(false));
    assert_says(&untied.error(LENIENT), &["tensor `lm_head.weight` is missing"]);
    let model = untied.tensor("lm_head.weight", Stored::ramp(&[139, 24])).load(STRICT).unwrap();
    assert!(text(&model, "model").contains("%lm_head = linear(%decoder.project_out, @lm_head.weight)"));
}

#[test]
fn what_cannot_be_honoured_is_refused() {
    assert_refused(NAME, "learned_embeddings", json!(false), &["not supported"]);
    assert_refused(NAME, "scale_embeddings", json!(true), &["not supported"]);
    assert_refused(NAME, "activation_function", json!("xielu"), &["\"xielu\""]);
    assert_refused(NAME, "num_attention_heads", json!(5), &["hidden_size = 48 is not divisible by"]);
    let message = Draft::of(NAME).with("word_embed_proj_dim", json!(24)).error(LENIENT);
    assert_says(&message, &["model.decoder.embed_tokens.weight", "[139, 48], expected [139, 24]"]);
    let mut draft = Draft::of(SMALL);
    draft.tensors.remove("model.decoder.project_in.weight").unwrap();
    assert_says(&draft.error(LENIENT), &["tensor `model.decoder.project_in.weight` is missing"]);
    let positions = "model.decoder.embed_positions.weight";
    let message = Draft::of(NAME).tensor(positions, Stored::ramp(&[64, 48])).error(LENIENT);
    assert_says(&message, &[positions, "[64, 48], expected [66, 48] (max_position_embeddings + 2 = 66"]);
}
