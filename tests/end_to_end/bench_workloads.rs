//! `planish bench --workload` and `--set isolate`: generation, texts of different lengths, processes of their own.

use std::fs;

use serde_json::Value;

use crate::bench::{QUICK, cells};
use crate::support::{Stored, artifact, golden, planish, scratch, tensors, text, write_tensors};

/// Checks the memory of a cell that was measured in a process of its own.
fn has_memory_of_its_own(cell: &Value) {
    let memory = |name: &str| cell["memory"][name].as_u64().unwrap();
    assert!(memory("peak_rss") > memory("load_rss") && memory("peak_rss") > 10_000_000, "{cell}");
    assert!(memory("repeated_rss") >= memory("peak_rss"), "{cell}");
}

#[test]
fn generation_is_measured_in_processes_of_their_own() {
    for name in ["gpt2", "bart"] {
        let model = golden(name);
        let bench = ["bench", text(&model), "--workload", "generate", "--set", "new-tokens=3,isolate,uncached"];
        let done = planish([&bench[..], &QUICK].concat()).exits(0, &["1 of 2", "2 of 2"]);
        let document: Value = serde_json::from_str(&done.stdout).unwrap();
        for (cell, cache) in document["cells"].as_array().unwrap().iter().zip([true, false]) {
            assert_eq!((&cell["status"], cell["generation"]["cache"].as_bool()), (&"measured".into(), Some(cache)));
            assert!(cell["load"]["ms"].as_f64().unwrap() > 0.0, "{cell}");
            has_memory_of_its_own(cell);
        }
    }
    let model = golden("bert");
    let load = ["bench", text(&model), "--workload", "load", "--set=isolate"];
    planish(load).exits(2, &["--workload load always has processes of its own"]);
}

#[test]
fn a_contestant_in_a_process_of_its_own_has_a_peak_of_memory() {
    let (_folder, out) = artifact("bert");
    let model = golden("bert");
    let bench = ["bench", text(&out), "--reference", text(&model), "--set=isolate"];
    let done = planish([&bench[..], &QUICK].concat()).exits(0, &[]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let cell = &document["cells"][0];
    assert_eq!(cell["status"], "measured", "{cell}");
    assert!(cell["accuracy"]["cos"].as_f64().unwrap() > 0.999_999, "{cell}");
    has_memory_of_its_own(cell);
    let memory = |name: &str| cell["memory"][name].as_u64().unwrap();
    // The weights of the graph, and not its file.
    let file = fs::metadata(out.join("model.onnx")).unwrap().len();
    assert!((file / 2..file).contains(&memory("weights")), "{cell}");
    assert!(cell["load"]["ms"].as_f64().unwrap() > 0.0, "{cell}");
    planish(["bench-worker"]).exits(0, &[]);
}

#[test]
fn a_decoder_that_is_wrong_is_not_measured_while_it_generates() {
    let (_folder, out) = artifact("gpt2");
    let path = out.join("model.onnx");
    let mut bytes = fs::read(&path).unwrap();
    let stored = tensors(&golden("gpt2").join("model.safetensors"));
    let weight = stored.iter().find(|(name, _)| name.ends_with("wte.weight")).unwrap().1;
    let at = bytes.windows(64).position(|window| *window == weight.bytes[..64]).expect("it is there as stored");
    bytes[at..at + 8192].copy_from_slice(&[5f32.to_le_bytes(); 2048].concat());
    fs::write(&path, bytes).unwrap();
    let model = golden("gpt2");
    let bench = ["bench", text(&out), "--reference", text(&model), "--workload", "generate"];
    let done = planish([&bench[..], &QUICK].concat()).exits(3, &["verification failed", "max relative error"]);
    assert_eq!(cells(&done.stdout).iter().map(|cell| &*cell[3]).collect::<Vec<_>>(), ["failed"]);
}

#[test]
fn generation_is_measured_with_and_without_the_cache() {
    let model = golden("gpt2");
    let bench = ["bench", text(&model), "--workload", "generate", "--set", "new-tokens=5", "--set=uncached"];
    let cached = planish([&bench[..6], &QUICK].concat()).exits(0, &["1 of 1"]);
    assert_eq!(cells(&cached.stdout).len(), 1, "the pass without the cache is for those who ask for it");
    planish(["bench", text(&model), "--set=uncached"]).exits(2, &["--set uncached is for --workload generate"]);
    // One session serves all shapes: they have the time of one loading, and of its first run.
    let two = planish([&bench[..], &["--batch", "1,2"], &QUICK[2..]].concat()).exits(0, &["4 of 4"]);
    let two: Value = serde_json::from_str(&two.stdout).unwrap();
    let load = |at: usize, name: &str| two["cells"][at]["load"][name].as_f64().unwrap();
    for name in ["ms", "first_ms"] {
        assert!(load(0, name) > 0.0 && load(0, name) == load(1, name) && load(2, name) == load(3, name), "{two}");
    }
    let done = planish([&bench[..], &QUICK].concat()).exits(0, &["1 of 2", "2 of 2"]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let cells = document["cells"].as_array().unwrap();
    for (cell, cache) in cells.iter().zip([true, false]) {
        let generation = &cell["generation"];
        assert_eq!(
            (generation["new_tokens"].as_u64(), generation["cache"].as_bool()),
            (Some(5), Some(cache)),
            "{cell}"
        );
        let [first, each, rate] = ["ttft_ms", "tpot_ms", "tok_s"].map(|name| generation[name].as_f64().unwrap());
        let total = cell["latency_ms"]["p50"].as_f64().unwrap();
        assert!(first > 0.0 && first < total && each > 0.0 && (rate - 5e3 / total).abs() < 1e-6 * rate, "{cell}");
    }
    // Without the cache each token is computed anew in each step; the weights are read as often.
    let work = |at: usize, name: &str| cells[at]["work"][name].as_u64().unwrap();
    assert!(work(0, "flops") < work(1, "flops") && work(0, "bytes") > 5 * 100_000, "{document}");
    // The model takes 32 tokens.
    let long = [&bench[..4], &["--set", "new-tokens=4000"], &QUICK].concat();
    planish(long).exits(2, &["--seq 4 with --set new-tokens=4000", "takes at most"]);
    let wrong = |more: &[&str]| planish([&bench[..4], more].concat());
    wrong(&["--set", "new-tokens=1"]).exits(2, &["new-tokens=1: expected a whole number from 2"]);
    wrong(&["--set=operators"]).exits(2, &["--set operators is for --workload encode"]);
    let few = ["--workload", "generate", "--set", "new-tokens=4"];
    planish([&["bench", text(&golden("bert"))], &few[..]].concat()).exits(1, &["cannot generate"]);
}

#[test]
fn texts_of_different_lengths_are_measured_in_two_orders() {
    let folder = scratch();
    let data = folder.path().join("data.safetensors");
    let tensor = |value: i64| Stored {
        dtype: safetensors::Dtype::I64,
        shape: vec![5, 6],
        bytes: [value; 30].iter().flat_map(|value| value.to_le_bytes()).collect(),
    };
    let inputs = [("input_ids", 7), ("attention_mask", 1), ("token_type_ids", 0)];
    write_tensors(&data, &inputs.map(|(name, value)| (name.to_owned(), tensor(value))).into());
    let model = golden("bert");
    let bench = ["bench", text(&model), "--workload", "lengths", "--data", text(&data), "--batch", "2"];
    let quick = ["--set", "peaks=false,warmup=0,time=0,iterations=1", "--json"];
    let done = planish([&bench[..], &quick].concat()).exits(0, &[]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    for (cell, batches) in document["cells"].as_array().unwrap().iter().zip(["arrival", "buckets"]) {
        let expected = serde_json::json!({"batches": batches, "count": 3, "real": 30, "padded": 30});
        assert_eq!(cell["padding"], expected, "{cell}");
        assert!(cell["throughput"]["inf_s"].as_f64().unwrap() > 0.0, "{cell}");
        assert!(cell["load"]["ms"].as_f64().unwrap() > 0.0 && cell["load"] == document["cells"][0]["load"], "{cell}");
    }
    // A decoder begins with an empty cache, of as many rows.
    let of_decoder = folder.path().join("decoder.safetensors");
    let inputs = [("input_ids", 7), ("attention_mask", 1)];
    write_tensors(&of_decoder, &inputs.map(|(name, value)| (name.to_owned(), tensor(value))).into());
    let decoder = golden("gpt2");
    let of = ["bench", text(&decoder), "--workload", "lengths", "--data", text(&of_decoder), "--batch", "2"];
    let done = planish([&of[..], &quick].concat()).exits(0, &[]);
    let document_of_decoder: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(document_of_decoder["cells"][0]["padding"]["real"], 30);
    // The batches are the same, and so is the work, in a process of its own.
    let apart = planish([&bench[..], &quick[..], &["--set=isolate"]].concat()).exits(0, &[]);
    let apart: Value = serde_json::from_str(&apart.stdout).unwrap();
    for (cell, here) in apart["cells"].as_array().unwrap().iter().zip(document["cells"].as_array().unwrap()) {
        assert_eq!((&cell["padding"], &cell["work"]), (&here["padding"], &here["work"]), "{cell}");
        assert!(cell["work"]["flops"].as_u64().unwrap() > 0, "{cell}");
        has_memory_of_its_own(cell);
    }
    planish(["bench", text(&model), "--workload", "lengths"]).exits(2, &["add --data FILE"]);
    let several = golden("t5");
    let one_part = ["bench", text(&several), "--workload", "lengths", "--data", text(&data)];
    planish(one_part).exits(1, &["models of one part"]);
}
