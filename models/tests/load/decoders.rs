//! Decoders: their interface, the forms in which hubs carry them, and what is refused.

use std::collections::BTreeMap;

use planish_ir::ops::Attention;
use planish_ir::{Graph, Op};
use planish_models::{Loaded, Task};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use crate::support::{Draft, LENIENT, STRICT, Stored, assert_says, golden, load_path, meaning};

const DECODERS: [&str; 5] = ["gpt2", "llama", "mistral", "phi3", "qwen2"];

#[track_caller]
fn assert_same(draft: &Draft, name: &str) {
    let (model, original) = (draft.load(STRICT).unwrap(), load_path(&golden(name), STRICT).unwrap());
    let ((text, weights), (original_text, original_weights)) =
        (meaning(&model.parts[0].graph), meaning(&original.parts[0].graph));
    assert_eq!(text, original_text);
    assert!(weights == original_weights, "a weight has another value");
}

#[track_caller]
fn assert_refused(name: &str, key: &str, value: Value, parts: &[&str]) {
    let message = Draft::of(name).with(key, value).error(LENIENT);
    assert_says(&message, &[&["config.json"], parts].concat());
}

fn load(draft: &Draft) -> Loaded {
    draft.load(STRICT).unwrap()
}

fn attentions(graph: &Graph) -> Vec<&Attention> {
    graph
        .nodes()
        .filter_map(|(_, node)| match &node.op {
            Op::Attention(attention) => Some(attention),
            _ => None,
        })
        .collect()
}

/// Rows of a stored matrix.
fn rows(tensor: &Stored, range: std::ops::Range<usize>) -> Stored {
    let row = tensor.bytes.len() / tensor.shape[0];
    let shape = [&[range.len()], &tensor.shape[1..]].concat();
    Stored { dtype: tensor.dtype, shape, bytes: tensor.bytes[range.start * row..range.end * row].to_vec() }
}

#[test]
fn inputs_and_outputs_are_those_of_optimum() {
    for name in DECODERS {
        let model = load_path(&golden(name), STRICT).unwrap();
        assert_eq!((model.task, model.max_positions), (Some(Task::TextGeneration), Some(64)), "{name}");
        let graph = &model.parts[0].graph;
        let (kv, size) = if name == "gpt2" { (4, 12) } else { (2, 16) };
        let vocabulary = model.vocab_size.unwrap();
        let inputs: Vec<String> =
            graph.inputs().iter().map(|v| format!("{}: {}", graph.value(*v).name, graph.ty(*v))).collect();
        let past = format!("f32[batch_size, {kv}, past_sequence_length, {size}]");
        let mut expected = vec![
            "input_ids: i64[batch_size, sequence_length]".to_owned(),
            "attention_mask: i64[batch_size, past_sequence_length + sequence_length]".to_owned(),
            "position_ids: i64[batch_size, sequence_length]".to_owned(),
        ];
        expected.extend((0..2).flat_map(|i| ["key", "value"].map(|w| format!("past_key_values.{i}.{w}: {past}"))));
        assert_eq!(inputs, expected, "{name}");
        let outputs: Vec<String> =
            graph.outputs().iter().map(|o| format!("{}: {}", o.name, graph.ty(o.value))).collect();
        let present = format!("f32[batch_size, {kv}, past_sequence_length + sequence_length, {size}]");
        let mut expected = vec![format!("logits: f32[batch_size, sequence_length, {vocabulary}]")];
        expected.extend((0..2).flat_map(|i| ["key", "value"].map(|w| format!("present.{i}.{w}: {present}"))));
        assert_eq!(outputs, expected, "{name}");
        let ranges: Vec<(&str, i64)> = model.parts[0].id_ranges.iter().map(|r| (r.input.as_str(), r.end)).collect();
        let ids = i64::try_from(vocabulary).unwrap();
        assert_eq!(ranges, [("input_ids", ids), ("attention_mask", 2), ("position_ids", 64)], "{name}");
    }
}

#[test]
fn tied_embeddings_are_one_weight() {
    for (name, tied) in [("gpt2", true), ("llama", false), ("qwen2", true)] {
        let graph = load_path(&golden(name), STRICT).unwrap().parts.remove(0).graph;
        assert_eq!(graph.weights().all(|(_, value, _)| value.name != "lm_head.weight"), tied, "{name}");
    }
    let untied = Draft::of("gpt2").with("tie_word_embeddings", json!(false));
    assert_says(&untied.error(STRICT), &["tensor `lm_head.weight` is missing"]);
    let untied = untied.tensor("lm_head.weight", Stored::ramp(&[137, 48]));
    assert_eq!(meaning(&load(&untied).parts[0].graph).1["lm_head.weight"][0], -0.5);
    let draft = Draft::of("llama").with("tie_word_embeddings", json!(true));
    let message = draft.error(STRICT);
    assert_says(&message, &["`lm_head.weight`", "differs from `model.embed_tokens.weight`", "tie_word_embeddings"]);
}

#[test]
fn gpt2_as_hubs_hold_it() {
    let mut draft = Draft::of("gpt2").renamed(|name| name.trim_start_matches("transformer.").to_owned());
    let mask = |dtype, size: usize| Stored { dtype, shape: vec![1, 1, 64, 64], bytes: vec![1; 64 * 64 * size] };
    let scalar = Stored { dtype: Dtype::F32, shape: Vec::new(), bytes: (-1e4f32).to_le_bytes().to_vec() };
    let embeddings = draft.tensors["wte.weight"].clone();
    draft = draft
        .tensor("h.0.attn.bias", mask(Dtype::U8, 1))
        .tensor("h.1.attn.bias", mask(Dtype::F32, 4))
        .tensor("h.0.attn.masked_bias", scalar)
        .tensor("lm_head.weight", embeddings)
        .with("n_ctx", json!(64))
        .with("task_specific_params", json!({"text-generation": {"do_sample": true}}));
    assert_same(&draft, "gpt2");
}

#[test]
fn gpt2_without_what_has_defaults() {
    let keys = ["activation_function", "layer_norm_epsilon", "n_inner", "tie_word_embeddings", "scale_attn_weights"];
    assert_same(&keys.into_iter().fold(Draft::of("gpt2"), Draft::without), "gpt2");
}

#[test]
fn gpt2_scales_attention_as_it_says() {
    let scales =
        |draft: Draft| attentions(&load(&draft).parts[0].graph).iter().map(|a| a.scale.0).collect::<Vec<f64>>();
    let root = 1.0 / 12f64.sqrt();
    assert_eq!(scales(Draft::of("gpt2")), [root, root]);
    assert_eq!(scales(Draft::of("gpt2").with("scale_attn_by_inverse_layer_idx", json!(true))), [root, root / 2.0]);
    assert_eq!(scales(Draft::of("gpt2").with("scale_attn_weights", json!(false))), [1.0, 1.0]);
}

#[test]
fn both_generations_of_configurations_say_the_same() {
    for name in ["llama", "mistral", "qwen2", "phi3"] {
        let old = Draft::of(name).without("rope_parameters").with("rope_theta", json!(10000.0));
        assert_same(&old, name);
        assert_same(&Draft::of(name).without("rope_parameters").with("rope_scaling", Value::Null), name);
        let old = old.with("rope_scaling", json!({"type": "linear", "factor": 4.0}));
        let new = json!({"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0});
        let new = Draft::of(name).with("rope_parameters", new);
        assert_eq!(meaning(&load(&old).parts[0].graph), meaning(&load(&new).parts[0].graph), "{name}");
    }
}

#[test]
fn llama_as_hubs_hold_it() {
    let frequencies = Stored::ramp(&[8]);
    let draft = Draft::of("llama")
        .tensor("model.layers.0.self_attn.rotary_emb.inv_freq", frequencies.clone())
        .tensor("model.rotary_emb.inv_freq", frequencies)
        .with("pretraining_tp", json!(2))
        .with("pad_token_id", json!(-1));
    assert_same(&draft, "llama");
    assert_eq!(load(&draft).pad_token_id, None);
    assert_eq!(load(&draft.with("pad_token_id", json!(5))).pad_token_id, Some(5));
    let keys = ["hidden_act", "attention_bias", "mlp_bias", "tie_word_embeddings", "rms_norm_eps", "head_dim"];
    assert_same(&keys.into_iter().fold(Draft::of("llama"), Draft::without), "llama");
}

/// Rows of keys and values cut or repeated so that there are so many heads of 16 features.
fn with_kv_heads(heads: usize) -> Draft {
    let mut draft = Draft::of("llama").with("num_key_value_heads", json!(heads));
    for (name, tensor) in &mut draft.tensors {
        if name.contains("k_proj") || name.contains("v_proj") {
            let twice = Stored { shape: vec![64, 64], bytes: tensor.bytes.repeat(2), dtype: tensor.dtype };
            *tensor = rows(&twice, 0..heads * 16);
        }
    }
    draft
}

#[test]
fn keys_may_have_as_many_heads_fewer_or_one() {
    let heads = |draft: &Draft| attentions(&load(draft).parts[0].graph)[0].kv_heads;
    assert_eq!([1, 2, 4].map(|n| heads(&with_kv_heads(n))), [Some(1), Some(2), None]);
    assert_eq!(heads(&with_kv_heads(4).without("num_key_value_heads")), None);
    assert_refused("llama", "num_key_value_heads", json!(3), &["num_attention_heads = 4 is not divisible by"]);
    let parts = ["k_proj.weight", "[32, 64], expected [64, 64] (num_key_value_heads * head_dim = 64"];
    assert_says(&Draft::of("llama").with("num_key_value_heads", json!(4)).error(LENIENT), &parts);
    assert_says(
        &Draft::of("llama").without("head_dim").with("num_attention_heads", json!(6)).error(LENIENT),
        &["hidden_size = 64 is not divisible by num_attention_heads = 6"],
    );
}

#[test]
fn biases_are_where_the_configuration_says() {
    let wanted = |key: &str| {
        let message = Draft::of("llama").with(key, json!(true)).error(LENIENT);
        message.split('`').nth(1).unwrap().to_owned()
    };
    assert_eq!(wanted("attention_bias"), "model.layers.0.self_attn.q_proj.bias");
    assert_eq!(wanted("mlp_bias"), "model.layers.0.mlp.gate_proj.bias");
    let mut draft = Draft::of("llama").with("attention_bias", json!(true)).with("mlp_bias", json!(true));
    let sizes = BTreeMap::from([
        ("self_attn.q_proj", 64),
        ("self_attn.k_proj", 32),
        ("self_attn.v_proj", 32),
        ("self_attn.o_proj", 64),
        ("mlp.gate_proj", 96),
        ("mlp.up_proj", 96),
        ("mlp.down_proj", 64),
    ]);
    for (layer, (module, size)) in (0..2).flat_map(|layer| sizes.iter().map(move |entry| (layer, entry))) {
        draft = draft.tensor(&format!("model.layers.{layer}.{module}.bias"), Stored::ramp(&[*size]));
    }
    let (_, weights) = meaning(&load(&draft).parts[0].graph);
    assert_eq!(weights.keys().filter(|name| name.ends_with(".bias")).count(), 14);
    assert_refused("phi3", "attention_bias", json!(true), &["`attention_bias`", "not supported"]);
}

#[test]
fn windows_slide_where_the_configuration_says() {
    let windows = |draft: Draft| attentions(&load(&draft).parts[0].graph).iter().map(|a| a.window).collect::<Vec<_>>();
    for name in ["mistral", "phi3"] {
        assert_eq!(windows(Draft::of(name)), [None; 2], "{name}");
        assert_eq!(windows(Draft::of(name).with("sliding_window", json!(5))), [Some(5); 2], "{name}");
    }
    assert_eq!(windows(Draft::of("mistral").without("sliding_window")), [Some(4096); 2]);
    assert_eq!(windows(Draft::of("phi3").without("sliding_window")), [None; 2]);
    let qwen2 = || Draft::of("qwen2").with("sliding_window", json!(5)).without("layer_types");
    assert_eq!(windows(qwen2()), [None; 2]);
    let slides = || qwen2().with("use_sliding_window", json!(true)).with("max_window_layers", json!(1));
    assert_eq!(windows(slides()), [None, Some(5)]);
    let listed = |kinds: Value| slides().with("layer_types", kinds);
    assert_eq!(windows(listed(json!(["sliding_attention", "full_attention"]))), [Some(5), None]);
    assert_says(&listed(json!(["full_attention"])).error(LENIENT), &["lists 1 layers, but num_hidden_layers = 2"]);
    assert_says(&listed(json!(["full_attention", "chunked_attention"])).error(LENIENT), &["chunked_attention"]);
    let off = listed(json!(["sliding_attention", "full_attention"])).with("use_sliding_window", json!(false));
    assert_says(&off.error(LENIENT), &["`layer_types`", "sliding_attention"]);
}

#[test]
fn the_task_is_that_of_the_class() {
    let draft = Draft::of("llama").without("architectures");
    let model = draft.load(LENIENT).unwrap();
    assert_eq!(model.task, Some(Task::TextGeneration));
    assert_says(&model.warnings[0], &["`architectures` is missing", "text-generation"]);
    let base = Draft::of("llama").with("architectures", json!(["LlamaModel"]));
    // The projection to the vocabulary is of another task.
    assert_eq!(base.load(STRICT).unwrap().task, Some(Task::FeatureExtraction));
}
