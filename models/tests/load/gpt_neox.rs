//! GPT-NeoX: the forms in which its checkpoints come, and what is refused.

use serde_json::json;

use crate::support::{Draft, LENIENT, STRICT, Stored, assert_refused, assert_same, assert_says, meaning};

const NAME: &str = "gpt-neox";

/// A copy with the rotary embedding as transformers 4 describes it.
fn old() -> Draft {
    Draft::of(NAME).without("rope_parameters").with("rotary_pct", json!(0.25)).with("rotary_emb_base", json!(10000))
}

fn frequencies(draft: &Draft) -> Vec<f64> {
    meaning(&draft.load(STRICT).unwrap().parts[0].graph).1["rotary_emb.inv_freq"].clone()
}

#[test]
fn both_generations_of_configurations_say_the_same() {
    assert_same(&old(), NAME);
    assert_same(&old().with("partial_rotary_factor", json!(0.25)).with("rope_theta", json!(10000.0)), NAME);
    // A quarter is the default.
    assert_same(&Draft::of(NAME).without("rope_parameters"), NAME);
    assert_same(&Draft::of(NAME).with("rope_parameters", json!({"rope_type": "default"})), NAME);
    let defaults = ["use_parallel_residual", "attention_bias", "tie_word_embeddings", "hidden_act", "layer_norm_eps"];
    assert_same(&defaults.into_iter().fold(old(), Draft::without), NAME);
}

#[test]
fn a_part_of_each_head_turns() {
    // Heads have 16 features.
    assert_eq!(frequencies(&old()).len(), 2);
    assert_eq!(frequencies(&old().with("rotary_pct", json!(0.5))).len(), 4);
    assert_eq!(frequencies(&old().with("rotary_emb_base", json!(100)))[1], f64::from(0.1f32));
    let scaled = old().with("rope_scaling", json!({"type": "linear", "factor": 2.0}));
    assert_eq!(frequencies(&scaled), frequencies(&old()).iter().map(|f| f / 2.0).collect::<Vec<_>>());
    for (key, value) in [("partial_rotary_factor", 0.5), ("rope_theta", 500.0)] {
        assert_says(&old().with(key, json!(value)).error(LENIENT), &["`rotary_", key, "differ"]);
    }
}

#[test]
fn buffers_and_other_names_make_no_difference() {
    let mask = Stored { dtype: safetensors::Dtype::BOOL, shape: vec![1, 1, 64, 64], bytes: vec![1; 64 * 64] };
    let scalar = Stored { dtype: safetensors::Dtype::F32, shape: Vec::new(), bytes: (-1e9f32).to_le_bytes().to_vec() };
    let mut draft = old();
    for layer in 0..2 {
        let at = |name: &str| format!("gpt_neox.layers.{layer}.attention.{name}");
        draft = draft
            .tensor(&at("bias"), mask.clone())
            .tensor(&at("masked_bias"), scalar.clone())
            .tensor(&at("rotary_emb.inv_freq"), Stored::ramp(&[2]));
    }
    assert_same(&draft, NAME);
    assert_same(&Draft::of(NAME).renamed(|name| name.trim_start_matches("gpt_neox.").to_owned()), NAME);
}

#[test]
fn the_head_may_be_the_embeddings() {
    let name = "gpt-neox-sequential";
    let embeddings = Draft::of(name).tensors["gpt_neox.embed_in.weight"].clone();
    assert_same(&Draft::of(name).tensor("embed_out.weight", embeddings), name);
    let message = Draft::of(name).with("tie_word_embeddings", json!(false)).error(LENIENT);
    assert_says(&message, &["tensor `embed_out.weight` is missing"]);
    let message = Draft::of(NAME).with("tie_word_embeddings", json!(true)).error(LENIENT);
    assert_says(&message, &["`embed_out.weight`", "differs from `gpt_neox.embed_in.weight`"]);
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let message = Draft::of("gpt-neox-sequential").with("attention_bias", json!(true)).error(LENIENT);
    assert_says(&message, &["`gpt_neox.layers.0.attention.query_key_value.bias` is missing"]);
    let name = "gpt_neox.layers.1.attention.query_key_value.weight";
    let message = Draft::of(NAME).tensor(name, Stored::ramp(&[48, 144])).error(LENIENT);
    assert_says(&message, &[name, "[48, 144], expected [144, 48] (3 * hidden_size = 144"]);
    assert_refused(NAME, "num_attention_heads", json!(5), &["hidden_size = 48 is not divisible by"]);
    assert_refused(NAME, "num_attention_heads", json!(4), &["but 3 features of", "12 turn"]);
    assert_refused(NAME, "rope_parameters", json!({"rope_type": "mystery"}), &["\"mystery\""]);
}
