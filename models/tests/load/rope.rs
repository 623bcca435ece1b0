//! Rotary embeddings: their frequencies by the formulas of the papers, and what is refused.

use planish_eval::{Tensor, evaluate};
use serde_json::{Value, json};

use crate::support::{Draft, LENIENT, STRICT, assert_refused, assert_same, assert_says, meaning};

fn weight(draft: &Draft, name: &str) -> Vec<f64> {
    meaning(&draft.load(STRICT).unwrap().parts[0].graph).1[name].clone()
}

fn frequencies(draft: &Draft) -> Vec<f64> {
    weight(draft, "rotary_emb.inv_freq")
}

/// Those of 8 pairs without scaling.
fn plain() -> Vec<f64> {
    (0..8).map(|i| 10_000f64.powf(-f64::from(i) / 8.0)).collect()
}

/// A model with heads of 16 features and a longest text of 64.
fn with(parameters: Value) -> Draft {
    Draft::of("llama").with("rope_parameters", parameters)
}

#[track_caller]
fn close(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    let worst = actual.iter().zip(expected).map(|(a, e)| (a / e - 1.0).abs()).fold(0.0, f64::max);
    assert!(worst < 1e-6, "{actual:?} is not {expected:?}");
}

/// Cosines and sines are the value of a name, for positions of two rows: [2, positions, pairs].
fn angles(draft: &Draft, name: &str, positions: &[i64]) -> Vec<f64> {
    let mut graph = draft.load(STRICT).unwrap().parts.remove(0).graph;
    let value = graph.values().find(|(_, value)| value.name == name).unwrap().0;
    graph.add_output("wanted", value);
    let width = positions.len() / 2;
    let ids = Tensor::new(vec![2, width], vec![3i64; 2 * width]).unwrap();
    let mask = Tensor::new(vec![2, width], vec![1i64; 2 * width]).unwrap();
    let positions = Tensor::new(vec![2, width], positions.to_vec()).unwrap();
    let past = |name: String| (name, Tensor::new(vec![2, 2, 0, 16], Vec::<f32>::new()).unwrap());
    let past: Vec<(String, Tensor)> =
        (0..2).flat_map(|i| ["key", "value"].map(|w| past(format!("past_key_values.{i}.{w}")))).collect();
    let mut inputs = vec![("input_ids", ids), ("attention_mask", mask), ("position_ids", positions)];
    inputs.extend(past.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())));
    let outputs = evaluate(&graph, &inputs).unwrap();
    outputs.iter().find(|(name, _)| name == "wanted").unwrap().1.to_f64()
}

#[test]
fn rotary_frequencies() {
    let plain = plain();
    close(&frequencies(&Draft::of("llama")), &plain);
    let quarter: Vec<f64> = plain.iter().map(|f| f / 4.0).collect();
    close(&frequencies(&with(json!({"rope_type": "linear", "factor": 4.0}))), &quarter);
    close(&frequencies(&with(json!({"rope_theta": 1.0}))), &[1.0; 8]);

    // Of a context of 64, waves shorter than 16 stay, ones longer than 64 are stretched 8 times.
    let llama3 = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                        "original_max_position_embeddings": 64, "rope_theta": 10000.0});
    let stretched = frequencies(&with(llama3.clone()));
    close(&stretched[..1], &plain[..1]);
    close(&stretched[3..], &plain[3..].iter().map(|f| f / 8.0).collect::<Vec<_>>());
    // 64 * f / 2 pi waves fit: a share of (waves - 1) / 3 is not stretched.
    let share = |f: f64| (64.0 * f / std::f64::consts::TAU - 1.0) / 3.0;
    let between: Vec<f64> = plain[1..3].iter().map(|f| (1.0 - share(*f)) * f / 8.0 + share(*f) * f).collect();
    close(&stretched[1..3], &between);
    let old = Draft::of("llama").without("rope_parameters").with("rope_scaling", llama3);
    close(&frequencies(&old), &stretched);
}

#[test]
fn dynamic_stretches_with_the_length_of_each_row() {
    let draft = with(json!({"rope_type": "dynamic", "factor": 2.0}));
    assert_eq!(draft.load(STRICT).unwrap().max_positions, Some(128));
    // One row is within the 64 positions, the other goes to 96: its base grows.
    let sines = angles(&draft, "rotary_emb.sin", &[1, 63, 1, 95]);
    let expected = |frequencies: &[f64]| frequencies.iter().map(|f| f.sin()).collect::<Vec<_>>();
    close(&sines[..8], &expected(&plain()));
    let base = 10_000.0 * (2.0 * 96.0 / 64.0 - 1.0f64).powf(16.0 / 14.0);
    let stretched: Vec<f64> = (0..8).map(|i| base.powf(-f64::from(i) / 8.0)).collect();
    close(&sines[16..24], &expected(&stretched));
    let old =
        Draft::of("llama").without("rope_parameters").with("rope_scaling", json!({"type": "dynamic", "factor": 2.0}));
    assert_eq!(
        meaning(&old.load(STRICT).unwrap().parts[0].graph),
        meaning(&draft.load(STRICT).unwrap().parts[0].graph)
    );
}

#[test]
fn yarn_stretches_what_turns_seldom() {
    let yarn = |more: Value| {
        let mut parameters = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64});
        parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with(parameters)
    };
    let base = yarn(json!({"beta_fast": 8, "beta_slow": 0.5}));
    assert_eq!(base.load(STRICT).unwrap().max_positions, Some(256));
    // 64 positions are 8 turns of pair 0.21, and half a turn of pair 2.62: from 0 to 3 it goes over.
    let share = |i: f64, [low, high]: [f64; 2]| ((i - low) / (high - low)).clamp(0.0, 1.0);
    let expected = |bounds: [f64; 2]| -> Vec<f64> {
        let mix = |(i, f): (usize, &f64)| f / 4.0 * share(i as f64, bounds) + f * (1.0 - share(i as f64, bounds));
        plain().iter().enumerate().map(mix).collect()
    };
    close(&frequencies(&base), &expected([0.0, 3.0]));
    let bound = |turns: f64| 16.0 * (64.0 / (turns * std::f64::consts::TAU)).ln() / (2.0 * 10_000f64.ln());
    let exact = yarn(json!({"beta_fast": 8, "beta_slow": 0.5, "truncate": false}));
    close(&frequencies(&exact), &expected([bound(8.0), bound(0.5)]));

    let factor = |more: Value| weight(&yarn(more), "rotary_emb.cos.scaled.by")[0];
    let (log, close_to) = (4f64.ln(), |actual: f64, expected: f64| close(&[actual], &[expected]));
    close_to(factor(json!({})), 0.1 * log + 1.0);
    close_to(factor(json!({"mscale": 0.7})), 0.1 * log + 1.0);
    close_to(factor(json!({"mscale": 0.7, "mscale_all_dim": 0.3})), (0.07 * log + 1.0) / (0.03 * log + 1.0));
    close_to(factor(json!({"attention_factor": 0.75, "mscale": 0.7, "mscale_all_dim": 0.3})), 0.75);
    // One without effect leaves no node.
    let text = meaning(&yarn(json!({"mscale": 1, "mscale_all_dim": 1})).load(STRICT).unwrap().parts[0].graph).0;
    assert!(!text.contains("scaled"), "{text}");
    let cosines = angles(&yarn(json!({"attention_factor": 0.75})), "rotary_emb.cos.scaled", &[0, 0]);
    close(&cosines, &[0.75; 16]);
}

#[test]
fn longrope_chooses_by_the_length_of_each_row() {
    let factors = |from: f64| (0..8).map(|i| from + 0.5 * f64::from(i)).collect::<Vec<f64>>();
    let parameters = json!({"rope_type": "longrope", "short_factor": factors(1.0), "long_factor": factors(3.0),
                            "original_max_position_embeddings": 16});
    let draft = with(parameters.clone());
    let divided = |by: Vec<f64>| plain().iter().zip(by).map(|(f, by)| f / by).collect::<Vec<f64>>();
    close(&frequencies(&draft), &divided(factors(1.0)));
    close(&weight(&draft, "rotary_emb.long_inv_freq"), &divided(factors(3.0)));
    // A text of 16 tokens is short, one of 17 is long.
    let chosen = angles(&draft, "rotary_emb.inv_freq.chosen", &[14, 15, 15, 16]);
    close(&chosen, &[divided(factors(1.0)), divided(factors(3.0))].concat());
    let factor = |draft: &Draft| weight(draft, "rotary_emb.cos.scaled.by")[0];
    close(&[factor(&draft)], &[(1.0 + 4f64.ln() / 16f64.ln()).sqrt()]);
    // What is at the top level counts.
    let outer = with(parameters.clone()).with("original_max_position_embeddings", json!(32));
    close(&[factor(&outer)], &[(1.0 + 2f64.ln() / 32f64.ln()).sqrt()]);
    let mut given = parameters.clone();
    given["factor"] = json!(9.0);
    close(&[factor(&with(given.clone()))], &[(1.0 + 9f64.ln() / 16f64.ln()).sqrt()]);
    given["attention_factor"] = json!(1.5);
    close(&[factor(&with(given))], &[1.5]);

    let refused = |key: &str, value: Value, parts: &[&str]| {
        let mut wrong = parameters.clone();
        wrong[key] = value;
        assert_says(&with(wrong).error(LENIENT), parts);
    };
    let full = ["`rope_parameters.short_factor` is [1.0]", "a list of 8 positive numbers, one a pair"];
    refused("short_factor", json!([1.0]), &full);
    refused("long_factor", json!("1"), &["`rope_parameters.long_factor`"]);
    refused("long_factor", Value::Null, &["`rope_parameters.long_factor` is missing"]);
    refused("original_max_position_embeddings", json!(1), &["`original_max_position_embeddings` is 1, expected more"]);
}

/// As the transformers library does for Phi-3 alone.
#[test]
fn the_cache_of_phi3_is_computed_anew_after_the_original_length() {
    let at = |draft: &Draft| draft.load(LENIENT).unwrap().recompute_at;
    assert_eq!(at(&Draft::of("phi3-longrope")), Some(9));
    assert_eq!(at(&Draft::of("phi3-longrope").with("original_max_position_embeddings", json!(63))), Some(64));
    // No text gets that long.
    assert_eq!(at(&Draft::of("phi3-longrope").with("original_max_position_embeddings", json!(64))), None);
    assert_eq!(at(&Draft::of("phi3")), None);
    let parameters = json!({"rope_type": "longrope", "short_factor": vec![1.0; 8], "long_factor": vec![2.0; 8],
                            "original_max_position_embeddings": 16});
    assert_eq!(at(&with(parameters)), None);
}

#[test]
fn early_names_of_longrope_are_those_of_phi3() {
    let original = Draft::of("phi3-longrope");
    let same = meaning(&original.load(STRICT).unwrap().parts[0].graph);
    for name in ["su", "yarn"] {
        let mut draft = Draft::of("phi3-longrope");
        draft.config["rope_parameters"]["rope_type"] = json!(name);
        assert_eq!(meaning(&draft.load(STRICT).unwrap().parts[0].graph), same, "{name}");
    }
    // As hubs have it.
    let mut draft = Draft::of("phi3-longrope").without("rope_parameters").with("rope_theta", json!(10000.0));
    draft.config["rope_scaling"] = original.config["rope_parameters"].clone();
    let scaling = draft.config["rope_scaling"].as_object_mut().unwrap();
    for key in ["rope_theta", "rope_type", "partial_rotary_factor", "original_max_position_embeddings"] {
        scaling.remove(key);
    }
    scaling.insert("type".to_owned(), json!("longrope"));
    assert_eq!(meaning(&draft.load(STRICT).unwrap().parts[0].graph), same);
    // Without the key the transformers library has a length of its own.
    let attention_factor = "rotary_emb.cos.scaled.by";
    assert!(!same.1.is_empty() && same.1.contains_key(attention_factor));
    let without = draft.without("original_max_position_embeddings");
    assert!(!meaning(&without.load(STRICT).unwrap().parts[0].graph).1.contains_key(attention_factor));
}

#[test]
fn a_part_of_each_head_may_turn() {
    let half = Draft::of("phi3").without("rope_parameters").with("partial_rotary_factor", json!(0.5));
    assert_eq!(frequencies(&half).len(), 4);
    let parameters = json!({"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5});
    let new = Draft::of("phi3").with("rope_parameters", parameters);
    assert_eq!(meaning(&half.load(STRICT).unwrap().parts[0].graph), meaning(&new.load(STRICT).unwrap().parts[0].graph));
    for (factor, says) in [(0.01, "but 0 features"), (3.0, "but 32 features"), (0.2, "but 3 features")] {
        let draft = Draft::of("phi3").without("rope_parameters").with("partial_rotary_factor", json!(factor));
        assert_says(&draft.error(LENIENT), &[says, "partial_rotary_factor"]);
    }
}

#[test]
fn a_part_of_each_head_is_refused_where_the_reference_ignores_it() {
    for name in ["eurobert", "nomic-bert", "gte", "jina-v3", "llama", "qwen3"] {
        let mut draft = Draft::of(name);
        draft.config["rope_parameters"]["partial_rotary_factor"] = json!(0.5);
        assert_says(
            &draft.error(LENIENT),
            &["config.json", "`partial_rotary_factor` is 0.5, but all of a head turns in this architecture"],
        );
        draft.config["rope_parameters"]["partial_rotary_factor"] = json!(1.0);
        assert_same(&draft, name);
    }
}

#[test]
fn rotary_embeddings_that_are_not_known_are_refused_by_name() {
    // What early versions of Phi-3 call longrope is "su".
    for (name, kinds) in [
        ("llama", &["axial", "su", "ntk"][..]),
        ("mistral", &["axial", "su", "ntk"]),
        ("qwen2", &["axial", "su", "ntk"]),
        ("phi3", &["axial", "ntk"]),
    ] {
        for &kind in kinds {
            let parts = [kind, "not supported", "default, linear, dynamic, yarn, longrope, llama3, proportional"];
            assert_refused(name, "rope_parameters", json!({"rope_type": kind, "factor": 2.0}), &parts);
            let old = Draft::of(name).without("rope_parameters").with("rope_scaling", json!({"type": kind}));
            assert_says(&old.error(LENIENT), &[&["`rope_scaling`"], &parts[..]].concat());
        }
    }
    let refused = |value: Value, parts: &[&str]| assert_refused("llama", "rope_parameters", value, parts);
    refused(json!({"rope_type": "linear"}), &["`rope_parameters.factor` is missing"]);
    refused(json!({"rope_type": "linear", "factor": 1e300}), &["`rope_parameters.factor`", "float32"]);
    refused(json!({"rope_type": "linear", "factor": -1}), &["`rope_parameters.factor`", "positive number"]);
    refused(json!({"rope_type": "llama3", "factor": 8}), &["`rope_parameters.low_freq_factor` is missing"]);
    refused(json!({"mrope_section": [1, 2]}), &["`rope_parameters.mrope_section` is not supported"]);
    refused(json!({"rope_type": 3}), &["`rope_parameters.rope_type`", "expected a text"]);
    refused(json!([1]), &["`rope_parameters`", "expected an object"]);
}
