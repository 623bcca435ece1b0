//! Gemma, Gemma 2 and Qwen3: what they have that Llama has not.

use planish_ir::ops::Attention;
use planish_ir::{Graph, Op};
use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use crate::support::{Draft, LENIENT, STRICT, Stored, assert_refused, assert_same, assert_says, meaning};

fn graph(draft: &Draft) -> Graph {
    draft.load(STRICT).unwrap().parts.remove(0).graph
}

fn attentions(draft: &Draft) -> Vec<Attention> {
    let attention = |op: &Op| match op {
        Op::Attention(attention) => Some(attention.clone()),
        _ => None,
    };
    graph(draft).nodes().filter_map(|(_, node)| attention(&node.op)).collect()
}

#[test]
fn embeddings_are_scaled_by_a_root_as_the_checkpoint_rounds_it() {
    let scale = |draft: &Draft| meaning(&graph(draft)).1["embed_tokens.embed_scale"].clone();
    // 48 is 6.9282032...; bfloat16 has 8 bits of it, float16 has 11.
    assert_eq!(scale(&Draft::of("gemma")), [f64::from(48f32.sqrt())]);
    assert_eq!(scale(&Draft::of("gemma2")), [6.9375]);
    let half = |t: &Stored| {
        let numbers = t.bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
        let bytes = numbers.flat_map(|n| half::f16::from_f32(n).to_le_bytes()).collect();
        Stored { dtype: Dtype::F16, shape: t.shape.clone(), bytes }
    };
    assert_eq!(scale(&Draft::of("gemma").mapped(half)), [6.9296875]);
}

#[test]
fn scores_are_as_the_configuration_says() {
    let gemma = attentions(&Draft::of("gemma"));
    assert!(gemma.iter().all(|a| a.scale.0 == 0.25 && a.softcap.is_none() && a.window.is_none()));
    assert_eq!(gemma[0].kv_heads, Some(1));

    let of = |draft: Draft| attentions(&draft).iter().map(|a| (a.softcap.map(|c| c.0), a.window)).collect::<Vec<_>>();
    let gemma2 = || Draft::of("gemma2");
    assert_eq!(of(gemma2()), [(Some(2.0), Some(4)), (Some(2.0), None)]);
    assert_eq!(of(gemma2().without("layer_types")), [(Some(2.0), Some(4)), (Some(2.0), None)]);
    assert_eq!(of(gemma2().without("attn_logit_softcapping"))[1], (Some(50.0), None));
    assert_says(&gemma2().without("sliding_window").error(STRICT), &["sliding_window = 4096 by default"]);
    assert_eq!(of(gemma2().with("attn_logit_softcapping", Value::Null))[1], (None, None));
    assert_eq!(attentions(&gemma2())[0].scale.0, 1.0 / 24f64.sqrt());
    assert_eq!(attentions(&gemma2().without("query_pre_attn_scalar"))[0].scale.0, 1.0 / 16.0);
    assert_refused("gemma2", "attn_logit_softcapping", json!(-1), &["expected a positive number"]);
    for value in [json!(1e300), json!(1e-300), json!(3.5e38)] {
        for key in ["attn_logit_softcapping", "final_logit_softcapping"] {
            assert_refused("gemma2", key, value.clone(), &["expected a positive number that float32 has"]);
        }
    }
    assert_refused("gemma2", "query_pre_attn_scalar", json!(0), &["expected a positive number"]);
    assert_refused("gemma2", "sliding_window", Value::Null, &["expected an integer"]);
}

#[test]
fn logits_are_bounded_where_the_configuration_says() {
    let cap = |draft: Draft| meaning(&graph(&draft)).1.get("lm_head.softcap").cloned();
    assert_eq!(cap(Draft::of("gemma2")), Some(vec![3.0]));
    assert_eq!(cap(Draft::of("gemma2").without("final_logit_softcapping")), Some(vec![30.0]));
    assert_eq!(cap(Draft::of("gemma2").with("final_logit_softcapping", Value::Null)), None);
    assert_eq!(cap(Draft::of("gemma")), None);
}

#[test]
fn norms_are_around_one() {
    let text = meaning(&graph(&Draft::of("gemma"))).0;
    assert_eq!(text.matches("rms_norm(").count(), 5);
    assert_eq!(text.matches("layernorm.weight.add").count() / 2, 4);
    assert_eq!(meaning(&graph(&Draft::of("gemma2"))).0.matches("rms_norm(").count(), 9);
}

#[test]
fn activations_are_the_approximation() {
    assert_same(&Draft::of("gemma").with("hidden_act", json!("gelu")), "gemma");
    assert_same(&Draft::of("gemma").without("hidden_act"), "gemma");
    assert_same(&Draft::of("gemma").with("hidden_activation", Value::Null), "gemma");
    assert_same(&Draft::of("gemma").with("hidden_activation", json!("gelu_pytorch_tanh")), "gemma");
    let parts = ["`hidden_activation` is \"gelu\"", "`hidden_act`", "remove one"];
    assert_says(&Draft::of("gemma").with("hidden_activation", json!("gelu")).error(LENIENT), &parts);
    assert_same(&Draft::of("gemma2").with("hidden_act", json!("gelu")), "gemma2");
    let exact = graph(&Draft::of("gemma2").with("hidden_activation", json!("gelu")));
    assert!(meaning(&exact).0.contains("form = erf"), "{}", meaning(&exact).0);
}

#[test]
fn what_else_they_have() {
    for name in ["gemma", "gemma2"] {
        assert_refused(name, "use_bidirectional_attention", json!(true), &["not supported"]);
        assert_same(&Draft::of(name).with("use_bidirectional_attention", json!(false)), name);
        for value in [json!([]), json!({}), json!("all")] {
            assert_refused(name, "use_bidirectional_attention", value, &["expected true or false"]);
        }
        assert_same(&Draft::of(name).without("tie_word_embeddings"), name);
        assert!(!meaning(&graph(&Draft::of(name))).1.contains_key("lm_head.weight"));
        let message = Draft::of(name).with("attention_bias", json!(true)).error(LENIENT);
        assert_says(&message, &["`model.layers.0.self_attn.q_proj.bias` is missing"]);
    }
    assert_same(&Draft::of("gemma2").with("cache_implementation", json!("hybrid")), "gemma2");
}

#[test]
fn qwen3_normalizes_heads() {
    let text = meaning(&graph(&Draft::of("qwen3"))).0;
    assert!(text.contains("self_attn.q_norm.split") && text.contains("f32[batch_size, sequence_length, 4, 16]"));
    assert!(text.contains("self_attn.k_norm.split") && text.contains("f32[batch_size, sequence_length, 2, 16]"));
    assert_eq!(text.matches("rms_norm(").count(), 9);
    let draft = Draft::of("qwen3").without("head_dim");
    assert_says(&draft.error(LENIENT), &["[64, 48], expected [512, 48]", "num_attention_heads * head_dim = 512"]);
    let message = Draft::of("qwen3").with("attention_bias", json!(true)).error(LENIENT);
    assert_says(&message, &["`model.layers.0.self_attn.q_proj.bias` is missing"]);
    let slides = Draft::of("qwen3")
        .without("layer_types")
        .with("use_sliding_window", json!(true))
        .with("sliding_window", json!(5))
        .with("max_window_layers", json!(1));
    assert_eq!(attentions(&slides).iter().map(|a| a.window).collect::<Vec<_>>(), [None, Some(5)]);
}
