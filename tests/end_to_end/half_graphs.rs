//! Graphs of exporters of half precision: raised in the half type, compiled, and run by ONNX Runtime.

use planish_eval::Tensor;
use planish_ir::{DType, Graph, Op};
use planish_passes::Target;
use planish_runtimes::ort::OnnxRuntime;
use planish_runtimes::{Model, Runtime, SessionOptions};

use crate::goldens::seen;
use crate::graphs::{file, holds, imported};
use crate::support::{CPU_TARGETS, compiled, golden, numbered, options, planish_compile, scratch};

/// The least cosine to what the checkpoint gives in float64.
const COSINE: f64 = 0.999;

/// Checks that attention, norms and activations compute in float16.
#[track_caller]
fn is_half(graph: &Graph) {
    for (_, node) in graph.nodes() {
        let dtype = graph.ty(node.outputs[0]).dtype;
        match node.op {
            Op::Attention(_) | Op::LayerNorm(_) | Op::RmsNorm(_) | Op::Gelu(_) | Op::Linear(_) => {
                assert_eq!(dtype, DType::F16, "{graph}");
            }
            _ => {}
        }
    }
}

/// Compiles a graph for each target that runs on CPUs.
#[track_caller]
fn runs(name: &str, reference: &str) {
    CPU_TARGETS.into_iter().for_each(|target| runs_for(target, name, reference));
    let folder = scratch();
    for target in ["onnx", "ort"] {
        let done = planish_compile(&file(name), &folder.path().join(target), &["--target", target, "--verify"]);
        assert!(done.exits(0, &[]).stdout.contains("verified: "));
    }
}

/// Compiles a graph, runs it, and compares its outputs with those of a golden.
#[track_caller]
fn runs_for(target: &'static Target, name: &str, reference: &str) {
    let (folder, options) = (scratch(), options(target));
    let compiled = compiled(&file(name), &folder.path().join("out"), &options);
    let graph = &compiled.source.parts[0].graph;
    let model = compiled.draft.folder().join("model.onnx");
    let session = OnnxRuntime::new(None).load(Model::onnx(&model), SessionOptions::default());
    let mut session = session.unwrap();

    let io = golden(reference).join("io.safetensors");
    let given = numbered(&io, "in.");
    let batch = given[0].1.shape()[0];
    let inputs: Vec<(&str, Tensor)> = graph
        .inputs()
        .iter()
        .map(|value| {
            let (value, ty) = (graph.value(*value), graph.ty(*value));
            let found = given.iter().find(|(name, _)| *name == value.name).map(|(_, tensor)| tensor.clone());
            // An empty cache.
            let size = |axis: usize| usize::try_from(ty.shape[axis].as_constant().unwrap()).unwrap();
            let empty = || Tensor::from_f64(ty.dtype, vec![batch, size(1), 0, size(3)], &[]).unwrap();
            (value.name.as_str(), found.unwrap_or_else(empty))
        })
        .collect();
    let mask = &inputs.iter().find(|(name, _)| *name == "attention_mask").unwrap().1;
    let actual = session.run(&inputs).unwrap();
    let expected = numbered(&io, "out.");
    for (name, actual) in actual {
        let expected = &expected.iter().find(|(n, _)| *n == name).unwrap().1;
        assert_eq!(actual.shape(), expected.shape(), "{name}");
        let kept = seen(expected.shape(), Some((mask, if name.starts_with("present.") { 2 } else { 1 })));
        let (a, b) = (expected.to_f64(), actual.to_f64());
        let dot = |a: &[f64], b: &[f64]| kept.iter().map(|&at| a[at] * b[at]).sum::<f64>();
        let cosine = dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt();
        assert!(cosine >= COSINE, "{name}: cosine {cosine}");
    }
}

#[test]
fn bert_by_optimum() {
    let graph = imported("optimum-bert-half/model.onnx");
    holds(&graph, "attention 2, embedding 2, gelu 2, layer_norm 5, linear 12");
    is_half(&graph);
    runs("optimum-bert-half/model.onnx", "bert");
}

#[test]
fn gpt2_by_optimum() {
    let graph = imported("optimum-gpt2-half/model.onnx");
    holds(&graph, "attention 2, embedding 2, gelu 2, layer_norm 5, linear 9");
    is_half(&graph);
    runs("optimum-gpt2-half/model.onnx", "gpt2");
}

#[test]
fn llama_by_optimum() {
    let graph = imported("optimum-llama-half/model.onnx");
    holds(&graph, "attention 2, embedding 1, linear 15, rms_norm 5, rotary 4, silu 2");
    is_half(&graph);
    runs("optimum-llama-half/model.onnx", "llama");
}

#[test]
fn bert_by_the_converter_of_onnx_runtime() {
    let graph = imported("ort-bert-half/model.onnx");
    holds(&graph, "attention 2, embedding 2, gelu 2, layer_norm 5, linear 12");
    is_half(&graph);
    runs("ort-bert-half/model.onnx", "bert");
}
