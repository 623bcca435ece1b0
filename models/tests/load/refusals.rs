//! Kinds of checkpoints that no architecture follows, refused by name.

use planish_models::ARCHITECTURES;
use serde_json::{Value, json};

use crate::support::{Draft, LENIENT, STRICT, assert_refused, assert_says};

/// A golden of each family.
const GOLDENS: [&str; 8] = ["bert", "gpt2", "llama", "mistral", "phi3", "qwen2", "gemma2", "t5"];

#[test]
fn mixtures_of_experts() {
    for (model_type, key, value) in [
        ("minimax", "num_local_experts", json!(32)),
        ("bailing_moe", "num_experts", json!(16)),
        ("hy_v4", "num_experts_per_tok", json!(8)),
        ("longcat_flash", "n_routed_experts", json!(512)),
        ("ernie4_5_vl_moe", "moe_num_experts", json!(64)),
    ] {
        let draft = Draft::of("llama").with("model_type", json!(model_type)).with(key, value.clone());
        let is = format!("`{key}` is {value}: {model_type} is a mixture of experts (MoE)");
        assert_says(&draft.error(LENIENT), &["config.json", &is, "not supported", "take a dense model"]);
        for golden in GOLDENS {
            assert_refused(golden, key, value.clone(), &["mixture of experts (MoE)", "not supported"]);
        }
    }
    // One that says that it has none is dense.
    assert!(Draft::of("llama").with("num_experts", Value::Null).load(STRICT).is_ok());
}

#[test]
fn quantized_weights() {
    for method in ["aqlm", "hqq", "quark", "vptq"] {
        for golden in GOLDENS {
            let parts = ["the weights are quantized", method, "not supported", "known are gptq, awq"];
            assert_refused(golden, "quantization_config", json!({"quant_method": method, "bits": 4}), &parts);
        }
    }
    assert_refused("llama", "compression_config", json!({"format": "dense"}), &["quantized (no `quant_method`)"]);
    let unknown = Draft::of("llama").with("model_type", json!("new")).with("quantization_config", json!({"bits": 4}));
    assert_says(&unknown.error(LENIENT), &["`quantization_config` is there", "quantized"]);
}

#[test]
fn an_architecture_that_is_not_there_has_a_route() {
    let refused = |model_type: &str| Draft::of("mistral").with("model_type", json!(model_type)).error(LENIENT);
    let route = ["torch.onnx.export", "optimum-cli export onnx", "`planish compile DIR/model.onnx`"];
    assert_says(&refused("mistral4"), &[&["the nearest name is mistral"], &route[..]].concat());
    assert_says(&refused("qwen2_audio"), &[&["the nearest name is qwen2;"], &route[..]].concat());
    let other = refused("rwkv");
    assert_says(&other, &route);
    assert!(!other.contains("nearest"), "{other}");
}

#[test]
fn code_of_a_model_that_is_not_known() {
    let code = json!({"AutoModelForCausalLM": "modeling_phi.Phi4ForCausalLM"});
    let unknown = Draft::of("phi3").with("auto_map", code).with("model_type", json!("phi4-flash"));
    let parts = ["config.json", "\"phi4-flash\" is not supported", "`auto_map`", "`trust_remote_code`", "not run"];
    assert_says(&unknown.error(LENIENT), &parts);
}

#[test]
fn code_for_a_class_of_its_own() {
    for (golden, auto, class) in [
        ("phi3", "AutoModelForCausalLM", "modeling_mine.MyForCausalLM"),
        ("phi3", "AutoModelForCausalLM", "someone/else--modeling.LlamaForCausalLM"),
        ("bert", "AutoModel", "jina/implementation--modeling_bert.JinaBertModel"),
    ] {
        let message = Draft::of(golden).with("auto_map", json!({(auto): class})).error(LENIENT);
        let parts = ["config.json", &format!("`auto_map.{auto}`"), class, "`trust_remote_code`", "not run", "remove"];
        assert_says(&message, &parts);
    }
    let list = json!({"AutoModel": ["modeling.BertModel"]});
    assert_refused("bert", "auto_map", list, &["`auto_map.AutoModel`", "not run"]);
}

/// The transformers library takes its own class then, too.
#[test]
fn code_with_the_name_of_the_stock_class_is_a_warning() {
    for (golden, auto, class) in [
        ("phi3", "AutoModelForCausalLM", "modeling_phi3.Phi3ForCausalLM"),
        ("bert", "AutoModel", "modeling_bert.BertModel"),
        ("gemma2", "AutoConfig", "configuration_mine.MyConfig"),
    ] {
        let draft = Draft::of(golden).with("auto_map", json!({(auto): class}));
        let model = draft.load(LENIENT).unwrap();
        assert_eq!(model.warnings.len(), 1, "{golden}");
        let stock = format!("the stock `{}`", model.architecture);
        assert_says(&model.warnings[0], &["config.json: `auto_map`", "Python code", "not run", &stock]);
        assert_says(&draft.error(STRICT), &["auto_map"]);
    }
    assert!(Draft::of("bert").with("auto_map", json!({})).load(STRICT).is_ok());
}

#[test]
fn what_decoders_cannot_be() {
    for golden in ["gpt2", "llama", "mistral", "phi3", "qwen2", "qwen3", "gemma", "gemma2"] {
        for (key, value) in [("add_cross_attention", json!(true)), ("is_encoder_decoder", json!(true))] {
            assert_refused(golden, key, value, &[&format!("`{key}` is"), "not supported"]);
        }
        let class = json!(["SomethingForImageClassification"]);
        let message = Draft::of(golden).with("architectures", class).error(LENIENT);
        assert_says(&message, &["has no task `image-classification`; it has text-generation"]);
    }
    // The transformers library has no class for these.
    for (golden, class) in
        [("granite", "SequenceClassification"), ("olmo2", "TokenClassification"), ("phi", "QuestionAnswering")]
    {
        let message = Draft::of(golden).with("architectures", json!([format!("SomethingFor{class}")])).error(LENIENT);
        assert_says(&message, &["has no task `", "; it has text-generation, feature-extraction"]);
    }
}

#[test]
fn an_architecture_that_is_not_known() {
    let known: Vec<&str> = ARCHITECTURES.iter().map(|a| a.model_type).collect();
    assert_refused("llama", "model_type", json!("rwkv"), &["\"rwkv\" is not supported", &known.join(", ")]);
    assert!(known.is_sorted(), "{known:?}");
}
