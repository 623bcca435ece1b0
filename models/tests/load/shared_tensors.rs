//! Parameters of a masked language model's decoder that may be stored more than once. What versions of
//! the transformers library apply was observed by loading such checkpoints with them. Where all agree,
//! the tests expect the same. Where they do not, the tests expect what `transformers_version` in
//! config.json says, or an error where the file has no such key.

use serde_json::json;

use crate::support::{Draft, LENIENT, STRICT, Stored, assert_same, assert_says, meaning};

/// Goldens with the names of the decoder and of the second name of its bias.
const DECODERS: [(&str, &str, &str); 2] = [
    ("bert-mlm", "cls.predictions.decoder", "cls.predictions.bias"),
    ("roberta-mlm", "lm_head.decoder", "lm_head.bias"),
];

/// A golden whose decoder has a matrix of its own: `ramp`.
fn untied(golden: &str, decoder: &str) -> Draft {
    let matrix = Stored::ramp(&[131, 48]);
    Draft::of(golden).with("tie_word_embeddings", json!(false)).tensor(&format!("{decoder}.weight"), matrix)
}

#[test]
fn equal_copies_are_one_weight() {
    for (golden, decoder, bias) in DECODERS {
        let draft = Draft::of(golden);
        let embeddings = draft.tensors.iter().find(|(name, _)| name.ends_with("word_embeddings.weight")).unwrap();
        let (embeddings, bias) = (embeddings.1.clone(), draft.tensors[bias].clone());
        let draft = draft.tensor(&format!("{decoder}.weight"), embeddings).tensor(&format!("{decoder}.bias"), bias);
        assert_same(&draft, golden);
    }
}

#[test]
fn a_matrix_that_differs_from_tied_embeddings_is_an_error() {
    for (golden, decoder, embeddings) in [
        ("bert-mlm", "cls.predictions.decoder", "`bert.embeddings.word_embeddings.weight`"),
        ("roberta-mlm", "lm_head.decoder", "`roberta.embeddings.word_embeddings.weight`"),
    ] {
        let own = format!("{decoder}.weight");
        let draft = Draft::of(golden).tensor(&own, Stored::ramp(&[131, 48]));
        let tensor = format!("tensor `{own}` of ");
        let parts = [&tensor, "model.safetensors", "differs from", embeddings, "`tie_word_embeddings` to false"];
        assert_says(&draft.error(LENIENT), &parts);
        assert!(draft.with("tie_word_embeddings", json!(false)).load(LENIENT).is_ok());
    }
}

#[test]
fn an_untied_decoder_is_its_own_weight() {
    for (golden, decoder, _) in DECODERS {
        let own = format!("{decoder}.weight");
        let mut draft = untied(golden, decoder);
        let (_, weights) = meaning(&draft.load(LENIENT).unwrap().parts[0].graph);
        assert_eq!(weights[&own][0], -0.5);
        draft.tensors.remove(&own);
        assert_says(&draft.error(STRICT), &[&format!("tensor `{own}` is missing")]);
    }
}

#[test]
fn the_bias_of_a_decoder_may_be_stored_with_it() {
    for (golden, decoder, bias) in DECODERS {
        let moved = |name: &str| name.replace(bias, &format!("{decoder}.bias"));
        assert_same(&Draft::of(golden).renamed(moved), golden);
        assert!(untied(golden, decoder).renamed(moved).load(STRICT).is_ok());
    }
}

#[test]
fn the_only_bias_of_an_untied_decoder_is_applied() {
    for (golden, decoder, bias) in DECODERS {
        let model = untied(golden, decoder).tensor(bias, Stored::ramp(&[131])).load(LENIENT).unwrap();
        assert_eq!(model.warnings.len(), 1);
        let own = format!("no `{decoder}.bias`");
        assert_says(&model.warnings[0], &[&format!("`{bias}` is applied"), "transformers 5 takes zeros", &own]);
        let (_, weights) = meaning(&model.parts[0].graph);
        assert_eq!(weights[bias][0], -0.5);
    }
}

/// The golden of BERT, tied and untied, with a `ramp` as the decoder's bias; the other bias is not one.
fn two_biases() -> [Draft; 2] {
    let (golden, decoder, _) = DECODERS[0];
    [Draft::of(golden), untied(golden, decoder)]
        .map(|draft| draft.tensor(&format!("{decoder}.bias"), Stored::ramp(&[131])))
}

#[test]
fn of_two_biases_of_bert_the_version_says_which_is_applied() {
    let (_, decoder, bias) = DECODERS[0];
    let own = format!("{decoder}.bias");
    for (version, applied, other) in [
        ("4.26.1", own.as_str(), bias),
        ("4.42.4", &own, bias),
        ("4.43.0", bias, &own),
        ("4.44.2", bias, &own),
        ("4.57.6", bias, &own),
        ("5.0.0rc0", &own, bias),
        ("5.0.0", &own, bias),
        ("5.23.0", &own, bias),
        ("10.1", &own, bias),
    ] {
        for draft in two_biases() {
            let stored = draft.tensors[bias].clone();
            let model = draft.with("transformers_version", json!(version)).load(LENIENT).unwrap();
            assert_eq!(model.warnings.len(), 1, "{version}");
            let applies = format!("tensor `{other}` differs from `{applied}`, which is applied in its place");
            assert_says(&model.warnings[0], &[&applies]);
            let (_, weights) = meaning(&model.parts[0].graph);
            assert!(!weights.contains_key(other), "{version}");
            let first = f32::from_le_bytes(stored.bytes[..4].try_into().unwrap());
            assert_ne!(first, -0.5);
            let expected = if applied == bias { f64::from(first) } else { -0.5 };
            assert_eq!(weights[applied][0], expected, "{version}");
        }
    }
}

#[test]
fn two_biases_of_bert_without_a_version_are_an_error() {
    let (_, decoder, bias) = DECODERS[0];
    let own = format!("tensor `{decoder}.bias` of ");
    for draft in two_biases() {
        let message = draft.without("transformers_version").error(LENIENT);
        let bias = format!("differs from `{bias}`");
        let versions = "transformers from 4.43 up to, not including, 5.0";
        assert_says(&message, &[&own, "model.safetensors", &bias, versions, "`transformers_version`", "remove one"]);
    }
    for version in [json!("new"), json!("5"), json!(5.1), json!("v4.5"), json!([])] {
        let [draft, _] = two_biases();
        let message = draft.with("transformers_version", version).error(LENIENT);
        assert_says(&message, &["config.json", "`transformers_version` is", "expected a version such as \"4.57.6\""]);
    }
    // Where the two are equal, nothing depends on the version.
    let (golden, _, _) = DECODERS[0];
    assert!(Draft::of(golden).without("transformers_version").load(STRICT).is_ok());
}

#[test]
fn the_bias_of_robertas_decoder_comes_first() {
    let (golden, decoder, bias) = DECODERS[1];
    for draft in [
        Draft::of(golden),
        untied(golden, decoder),
        Draft::of(golden).with("transformers_version", json!("4.44.2")),
        Draft::of(golden).without("transformers_version"),
    ] {
        let own = format!("{decoder}.bias");
        let model = draft.tensor(&own, Stored::ramp(&[131])).load(LENIENT).unwrap();
        assert_eq!(model.warnings.len(), 1);
        assert_says(&model.warnings[0], &[&format!("`{bias}` differs from `{own}`, which is applied")]);
        let (_, weights) = meaning(&model.parts[0].graph);
        assert_eq!(weights[&own][0], -0.5);
        assert!(!weights.contains_key(bias));
    }
}
