//! Encoder-decoders: the forms in which their checkpoints come, and what is refused.

use planish_models::Task;
use serde_json::json;

use crate::support::{
    Draft, LENIENT, STRICT, Stored, assert_refused, assert_same, assert_says, golden, load_path, meaning, task, text,
};

const VOCABULARY: usize = 127;
const HIDDEN: usize = 48;

#[test]
fn inputs_and_outputs_have_the_names_and_dimensions_of_optimum() {
    let cache = |prefix: &str, of: &[(&str, &str)]| -> Vec<String> {
        let layer = |layer: usize| {
            let both = move |(of, length): &(&str, &str)| {
                ["key", "value"].map(|what| format!("{prefix}.{layer}.{of}.{what}: f32[batch_size, 4, {length}, 12]"))
            };
            of.iter().flat_map(both).collect::<Vec<_>>()
        };
        (0..2).flat_map(layer).collect()
    };
    let (source, new) = ("encoder_sequence_length", "decoder_sequence_length");
    let past = "past_decoder_sequence_length";
    let all = format!("{new} + {past}");
    let ids = |name: &str, length: &str| vec![format!("{name}: i64[batch_size, {length}]")];
    let states = |name: &str| vec![format!("{name}: f32[batch_size, {source}, 48]")];
    let logits = vec![format!("logits: f32[batch_size, {new}, 127]")];
    let decoder = [ids("encoder_attention_mask", source), ids("input_ids", new)].concat();
    let expected = [
        (
            "encoder_model",
            [ids("input_ids", source), ids("attention_mask", source)].concat(),
            states("last_hidden_state"),
        ),
        (
            "decoder_model",
            [decoder.clone(), states("encoder_hidden_states")].concat(),
            [logits.clone(), cache("present", &[("decoder", new), ("encoder", source)])].concat(),
        ),
        (
            "decoder_with_past_model",
            [decoder, cache("past_key_values", &[("decoder", past), ("encoder", source)])].concat(),
            [logits, cache("present", &[("decoder", &all)])].concat(),
        ),
    ];
    for name in ["t5", "bart"] {
        let model = load_path(&golden(name), STRICT).unwrap();
        assert_eq!(model.task, Some(Task::Text2TextGeneration));
        assert_eq!(model.parts.len(), expected.len());
        for (part, (file, inputs, outputs)) in model.parts.iter().zip(&expected) {
            let graph = &part.graph;
            assert_eq!(part.name, *file);
            let given: Vec<String> =
                graph.inputs().iter().map(|v| format!("{}: {}", graph.value(*v).name, graph.ty(*v))).collect();
            assert_eq!(given, *inputs, "{name}");
            let given: Vec<String> =
                graph.outputs().iter().map(|o| format!("{}: {}", o.name, graph.ty(o.value))).collect();
            assert_eq!(given, *outputs, "{name}");
            let bounded: Vec<(&str, i64)> = part.id_ranges.iter().map(|r| (r.input.as_str(), r.end)).collect();
            assert!(bounded.contains(&("input_ids", 127)) && bounded.len() == 2, "{bounded:?}");
        }
    }
}

#[test]
fn embeddings_may_be_stored_several_times() {
    for (name, base) in [("t5", ""), ("bart", "model.")] {
        let embeddings = Draft::of(name).tensors[&format!("{base}shared.weight")].clone();
        let copies = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"].map(|n| format!("{base}{n}"));
        let draft = copies.iter().fold(Draft::of(name), |draft, copy| draft.tensor(copy, embeddings.clone()));
        assert_same(&draft.tensor("lm_head.weight", embeddings), name);

        let draft = Draft::of(name).tensor(&copies[1], Stored::ramp(&[VOCABULARY, HIDDEN]));
        assert_says(&draft.error(LENIENT), &["decoder.embed_tokens.weight`", "shared.weight", "share one matrix"]);
    }
}

#[test]
fn embeddings_may_be_stored_under_another_name_only() {
    let encoders = |n: &str| n.replace("shared.weight", "encoder.embed_tokens.weight");
    let model = Draft::of("t5").renamed(encoders).load(STRICT).unwrap();
    let original = load_path(&golden("t5"), STRICT).unwrap();
    for (part, wanted) in model.parts.iter().zip(&original.parts) {
        let ((text, weights), (wanted_text, wanted_weights)) = (meaning(&part.graph), meaning(&wanted.graph));
        assert_eq!(text, wanted_text.replace("shared.weight", "encoder.embed_tokens.weight"));
        assert_eq!(weights["encoder.embed_tokens.weight"], wanted_weights["shared.weight"]);
    }
}

#[test]
fn the_prefix_of_the_base_model_makes_no_difference() {
    assert_same(&Draft::of("bart").renamed(|n| n.trim_start_matches("model.").to_owned()), "bart");
}

#[test]
fn an_untied_head_is_its_own_weight_and_takes_what_is_not_scaled() {
    let untied = Draft::of("t5").with("tie_word_embeddings", json!(false)).without("scale_decoder_outputs");
    assert_says(&untied.error(STRICT), &["tensor `lm_head.weight` is missing"]);
    let model = untied.tensor("lm_head.weight", Stored::ramp(&[VOCABULARY, HIDDEN])).load(STRICT).unwrap();
    let original = load_path(&golden("t5"), STRICT).unwrap();
    for part in ["decoder_model", "decoder_with_past_model"] {
        let (own, tied) = (text(&model, part), text(&original, part));
        assert!(own.contains("%lm_head = linear(%decoder.final_layer_norm, @lm_head.weight)"), "{own}");
        assert!(tied.contains("%lm_head = linear(%lm_head.scaled, @shared.weight)"), "{tied}");
        // 48 ** -0.5.
        assert!(tied.contains("@lm_head.scale = dense([0.14433756])"), "{tied}");
    }
}

/// How T5 v1.1 is stored: by transformers 4, whose configurations say that the head is not tied, and by
/// transformers 5, which says of all that they are.
#[test]
fn a_head_of_its_own_is_one_in_both_generations_of_t5() {
    const NAME: &str = "t5-gated-untied";
    assert_same(&Draft::of(NAME).without("scale_decoder_outputs"), NAME);
    assert_same(&Draft::of(NAME).with("tie_word_embeddings", json!(true)), NAME);
    assert_same(&Draft::of(NAME).without("tie_word_embeddings"), NAME);
    // What is scaled has no head of its own.
    let scaled = Draft::of(NAME).without("tie_word_embeddings").without("scale_decoder_outputs");
    assert_says(&scaled.error(LENIENT), &["`lm_head.weight`", "differs from `shared.weight`"]);
    // One that is not scaled and not stored is that of the embeddings.
    let mut tied = Draft::of(NAME).with("tie_word_embeddings", json!(true));
    tied.tensors.remove("lm_head.weight").unwrap();
    let decoder = text(&tied.load(STRICT).unwrap(), "decoder_model");
    assert!(decoder.contains("%lm_head = linear(%decoder.final_layer_norm, @shared.weight)"), "{decoder}");
}

#[test]
fn t5_v1_1_stores_its_embeddings_three_times() {
    const NAME: &str = "t5-gated-untied";
    let embeddings = Draft::of(NAME).tensors["shared.weight"].clone();
    let names = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"];
    assert_same(&names.into_iter().fold(Draft::of(NAME), |draft, name| draft.tensor(name, embeddings.clone())), NAME);
}

#[test]
fn configurations_without_derived_keys_say_the_same() {
    let derived =
        ["dense_act_fn", "is_gated_act", "scale_decoder_outputs", "num_decoder_layers", "tie_word_embeddings"];
    assert_same(&derived.into_iter().fold(Draft::of("t5"), Draft::without), "t5");
    assert_same(&Draft::of("t5").with("n_positions", json!(512)).without("feed_forward_proj"), "t5");
    let old = Draft::of("bart")
        .without("tie_word_embeddings")
        .without("scale_embedding")
        .with("add_final_layer_norm", json!(false))
        .with("normalize_before", json!(false))
        .with("normalize_embedding", json!(true))
        .with("num_hidden_layers", json!(2));
    assert_same(&old, "bart");
}

#[test]
fn a_feed_forward_may_be_gated() {
    let mut draft = Draft::of("t5").with("feed_forward_proj", json!("gated-gelu")).without("dense_act_fn");
    assert_says(&draft.error(LENIENT), &["config.json", "`feed_forward_proj` is \"gated-gelu\"", "`is_gated_act`"]);
    draft = draft.without("is_gated_act").renamed(|n| n.replace("wi.weight", "wi_0.weight"));
    assert_says(&draft.error(LENIENT), &["DenseReluDense.wi_1.weight` is missing"]);
    let gates: Vec<String> = draft.tensors.keys().filter(|n| n.contains("wi_0")).cloned().collect();
    for name in gates {
        draft = draft.tensor(&name.replace("wi_0", "wi_1"), Stored::ramp(&[80, HIDDEN]));
    }
    let encoder = text(&draft.load(STRICT).unwrap(), "encoder_model");
    let module = "encoder.block.1.layer.1.DenseReluDense";
    for line in [
        format!("%{module}.act = gelu(%{module}.wi_0) {{form = tanh}}"),
        format!("%{module}.mul = mul(%{module}.act, %{module}.wi_1)"),
        format!("%{module}.wo = linear(%{module}.mul, @{module}.wo.weight)"),
    ] {
        assert!(encoder.contains(&line), "{line} is not in {encoder}");
    }
}

#[test]
fn embeddings_may_be_scaled() {
    let encoder = text(&Draft::of("bart").with("scale_embedding", json!(true)).load(STRICT).unwrap(), "encoder_model");
    // The square root of 48.
    assert!(encoder.contains("@encoder.embed_tokens.scale = dense([6.928203])"), "{encoder}");
    assert!(encoder.contains("%encoder.embeddings.add = add(%encoder.embed_tokens.scaled, "), "{encoder}");
}

#[test]
fn a_bias_of_logits_that_is_not_stored_is_none() {
    let mut draft = Draft::of("bart");
    draft.tensors.remove("final_logits_bias").unwrap();
    let decoder = text(&draft.load(STRICT).unwrap(), "decoder_model");
    assert!(decoder.contains(", @shared.weight) :"), "{decoder}");
}

#[test]
fn what_cannot_be_honoured_is_refused() {
    assert_refused("t5", "feed_forward_proj", json!("gated-xielu"), &["\"xielu\"", "gelu_new"]);
    assert_refused("t5", "dense_act_fn", json!("silu"), &["\"relu\"", "says otherwise"]);
    assert_refused("t5", "relative_attention_num_buckets", json!(3), &["make no buckets", "at least 4"]);
    assert_refused("t5", "relative_attention_max_distance", json!(2), &["make no buckets"]);
    assert_refused("t5", "relative_attention_max_distance", json!(1 << 20), &["up to 65536"]);
    for key in ["normalize_before", "add_final_layer_norm", "static_position_embeddings"] {
        assert_refused("bart", key, json!(true), &["not supported"]);
    }
    assert_refused("bart", "normalize_embedding", json!(false), &["not supported"]);
    assert_refused("bart", "decoder_attention_heads", json!(5), &["d_model = 48 is not divisible by"]);
    let error = load_path(&golden("t5"), task(Task::FillMask)).map(|_| ()).unwrap_err().to_string();
    assert_says(&error, &["`t5` has no task `fill-mask`; it has text2text-generation"]);
}

#[test]
fn the_task_has_its_synonyms() {
    for name in ["seq2seq-lm", "summarization", "translation"] {
        for name in [name.to_owned(), format!("{name}-with-past")] {
            assert_eq!(name.parse(), Ok(Task::Text2TextGeneration));
        }
    }
}
