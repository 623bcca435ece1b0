//! `planish inspect --show cost`: floating-point operations against closed formulas, and memory.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{artifact, golden, planish, repository, text};

fn cost(model: &Path, arguments: &[&str]) -> Value {
    let done = planish([&["inspect", "--show", "cost", "--json", text(model)], arguments].concat()).succeeds();
    serde_json::from_str(&done.stdout).unwrap()
}

/// The numbers of a golden's config.json.
struct Config(Value);

impl Config {
    fn of(name: &str) -> Self {
        Self(serde_json::from_slice(&fs::read(golden(name).join("config.json")).unwrap()).unwrap())
    }

    fn number(&self, key: &str) -> f64 {
        self.0[key].as_f64().unwrap_or_else(|| panic!("{key}: {}", self.0[key]))
    }
}

/// Checks the floating-point operations of products, and that all operations are only a little more.
#[track_caller]
fn assert_flops(part: &Value, formula: f64) {
    let [all, products] = ["flops", "product_flops"].map(|key| part["total"][key].as_f64().unwrap());
    assert!((products / formula - 1.0).abs() < 0.01, "{products} are counted, and the formula gives {formula}");
    // Tiny models do as much beside their products as large ones do, and less in them.
    assert!((products..products * 1.1).contains(&all), "{all} with {products} in products");
    let sum: f64 = part["layers"].as_array().unwrap().iter().map(|layer| layer["flops"].as_f64().unwrap()).sum();
    assert_eq!(sum, all, "the layers have other operations than the model");
    assert_eq!(part["uncounted"], json!([]));
}

const BATCH: f64 = 3.0;
const TOKENS: f64 = 16.0;

/// The queries, keys, values and the output of attention of `width` features, both products of attention with `keys`
/// keys, and a feed-forward network: the formula `24 B S D^2 + 4 B S^2 D` where `inner` is `4 D`.
fn layer(batch: f64, tokens: f64, keys: f64, width: f64, inner: f64) -> f64 {
    let projections = 2.0 * tokens * width * (4.0 * width);
    let attention = 2.0 * (2.0 * tokens * keys * width);
    let feed_forward = 2.0 * (2.0 * tokens * width * inner);
    batch * (projections + attention + feed_forward)
}

#[test]
fn bert_costs_what_the_formula_gives() {
    let config = Config::of("bert");
    let width = config.number("hidden_size");
    let layers =
        config.number("num_hidden_layers") * layer(BATCH, TOKENS, TOKENS, width, config.number("intermediate_size"));
    let formula = layers + 2.0 * BATCH * width * width;
    let sizes = ["--batch", "3", "--seq", "16"];
    assert_flops(&cost(&golden("bert"), &sizes)["parts"][0], formula);
    // Lowering leaves the products as they are.
    let (_folder, compiled) = artifact("bert");
    assert_flops(&cost(&compiled, &sizes)["parts"][0], formula);
    // The graphs of other exporters have the same products; these have no pooler.
    let exported = repository().join("fixtures/graphs/optimum-bert/model.onnx");
    assert_flops(&cost(&exported, &sizes)["parts"][0], layers);
}

#[test]
fn gpt2_costs_what_the_formula_gives() {
    let config = Config::of("gpt2");
    let (width, past) = (config.number("n_embd"), 5.0);
    let layers = config.number("n_layer") * layer(BATCH, TOKENS, past + TOKENS, width, 4.0 * width);
    let formula = layers + 2.0 * BATCH * TOKENS * width * config.number("vocab_size");
    let counted = cost(&golden("gpt2"), &["--batch", "3", "--seq", "16", "--past", "5"]);
    assert_flops(&counted["parts"][0], formula);
    let cache = config.number("n_layer") * 2.0 * width * 4.0;
    assert_eq!(counted["parts"][0]["cache_bytes_per_token"], cache);
}

#[test]
fn llama_costs_what_the_formula_gives() {
    let config = Config::of("llama");
    let [width, inner, heads] =
        ["hidden_size", "intermediate_size", "num_attention_heads"].map(|key| config.number(key));
    let (rows, size) = (BATCH * TOKENS, config.number("head_dim"));
    let shared = config.number("num_key_value_heads") * size;
    let projections = 2.0 * rows * width * (2.0 * heads * size + 2.0 * shared);
    let attention = 2.0 * (2.0 * rows * TOKENS * heads * size);
    let gated = 3.0 * (2.0 * rows * width * inner);
    let head = 2.0 * rows * width * config.number("vocab_size");
    let formula = config.number("num_hidden_layers") * (projections + attention + gated) + head;
    let counted = cost(&golden("llama"), &["--batch", "3", "--seq", "16"]);
    assert_flops(&counted["parts"][0], formula);
    let cache = config.number("num_hidden_layers") * 2.0 * shared * 4.0;
    assert_eq!(counted["parts"][0]["cache_bytes_per_token"], cache);
}

#[test]
fn t5_costs_what_the_formula_gives() {
    let config = Config::of("t5");
    let [width, inner, key] = ["d_model", "d_ff", "d_kv"].map(|key| config.number(key));
    assert_eq!(config.number("num_heads") * key, width);
    let encoder = config.number("num_layers") * layer(BATCH, TOKENS, TOKENS, width, inner);
    // Beside that, queries and outputs of the cross attention for each token, its keys and values, and its two products.
    let rows = BATCH * TOKENS;
    let cross = 4.0 * (2.0 * rows * width * width) + 2.0 * (2.0 * rows * TOKENS * width);
    let head = 2.0 * rows * width * config.number("vocab_size");
    let decoder = config.number("num_decoder_layers") * (layer(BATCH, TOKENS, TOKENS, width, inner) + cross) + head;
    let counted = cost(&golden("t5"), &["--batch", "3", "--seq", "16"]);
    assert_flops(&counted["parts"][0], encoder);
    assert_flops(&counted["parts"][1], decoder);
}

#[test]
fn vit_costs_what_the_formula_gives() {
    let config = Config::of("vit");
    let (width, patch) = (config.number("hidden_size"), config.number("patch_size"));
    let patches = (config.number("image_size") / patch).powi(2);
    let tokens = patches + 1.0;
    let layers =
        config.number("num_hidden_layers") * layer(BATCH, tokens, tokens, width, config.number("intermediate_size"));
    let convolution = 2.0 * BATCH * patches * width * config.number("num_channels") * patch * patch;
    let classes = config.0["id2label"].as_object().unwrap().len() as f64;
    let formula = layers + convolution + 2.0 * BATCH * width * classes;
    assert_flops(&cost(&golden("vit"), &["--batch", "3"])["parts"][0], formula);
    let exported = cost(&repository().join("fixtures/graphs/torch-vit/model.onnx"), &["--batch", "3"]);
    assert_flops(&exported["parts"][0], formula);
    assert_eq!((&exported["batch"], &exported["sequence"]), (&json!(3), &Value::Null));
}

/// The layers of a model have the names of the checkpoint's modules, whoever exported it.
#[test]
fn layers_have_the_names_of_modules() {
    let layers = |model: &Path| {
        let counted = cost(model, &[]);
        let layers = counted["parts"][0]["layers"].as_array().unwrap().clone();
        layers.into_iter().map(|layer| layer["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        layers(&golden("bert")),
        ["attention_mask", "embeddings", "encoder.layer.0", "encoder.layer.1", "pooler"].map(str::to_owned)
    );
    let graphs = repository().join("fixtures/graphs");
    assert_eq!(
        layers(&graphs.join("torch-vit/model.onnx")),
        ["m.vit.embeddings", "m.vit.layers.0", "m.vit.layers.1", "m.vit.layernorm", "m.classifier"].map(str::to_owned)
    );
    let exported = layers(&graphs.join("optimum-bert/model.onnx"));
    for name in ["embeddings", "encoder.layer.0", "encoder.layer.1"] {
        assert!(exported.iter().any(|layer| layer == name), "{name} is not among {exported:?}");
    }
}

#[test]
fn memory_is_planned_and_types_have_shares() {
    let part = cost(&golden("bert"), &["--seq", "16"])["parts"][0].clone();
    let [planned, naive] = ["planned", "naive"].map(|key| part["activations"][key].as_u64().unwrap());
    assert!(0 < planned && planned < naive, "{planned} of {naive}");
    let shares: f64 = part["types"].as_object().unwrap().values().map(|share| share.as_f64().unwrap()).sum();
    assert!((shares - 1.0).abs() < 1e-9);
    assert_eq!(part["cache_bytes_per_token"], Value::Null);
    assert!(part["parameters"].as_u64().unwrap() > 40_000);
}

#[test]
fn sizes_that_a_model_does_not_take_are_refused() {
    let refused = |model: &Path, arguments: &[&str], parts: &[&str]| {
        planish([&["inspect", text(model), "--show", "cost"], arguments].concat()).exits(2, parts);
    };
    refused(&golden("bert"), &["--batch", "0"], &["--batch is at least 1"]);
    refused(&golden("bert"), &["--seq", "33"], &["takes at most 32 tokens", "ask for 33"]);
    refused(
        &golden("bert"),
        &["--past", "2"],
        &["--past has no effect", "input_ids: i64[batch_size, sequence_length]"],
    );
    refused(&golden("vit"), &["--seq", "8"], &["--seq has no effect", "pixel_values"]);
    refused(&golden("bert"), &["--svg", "x.svg"], &["cannot be used with"]);
    let huge = ["--batch", "9223372036854775807", "--seq", "1"];
    refused(&golden("bert"), &huge, &["more operations or bytes than 64 bits count"]);
}

#[test]
fn the_largest_batch_fits_and_one_row_more_does_not() {
    let largest = |memory: &str| {
        cost(&golden("gpt2"), &["--seq", "8", "--past", "4", &format!("--estimate=memory={memory}")])["largest"].clone()
    };
    let total = |found: &Value| -> u64 {
        let needs = found["needs"].as_object().unwrap();
        assert!(needs.values().all(|bytes| bytes.as_u64().unwrap() > 0), "{found}");
        needs.values().map(|bytes| bytes.as_u64().unwrap()).sum()
    };
    let found = largest("1M");
    assert_eq!(found["memory"], 1 << 20);
    let (batch, needs) = (found["batch"].as_u64().unwrap(), total(&found));
    assert!(batch > 1 && needs <= 1 << 20, "{found}");
    assert_eq!(largest(&needs.to_string())["batch"], batch);
    assert_eq!(largest(&(needs - 1).to_string())["batch"], batch - 1);
    let none = largest("1000");
    assert!(none["batch"] == 0 && total(&none) > 1000, "{none}");

    let refused = |memory: &str, part: &str| {
        planish(["inspect", text(&golden("bert")), "--estimate", &format!("memory={memory}")]).exits(2, &[part]);
    };
    refused("0", "expected a size");
    refused("many", "expected a size");
    let bert = golden("bert");
    planish(["inspect", text(&bert), "--show", "fusion", "--estimate", "memory=1G"]).exits(2, &["add --show cost"]);
    planish(["inspect", text(&bert), "--svg", "x.svg", "--estimate", "memory=1G"])
        .exits(2, &["leave out --svg, or --estimate"]);
    planish(["inspect", text(&bert), "--estimate", "confirm"]).exits(2, &["add memory=SIZE"]);
}

/// The estimate is what the system counts for a process that runs the batch: within 10 %, most of it activations.
#[test]
fn the_largest_batch_is_confirmed_by_a_run() {
    const MEMORY: u64 = 256 << 20;
    let (_folder, out) = artifact("bert");
    let memory = MEMORY.to_string();
    let found = cost(&out, &["--seq", "32", "--batch", "7", "--estimate", &format!("memory={memory},confirm")]);
    let (largest, confirmed) = (&found["largest"], &found["confirmed"]);
    let (estimate, resident) = (largest["total"].as_f64().unwrap(), confirmed["resident"].as_f64().unwrap());
    assert_eq!((&confirmed["fits"], &confirmed["reason"]), (&json!(true), &Value::Null), "{found}");
    assert!(resident <= MEMORY as f64 && largest["needs"]["activations"].as_f64().unwrap() > 0.4 * resident, "{found}");
    assert!((estimate / resident - 1.0).abs() < 0.1 || largest["batch"] != confirmed["batch"], "{found}");
    assert!(confirmed["batch"].as_f64().unwrap() > 0.9 * largest["batch"].as_f64().unwrap(), "{found}");
    let process = ["base", "loaded", "peak"].map(|key| largest["process"][key].as_u64().unwrap());
    assert!(process.is_sorted() && process[0] > 10 << 20 && largest["unmeasured"].is_null(), "{found}");
    let few = &largest["asked"];
    assert_eq!(few["batch"], 7);
    assert!(few["total"].as_u64().unwrap() >= process[2] && few["total"].as_f64().unwrap() < estimate, "{found}");
    // The process alone needs more than this.
    let none = cost(&out, &["--estimate", "memory=4M,confirm"]);
    assert_eq!((&none["largest"]["batch"], &none["confirmed"]["reason"]), (&json!(0), &json!("one row does not fit")));
    let checkpoint = cost(&golden("bert"), &["--estimate", "memory=4M,confirm"]);
    for reason in [&checkpoint["confirmed"]["reason"], &checkpoint["largest"]["unmeasured"]] {
        assert!(reason.as_str().unwrap().contains("compile it first"), "{checkpoint}");
    }
    let huge = cost(&out, &["--estimate", "memory=8000000GiB,confirm"]);
    assert!(huge["confirmed"]["reason"].as_str().unwrap().contains("free"), "{huge}");
    let text = planish(["inspect", text(&out), "--estimate", "memory=1G"]).succeeds();
    let text = text.stdout;
    for part in
        ["a run of 1 row needs", "rows fit in 1.1 GB, with", "measured: a process has", "not confirmed by a run"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn training_takes_what_the_formulas_give() {
    let arguments = ["--batch", "2", "--seq", "16", "--estimate", "training,tokens=1G,machine-flops=312T"];
    let part = cost(&golden("bert"), &arguments);
    let (training, parameters) = (&part["training"], part["parts"][0]["parameters"].as_f64().unwrap());
    assert_eq!(training["flops"], 6.0 * parameters * 1e9);
    let state: f64 = training["state"].as_object().unwrap().values().map(|bytes| bytes.as_f64().unwrap()).sum();
    assert_eq!(state, 16.0 * parameters);
    // s * b * h * (34 + 5 * a * s / h) bytes a layer.
    let [width, heads] = ["hidden_size", "num_attention_heads"].map(|key| Config::of("bert").number(key));
    let layer = 16.0 * 2.0 * width * (34.0 + 5.0 * heads * 16.0 / width);
    let activations = &training["activations"];
    assert_eq!((&activations["layers"], &activations["layer"]), (&json!(2), &json!(layer)));
    assert_eq!(activations["all"], 2.0 * layer);
    assert_eq!(activations["recomputed"], 2.0 * (2.0 * 16.0 * 2.0 * width) + layer);
    let days = 6.0 * parameters * 1e9 / (312e12 * 0.4) / 86_400.0;
    assert!((training["days"].as_f64().unwrap() / days - 1.0).abs() < 1e-9);
    // The graphs of other exporters have the same layers, and parts that share a table have it once.
    let exported = cost(&repository().join("fixtures/graphs/optimum-bert/model.onnx"), &arguments);
    assert_eq!(exported["training"]["activations"], *activations);
    let parts = cost(&golden("t5"), &["--estimate", "training"]);
    let all: f64 = parts["parts"].as_array().unwrap().iter().map(|part| part["parameters"].as_f64().unwrap()).sum();
    assert!(parts["training"]["parameters"].as_f64().unwrap() < all, "{parts}");
    for wrong in ["tokens=0", "machine-flops=fast", "machine-flops=1T,utilization=1.5"] {
        let estimate = format!("training,{wrong}");
        planish(["inspect", text(&golden("bert")), "--estimate", &estimate]).exits(2, &[" more than 0"]);
    }
}

#[test]
fn fusion_is_explained() {
    let model = repository().join("fixtures/graphs/optimum-bert/model.onnx");
    let done = planish(["inspect", text(&model), "--show", "fusion"]).succeeds();
    assert!(done.stdout.contains("2 attention"), "{}", done.stdout);
}

/// Each view is what it is alone, whatever else is shown: the estimate of training raises the graph of the cost alone.
#[test]
fn several_views_are_shown_together() {
    let model = repository().join("fixtures/graphs/optimum-bert/model.onnx");
    let shown = |arguments: &[&str]| planish([&["inspect", text(&model)], arguments].concat()).succeeds().stdout;
    let json = |arguments: &[&str]| serde_json::from_str::<Value>(&shown(&[arguments, &["--json"]].concat())).unwrap();
    let all = json(&["--show", "fusion,cost", "--show", "memory", "--estimate", "training"]);
    let views = all.as_object().unwrap();
    assert_eq!(views.len(), 3, "{all}");
    assert_eq!(views["cost"], json(&["--estimate", "training"]));
    for view in ["memory", "fusion"] {
        assert_eq!(views[view], json(&["--show", view]), "{view}");
    }
    let text = shown(&["--show", "fusion,cost"]);
    let [cost, fusion] = ["FLOPs", "2 attention"].map(|part| text.find(part));
    assert!(cost.is_some() && cost < fusion, "{text}");
    let wrong = ["inspect", "model", "--show", "costs"];
    planish(wrong).exits(2, &["costs", "memory, attention, kernels, cost, fusion"]);
}
