//! Half precision from the command line to the numbers that come out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use planish_eval::Tensor;
use planish_ir::{DType, Node, Op};
use planish_runtimes::{Model, ReferenceRuntime, Runtime, Session, SessionOptions};
use safetensors::tensor::Dtype;
use serde_json::Value;
use tokenizers::Tokenizer;

use crate::support::{
    Draft, Stored, golden, names, onnx_runtime, planish, planish_compile, repository, scratch, tensors, text,
    write_tensors,
};

/// The manifest of an artifact.
pub(crate) fn manifest(folder: &Path) -> Value {
    serde_json::from_slice(&fs::read(folder.join("planish.json")).unwrap()).unwrap()
}

/// Compiles a golden, verifies it, and runs it on the golden's inputs, which have padding: within the
/// tolerances, and finite at padded rows too.
fn holds(name: &str, half: &str) {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden(name), &out, &["--target", "onnx", half, "--verify", "--debug=verify"]).exits(0, &[]);
    let manifest = manifest(&out);
    assert_eq!(manifest["precision"], half[2..], "{name}");
    for part in manifest["parts"].as_array().unwrap() {
        let (part, precision) = (part["name"].as_str().unwrap(), &part["precision"]);
        // What routers choose experts by, and operators that pass through.
        let kept = precision["kept"].as_array().unwrap();
        let is_known = |kept: &Value| {
            let reason = kept["reason"].as_str().unwrap();
            reason.ends_with("` is chosen by it") || reason == "it passes through as it is"
        };
        assert!(kept.iter().all(is_known), "{name} {part}: {precision}");
        let kept: Vec<&str> = kept.iter().map(|kept| kept["name"].as_str().unwrap()).collect();
        // Positions come from integers, so what is made of them is float32: those that the graph interpolates, and what Parakeet's layers
        // make of theirs.
        let of_position = match name {
            "siglip2" => "embeddings.position_embedding",
            "parakeet" => ".relative_k_proj",
            _ => "",
        };
        let projects = !of_position.is_empty();
        assert!(precision["flops"] == 1.0 || !kept.is_empty() || projects, "{name} {part}: {precision}");
        // The decays of Mamba, [features, states], stay float32, and so do routers: up to 8 % of so small a model. Pairs of tokens
        // have integers, and positions are float32. The biases of windows, [windows * heads, places, places], are half of so small a CLAP.
        let least = match name {
            "beit" | "swin" | "swinv2" => 0.75,
            "clap" => 0.45,
            "parakeet" => 0.85,
            "yolos" => 0.9,
            "falcon-mamba" | "mamba" => 0.92,
            _ if !kept.is_empty() => 0.92,
            _ => 0.97,
        };
        assert!(precision["bytes"].as_f64().unwrap() > least, "{name} {part}: {precision}");
        let graph = planish_onnx::import(&out.join(format!("{part}.onnx"))).unwrap().graph;
        // Products of linear attention have a dimension for the groups of heads: states are float32.
        let of_states = |node: &Node| graph.ty(node.outputs[0]).shape.rank() >= 5;
        let products = graph.nodes().filter(|(_, node)| matches!(node.op, Op::MatMul(_) | Op::Linear(_)));
        let of_router = |node: &Node| kept.iter().any(|kept| graph.value(node.outputs[0]).name.starts_with(kept));
        let of_positions = |node: &Node| projects && graph.value(node.outputs[0]).name.ends_with(of_position);
        let products = products.filter(|(_, node)| !of_states(node) && !of_router(node) && !of_positions(node));
        let types: Vec<DType> = products.map(|(_, node)| graph.ty(node.outputs[0]).dtype).collect();
        let dtype = if half == "--fp16" { DType::F16 } else { DType::Bf16 };
        assert!(!types.is_empty() && types.iter().all(|ty| *ty == dtype), "{name} {part}: {types:?}");
    }
    let run = |inputs: BTreeMap<String, Stored>| {
        let (given, taken) = (folder.path().join("in.safetensors"), folder.path().join("out.safetensors"));
        write_tensors(&given, &inputs);
        planish(["run", text(&out), "--inputs", text(&given), "--outputs", text(&taken)]).exits(0, &[]);
        tensors(&taken)
    };
    let inputs = tensors(&golden(name).join("io.safetensors")).into_iter();
    let inputs = inputs.filter_map(|(name, t)| Some((name.strip_prefix("in.")?.to_owned(), t)));
    let taken: Vec<&str> = manifest["parts"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|part| part["inputs"].as_array().unwrap())
        .map(|input| input["name"].as_str().unwrap())
        .collect();
    let inputs = inputs.filter(|(name, _)| taken.contains(&name.as_str()) || name == "decoder_input_ids").collect();
    for (output, stored) in run(inputs) {
        assert_eq!(stored.dtype, Dtype::F32, "{name}: {output}");
        let finite = stored.bytes.as_chunks().0.iter().all(|b| f32::from_le_bytes(*b).is_finite());
        assert!(finite, "{name}: {output} is not finite");
    }
}

fn each_golden_holds(half: &str, of: usize) {
    let all = names(&repository().join("fixtures/goldens"));
    let all: Vec<&String> = all.iter().filter(|name| golden(name).join("io.safetensors").is_file()).collect();
    assert_eq!(all.len(), 137);
    let routed = ROUTED.iter().find(|(of, _)| *of == half).unwrap().1;
    let held = all.into_iter().skip(of).step_by(2).filter(|name| !routed.contains(&name.as_str()));
    let held = held.filter(|name| half != "--bf16" || ![LARGE_SCORES, NORMED_SCORES].contains(&name.as_str()));
    let held = held.filter(|name| half != "--fp16" || *name != LARGE_MAPS);
    held.for_each(|name| holds(name, half));
}

/// Goldens whose routers have random weights: where scores are close, rounding to a half type has them choose other experts.
const ROUTED: [(&str, &[&str]); 2] = [
    ("--fp16", &["ernie4-5-moe", "olmoe", "phimoe", "qwen3-5-moe", "qwen3-moe"]),
    (
        "--bf16",
        &[
            "deepseek-v2",
            "deepseek-v3",
            "dots1",
            "ernie4-5-moe",
            "glm4-moe",
            "gpt-oss",
            "lfm2-moe",
            "llama4",
            "phimoe",
            "qwen2-moe",
            "qwen3-moe",
        ],
    ),
];

/// A golden whose feature maps, by random weights, leave the range of float16 for images of 224 by 224 pixels.
const LARGE_MAPS: &str = "detr";

/// A golden whose attention has scores so large that queries and keys of 8 bits do not tell them apart.
const LARGE_SCORES: &str = "t5-gated-untied";

/// A golden whose norms of queries and keys have random weights, which makes scores large too: the cosine of its logits in bfloat16
/// is 0.998.
const NORMED_SCORES: &str = "gemma3";

#[test]
fn a_model_that_bfloat16_does_not_hold_is_refused_and_held_by_what_is_kept() {
    let folder = scratch();
    let compile = |more: &[&str]| {
        let arguments = [&["--target", "onnx", "--bf16", "--verify"], more].concat();
        planish_compile(&golden(LARGE_SCORES), &folder.path().join("out"), &arguments)
    };
    let missed = compile(&["--json"]).exits(3, &["nothing was written", "logits: max relative error"]);
    let document: Value = serde_json::from_str(&missed.stdout).unwrap();
    assert!(document["artifact"].is_null() && !folder.path().join("out").exists(), "nothing was written");
    let cases = document["manifest"]["verification"]["cases"].as_array().unwrap();
    assert!(cases.iter().any(|case| case["outputs"][0]["miss"].is_string()), "{document}");
    compile(&["--keep", "Attention=fp32"]).exits(0, &[]);
    let out = folder.path().join("out");
    let unavailable = ["computes in bfloat16", "--target ort"];
    planish(["generate", text(&out), "--ids", "1,2"]).exits(4, &unavailable);
    planish(["bench", text(&out), "--batch", "1", "--seq", "4"]).exits(4, &unavailable);
}

#[test]
fn goldens_hold_in_float16() {
    each_golden_holds("--fp16", 0);
}

#[test]
fn more_goldens_hold_in_float16() {
    each_golden_holds("--fp16", 1);
}

#[test]
fn goldens_hold_in_bfloat16() {
    each_golden_holds("--bf16", 0);
}

#[test]
fn more_goldens_hold_in_bfloat16() {
    each_golden_holds("--bf16", 1);
}

#[test]
fn target_ort_stores_half_and_computes_float32() {
    let folder = scratch();
    let out = folder.path().join("out");
    let done = planish_compile(&golden("gpt2"), &out, &["--fp16", "--verify"]).exits(0, &[]);
    assert!(done.stdout.contains("are stored in it; computed in float32"), "{}", done.stdout);
    let graph = planish_onnx::import(&out.join("model.onnx")).unwrap().graph;
    let large = graph.weights().filter(|(_, _, weight)| weight.elements() >= 256);
    assert!(large.into_iter().all(|(_, value, _)| [DType::F16, DType::I64].contains(&value.ty.tensor().dtype)));
    let more = |more: &[&str]| planish_compile(&golden("gpt2"), &folder.path().join("other"), more);
    more(&["--fp16", "--recipe", "io=half"]).exits(2, &["target ort computes in float32", "--target onnx"]);
    let limited = ["--fp16", "--recipe", "max-abs=100", "--calibrate", "data.txt"];
    more(&limited).exits(2, &["target ort computes in float32", "leave out --recipe max-abs"]);
}

#[test]
fn inputs_and_outputs_are_halved_on_request() {
    let folder = scratch();
    let out = folder.path().join("out");
    planish_compile(&golden("llama"), &out, &["--target", "onnx", "--fp16", "--recipe", "io=half", "--verify"])
        .succeeds();
    let manifest = manifest(&out);
    let part = &manifest["parts"][0];
    let types = |ports: &Value| -> Vec<String> {
        let ports = ports.as_array().unwrap().iter();
        ports.map(|port| port["dtype"].as_str().unwrap().to_owned()).filter(|dtype| dtype != "i64").collect()
    };
    assert_eq!(types(&part["inputs"]), vec!["f16"; 4]);
    assert_eq!(types(&part["outputs"]), vec!["f16"; 5]);
    let generate = |folder: &Path| {
        let done = planish(["generate", text(folder), "--ids", "5,6,7", "--max-new-tokens", "5", "--greedy", "--json"]);
        serde_json::from_str::<Value>(&done.succeeds().stdout).unwrap()["ids"].clone()
    };
    let single = folder.path().join("single");
    planish_compile(&golden("llama"), &single, &["--target", "onnx"]).succeeds();
    assert_eq!(generate(&out), generate(&single));
}

#[test]
fn padded_vocabularies_are_halved() {
    let folder = scratch();
    for (name, target) in [("gpt2", "onnx"), ("gpt2", "ort"), ("bert-mlm", "onnx"), ("bert-mlm", "ort"), ("t5", "onnx")]
    {
        for logits in ["sliced", "padded"] {
            let logits = format!("--recipe=logits={logits}");
            let arguments = ["--target", target, "--fp16", "--recipe", "pad-vocab=64", &logits, "--verify", "--force"];
            planish_compile(&golden(name), &folder.path().join("out"), &arguments).exits(0, &[]);
        }
    }
}

/// A checkpoint in bfloat16 goes to float16 by the same evidence, and to bfloat16 without being read.
#[test]
fn checkpoints_in_bfloat16_go_to_either() {
    let folder = scratch();
    let mut draft = Draft::of("llama");
    for stored in draft.tensors.values_mut() {
        assert_eq!(stored.dtype, Dtype::F32);
        stored.dtype = Dtype::BF16;
        stored.bytes = stored.bytes.as_chunks::<4>().0.iter().flat_map(|b| [b[2], b[3]]).collect();
    }
    let norm = draft.tensors.get_mut("model.norm.weight").unwrap();
    // 65536 in bfloat16.
    norm.bytes[..2].copy_from_slice(&0x4780_u16.to_le_bytes());
    let model = draft.write(folder.path().join("model"));
    let out = folder.path().join("out");
    let compile =
        |more: &[&str]| planish_compile(&model, &out, &[&["--verify", "--force"], more].concat()).exits(0, &[]);
    let done = compile(&["--target", "onnx", "--fp16"]);
    assert!(done.stdout.contains("1 of 64 elements of the weight `norm.weight` overflow"), "{}", done.stdout);
    let done = compile(&["--target", "onnx", "--bf16", "--weights", "link", "--debug=strict"]);
    assert!(!done.stdout.contains("float32:"), "{}", done.stdout);
    let manifest = manifest(&out);
    assert_eq!(manifest["linked"], serde_json::json!(["model.safetensors"]));
    // They are stored as they were, which is what was asked for.
    let done = compile(&["--bf16", "--target", "ort"]);
    assert!(!done.stderr.contains("changed nothing"), "{}", done.stderr);
}

#[test]
fn a_checkpoint_in_a_half_type_that_doubles_names_the_option_that_keeps_it() {
    let folder = scratch();
    for (name, dtype, half) in [("bf16", Dtype::BF16, "bf16"), ("fp16", Dtype::F16, "f16")] {
        let mut draft = Draft::of("llama");
        let rows = 16_384;
        draft.config["vocab_size"] = rows.into();
        for (name, stored) in &mut draft.tensors {
            if ["model.embed_tokens.weight", "lm_head.weight"].contains(&name.as_str()) {
                stored.shape[0] = rows;
            }
            stored.dtype = dtype;
            // Equal tables would be stored once.
            let high = if name == "lm_head.weight" { 0x3c } else { 0 };
            stored.bytes = [0, high].repeat(stored.shape.iter().product());
        }
        let model = draft.write(folder.path().join(name));
        let out = folder.path().join("out");
        let expected = format!("weights of {half} are stored as f32, 4.");
        let option = format!("--{name}");
        planish_compile(&model, &out, &[]).exits(0, &[&expected, &format!("({option} stores them as they are)")]);
        let done = planish_compile(&model, &out, &[&option]).exits(0, &[]);
        assert!(!done.stderr.contains("stored as f32"), "{}", done.stderr);
    }
}

#[test]
fn what_is_half_already_is_not_brought_to_the_other_half() {
    let folder = scratch();
    let model = repository().join("fixtures/graphs/optimum-bert-half/model.onnx");
    let compile = |half: &str| planish_compile(&model, &folder.path().join("out"), &["--target", "onnx", half]);
    compile("--bf16").exits(1, &["the model computes in fp16 already"]);
    compile("--fp16").exits(0, &[]);
    let artifact = folder.path().join("out");
    // An artifact is a source as its graph is.
    let again = planish_compile(&artifact, &folder.path().join("again"), &["--target", "onnx", "--bf16"]);
    again.exits(1, &["the model computes in fp16 already"]);
    planish(["verify", text(&artifact.join("model.onnx"))]).exits(1, &["pass the folder of the artifact"]);
}

#[test]
fn what_is_named_stays_in_float32() {
    let folder = scratch();
    let compile = |more: &[&str]| {
        let arguments = [&["--target", "onnx", "--force"], more].concat();
        planish_compile(&golden("bert"), &folder.path().join("out"), &arguments)
    };
    let done = compile(&["--fp16", "--keep", r"layer\.0\.output\.dense=fp32", "--verify"]).succeeds();
    assert!(done.stdout.contains("float32: linear"), "{}", done.stdout);
    assert!(done.stdout.contains(r"asked for by `layer\.0\.output\.dense`"), "{}", done.stdout);
    // A later entry takes what it names out again.
    let keep = ["--keep", r"layer\.0=fp32", "--keep", r"layer\.0\.output\.dense=float"];
    let done = compile(&[&["--fp16"][..], &keep].concat()).succeeds();
    assert!(done.stdout.contains(r"asked for by `layer\.0`"), "{}", done.stdout);
    assert!(!done.stdout.contains("`encoder.layer.0.output.dense`"), "{}", done.stdout);
    let misspelt = ["--keep `outptu.dense`: nothing is named so", "like it are `encoder.layer."];
    compile(&["--fp16", "--keep", "outptu.dense=fp32"]).exits(1, &misspelt);
    compile(&["--fp16", "--keep", "(=fp32"]).exits(2, &["--keep", "unclosed group"]);
    compile(&["--keep", "x=fp32"]).exits(2, &["fp16"]);
    compile(&["--fp16", "--bf16"]).exits(2, &["--precision takes one of fp16 and bf16"]);
    compile(&["--fp16", "--recipe", "max-abs=-1", "--calibrate", "data.txt"])
        .exits(2, &["--recipe max-abs is a positive number"]);
    compile(&["--fp16", "--recipe", "max-abs=5"]).exits(2, &["--calibrate"]);
}

/// The mean of a text's token embeddings, as sentence-transformers pools this model.
fn embedding(session: &mut dyn Session, tokenizer: &Tokenizer, text: &str) -> Vec<f64> {
    let encoded = tokenizer.encode(text, true).unwrap();
    let row = |ids: &[u32]| Tensor::new(vec![1, ids.len()], ids.iter().map(|id| i64::from(*id)).collect::<Vec<_>>());
    let ids = row(encoded.get_ids()).unwrap();
    let [mask, types] = [1, 0].map(|value| row(&vec![value; encoded.len()]).unwrap());
    let inputs = [("input_ids", ids), ("attention_mask", mask), ("token_type_ids", types)];
    let outputs = session.run(&inputs).unwrap();
    let (_, hidden) = outputs.iter().find(|(name, _)| name == "last_hidden_state").unwrap();
    let (tokens, width) = (hidden.shape()[1], hidden.shape()[2]);
    let numbers = hidden.to_f64();
    (0..width).map(|at| (0..tokens).map(|token| numbers[token * width + at]).sum::<f64>() / tokens as f64).collect()
}

#[test]
fn sentence_embeddings_hold_in_float16() {
    let minilm = repository().join(".deps/minilm");
    // The file says how long and how texts are padded; here each is alone.
    let mut tokenizer = Tokenizer::from_file(minilm.join("tokenizer.json")).unwrap();
    tokenizer.with_padding(None);
    let folder = scratch();
    let load = |name: &str, more: &[&str]| {
        let out = folder.path().join(name);
        planish_compile(&minilm, &out, more).exits(0, &[]);
        let file = out.join("model.onnx");
        // The interpreter rounds each result.
        let half = more.contains(&"--fp16");
        let runtime: Box<dyn Runtime> =
            if half { Box::new(ReferenceRuntime::default()) } else { Box::new(onnx_runtime()) };
        (runtime.load(Model::onnx(&file), SessionOptions::default()).unwrap(), fs::metadata(&file).unwrap().len())
    };
    let (mut single, bytes) = load("single", &["--target", "onnx"]);
    let (mut half, half_bytes) = load("half", &["--target", "onnx", "--fp16"]);
    let share = half_bytes as f64 / (bytes as f64 / 2.0);
    assert!((share - 1.0).abs() < 0.01, "{half_bytes} of {bytes} bytes");
    let texts = fs::read_to_string(repository().join("fixtures/data/sentences.txt")).unwrap();
    assert_eq!(texts.lines().count(), 200);
    let worst = texts.lines().map(|text| {
        let [a, b] = [&mut single, &mut half].map(|session| embedding(session.as_mut(), &tokenizer, text));
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt()
    });
    let worst = worst.fold(1.0, f64::min);
    println!("200 texts: least cosine {worst:.7}; {half_bytes} of {bytes} bytes");
    assert!(worst >= 0.9999, "{worst}");
}
