//! Checkpoints that other tools quantized, from the files to an artifact that runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use planish_ir::Op;
use serde_json::Value;
use tokenizers::Tokenizer;

use crate::support::{CPU_TARGETS, names, planish, planish_compile, repository, scratch, tensors, text};

fn fixture(name: &str) -> PathBuf {
    repository().join("fixtures/quantized").join(name)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Compiles for a target, and verifies the artifact by the binary.
fn compiles_and_verifies(model: &Path, expected: &[&str]) {
    for target in CPU_TARGETS {
        let folder = scratch();
        let out = folder.path().join("artifact");
        planish_compile(model, &out, &["--target", target.name, "--debug=verify"]).exits(0, expected);
        planish(["verify", text(&out)]).exits(0, &[]);
    }
}

#[test]
fn checkpoints_of_each_format_run() {
    for name in [
        "gptq",
        "gptq-2bits-rows",
        "gptq-8bits-v2",
        "awq",
        "compressed-tensors",
        "compressed-tensors-zero-points",
        "compressed-tensors-8bits",
        "compressed-tensors-int8",
    ] {
        compiles_and_verifies(&fixture(name), &[]);
    }
    for name in ["bitsandbytes-nf4", "bitsandbytes-fp4-nested"] {
        compiles_and_verifies(&fixture(name), &[]);
    }
    compiles_and_verifies(&fixture("gptq-act-order"), &["the codes of 7 quantized weights are not kept"]);
    compiles_and_verifies(&fixture("gguf-llama/model.gguf"), &["the codes of 3 quantized weights are not kept"]);
    compiles_and_verifies(&fixture("gguf-types/model.gguf"), &["the codes of 2 quantized weights are not kept"]);
    compiles_and_verifies(&fixture("mxfp4"), &[]);
    for (name, lost) in [("fp8-blocks", 7), ("fp8-experts", 10), ("compressed-tensors-fp8-blocks", 7)] {
        let warning = format!("the codes of {lost} quantized weights are not kept");
        compiles_and_verifies(&fixture(name), &[&warning]);
    }
}

/// The indices of bitsandbytes are operands of ONNX Runtime's operator as the file has them.
#[test]
fn indices_of_a_table_stay_what_they_are() {
    for (name, lost) in [("bitsandbytes-nf4", 7), ("bitsandbytes-fp4-nested", 7)] {
        let (folder, model) = (scratch(), fixture(name));
        let out = folder.path().join("artifact");
        planish_compile(&model, &out, &["--debug=strict", "--verify"]).exits(0, &[]);
        let stored = tensors(&model.join("model.safetensors"));
        let stored: Vec<&Vec<u8>> = stored.values().map(|tensor| &tensor.bytes).collect();
        let graph = planish_onnx::import(&out.join("model.onnx")).unwrap().graph;
        let products = graph.nodes().filter_map(|(_, node)| match &node.op {
            Op::Foreign(op) if op.op.0 == "MatMulBnb4" => graph.weight(op.inputs[1]?),
            _ => None,
        });
        let bytes: Vec<Vec<u8>> = products.map(|weight| weight.read().unwrap()).collect();
        assert_eq!(bytes.len(), lost, "{name}");
        assert!(bytes.iter().all(|indices| stored.contains(&indices)), "{name}");
        // Read again, they are indices still.
        let again = folder.path().join("again");
        planish_compile(&out.join("model.onnx"), &again, &["--verify"]).exits(0, &[]);
        let twice = planish_onnx::import(&again.join("model.onnx")).unwrap().graph;
        let products = twice.nodes().filter(|(_, node)| matches!(&node.op, Op::Foreign(op) if op.op.0 == "MatMulBnb4"));
        assert_eq!(products.count(), lost, "{name}");
        let compiled = |more: &[&str]| planish_compile(&model, &out, &[&["--force"], more].concat());
        let warning = format!("the codes of {lost} quantized weights are not kept");
        compiled(&["--target", "onnx"]).exits(0, &[&warning, "target onnx has no product with indices of a table"]);
        compiled(&["--target", "onnx", "--debug=strict"]).exits(1, &[&warning, "leave out --debug strict"]);
        compiled(&["--int4"]).exits(0, &[&warning, "quantize weights anew"]);
    }
}

#[test]
fn a_gguf_file_becomes_an_artifact_with_its_tokenizer() {
    let folder = scratch();
    let out = folder.path().join("artifact");
    planish_compile(&fixture("gguf-llama/model.gguf"), &out, &["--target", "ort"]).exits(0, &[]);
    let companions = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"];
    for name in companions {
        assert!(names(&out).contains(&name.to_owned()), "{name}");
    }
    let manifest = json(&out.join("planish.json"));
    assert_eq!(manifest["source"]["name"], "gguf-llama");
    assert_eq!(manifest["source"]["files"][0]["name"], "model.gguf");
    // The file is found where it was, also from its folder.
    planish(["verify", text(&out)]).exits(0, &[]);
    let generated = ["generate", text(&out), "--prompt", "The garden", "--max-new-tokens", "3", "--set=ignore_eos"];
    planish(generated).exits(0, &[]);
    // Texts are calibrated on by the tokenizer of the file.
    let table = folder.path().join("table.json");
    let data = repository().join("fixtures/data/sentences.txt");
    let model = fixture("gguf-llama/model.gguf");
    let more = ["--samples", "2", "--max-length", "8", "-o", text(&table)];
    planish(["calibrate", text(&model), "--data", text(&data)].into_iter().chain(more)).exits(0, &[]);
    assert!(table.exists());
}

/// The ids of texts by the tokenizer of a GGUF file's artifact, against those of the tool that the file was made with.
fn tokenizes(model: &Path, expected: &Path) {
    let folder = scratch();
    let out = folder.path().join("artifact");
    planish_compile(model, &out, &["--target", "onnx"]).exits(0, &[]);
    let tokenizer = Tokenizer::from_file(out.join("tokenizer.json")).unwrap();
    let expected: BTreeMap<String, Vec<u32>> = serde_json::from_slice(&fs::read(expected).unwrap()).unwrap();
    assert!(expected.len() > 4);
    for (text, ids) in expected {
        let encoding = tokenizer.encode(text.as_str(), true).unwrap();
        assert_eq!(encoding.get_ids(), ids, "{text:?}: {:?}", encoding.get_tokens());
        let decoded = tokenizer.decode(&ids, true).unwrap();
        assert_eq!(decoded, text.replace("<|end|>", ""), "{}", model.display());
    }
}

#[test]
fn tokenizers_are_what_they_were() {
    tokenizes(&fixture("gguf-llama/model.gguf"), &fixture("gguf-llama/tokens.json"));
    for pre in ["gpt-2", "llama-bpe", "qwen2"] {
        let of = |ending: &str| fixture("gguf-vocabularies").join(format!("{pre}.{ending}"));
        tokenizes(&of("gguf"), &of("json"));
    }
}
