//! Sizes that a configuration gives or leaves out, and whether the tensors have them.

use serde_json::{Value, json};

use crate::support::{Draft, LENIENT, STRICT, assert_meaning, assert_refused, assert_says};

#[test]
fn sizes_are_positive_bounded_integers() {
    let expected = "expected an integer from 1 to 16777216";
    for key in ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"] {
        for value in [json!(0), json!(-3), json!(1.5), json!(1u64 << 40), json!("48"), json!([48]), json!(true)] {
            let text = value.to_string();
            assert_refused("bert", key, value, &[&format!("is {text}"), expected]);
        }
        assert_refused("bert", key, Value::Null, &["is null", expected]);
    }
    assert_refused("bert", "type_vocab_size", json!(0), &["is 0", expected]);
}

#[test]
fn sizes_that_are_left_out_are_those_of_transformers() {
    for (golden, key, default) in [
        ("bert", "num_attention_heads", 12),
        ("roberta-mlm", "num_attention_heads", 12),
        ("distilbert-qa", "n_heads", 12),
    ] {
        let draft = Draft::of(golden).without(key);
        let model = draft.load(LENIENT).unwrap();
        assert_eq!(model.warnings.len(), 1);
        let parts = ["config.json: missing keys", "transformers", &format!(": {key} = {default} by default")];
        assert_says(&model.warnings[0], &parts);
        assert_meaning(&model, &draft.with(key, json!(default)).load(STRICT).unwrap());
    }
    // Defaults that the tensors do not have are told from what the file says.
    for (model_type, key, default) in [
        ("bert", "vocab_size", 30522),
        ("roberta", "vocab_size", 50265),
        ("camembert", "vocab_size", 30522),
        ("xlm-roberta", "vocab_size", 30522),
        ("bert", "hidden_size", 768),
        ("bert", "intermediate_size", 3072),
        ("bert", "max_position_embeddings", 512),
        ("distilbert", "dim", 768),
        ("distilbert", "hidden_dim", 3072),
    ] {
        let golden = match model_type {
            "bert" => "bert",
            "distilbert" => "distilbert-qa",
            _ => "roberta-mlm",
        };
        let message = Draft::of(golden).with("model_type", json!(model_type)).without(key).error(LENIENT);
        assert_says(&message, &["the shape is", &format!("{key} = {default} by default")]);
    }
    let mut draft = Draft::of("distilbert-qa").without("n_layers").without("n_heads");
    assert_says(&draft.error(LENIENT), &["`distilbert.transformer.layer.2.", "is missing from"]);
    for layer in 2..6 {
        let second: Vec<_> = draft.tensors.iter().filter(|(name, _)| name.contains("layer.1.")).collect();
        let copies: Vec<_> =
            second.iter().map(|(n, t)| (n.replace("layer.1.", &format!("layer.{layer}.")), (*t).clone())).collect();
        draft.tensors.extend(copies);
    }
    let model = draft.load(LENIENT).unwrap();
    assert_eq!(model.warnings.len(), 1);
    assert_says(&model.warnings[0], &["n_heads = 12 by default, n_layers = 6 by default"]);
}

#[test]
fn token_types_that_are_left_out_are_those_stored() {
    for (golden, types) in [("bert", 2), ("roberta-mlm", 1)] {
        let draft = Draft::of(golden).with("type_vocab_size", json!(types));
        let said = draft.load(STRICT).unwrap();
        let draft = draft.without("type_vocab_size");
        let model = draft.load(LENIENT).unwrap();
        assert_meaning(&model, &said);
        assert_eq!(model.warnings.len(), 1);
        let row = format!("`type_vocab_size` is missing: taking {types}, the rows of");
        assert_says(&model.warnings[0], &[&row, "embeddings.token_type_embeddings.weight"]);
    }
    let mut draft = Draft::of("bert").without("type_vocab_size");
    draft.tensors.remove("embeddings.token_type_embeddings.weight");
    assert_says(&draft.error(LENIENT), &["`embeddings.token_type_embeddings.weight` is missing"]);
}

#[test]
fn sizes_must_fit_each_other_and_the_tensors() {
    assert_refused(
        "bert",
        "num_attention_heads",
        json!(5),
        &["hidden_size = 48 is not divisible by num_attention_heads = 5"],
    );
    let message = Draft::of("bert").with("max_position_embeddings", json!(64)).error(LENIENT);
    let parts =
        ["embeddings.position_embeddings.weight", "[32, 48], expected [64, 48]", "max_position_embeddings = 64"];
    assert_says(&message, &parts);
    assert_refused("distilbert-qa", "hidden_size", json!(64), &["dim = 48", "both name the same size"]);
    assert_refused("roberta-mlm", "max_position_embeddings", json!(2), &["leaves no position", "pad_token_id = 1"]);
}
