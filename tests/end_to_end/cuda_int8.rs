//! INT8 for target `cuda`: layers of codes, which the kernels multiply on the processor here.

use std::fs;
use std::path::{Path, PathBuf};

use planish_ir::{DType, Graph, Op, Weight};
use planish_runtimes::graph_file;
use serde_json::Value;

use crate::calibrate::{integers, stored_inputs};
use crate::support::{golden, planish, planish_compile, repository, scratch, text};

/// The arguments of INT8 with data.
fn int8(data: &Path) -> [&str; 5] {
    ["--target", "cuda", "--int8", "--calibrate", text(data)]
}

fn graphs(out: &Path) -> Vec<(String, Graph)> {
    let manifest: Value = serde_json::from_slice(&fs::read(out.join("planish.json")).unwrap()).unwrap();
    let part = |part: &Value| {
        let file = part["files"][0].as_str().unwrap();
        (file.to_owned(), graph_file::load(&out.join(file)).unwrap())
    };
    manifest["parts"].as_array().unwrap().iter().map(part).collect()
}

/// Whether a weight is codes in a file of weights: a byte for each, and nothing to compute.
fn is_stored(weight: &Weight) -> bool {
    weight.dtype() == DType::I8 && (weight.as_stored().is_some() || weight.elements() <= 64)
}

/// How many layers of codes a graph has, and how many codes of inputs; no other layer has a weight of codes.
#[track_caller]
fn layers(graph: &Graph) -> [usize; 2] {
    let mut found = [0; 2];
    for (_, node) in graph.nodes() {
        match &node.op {
            Op::QuantizedLinear(layer) => {
                found[0] += 1;
                assert!(is_stored(graph.weight(layer.weight).unwrap()), "{graph}");
                assert_eq!(graph.weight(layer.scales).unwrap().dtype(), DType::F32);
            }
            Op::Quantize(_) => found[1] += 1,
            Op::FakeQuantize(_) => panic!("a fake_quantize is left\n{graph}"),
            _ => {}
        }
    }
    found
}

/// Compiles a golden in INT8 alone and with both half types, verifies it on the kernels and on the interpreter, and checks
/// the layers and codes of each part.
#[track_caller]
fn holds(name: &str, data: &Path, folder: &Path, expected: &[[usize; 2]]) {
    for half in [&[][..], &["--fp16"], &["--bf16"]] {
        let out = folder.join(format!("out{}", half.concat()));
        planish_compile(&golden(name), &out, &[&int8(data), half].concat()).exits(0, &[]);
        for runtime in ["cuda-emulator", "reference"] {
            planish(["verify", text(&out), "--max-length", "9", "--runtime", runtime]).exits(0, &[]);
        }
        let found: Vec<[usize; 2]> = graphs(&out).iter().map(|(_, graph)| layers(graph)).collect();
        assert_eq!(found, expected, "{name} {half:?}");
    }
}

/// Queries, keys and values are one layer of each of two; then the mixture, up and down; and the pooler.
#[test]
fn bert() {
    let folder = scratch();
    let data = integers(&[("input_ids", 131), ("token_type_ids", 2)], folder.path());
    holds("bert", &data, folder.path(), &[[9, 9]]);
}

#[test]
fn vit() {
    let folder = scratch();
    let data = stored_inputs("vit", &["pixel_values"], folder.path());
    holds("vit", &data, folder.path(), &[[9, 9]]);
}

/// GPT-2 stores its weights the other way round.
#[test]
fn gpt2() {
    let folder = scratch();
    holds("gpt2", &integers(&[("input_ids", 137)], folder.path()), folder.path(), &[[9, 9]]);
}

#[test]
fn llama() {
    let folder = scratch();
    holds("llama", &integers(&[("input_ids", 139)], folder.path()), folder.path(), &[[9, 9]]);
}

/// The decoder has a head, and in its first run the keys and values of all layers are one layer of the encoder's states.
#[test]
fn t5() {
    let folder = scratch();
    let data = integers(&[("input_ids", 127), ("decoder_input_ids", 127)], folder.path());
    holds("t5", &data, folder.path(), &[[8, 8], [14, 14], [13, 13]]);
}

/// Both runtimes of a decoder in INT8 write the same, with a cache and with beams.
#[test]
fn decoders_generate() {
    for (name, vocabulary) in [("gpt2", 137), ("llama", 139)] {
        let folder = scratch();
        let (data, out) = (integers(&[("input_ids", vocabulary)], folder.path()), folder.path().join("out"));
        planish_compile(&golden(name), &out, &int8(&data)).succeeds();
        for more in [&[][..], &["--set", "num_beams=3"]] {
            let written = ["cuda-emulator", "reference"].map(|runtime| {
                let ids = ["generate", text(&out), "--ids", "1,2,3", "--max-new-tokens", "6", "--runtime", runtime];
                planish([&ids, more].concat()).exits(0, &[]).stdout
            });
            assert!(!written[0].is_empty() && written[0] == written[1], "{name}: {written:?}");
        }
    }
}

/// Codes take a byte each: what is float32 in the model takes a quarter.
#[test]
fn weights_are_bytes() {
    let folder = scratch();
    let data = integers(&[("input_ids", 131), ("token_type_ids", 2)], folder.path());
    let size = |out: &str, more: &[&str]| {
        let out = folder.path().join(out);
        planish_compile(&golden("bert"), &out, more).succeeds();
        let codes: u64 =
            graphs(&out)[0].1.weights().filter(|(.., w)| w.dtype() == DType::I8).map(|(.., w)| w.bytes()).sum();
        (fs::metadata(out.join("model.weights")).unwrap().len(), codes)
    };
    let (float, none) = size("float", &["--target", "cuda"]);
    let (quantized, codes) = size("int8", &int8(&data));
    assert_eq!(none, 0);
    // Weights begin at multiples of 256 bytes, and scales are few.
    assert!(codes > 10_000 && quantized + 3 * codes < float + 16_384, "{float} {quantized} {codes}");
}

/// Plans go from one compilation to the next, what is not quantized is told, and parts of it stay in float.
#[test]
fn plans_say_what_is_quantized() {
    let folder = scratch();
    let data = integers(&[("input_ids", 131), ("token_type_ids", 2)], folder.path());
    let (plan, out) = (folder.path().join("plan.json"), folder.path().join("out"));
    let more = ["--keep", "pooler", "--explain=quantization"];
    let done = planish_compile(&golden("bert"), &out, &[&int8(&data)[..], &more].concat());
    done.exits(0, &["i8, scale", "of keep matches"]);
    fs::copy(out.join("planish.json"), &plan).unwrap();
    let of = |plan: &Path| format!("plan={}", plan.display());
    assert_eq!(layers(&graphs(&out)[0].1), [8, 8]);
    let again = folder.path().join("again");
    let apply = ["--target", "cuda", "--int8", "--recipe", &of(&plan)];
    planish_compile(&golden("bert"), &again, &apply).succeeds();
    let text_of = |out: &Path| fs::read_to_string(out.join("model.graph")).unwrap();
    let body = |text: String| text[text.find("graph \"").unwrap()..].to_owned();
    assert_eq!(body(text_of(&out)), body(text_of(&again)));

    // A plan for TensorRT may have split columns, and one for ONNX Runtime has codes of u8.
    let mut document: Value = serde_json::from_slice(&fs::read(&plan).unwrap()).unwrap();
    let mut refused = |change: &dyn Fn(&mut Value), message: &str| {
        let input = document.pointer_mut("/parts/0/quantization/inputs/0").unwrap();
        change(input);
        let other = folder.path().join("other.json");
        fs::write(&other, document.to_string()).unwrap();
        let apply = ["--target", "cuda", "--int8", "--recipe", &of(&other), "--force"];
        planish_compile(&golden("bert"), &again, &apply).exits(1, &[message]);
    };
    refused(
        &|input| input["split"] = serde_json::json!([1]),
        "it has columns that are split, and this target has none",
    );
    refused(&|input| input["codes"] = "u8".into(), "it has codes of u8, and this target and these options take i8");
}

#[test]
fn without_fusion_layers_of_codes_stay() {
    let folder = scratch();
    let data = integers(&[("input_ids", 139)], folder.path());
    let out = folder.path().join("out");
    planish_compile(&golden("llama"), &out, &[&int8(&data)[..], &["--no-fusion"]].concat()).succeeds();
    let (_, graph) = graphs(&out).remove(0);
    assert_eq!(layers(&graph), [15, 9]);
    planish(["verify", text(&out), "--max-length", "7", "--runtime", "reference"]).exits(0, &[]);
}

#[test]
fn what_the_target_does_not_quantize_is_a_usage_error() {
    let folder = scratch();
    let out = folder.path().join("out");
    let data = integers(&[("input_ids", 137)], folder.path());
    let calibrated = ["--int8", "--calibrate", text(&data)];
    for (more, message) in [
        (&["--int8"][..], "--int8 for target cuda needs data: add --calibrate FILE"),
        (
            &["--fp8", "--calibrate", text(&data)],
            "--fp8 is not for target cuda, which multiplies integers of 8 bits only",
        ),
        (
            &[&calibrated[..], &["--recipe", "split-columns=8"]].concat(),
            "--recipe split-columns is not for target cuda",
        ),
        (
            &[&calibrated[..], &["--recipe=dynamic=true"]].concat(),
            "--recipe dynamic is not for target cuda, which needs fixed scales",
        ),
    ] {
        planish_compile(&golden("gpt2"), &out, &[&["--target", "cuda"], more].concat()).exits(2, &[message]);
    }
    assert!(!out.exists());
}

/// Graphs that others quantized: other codes are refused by name.
#[test]
fn quantized_graphs_are_refused_by_name() {
    let folder = scratch();
    let out = folder.path().join("out");
    let graph = |name: &str| repository().join("fixtures/graphs-more").join(name);
    planish_compile(&graph("qop-bert.onnx"), &out, &["--target", "cuda"])
        .exits(1, &["`fake_quantize` at", "its zero point is 1, and this target takes codes with one of 0"]);
}

/// A trained model, on sentences that it was not calibrated on.
#[test]
fn minilm_stays_accurate() {
    let folder = scratch();
    let lines = fs::read_to_string(repository().join("fixtures/data/sentences.txt")).unwrap();
    let write = |name: &str, lines: &mut dyn Iterator<Item = &str>| -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, lines.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        path
    };
    let data = write("data.txt", &mut lines.lines().take(32));
    let others = write("others.txt", &mut lines.lines().skip(32).take(4));
    let out = folder.path().join("out");
    let model = repository().join(".deps/minilm");
    planish_compile(&model, &out, &int8(&data)).succeeds();
    let evaluate =
        ["evaluate", text(&out), "--data", text(&others), "--max-length", "16", "--runtime", "cuda-emulator"];
    planish([&evaluate[..], &["--require", "cos=0.98"]].concat()).exits(0, &[]);
}
