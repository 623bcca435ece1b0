//! Parameters of a masked language model's decoder that may be stored more than once. What
//! transformers 4.57 and 5.23 apply was observed by loading such checkpoints: where both agree
//! that is what is taken; where they do not, copies that differ are an error.

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

#[test]
fn biases_of_bert_that_differ_are_an_error() {
    let (golden, decoder, bias) = DECODERS[0];
    for draft in [Draft::of(golden), untied(golden, decoder)] {
        let own = format!("{decoder}.bias");
        let message = draft.tensor(&own, Stored::ramp(&[131])).error(LENIENT);
        assert_says(
            &message,
            &[&format!("tensor `{own}` of "), "model.safetensors", &format!("`{bias}`"), "remove one"],
        );
    }
}

#[test]
fn the_bias_of_robertas_decoder_comes_first() {
    let (golden, decoder, bias) = DECODERS[1];
    for draft in [Draft::of(golden), untied(golden, decoder)] {
        let own = format!("{decoder}.bias");
        let model = draft.tensor(&own, Stored::ramp(&[131])).load(LENIENT).unwrap();
        assert_eq!(model.warnings.len(), 1);
        assert_says(&model.warnings[0], &[&format!("`{bias}` differs from `{own}`, which is applied")]);
        let (_, weights) = meaning(&model.parts[0].graph);
        assert_eq!(weights[&own][0], -0.5);
        assert!(!weights.contains_key(bias));
    }
}
