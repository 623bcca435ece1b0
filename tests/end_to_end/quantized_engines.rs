//! Engines of quantized models: each product of quantized layers is a kernel on codes of 8 bits, and the graph that an engine
//! is built of gives what the model gives.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use planish_onnx::proto::{GraphProto, ModelProto};
use planish_runtimes::ort::{OnnxRuntime, OptimizationLevel, OrtOptions};
use planish_runtimes::{Model, ReferenceRuntime, Runtime, Session};
use prost::Message;
use safetensors::tensor::Dtype;
use serde_json::Value;

use crate::calibrate::{integers, numbers};
use crate::goldens::seen;
use crate::support::{
    ONE_THREAD, Stored, golden, numbered, planish, planish_compile, repository, scratch, text, write_tensors,
};

/// Images of noise.
fn images(folder: &Path) -> PathBuf {
    let shape = vec![8, 3, 16, 16];
    let noise = |x: u64| (x % 2000) as f32 / 500.0 - 2.0;
    let bytes = numbers().map(noise).take(shape.iter().product()).flat_map(f32::to_le_bytes).collect();
    let path = folder.join("images.safetensors");
    write_tensors(&path, &[("pixel_values".to_owned(), Stored { dtype: Dtype::F32, shape, bytes })].into());
    path
}

/// The types of a kernel's operands or results.
fn types<'a>(layer: &'a Value, side: &str) -> Vec<&'a str> {
    layer[side].as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

/// The names of the products whose weight is codes, perhaps transposed after DequantizeLinear.
fn products(graph: &GraphProto) -> BTreeSet<&str> {
    let mut dequantized: BTreeSet<&str> = graph
        .node
        .iter()
        .filter(|node| node.op_type == "DequantizeLinear")
        .flat_map(|node| node.output.iter().map(String::as_str))
        .collect();
    for node in graph.node.iter().filter(|node| node.op_type == "Transpose") {
        if dequantized.contains(node.input[0].as_str()) {
            dequantized.insert(&node.output[0]);
        }
    }
    let products = graph.node.iter().filter(|node| node.op_type == "MatMul");
    products.filter(|node| dequantized.contains(node.input[1].as_str())).map(|node| node.name.as_str()).collect()
}

fn graph(path: &Path) -> GraphProto {
    ModelProto::decode(&fs::read(path).unwrap()[..]).unwrap().graph.unwrap()
}

/// The engines of an artifact, as `planish inspect` shows them, against its ONNX files: each product of codes is a kernel
/// that multiplies codes, and no kernel takes codes beside floats, which would be a product of floats after a cast. Returns
/// how many such kernels and products there are.
#[track_caller]
fn multiplies_codes(out: &Path, codes: &str) -> (usize, usize) {
    let shown = planish(["inspect", text(out), "--json"]).succeeds().stdout;
    let document: Value = serde_json::from_str(&shown).unwrap();
    let (mut kernels, mut all) = (0, 0);
    for engine in document["engines"].as_array().unwrap() {
        let part = engine["file"].as_str().unwrap().strip_suffix(".engine").unwrap();
        let onnx = graph(&out.join(format!("{part}.onnx")));
        let mut missing = products(&onnx);
        all += missing.len();
        for layer in engine["build"]["layers"].as_array().unwrap() {
            let inputs = types(layer, "inputs");
            let of_codes = inputs.iter().filter(|input| **input == codes).count();
            assert!([0, inputs.len()].contains(&of_codes), "{part}: {layer}");
            if layer["kind"] == "gemm" && of_codes > 0 {
                kernels += 1;
                missing.retain(|product| !types(layer, "nodes").contains(product));
            }
        }
        assert_eq!(missing, BTreeSet::new(), "products of {part} that no kernel of {codes} computes");
    }
    (kernels, all)
}

/// Compiles a model in INT8 and in FP8, verifies the graphs, and builds their engines. Returns how many kernels multiply
/// codes in each, and how many products of codes the graphs have.
#[track_caller]
fn built(model: &Path, data: &Path, folder: &Path, more: &[&str]) -> [(usize, usize); 2] {
    [("--int8", "Int8"), ("--fp8", "FP8")].map(|(option, codes)| {
        let out = folder.join(codes);
        let fixed = [
            "--target",
            "trt",
            "--recipe=engine.gpu=sm89",
            "--recipe=engine.keep-onnx=true",
            "--verify",
            "--calibrate",
            text(data),
            option,
        ];
        let done = planish_compile(model, &out, &[&fixed, more].concat()).exits(0, &[]);
        assert!(done.stdout.contains("verified"), "{}", done.stdout);
        multiplies_codes(&out, codes)
    })
}

/// A part of a golden in FP8 on the interpreter, which rounds as the format says, against ONNX Runtime and against the
/// golden's own results, in which the output has another name.
#[track_caller]
fn on_the_interpreter(file: &Path, name: &str, output: &str, named: &str) {
    let io = golden(name).join("io.safetensors");
    let on = |runtime: &dyn Runtime| {
        let mut session: Box<dyn Session> = runtime.load(Model::onnx(file), ONE_THREAD).unwrap();
        let takes = |name: &String| session.inputs().iter().any(|port| port.name == *name);
        let mut inputs = numbered(&io, "in.");
        inputs.retain(|(name, _)| takes(name));
        let inputs: Vec<_> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
        let outputs = session.run(&inputs).unwrap();
        outputs.into_iter().find(|(name, _)| name == output).unwrap().1
    };
    let interpreted = on(&ReferenceRuntime::default());
    let mask = numbered(&io, "in.").into_iter().find(|(name, _)| name == "attention_mask").map(|(_, mask)| mask);
    let kept = seen(interpreted.shape(), mask.as_ref().map(|mask| (mask, 1)));
    let interpreted = interpreted.to_f64();
    let expected = numbered(&io, "out.").into_iter().find(|(name, _)| name == named).unwrap().1.to_f64();
    let cosine = |other: &[f64]| {
        let dot = |a: &[f64], b: &[f64]| kept.iter().map(|&at| a[at] * b[at]).sum::<f64>();
        dot(&interpreted, other) / (dot(&interpreted, &interpreted) * dot(other, other)).sqrt()
    };
    // Codes that lie halfway between two others differ where a sum was computed in another order.
    let options = OrtOptions { optimization: OptimizationLevel::Basic, ..OrtOptions::compiled() };
    let runtime = OnnxRuntime::new(None).options(options);
    let (same, close) = (cosine(&on(&runtime).to_f64()), cosine(&expected));
    assert!(same > 0.9999 && close > 0.99, "{name}: {same} to ONNX Runtime, {close} to the model");
}

/// A golden built on rows of ids: how many kernels multiply codes in INT8 and in FP8, in all profiles, and how many products
/// of codes the graphs have.
#[track_caller]
fn golden_built(name: &str, inputs: &[(&str, u64)], folder: &Path) -> [(usize, usize); 2] {
    built(&golden(name), &integers(inputs, folder), folder, &[])
}

/// Queries, keys and values of a layer are one kernel.
#[test]
fn bert() {
    let folder = scratch();
    let inputs = [("input_ids", 131), ("token_type_ids", 2)];
    assert_eq!(golden_built("bert", &inputs, folder.path()), [(9, 13); 2]);
    on_the_interpreter(&folder.path().join("FP8/model.onnx"), "bert", "last_hidden_state", "last_hidden_state");
}

#[test]
fn vit() {
    let folder = scratch();
    let data = images(folder.path());
    assert_eq!(built(&golden("vit"), &data, folder.path(), &[]), [(9, 13); 2]);
    on_the_interpreter(&folder.path().join("FP8/model.onnx"), "vit", "logits", "logits");
}

/// Decoders have two profiles.
#[test]
fn decoders() {
    for (name, vocabulary, products) in [("gpt2", 137, 9), ("llama", 139, 15), ("gpt-neox-sequential", 133, 9)] {
        let folder = scratch();
        assert_eq!(golden_built(name, &[("input_ids", vocabulary)], folder.path()), [(18, products); 2], "{name}");
    }
}

#[test]
fn t5() {
    let folder = scratch();
    let inputs = [("input_ids", 127), ("decoder_input_ids", 127)];
    assert_eq!(golden_built("t5", &inputs, folder.path()), [(14 + 13 + 8, 21 + 17 + 12); 2]);
    on_the_interpreter(
        &folder.path().join("FP8/encoder_model.onnx"),
        "t5",
        "last_hidden_state",
        "encoder_last_hidden_state",
    );
}

/// The first sentences of the fixtures, in a file.
fn sentences(folder: &Path) -> PathBuf {
    let lines = fs::read_to_string(repository().join("fixtures/data/sentences.txt")).unwrap();
    let data = folder.join("sentences.txt");
    fs::write(&data, lines.lines().take(16).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    data
}

/// A trained model, with columns of inputs split.
#[test]
fn minilm() {
    let folder = scratch();
    let data = sentences(folder.path());
    let model = repository().join(".deps/minilm");
    assert_eq!(built(&model, &data, folder.path(), &[]), [(24, 36); 2]);
}
