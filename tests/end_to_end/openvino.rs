//! Artifacts for OpenVINO, which `make test` puts into `.deps`.

use std::collections::BTreeSet;

use planish_ir::Op;
use safetensors::Dtype;

use crate::support::{Stored, golden, planish, planish_compile, scratch, text, write_tensors};

/// Compiles a golden for OpenVINO and has it verified.
fn verified(name: &str, more: &[&str]) -> tempfile::TempDir {
    let folder = scratch();
    let all = [&["--target", "openvino", "--verify"], more].concat();
    planish_compile(&golden(name), &folder.path().join("out"), &all).exits(0, &[]);
    folder
}

#[test]
fn artifacts_are_verified_on_openvino() {
    for name in ["bert", "llama", "t5", "vit", "whisper"] {
        verified(name, &[]);
    }
    verified("bert", &["--fp16"]);
    verified("bert", &["--bf16"]);
    verified("llama", &["--int4"]);
    verified("llama", &["--int8-weights"]);
}

#[test]
fn codes_are_unsigned_for_inputs_and_signed_for_weights() {
    let folder = scratch();
    let (data, out) = (folder.path().join("data.safetensors"), folder.path().join("out"));
    let ids = |of: i64| (0..120i64).flat_map(|at| (at % of).to_le_bytes()).collect();
    let stored = |bytes| Stored { dtype: Dtype::I64, shape: vec![20, 6], bytes };
    let ones = (0..120).flat_map(|_| 1i64.to_le_bytes()).collect();
    let inputs = [("input_ids", ids(37)), ("attention_mask", ones), ("token_type_ids", ids(1))];
    write_tensors(&data, &inputs.map(|(name, bytes)| (name.to_owned(), stored(bytes))).into());
    let more = ["--target", "openvino", "--int8", "--calibrate", text(&data), "--verify"];
    planish_compile(&golden("bert"), &out, &more).exits(0, &[]);
    let graph = planish_onnx::import(&out.join("model.onnx")).unwrap().graph;
    let quantizes = graph
        .nodes()
        .filter(|(_, node)| matches!(&node.op, Op::Foreign(foreign) if foreign.is("QuantizeLinear")))
        .map(|(_, node)| (graph.ty(node.outputs[0]).dtype.name(), graph.value(node.outputs[0]).name.as_str()));
    let (signed, unsigned): (Vec<_>, Vec<_>) = quantizes.partition(|(codes, _)| *codes == "i8");
    // The queries and keys of two layers.
    assert_eq!(signed.len(), 4, "{signed:?}");
    assert!(signed.iter().all(|(_, name)| name.contains("query") || name.contains("key")), "{signed:?}");
    assert!(!unsigned.is_empty() && unsigned.iter().all(|(codes, _)| *codes == "u8"), "{unsigned:?}");
    let matrices = graph.weights().filter(|(weight, ..)| graph.ty(*weight).shape.rank() == 2);
    let matrices: BTreeSet<&str> = matrices.map(|(weight, ..)| graph.ty(weight).dtype.name()).collect();
    assert!(matrices.contains("i8") && !matrices.contains("u8"), "{matrices:?}");
}

#[test]
fn text_is_generated_on_openvino() {
    let folder = verified("gpt2", &[]);
    let out = folder.path().join("out");
    let ids = |more: &[&str]| {
        let all = [&["generate", text(&out), "--ids", "5,6,7", "--max-new-tokens", "5"], more].concat();
        planish(all).exits(0, &[]).stdout
    };
    assert_eq!(ids(&[]), ids(&["--runtime", "reference"]));
}

#[test]
fn a_missing_library_and_a_wrong_precision_are_told() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("bert"), &out, &["--target", "openvino"]).succeeds();
    planish(["verify", text(&out), "--runtime-option", "openvino-lib=/nowhere"])
        .exits(4, &["`openvino` is unavailable", "looked at /nowhere", "PLANISH_OPENVINO_LIB"]);
    // The precision is passed on: where the processor multiplies bfloat16, results differ from those of float32.
    if std::fs::read_to_string("/proc/cpuinfo").unwrap().contains("avx512_bf16") {
        planish(["verify", text(&out), "--runtime-option", "openvino-precision=bf16"])
            .exits(3, &["max relative error"]);
    }
    planish(["verify", text(&out), "--runtime-option", "openvino-precision=f16"]).exits(2, &["expected f32 or bf16"]);
    planish(["profile", text(&out)]).exits(2, &["benchmark_app"]);
}
