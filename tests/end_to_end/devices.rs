//! `inspect --devices`: how a model is divided among accelerators.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{golden, planish, scratch, text, write_sparse};

fn plan(model: &Path, devices: &str, more: &[&str]) -> Value {
    let done = planish([&["inspect", text(model), "--devices", devices, "--json"], more].concat()).exits(0, &[]);
    serde_json::from_str(&done.stdout).unwrap()
}

#[test]
fn each_device_has_a_stage_of_the_model() {
    let model = golden("llama");
    let whole = plan(&model, "1xH100", &["--seq", "8"]);
    let halves = plan(&model, "2xH100:pp=2", &["--seq", "8"]);
    let number = |value: &Value| value.as_u64().unwrap();
    let [all] = whole["stages"].as_array().unwrap().as_slice() else { panic!("{whole}") };
    let [first, second] = halves["stages"].as_array().unwrap().as_slice() else { panic!("{halves}") };
    let both = |of: &str| number(&first[of]) + number(&second[of]);
    assert_eq!(both("cache_per_token"), number(&all["cache_per_token"]), "{halves}");
    // What follows from positions is computed by both.
    let ratio = both("weights") as f64 / number(&all["weights"]) as f64;
    assert!((1.0..1.05).contains(&ratio), "{ratio}: {halves}");
    // A hidden state of 8 tokens goes on, and one of a token in each step.
    assert_eq!(number(&first["sent"]), 8 * number(&first["sent_by_step"]));
    assert!(second.get("sent").is_none_or(Value::is_null) && number(&halves["batch"]) > number(&whole["batch"]));
    assert!(halves["step_ms"].as_f64().unwrap() < halves["prompt_ms"].as_f64().unwrap() * 2.0, "{halves}");
    assert!(halves.get("refused").is_none() && first["replicated_weights"].is_null() && first["exchanged"].is_null());
    // Where only the memory is known, there are no times.
    let memory = plan(&model, "2x1GB:pp=2", &[]);
    assert!(memory.get("prompt_ms").is_none() && number(&memory["batch"]) < number(&halves["batch"]), "{memory}");
    let table = planish(["inspect", text(&model), "--devices", "2xH100:pp=2"]).exits(0, &[]).stdout;
    assert!(
        table.contains("2xH100:tp=1,pp=2, a stage on each")
            && table.contains("The largest batch that fits on all devices"),
        "{table}"
    );
}

#[test]
fn ranks_share_the_layers() {
    let number = |value: &Value| value.as_u64().unwrap();
    for name in ["llama", "mixtral"] {
        let model = golden(name);
        let whole = plan(&model, "1xH100", &["--seq", "8"]);
        let halves = plan(&model, "2xH100", &["--seq", "8"]);
        assert_eq!((number(&halves["tensor_parallel"]), number(&halves["pipeline"])), (2, 1));
        let [all] = whole["stages"].as_array().unwrap().as_slice() else { panic!("{whole}") };
        let [rank] = halves["stages"].as_array().unwrap().as_slice() else { panic!("{halves}") };
        // Both ranks have what is not cut. Tables of 139 tokens and 64 features, of input and output, have a row more.
        let (weights, shared) = (number(&rank["weights"]), number(&rank["replicated_weights"]));
        let (constants, padding) = (2 * (weights - shared) + shared - number(&all["weights"]), 2 * 64 * 4);
        assert!((padding..padding + 256).contains(&constants), "{name}: {constants}: {halves}");
        assert!(shared > 0 && shared < weights / 20, "{halves}");
        assert_eq!(2 * number(&rank["cache_per_token"]), number(&all["cache_per_token"]), "{halves}");
        assert!(number(&rank["activations"]) < number(&all["activations"]), "{halves}");
        // Of two ranks each sends as much as it gives: sums of the table, of attention and of the network of both layers, and scores.
        assert_eq!(number(&rank["exchanged_by_step"]), 5 * 64 * 4 + 70 * 4, "{halves}");
        assert_eq!(number(&rank["exchanged"]), 8 * number(&rank["exchanged_by_step"]), "{halves}");
        let time = |of: &str| rank["step"][of].as_f64().unwrap();
        let slower = time("memory_ms").max(time("products_ms"));
        assert!(time("link_ms") > 0.0 && (time("ms") - slower - time("link_ms")).abs() < 1e-9, "{halves}");
        // Each rank does half of the products and reads half of the weights, those of the experts that tokens take among them.
        for of in ["products_ms", "memory_ms"] {
            let ratio = time(of) / all["step"][of].as_f64().unwrap();
            assert!((0.5..0.6).contains(&ratio), "{name}: {of}: {ratio}: {halves}");
        }
    }
    // Around a ring of 4, a sum of B bytes sends 6/4 B, and of scores each rank sends those of 3.
    let quarters = plan(&golden("llama"), "4xH100", &[]);
    assert_eq!(number(&quarters["stages"][0]["exchanged_by_step"]), 5 * 64 * 4 * 6 / 4 + 3 * 35 * 4, "{quarters}");
    let both = plan(&golden("llama"), "4xH100:tp=2", &[]);
    let stages = both["stages"].as_array().unwrap();
    let part = |stage: &Value| number(&stage["replicated_weights"]) < number(&stage["weights"]) / 10;
    assert!(stages.len() == 2 && stages.iter().all(part) && number(&stages[0]["sent"]) > 0, "{both}");
    let table = planish(["inspect", text(&golden("llama")), "--devices", "4xH100:tp=2"]).exits(0, &[]).stdout;
    assert!(table.contains("4xH100:tp=2,pp=2, 2 stages of 2 ranks") && table.contains("| 2 to 3 |"), "{table}");
}

#[test]
fn devices_that_cannot_share_layers_have_stages() {
    let model = golden("llama");
    let thirds = plan(&model, "3xH100", &[]);
    let refused = thirds["refused"].as_str().unwrap();
    assert!(refused.contains("has 4 heads, which 3 ranks cannot share; take 2, 4"), "{thirds}");
    assert_eq!(thirds["stages"].as_array().unwrap().len(), 3);
    let inspect = |devices: &str| planish(["inspect", text(&model), "--devices", devices]);
    let table = inspect("3xH100").exits(0, &[]).stdout;
    assert!(table.contains("Stages, because 3 devices cannot share the layers: `attention` at"), "{table}");
    inspect("3xH100:tp=3").exits(2, &["has 4 heads, which 3 ranks cannot share"]);
    inspect("32xH100:tp=8,pp=3").exits(2, &["tp=8,pp=3 are 24 devices, and there are 32"]);
    inspect("32xH100:tp=5").exits(2, &["32 devices do not divide by tp=5"]);
    inspect("32xH100:ep=8").exits(2, &["`ep=8`: expected tp=N, pp=N or both"]);
}

#[test]
fn devices_that_are_not_known_are_refused_with_those_that_are() {
    let model = golden("llama");
    let inspect =
        |devices: &str, more: &[&str]| planish([&["inspect", text(&model), "--devices", devices], more].concat());
    inspect("8xH900", &[]).exits(2, &["`H900` is not among the known devices, A100-40GB, A100-80GB, H100, H200, B200"]);
    inspect("H100", &[]).exits(2, &["such as 8xH100 or 4x48GB"]);
    inspect("500xH100", &[]).exits(2, &["--devices 500xH100", "stages at most"]);
    inspect("2xH100", &["--batch", "2"]).exits(2, &["--batch has no effect with --devices"]);
    inspect("2xH100", &["--estimate", "training"]).exits(2, &["leave out one"]);
    planish(["inspect", text(&golden("t5")), "--devices", "2xH100"]).exits(2, &["takes a model of one graph"]);
}

/// A checkpoint of the size of Kimi K2, of which only the headers are there: 10^12 parameters in a file without blocks.
#[test]
fn a_model_of_1e12_parameters_is_planned_without_its_weights() {
    let folder = scratch();
    let config: Value = serde_json::from_slice(&fs::read(golden("deepseek-v3").join("config.json")).unwrap()).unwrap();
    let Value::Object(mut config) = config else { panic!("a config is an object") };
    let (layers, experts, hidden, heads) = (61, 384, 7168, 64);
    let sizes = json!({
        "hidden_size": hidden, "num_hidden_layers": layers, "first_k_dense_replace": 1, "n_routed_experts": experts,
        "moe_intermediate_size": 2048, "intermediate_size": 18432, "num_attention_heads": heads, "num_key_value_heads": heads,
        "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "qk_head_dim": 192,
        "head_dim": 64, "v_head_dim": 128, "vocab_size": 163_840, "n_group": 1, "topk_group": 1, "num_experts_per_tok": 8,
        "max_position_embeddings": 131_072, "dtype": "bfloat16",
    });
    let Value::Object(sizes) = sizes else { panic!("sizes are an object") };
    config.extend(sizes);
    fs::write(folder.path().join("config.json"), Value::Object(config).to_string()).unwrap();
    let mut tensors: Vec<(String, Vec<u64>)> = vec![
        ("lm_head.weight".to_owned(), vec![163_840, hidden]),
        ("model.embed_tokens.weight".to_owned(), vec![163_840, hidden]),
        ("model.norm.weight".to_owned(), vec![hidden]),
    ];
    for layer in 0..layers {
        let mut add = |name: &str, shape: &[u64]| {
            tensors.push((format!("model.layers.{layer}.{name}.weight"), shape.to_vec()));
        };
        add("input_layernorm", &[hidden]);
        add("post_attention_layernorm", &[hidden]);
        add("self_attn.kv_a_layernorm", &[512]);
        add("self_attn.kv_a_proj_with_mqa", &[576, hidden]);
        add("self_attn.kv_b_proj", &[heads * 256, 512]);
        add("self_attn.o_proj", &[hidden, heads * 128]);
        add("self_attn.q_a_layernorm", &[1536]);
        add("self_attn.q_a_proj", &[1536, hidden]);
        add("self_attn.q_b_proj", &[heads * 192, 1536]);
        let mut add_network = |name: &str, inner: u64| {
            add(&format!("{name}.gate_proj"), &[inner, hidden]);
            add(&format!("{name}.up_proj"), &[inner, hidden]);
            add(&format!("{name}.down_proj"), &[hidden, inner]);
        };
        if layer == 0 {
            add_network("mlp", 18432);
            continue;
        }
        add_network("mlp.shared_experts", 2048);
        (0..experts).for_each(|expert| add_network(&format!("mlp.experts.{expert}"), 2048));
        add("mlp.gate", &[experts, hidden]);
        tensors.push((format!("model.layers.{layer}.mlp.gate.e_score_correction_bias"), vec![experts]));
    }
    let end = write_sparse(folder.path(), tensors);
    let number = |value: &Value| value.as_u64().unwrap();
    let ranks = plan(folder.path(), "32xH200", &["--seq", "8192"]);
    let [rank] = ranks["stages"].as_array().unwrap().as_slice() else { panic!("{ranks}") };
    let (weights, shared) = (number(&rank["weights"]), number(&rank["replicated_weights"]));
    let ratio = (32 * (weights - shared) + shared) as f64 / end as f64;
    assert!((0.99..1.01).contains(&ratio) && shared < weights / 10, "{ratio}: {ranks}");
    assert!(number(&ranks["batch"]) > 0 && rank["step"]["link_ms"].as_f64().unwrap() > 0.0, "{ranks}");
    let plan = plan(folder.path(), "32xH200:pp=32", &["--seq", "8192"]);
    let stages = plan["stages"].as_array().unwrap();
    let weights: u64 = stages.iter().map(|stage| number(&stage["weights"])).sum();
    let ratio = weights as f64 / end as f64;
    assert!(stages.len() == 32 && (0.99..1.01).contains(&ratio), "{ratio}: {plan}");
    assert!(number(&plan["batch"]) > 0 && plan["step_ms"].as_f64().unwrap() > 0.0, "{plan}");
}
