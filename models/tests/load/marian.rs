//! Marian: the forms in which its checkpoints come, and what is refused.

use planish_models::Loaded;
use safetensors::Dtype;
use serde_json::json;

use crate::support::{Draft, LENIENT, STRICT, Stored, assert_refused, assert_same, assert_says, meaning, text};

const NAME: &str = "marian";
const TARGET: usize = 57;

/// The weight of a part.
fn weight(model: &Loaded, part: &str, name: &str) -> Vec<f64> {
    meaning(&model.parts.iter().find(|p| p.name == part).unwrap().graph).1[name].clone()
}

/// A copy whose decoder has a vocabulary of its own.
fn unshared() -> Draft {
    let mut draft = Draft::of(NAME)
        .with("share_encoder_decoder_embeddings", json!(false))
        .with("decoder_vocab_size", json!(TARGET))
        .renamed(|name| name.replace("model.shared.", "model.encoder.embed_tokens."))
        .tensor("model.decoder.embed_tokens.weight", Stored::ramp(&[TARGET, 32]));
    draft.tensors.insert("final_logits_bias".to_owned(), Stored::ramp(&[1, TARGET]));
    draft
}

#[test]
fn positions_are_sines_then_cosines() {
    let model = Draft::of(NAME).load(STRICT).unwrap();
    let table = weight(&model, "encoder_model", "encoder.embed_positions.weight");
    assert_eq!(table.len(), 64 * 32);
    assert_eq!(table[..32], [[0.0; 16], [1.0; 16]].concat());
    // Of position 3: features 1 and 16 + 1 have the angle 3 / 10000^(2/32).
    let angle = 3.0 / 10_000f64.powf(2.0 / 32.0);
    for (feature, expected) in [(0, 3f64.sin()), (1, angle.sin()), (16, 3f64.cos()), (17, angle.cos())] {
        assert_eq!(table[3 * 32 + feature], f64::from(expected as f32));
    }
    assert_eq!(table, weight(&model, "decoder_with_past_model", "decoder.embed_positions.weight"));
    let message = Draft::of(NAME).with("max_position_embeddings", json!(1 << 24)).error(LENIENT);
    assert_says(&message, &["max_position_embeddings = 16777216", "more than 67108864 numbers"]);
}

#[test]
fn positions_that_are_stored_count() {
    let computed = weight(&Draft::of(NAME).load(STRICT).unwrap(), "encoder_model", "encoder.embed_positions.weight");
    let bytes = computed.iter().flat_map(|n| (*n as f32).to_le_bytes()).collect();
    let table = Stored { dtype: Dtype::F32, shape: vec![64, 32], bytes };
    let names = ["model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"];
    assert_same(&names.into_iter().fold(Draft::of(NAME), |draft, name| draft.tensor(name, table.clone())), NAME);
    let other = Draft::of(NAME).tensor(names[0], Stored::ramp(&[64, 32])).load(STRICT).unwrap();
    assert_eq!(weight(&other, "encoder_model", "encoder.embed_positions.weight")[0], -0.5);
    let message = Draft::of(NAME).tensor(names[1], Stored::ramp(&[63, 32])).error(LENIENT);
    assert_says(&message, &[names[1], "[63, 32], expected [64, 32] (max_position_embeddings = 64"]);
}

/// As the models of the University of Helsinki say it.
#[test]
fn marian_as_hubs_hold_it() {
    let embeddings = Draft::of(NAME).tensors["model.shared.weight"].clone();
    let copies = ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"];
    let draft = copies.into_iter().fold(Draft::of(NAME), |draft, name| draft.tensor(name, embeddings.clone()));
    let off = ["add_bias_logits", "add_final_layer_norm", "normalize_before", "normalize_embedding"];
    let draft = off.into_iter().fold(draft, |draft, key| draft.with(key, json!(false)));
    let draft = draft
        .with("static_position_embeddings", json!(true))
        .with("extra_pos_embeddings", json!(0))
        .with("num_hidden_layers", json!(2))
        .with("classif_dropout", json!(0.0))
        .with("bad_words_ids", json!([[130]]));
    assert_same(&draft, NAME);
    let defaults = ["share_encoder_decoder_embeddings", "decoder_vocab_size", "tie_word_embeddings"];
    assert_same(&defaults.into_iter().fold(draft, Draft::without), NAME);
}

#[test]
fn a_decoder_may_have_its_own_vocabulary() {
    let model = unshared().load(STRICT).unwrap();
    let ids: Vec<i64> =
        model.parts.iter().map(|p| p.id_ranges.iter().find(|r| r.input == "input_ids").unwrap().end).collect();
    assert_eq!(ids, [131, 57, 57]);
    let decoder = text(&model, "decoder_model");
    let line =
        "@decoder.embed_tokens.weight, bias: %final_logits_bias.vector) : f32[batch_size, decoder_sequence_length, 57]";
    assert!(decoder.contains(line), "{decoder}");
    assert!(text(&model, "encoder_model").contains("embedding(@encoder.embed_tokens.weight, %input_ids)"));

    let untied = unshared().with("tie_word_embeddings", json!(false));
    assert_says(&untied.error(LENIENT), &["tensor `lm_head.weight` is missing"]);
    let untied = untied.tensor("lm_head.weight", Stored::ramp(&[TARGET, 32])).load(STRICT).unwrap();
    assert!(text(&untied, "decoder_model").contains("@lm_head.weight, bias: %final_logits_bias.vector)"));
    let message = unshared().with("share_encoder_decoder_embeddings", json!(true)).error(LENIENT);
    assert_says(&message, &["vocab_size = 131", "decoder_vocab_size = 57", "share_encoder_decoder_embeddings"]);
    let message = unshared().tensor("final_logits_bias", Stored::ramp(&[1, 131])).error(LENIENT);
    assert_says(&message, &["`final_logits_bias`", "[1, 131], expected [1, 57]"]);
}

#[test]
fn what_cannot_be_honoured_is_refused() {
    for key in ["normalize_before", "normalize_embedding", "add_final_layer_norm", "add_bias_logits"] {
        assert_refused(NAME, key, json!(true), &["not supported"]);
    }
    assert_refused(NAME, "static_position_embeddings", json!(false), &["not supported"]);
    let mut draft = Draft::of(NAME);
    draft.tensors.remove("model.decoder.layers.1.encoder_attn.k_proj.bias").unwrap();
    assert_says(&draft.error(LENIENT), &["`model.decoder.layers.1.encoder_attn.k_proj.bias` is missing"]);
}
