//! `planish profile`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use safetensors::Dtype;
use serde_json::{Value, json};

use crate::support::{
    Stored, artifact, golden, names as file_names, planish, planish_compile, planish_with, repository, scratch, text,
    write_tensors,
};

fn profiled(model: &Path, arguments: &[&str]) -> Value {
    let all = [&["profile", "--json", "--runs", "4", "--threads", "1", text(model)], arguments].concat();
    serde_json::from_str(&planish(all).succeeds().stdout).unwrap()
}

fn names<'a>(rows: &'a Value, key: &str) -> Vec<&'a str> {
    rows[key].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect()
}

fn sum(rows: &Value, key: &str, time: &str) -> f64 {
    rows[key].as_array().unwrap().iter().map(|row| row[time].as_f64().unwrap()).sum()
}

/// What holds whatever the times are.
#[track_caller]
fn assert_adds_up(part: &Value) {
    let nodes = part["nodes_ms"].as_f64().unwrap();
    assert!(nodes > 0.0 && part["latency_ms"].as_f64().unwrap() > 0.0, "{part}");
    // Sums of floats differ in their last bits.
    assert!(
        nodes <= part["recorded_ms"].as_f64().unwrap() * (1.0 + 1e-9),
        "nodes take longer than the runs that they are in"
    );
    let sums = [sum(part, "layers", "total_ms"), sum(part, "operators", "self_ms"), sum(part, "nodes", "self_ms")];
    for sum in sums.into_iter().chain([part["modules"]["total_ms"].as_f64().unwrap()]) {
        assert!((sum - nodes).abs() < 1e-6 * nodes.max(1.0), "{sum} instead of {nodes}");
    }
    let counted: u64 = part["providers"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(counted as usize, part["nodes"].as_array().unwrap().len());
}

#[test]
fn an_artifact_is_profiled_by_the_layers_of_its_checkpoint() {
    let (_folder, out) = artifact("bert");
    let files = scratch();
    let [flame, trace] = ["flame.svg", "trace.json"].map(|name| files.path().join(name));
    let sizes = ["--batch", "2", "--seq", "8", "--flame", text(&flame), "--trace", text(&trace)];
    let profile = profiled(&out, &sizes);
    assert_eq!((&profile["schema"], &profile["runtime"]), (&json!(1), &json!("ort")));
    assert_eq!((&profile["batch"], &profile["sequence"], &profile["past"]), (&json!(2), &json!(8), &Value::Null));
    let part = &profile["parts"][0];
    assert_adds_up(part);
    assert_eq!(part["runs"], 4);
    let layers = names(part, "layers");
    for layer in ["embeddings", "encoder.layer.0", "encoder.layer.1", "pooler"] {
        assert!(layers.contains(&layer), "{layer} is not among {layers:?}");
    }
    // What sizes and the mask are computed from has names of its own; nothing else is outside of layers.
    assert!(layers.iter().all(|layer| !layer.starts_with('(') && *layer != "last_hidden_state"), "{layers:?}");
    assert!(part["providers"].as_object().unwrap().keys().all(|name| name == "CPUExecutionProvider"));
    let linear = part["nodes"].as_array().unwrap().iter().find(|n| n["name"] == "encoder.layer.0.attention.self.query");
    assert_eq!(linear.unwrap()["module"], "encoder.layer.0.attention.self.query");

    let drawing = fs::read_to_string(&flame).unwrap();
    assert!(drawing.starts_with("<svg") && drawing.ends_with("</svg>\n"));
    assert!(drawing.contains("<title>encoder.layer.0.attention") && drawing.contains(">layer.1</text>"), "{drawing}");
    let trace: Value = serde_json::from_slice(&fs::read(&trace).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let nodes = events.iter().filter(|event| event["ph"] == "X" && event["tid"] == 2).count();
    assert_eq!(nodes, part["nodes"].as_array().unwrap().len());
    assert!(events.iter().any(|event| event["tid"] == 1 && event["name"] == "encoder.layer.1.output.dense"), "{trace}");
}

#[test]
fn graphs_of_other_exporters_are_profiled_by_layers_too() {
    for (graph, layers) in [
        ("torch-bert", ["m.embeddings", "m.encoder.layer.0", "m.encoder.layer.1"]),
        ("optimum-bert", ["embeddings", "encoder.layer.0", "encoder.layer.1"]),
        ("torch-vit", ["m.vit.embeddings", "m.vit.layers.0", "m.vit.layers.1"]),
    ] {
        let profile = profiled(&repository().join("fixtures/graphs").join(graph).join("model.onnx"), &[]);
        let part = &profile["parts"][0];
        assert_adds_up(part);
        let found = names(part, "layers");
        for layer in layers {
            assert!(found.contains(&layer), "{graph}: {layer} is not among {found:?}");
        }
        // ONNX Runtime's own operators belong to the layers of what they replaced.
        let fused = part["nodes"].as_array().unwrap().iter().find(|node| node["operator"] == "BiasGelu");
        if let Some(fused) = fused {
            assert!(fused["module"].as_str().unwrap().contains("0"), "{graph}: {fused}");
        }
    }
}

#[test]
fn decoders_parts_and_the_interpreter_are_profiled() {
    let (_folder, out) = artifact("gpt2");
    let step = profiled(&out, &["--seq", "1", "--past", "7", "--runtime", "reference"]);
    assert_eq!((&step["past"], &step["runtime"]), (&json!(7), &json!("reference")));
    assert_adds_up(&step["parts"][0]);
    assert!(step["parts"][0]["providers"]["reference"].as_u64().unwrap() > 50);
    let layers = names(&step["parts"][0], "layers");
    assert!(["wte", "h.0", "h.1", "ln_f", "lm_head"].iter().all(|layer| layers.contains(layer)), "{layers:?}");

    let (_folder, out) = artifact("t5");
    let parts = profiled(&out, &["--seq", "4", "--past", "3"])["parts"].clone();
    parts.as_array().unwrap().iter().for_each(assert_adds_up);
    let all = ["encoder_model", "decoder_model", "decoder_with_past_model"];
    assert_eq!(parts.as_array().unwrap().iter().map(|part| part["name"].as_str().unwrap()).collect::<Vec<_>>(), all);
    let one = profiled(&out, &["--part", "decoder_model"]);
    assert_eq!((&one["parts"][0]["name"], one["parts"].as_array().unwrap().len()), (&json!("decoder_model"), 1));
    planish(["profile", text(&out), "--part", "model"]).exits(2, &["--part model", "encoder_model, decoder_model"]);
}

#[test]
fn the_table_says_what_nodes_account_for() {
    let (_folder, out) = artifact("bert");
    let done = planish(["profile", text(&out), "--runs", "3", "--seq", "8"]).succeeds();
    for part in
        ["on ort, 1 rows, 8 tokens a row", "without recording", "% of the latency", "| encoder.layer.1 ", "| Gemm"]
    {
        assert!(done.stdout.contains(part), "`{part}` is not in: {}", done.stdout);
    }
}

/// The nodes of a run that computes for some 50 ms take as long as the run, within 8 %: none is missing, and none counts twice.
/// Another program may take the processor from one of the two, so one of several profiles is enough.
#[test]
fn nodes_take_as_long_as_the_run() {
    let (_folder, out) = artifact("bert");
    let profile = || {
        let of = ["profile", text(&out), "--batch", "256", "--seq", "32", "--runs", "40", "--threads", "1", "--json"];
        let profile: Value = serde_json::from_str(&planish(of).succeeds().stdout).unwrap();
        let [nodes, latency] = ["nodes_ms", "latency_ms"].map(|key| profile["parts"][0][key].as_f64().unwrap());
        nodes / latency
    };
    let mut shares = Vec::new();
    while shares.len() < 6 && !shares.last().is_some_and(|share: &f64| (share - 1.0).abs() < 0.08) {
        shares.push(profile());
    }
    assert!(shares.len() < 6 || (shares[5] - 1.0).abs() < 0.08, "{shares:?}");
}

#[test]
fn what_cannot_be_profiled_is_refused() {
    let (_folder, out) = artifact("bert");
    let out = text(&out);
    planish(["profile", text(&golden("bert"))]).exits(2, &["is a checkpoint", "planish compile"]);
    planish(["profile", out, "--batch", "0"]).exits(2, &["--batch is at least 1"]);
    planish(["profile", out, "--runs", "0"]).exits(2, &["--runs is at least 1"]);
    planish(["profile", out, "--seq", "33"]).exits(2, &["takes at most 32 tokens"]);
    planish(["profile", out, "--past", "1"]).exits(2, &["--past has no effect"]);
    planish(["profile", out, "--batch", "99999999999"]).exits(1, &["choose smaller sizes"]);
    planish(["profile", out, "--runtime", "cuda-emulator"]).exits(1, &["takes graphs of planish"]);
    planish(["profile", out, "--runtime", "ort-cuda"])
        .exits(2, &["`ort-cuda` does not tell the times of nodes", "--runtime ort", "--runtime cuda"]);
    planish(["profile", out, "--runtime", "trt"]).exits(2, &["`trt` does not tell", "trtexec"]);
    planish(["profile", out, "--runtime-option", "ort-lib=/nowhere"]).exits(4, &["`ort` is unavailable", "/nowhere"]);
    planish(["profile", "/nowhere"]).exits(1, &["/nowhere"]);
}

#[test]
fn inputs_that_planish_cannot_make_up_are_given() {
    let model = repository().join("fixtures/graphs-more/hand-os_while.onnx");
    let refused = planish(["profile", text(&model)]);
    refused.exits(1, &["cannot make up an input", "--inputs FILE.safetensors", "`n`"]);
    let folder = scratch();
    let file = folder.path().join("inputs.safetensors");
    let n = Stored { dtype: Dtype::I64, shape: vec![], bytes: 3i64.to_le_bytes().to_vec() };
    write_tensors(&file, &BTreeMap::from([("n".to_owned(), n)]));
    assert_adds_up(&profiled(&model, &["--inputs", text(&file)])["parts"][0]);
}

#[test]
fn an_artifact_for_cuda_is_profiled_by_launches() {
    let (folder, sizes) = (scratch(), ["--batch", "2", "--seq", "8"]);
    let out = folder.path().join("out");
    planish_compile(&golden("bert"), &out, &["--target", "cuda", "--fp16"]).succeeds();
    let profile = profiled(&out, &[&sizes[..], &["--runtime", "cuda-emulator"]].concat());
    let part = &profile["parts"][0];
    assert_adds_up(part);
    let inspected = |plan: &str| -> Value {
        let arguments = [&["inspect", text(&out), "--json", "--show", plan][..], &sizes].concat();
        serde_json::from_str(&planish(arguments).succeeds().stdout).unwrap()
    };
    let kernels = inspected("kernels")["parts"][0].clone();
    // Each launch of the plan is one of the run, and the nodes of the graph are counted once.
    let providers = part["providers"].as_object().unwrap();
    assert_eq!(kernels["total"]["launches"].as_u64().unwrap() as usize, part["nodes"].as_array().unwrap().len());
    assert!(["cublasLt", "flash", "row_norm"].iter().all(|kernel| providers.contains_key(*kernel)), "{providers:?}");
    let flops = |rows: &Value| rows.as_array().unwrap().iter().filter_map(|row| row["flops"].as_u64()).sum::<u64>();
    let counted = inspected("cost")["parts"][0]["total"].clone();
    assert_eq!(counted["flops"], kernels["total"]["flops"]);
    assert_eq!(
        [flops(&part["nodes"]), flops(&part["operators"]), flops(&kernels["rows"])],
        [flops(&json!([counted])); 3]
    );
    // Between the steps of a node there are bytes that the graph does not count.
    assert!(kernels["total"]["bytes"].as_u64() > counted["read"].as_u64(), "{kernels}");
    planish(["inspect", text(&golden("bert")), "--show", "kernels"])
        .exits(1, &["--show kernels takes an artifact for target cuda"]);
    planish(["inspect", text(&out), "--show", "kernels", "--gpu", "b1"]).exits(2, &["a100, h100, h200"]);
    planish(["inspect", text(&out), "--show", "kernels", "--compile", "sm_75"]).exits(2, &["sm_80 or newer"]);
}

#[test]
fn kernels_are_compiled_for_a_gpu_without_one() {
    let folder = scratch();
    let (out, caches) = (folder.path().join("out"), folder.path().join("caches"));
    planish_compile(&golden("bert"), &out, &["--target", "cuda"]).succeeds();
    let inspect = |libraries: &str, architecture: &str| {
        let arguments = ["inspect", text(&out), "--show", "kernels", "--compile", architecture, "--seq", "8"];
        planish_with(arguments, &[("XDG_CACHE_HOME", text(&caches)), ("PLANISH_CUDA_LIB", libraries)])
    };
    let nvrtc = repository().join(".deps/nvrtc");
    inspect(text(&nvrtc), "sm_9999").exits(1, &["does not compile for sm_9999; it knows", "sm_90"]);
    inspect("/nowhere", "sm_90").exits(4, &["libnvrtc.so of CUDA 12 or 13 was not found", "/nowhere"]);
    let said = inspect(text(&nvrtc), "sm_90").exits(0, &[]).stderr;
    let files = file_names(&caches.join("planish/cuda"));
    assert!(files.len() > 10 && said.contains(&format!("{} kernels for sm_90", files.len())), "{said}");
}
