//! Target `ort-cuda` on a machine without a GPU: what is compiled has kernels there, and what would run it is
//! unavailable.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use planish_ir::{DType, Graph};
use planish_models::{Checkpoint, LoadOptions, load};
use planish_onnx::DEFAULT_OPSET;
use planish_passes::{CUDA, Half, HalfPrecision, ORT_CUDA, Options, Pipeline};
use serde_json::Value;

use crate::support::{
    RECURRENT, Stored, compiled, golden, names, options, planish, planish_compile, repository, scratch, tensors, text,
    write_tensors,
};

fn goldens() -> Vec<String> {
    let mut all = names(&repository().join("fixtures/goldens"));
    all.retain(|name| golden(name).is_dir());
    assert_eq!(all.len(), 137);
    all
}

/// Operators that work on a half type.
fn halves(graph: &Graph) -> usize {
    let is_half = |dtype| matches!(dtype, DType::F16 | DType::Bf16);
    graph.nodes().filter(|(_, node)| is_half(graph.ty(node.outputs[0]).dtype)).count()
}

#[test]
fn a_recurrence_is_refused_where_it_has_no_kernel() {
    for name in RECURRENT {
        let mut model = load(&Checkpoint::open(&golden(name)).unwrap(), LoadOptions::default()).unwrap();
        let pipeline = Pipeline::new(Options::new(&CUDA, DEFAULT_OPSET));
        let error = pipeline.run(&mut model.parts[0].graph, &mut |_, _| {}).err().unwrap().to_string();
        assert!(error.contains("`linear_attention` at "), "{name}: {error}");
    }
}

/// The last pass of the pipeline is the check.
#[test]
fn goldens_have_cuda_kernels_in_every_precision() {
    for name in goldens() {
        for half in [None, Some(Half::F16), Some(Half::Bf16)] {
            for part in load(&Checkpoint::open(&golden(&name)).unwrap(), LoadOptions::default()).unwrap().parts {
                let precision = half.map(|half| HalfPrecision::new(half).into());
                let options = Options { precision, ..Options::new(&ORT_CUDA, DEFAULT_OPSET) };
                let (mut pipeline, mut graph) = (Pipeline::new(options), part.graph.clone());
                pipeline.verify = true;
                let done = pipeline.run(&mut graph, &mut |_, _| {});
                done.unwrap_or_else(|e| panic!("{name} {} in {half:?}: {e}", part.name));
                assert_eq!(halves(&graph) > 0, half.is_some(), "{name} {} in {half:?}", part.name);
            }
        }
    }
}

/// Of the operators of a file only those that compute sizes are not in the table of kernels.
#[test]
fn what_is_written_is_in_the_table_of_kernels() {
    let table = include_str!("../../fixtures/ort/cuda_kernels.csv");
    let known: BTreeSet<&str> = table.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    for name in ["bert", "gpt2", "llama", "mamba", "phi3", "qwen3-5", "roberta-mlm", "t5", "vit"] {
        let folder = scratch();
        let compiled = compiled(&golden(name), &folder.path().join("out"), &options(&ORT_CUDA));
        for part in &compiled.source.parts {
            let file = compiled.draft.folder().join(format!("{}.onnx", part.name));
            let model =
                <onnx_protobuf::ModelProto as protobuf::Message>::parse_from_bytes(&std::fs::read(file).unwrap());
            for node in &model.unwrap().graph.node {
                let operator = node.op_type.as_str();
                let sizes = ["Shape", "Squeeze", "Unsqueeze"].contains(&operator);
                assert!(node.domain.is_empty() && (sizes || known.contains(operator)), "{name}: {operator}");
            }
        }
    }
}

/// Where ONNX Runtime has no CUDA provider, nothing falls back to the processor.
#[test]
fn an_artifact_for_cuda_does_not_run_without() {
    const WHY: &[&str] =
        &["`ort-cuda` is unavailable", "built without the CUDA provider", "--runtime-option ort-lib=PATH"];
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("gpt2"), &out, &["--target", "ort-cuda", "--verify"]).exits(4, WHY);
    assert!(!out.exists());
    planish_compile(&golden("gpt2"), &out, &["--target", "ort-cuda", "--bf16"]).exits(0, &[]);
    let (artifact, model) = (text(&out).to_owned(), golden("gpt2"));
    planish(["verify", &artifact, "--reference", text(&model)]).exits(4, WHY);
    planish(["bench", &artifact, "--reference", text(&model)]).exits(4, WHY);
    planish(["bench", &artifact, "--reference", text(&model), "--runtime", "ort,ort-cuda"])
        .exits(4, &["computes in bfloat16"]);
    planish(["generate", &artifact, "--ids", "1,2"]).exits(4, WHY);
    let manifest: Value = serde_json::from_slice(&std::fs::read(out.join("planish.json")).unwrap()).unwrap();
    assert_eq!((&manifest["target"], &manifest["precision"]), (&"ort-cuda".into(), &"bf16".into()));
    let bert = folder.path().join("bert");
    planish_compile(&golden("bert"), &bert, &["--target", "ort-cuda"]).succeeds();
    let ids = folder.path().join("ids.safetensors");
    write_tensors(&ids, &inputs(&golden("bert").join("io.safetensors")));
    planish(["run", text(&bert), "--inputs", text(&ids)]).exits(4, WHY);
}

/// The inputs of a golden under the model's names.
fn inputs(io: &Path) -> BTreeMap<String, Stored> {
    let all = tensors(io).into_iter();
    all.filter_map(|(name, tensor)| Some((name.strip_prefix("in.")?.to_owned(), tensor))).collect()
}

/// What is compiled for CUDA is standard ONNX: asked to, it runs on the processor.
#[test]
fn an_artifact_for_cuda_is_measured_on_the_processor_where_asked() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("bert"), &out, &["--target", "ort-cuda"]).succeeds();
    let model = golden("bert");
    let quick = ["--seq", "4", "--set", "time=0,iterations=2", "--runtime", "ort"];
    let arguments = ["bench", text(&out), "--reference", text(&model)].into_iter().chain(quick);
    assert!(planish(arguments).exits(0, &[]).stdout.contains("| ort "));
}
