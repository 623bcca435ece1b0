//! Decoders of one file each over the blocks of Llama: the settings in which their configurations differ.

use serde_json::{Value, json};

use crate::support::{Draft, LENIENT, STRICT, assert_refused, assert_same, assert_says, golden, load_path, text};

/// The lines of a golden's graph that have a text.
fn count(draft: &Draft, has: &str) -> usize {
    text(&draft.load(LENIENT).unwrap(), "model").lines().filter(|line| line.contains(has)).count()
}

#[test]
fn biases_of_attention_take_the_place_of_positions() {
    for name in ["bloom", "mpt"] {
        let model = load_path(&golden(name), STRICT).unwrap();
        let inputs: Vec<&str> = model.parts[0].id_ranges.iter().map(|range| range.input.as_str()).collect();
        assert_eq!(inputs, ["input_ids", "attention_mask"], "{name}");
        let biased = text(&model, "model").lines().filter(|line| line.contains("bias: %alibi.bias")).count();
        assert_eq!(biased, 2, "{name}");
    }
    assert_eq!(load_path(&golden("bloom"), STRICT).unwrap().max_positions, None);
    assert_eq!(load_path(&golden("mpt"), STRICT).unwrap().max_positions, Some(64));
    let falcon = Draft::of("falcon").with("alibi", json!(true));
    assert_eq!((count(&falcon, "= rotary("), count(&falcon, "bias: %alibi.bias")), (0, 2));
}

#[test]
fn what_transformers_does_not_read_of_mpt_is_a_warning_or_an_error() {
    let attention = |key: &str, value: Value| {
        let mut own = Draft::of("mpt").config["attn_config"].clone();
        own[key] = value;
        Draft::of("mpt").with("attn_config", own)
    };
    for (key, value) in [("alibi", json!(false)), ("alibi_bias_max", json!(16))] {
        let warnings = attention(key, value).load(LENIENT).unwrap().warnings;
        assert_says(&warnings.join("\n"), &["config.json", &format!("`attn_config.{key}`")]);
    }
    for (key, value) in
        [("qk_ln", json!(true)), ("prefix_lm", json!(true)), ("attn_type", json!("multiquery_attention"))]
    {
        let message = attention(key, value).error(LENIENT);
        assert_says(&message, &["config.json", &format!("`attn_config.{key}`"), "not supported"]);
    }
    let message = attention("clip_qkv", json!(-1.0)).error(LENIENT);
    assert_says(&message, &["`attn_config.clip_qkv` is -1.0", "positive"]);
    assert_eq!(count(&attention("clip_qkv", json!(0.5)), "= min("), 6);
}

#[test]
fn settings_of_falcon_that_its_class_cannot_run() {
    assert_refused("falcon", "parallel_attn", json!(false), &["`new_decoder_architecture` is true"]);
    assert_refused("falcon", "num_ln_in_parallel_attn", json!(3), &["expected 1"]);
    let old = || Draft::of("falcon").with("new_decoder_architecture", json!(false));
    assert_says(&old().error(LENIENT), &["`num_ln_in_parallel_attn` is 2"]);
    let several = old().with("multi_query", json!(false)).with("num_ln_in_parallel_attn", json!(1));
    assert_says(&several.error(LENIENT), &["`num_kv_heads` is 2", "`multi_query`"]);
}

#[test]
fn biases_that_the_library_leaves_out_are_refused() {
    let slow = Draft::of("bloom").with("slow_but_exact", json!(true));
    assert_same(&slow, "bloom");
    assert_says(&slow.with("pretraining_tp", json!(2)).error(LENIENT), &["`slow_but_exact`", "`pretraining_tp`"]);
}

#[test]
fn sizes_under_the_names_of_gpt_2_and_of_others() {
    for (name, old, new) in [
        ("gptj", "n_embd", "hidden_size"),
        ("codegen", "n_layer", "num_hidden_layers"),
        ("gpt-bigcode", "n_head", "num_attention_heads"),
        ("gpt-neo", "num_heads", "num_attention_heads"),
        ("mpt", "max_seq_len", "max_position_embeddings"),
        ("bloom", "n_head", "num_attention_heads"),
    ] {
        let value = Draft::of(name).config[old].clone();
        assert_same(&Draft::of(name).without(old).with(new, value), name);
        let message = Draft::of(name).with(new, json!(3)).error(LENIENT);
        assert_says(&message, &["config.json", old, new, "both name the same setting"]);
    }
}

#[test]
fn rotary_features_of_gptj() {
    for wrong in [json!(7), json!(18), json!(null), json!(0)] {
        assert_refused("gptj", "rotary_dim", wrong, &["expected"]);
    }
    assert_refused("codegen", "n_embd", json!(66), &["not divisible"]);
}

#[test]
fn windows_of_gpt_neo_are_listed_or_patterns() {
    assert_same(&Draft::of("gpt-neo").without("attention_layers"), "gpt-neo");
    assert_same(&Draft::of("gpt-neo").without("attention_types"), "gpt-neo");
    let patterns = |value: Value| Draft::of("gpt-neo").without("attention_layers").with("attention_types", value);
    assert_same(&patterns(json!([[["global"], 1], [["local"], 1]])), "gpt-neo");
    for (wrong, part) in [
        (json!([[["global"], 3]]), "says 3 layers"),
        (json!([[["global", "near"], 1]]), "expected \"global\" or \"local\""),
        (json!([["global", 2]]), "a list of pairs"),
        (json!("global"), "a list of pairs"),
    ] {
        assert_says(&patterns(wrong).error(LENIENT), &["config.json", "attention_types", part]);
    }
}

#[test]
fn heads_of_gemma_4_by_the_kind_of_layer() {
    let overrides = |value: Value| Draft::of("gemma4").with("per_layer_config", value);
    let by_key = Draft::of("gemma4").without("per_layer_config").with("global_head_dim", json!(32));
    assert_same(&by_key, "gemma4");
    for (wrong, part) in [
        (json!({"1": {"intermediate_size": 8}}), "`per_layer_config.1.intermediate_size`"),
        (json!({"2": {"head_dim": 8}}), "`2`"),
        (json!({"1": {"head_dim": 0}}), "`per_layer_config.1.head_dim`"),
        (json!({"1": 3}), "expected objects"),
        (json!([]), "expected an object"),
    ] {
        assert_says(&overrides(wrong).error(LENIENT), &["config.json", "per_layer_config", part]);
    }
    assert_refused("gemma4", "enable_moe_block", json!(true), &["not supported"]);
    assert_refused("gemma4", "use_bidirectional_attention", json!("all"), &["choose another task"]);
}

#[test]
fn layers_that_share_keys_have_no_cache() {
    let shared = |layers: u64| {
        let kinds = ["full_attention", "full_attention"];
        let wide = Draft::of("gemma4").with("layer_types", json!(kinds)).with("num_kv_shared_layers", json!(layers));
        wide.with("per_layer_config", json!({"0": {"head_dim": 16}, "1": {"head_dim": 16}}))
    };
    assert_says(&shared(2).error(LENIENT), &["num_kv_shared_layers = 2", "layer 0"]);
    // The stored queries of the second layer are those of larger heads.
    assert_says(&shared(1).error(LENIENT), &["model.layers.1.self_attn.q_proj.weight"]);
    let message = Draft::of("gemma4").with("num_kv_shared_layers", json!(1)).error(LENIENT);
    assert_says(&message, &["num_kv_shared_layers = 1", "layer 1"]);
}

#[test]
fn a_factor_that_makes_no_size_is_refused() {
    for factor in [1e30, 1e-9] {
        let draft = Draft::of("lfm2").with("block_auto_adjust_ff_dim", json!(true));
        let error = draft.with("block_ffn_dim_multiplier", json!(factor)).error(LENIENT);
        assert_says(&error, &["`block_ffn_dim_multiplier`", "makes no size from 1 to", "intermediate_size"]);
    }
}
