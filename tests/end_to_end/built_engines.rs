//! Engines that TensorRT-RTX builds on machines without a GPU.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use planish_runtimes::tensorrt::{Capability, Plan, devices};
use serde_json::{Value, json};

use crate::engine::{ranges, read, without_library};
use crate::support::{Done, golden, names, planish, planish_compile, scratch, text};

/// A golden compiled for one GPU, in half precision.
fn compiled(name: &str, out: &Path, more: &[&str]) -> Done {
    planish_compile(&golden(name), out, &[&["--target", "trt", "--fp16", "--recipe=engine.gpu=sm89"], more].concat())
}

#[test]
fn an_artifact_has_an_engine_in_place_of_its_graph() {
    let folder = scratch();
    let out = folder.path().join("out");
    let done = compiled("bert", &out, &["--verify"]).exits(0, &[]);
    assert!(done.stdout.contains("model.engine") && done.stdout.contains("verified"), "{}", done.stdout);
    assert!(done.stderr.contains("the ONNX graph was run, of which the engine is built"), "{}", done.stderr);
    assert_eq!(
        names(&out),
        ["README.md", "config.json", "model.engine", "model.layers.json", "planish.json", "profiles.json"]
    );
    let plan = Plan::read(&out.join("model.engine")).unwrap();
    assert_eq!(plan.capabilities, [Capability::Sm89]);
    let manifest = read(&out.join("planish.json"));
    let engine = &manifest["parts"][0]["engine"];
    assert_eq!((&engine["bytes"], &engine["version"]), (&json!(plan.bytes), &json!(plan.version.to_string())));
    assert_eq!((&engine["profiles"], &engine["capabilities"]), (&json!(1), &json!(["sm89"])));
    assert_eq!(engine["layers"]["attentions"], json!(2));
    assert_eq!(manifest["parts"][0]["files"], json!(["model.engine"]));
    planish(["verify", text(&out), "--runtime", "ort"])
        .exits(1, &["has the engine of model and no ONNX file", "keep-onnx"]);
    if devices().is_err() {
        for command in ["verify", "bench"] {
            planish([command, text(&out)]).exits(4, &["there is no CUDA driver", "--runtime ort"]);
        }
    }
    // What planish wrote is replaced without --force.
    compiled("bert", &out, &["--recipe=engine.keep-onnx=true"]).exits(0, &[]);
    assert!(out.join("model.onnx").exists());
    planish(["verify", text(&out), "--runtime", "ort"]).exits(0, &[]);
    let before = names(&out);
    if devices().is_err() {
        planish(["refit-engine", text(&out)]).exits(4, &["cannot put weights", "there is no CUDA driver"]);
    }
    planish(["refit-engine", text(&out), "--runtime-option", "trt-lib=/nonexistent"]).exits(4, &["no TensorRT-RTX"]);
    assert_eq!((names(folder.path()), names(&out)), (vec!["out".to_owned()], before));
}

#[test]
fn options_of_the_other_product_are_refused_by_name() {
    let folder = scratch();
    let out = folder.path().join("out");
    compiled("bert", &out, &["--recipe=engine.hardware-compatibility=ampere+"])
        .exits(2, &["--hardware-compatibility is an option of TensorRT", "--gpu"]);
    compiled("bert", &out, &["--recipe=engine.hardware-compatibility=hopper"])
        .exits(2, &["there are none, ampere+, same"]);
    assert_eq!(names(folder.path()), [""; 0]);
    planish(["bench", "--runtime-option", "weight-streaming-budget=200%"]).exits(2, &["a share such as 25%"]);
}

/// Attention without a cache is one kernel between casts to float32; with a cache it is two products in float32.
#[test]
fn attention_in_float32() {
    let folder = scratch();
    let layers = |name: &str, more: &[&str]| {
        let out = folder.path().join(name);
        compiled(name, &out, &[&["--recipe=attention-fp32=true"], more].concat()).exits(0, &[]);
        let manifest = read(&out.join("planish.json"));
        assert_eq!(manifest["attention_fp32"], json!(true));
        let record = read(&out.join("model.layers.json"));
        let kernels = record["layers"].as_array().unwrap().iter();
        let fused = kernels.filter(|layer| layer["name"].as_str().unwrap().contains("mha")).cloned();
        (manifest["opset"].clone(), fused.collect::<Vec<_>>())
    };
    let (opset, fused) = layers("bert", &["--verify"]);
    assert_eq!((opset, fused.len()), (json!(23), 2));
    let (inputs, nodes) = (&fused[0]["inputs"], &fused[0]["nodes"]);
    assert_eq!(
        (inputs, nodes),
        (&json!(["Half", "Half", "Half", "Half"]), &json!(["encoder.layer.0.attention/foreign"]))
    );
    assert_eq!(layers("bert", &["--opset", "20"]).1, [Value::Null; 0], "products");
    assert_eq!(layers("gpt2", &["--verify"]).1, [Value::Null; 0], "products");
}

/// TensorRT does not give the same bytes each time; all that planish writes of it but the figures of the build is the
/// same.
#[test]
fn two_builds_have_the_same_manifest() {
    let folder = scratch();
    let manifest = |name: &str| {
        let out = folder.path().join(name);
        compiled("bert", &out, &[]).exits(0, &[]);
        let mut manifest = read(&out.join("planish.json"));
        for size in ["/files/0/bytes", "/parts/0/engine/bytes"] {
            *manifest.pointer_mut(size).unwrap() = Value::Null;
        }
        (manifest, fs::read(out.join("profiles.json")).unwrap())
    };
    assert_eq!(manifest("one"), manifest("two"));
}

#[test]
fn a_build_finishes_what_another_machine_began() {
    let folder = scratch();
    let out = folder.path().join("out");
    without_library("gpt2", &out, &["--fp16"]).exits(4, &[]);
    let build = |more: &[&str]| planish([&["build-engine", text(&out), "--gpu", "sm89"], more].concat());
    build(&["--keep-onnx"]).exits(0, &[]);
    let engine = |out: &Path| read(&out.join("planish.json"))["parts"][0]["engine"].clone();
    assert_eq!(engine(&out)["profiles"], json!(2));
    let shapes = "batch_size=1,past_sequence_length=0:1:63,sequence_length=1";
    let done = build(&["--shapes", shapes, "--json"]).exits(0, &[]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(document["engines"][0]["seconds"].as_f64().unwrap() > 0.0);
    assert_eq!(engine(&out)["profiles"], json!(1));
    assert_eq!(ranges(&out)["model"], ["batch_size=1:1:1,past_sequence_length=0:1:63,sequence_length=1:1:1"]);
    assert_eq!(names(folder.path()), ["out"]);
    assert!(out.join("model.onnx").exists(), "they were kept beside the engine");
    without_library("gpt2", &out, &["--fp16", "--force"]).exits(4, &[]);
    build(&[]).exits(0, &[]);
    assert!(!out.join("model.onnx").exists());
    let done = build(&["--print-trtexec"]).exits(1, &["no ONNX file of it", "keep-onnx"]);
    assert_eq!(done.stdout, "");
    build(&[]).exits(1, &["no ONNX file of it", "keep-onnx"]);
}

#[test]
fn all_parts_have_engines() {
    let folder = scratch();
    let out = folder.path().join("out");
    compiled("t5", &out, &[]).exits(0, &[]);
    let engines = names(&out).into_iter().filter(|name| name.ends_with(".engine")).collect::<Vec<_>>();
    assert_eq!(engines, ["decoder_model.engine", "decoder_with_past_model.engine", "encoder_model.engine"]);
}

#[test]
fn engines_are_inspected() {
    let folder = scratch();
    let out = folder.path().join("out");
    compiled("bert", &out, &[]).exits(0, &[]);
    let engine = out.join("model.engine");
    for path in [&out, &engine] {
        let shown = planish(["inspect", text(path)]).succeeds().stdout;
        for part in ["runs on    sm89", "batch_size=1:1:32, sequence_length=1:32:32", "fused attentions: 2", "gemm"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        // Names of generated kernels have hundreds of characters.
        assert!(shown.lines().all(|line| line.chars().count() <= 180), "{shown}");
    }
    let shown = planish(["inspect", text(&out), "--json"]).succeeds().stdout;
    let document: Value = serde_json::from_str(&shown).unwrap();
    let layers = document["engines"][0]["build"]["layers"].as_array().unwrap();
    let attention = layers.iter().find(|layer| layer["name"].as_str().unwrap().contains("mha")).unwrap();
    let nodes: Vec<&str> = attention["nodes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(nodes.contains(&"encoder.layer.0.attention/softmax"), "{nodes:?}");
    // Alone it has its header.
    let alone = folder.path().join("alone.engine");
    fs::copy(&engine, &alone).unwrap();
    let shown = planish(["inspect", text(&alone)]).succeeds().stdout;
    assert!(shown.contains("sm89") && shown.contains("not known"), "{shown}");
    let bytes = fs::read(&engine).unwrap();
    fs::write(&alone, &bytes[..bytes.len() / 2]).unwrap();
    planish(["inspect", text(&alone)]).exits(1, &["alone.engine", "not whole"]);
    fs::write(&alone, b"something else").unwrap();
    planish(["inspect", text(&alone)]).exits(1, &["alone.engine", "no engine of TensorRT-RTX"]);
    fs::write(&engine, &bytes[..bytes.len() / 2]).unwrap();
    planish(["inspect", text(&out)]).exits(1, &["model.engine", "cut off"]);
}

/// A limit on the size of files behaves as a disk that fills up: it has room for the graph and not for the engine.
#[test]
fn an_engine_that_cannot_be_written() {
    let folder = scratch();
    let out = folder.path().join("out");
    let limited = |command: &str| {
        let script = format!("trap '' XFSZ; ulimit -f 1000; exec \"$0\" {command}");
        let binary = Path::new(env!("CARGO_BIN_EXE_planish"));
        let done = Command::new("sh").args(["-c", &script]).args([binary, &golden("bert"), &out]).output().unwrap();
        Done::from(done).exits(1, &["cannot write", "model.engine", "File too large"])
    };
    limited("compile \"$1\" -o \"$2\" --target trt --recipe engine.gpu=sm89");
    assert_eq!(names(folder.path()), [""; 0]);
    without_library("bert", &out, &[]).exits(4, &[]);
    let kept = names(&out);
    limited("build-engine \"$2\" --gpu sm89");
    assert_eq!(names(folder.path()), ["out"]);
    assert_eq!(names(&out), kept);
}

/// While the second of three engines is built, the files of the first are there.
#[test]
fn a_signal_ends_a_build_at_once() {
    let folder = scratch();
    let out = folder.path().join("out");
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_planish"), "compile", text(&golden("t5"))]);
    command
        .args(["--target", "trt", "--recipe=engine.gpu=sm89", "-o", text(&out)])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let begun = || {
        let entries = fs::read_dir(folder.path()).unwrap().flatten();
        entries.map(|entry| entry.path()).any(|draft| draft.join("decoder_model.engine").exists())
    };
    let start = Instant::now();
    while !begun() {
        assert!(child.try_wait().unwrap().is_none() && start.elapsed() < Duration::from_secs(60));
    }
    let sent = Instant::now();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(sent.elapsed() < Duration::from_secs(5), "{:?}", sent.elapsed());
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn commands_of_nvidias_tool() {
    let folder = scratch();
    let out = folder.path().join("an artifact");
    let more = [
        "--gpu",
        "sm89",
        "--print-trtexec",
        "--keep-onnx",
        "--workspace",
        "1GiB",
        "--builder-optimization-level",
        "2",
        "--sparse-weights",
        "--max-aux-streams",
        "1",
        "--tiling",
        "fast",
        "--trt-flags",
        "STRICT_NANS,MONITOR_MEMORY",
        "--shapes",
        "batch_size=1:2:4,sequence_length=8",
    ];
    compiled("bert", &out, &["--recipe=engine.keep-onnx=true"]).exits(0, &[]);
    let done = planish([&["build-engine", text(&out)], &more[..]].concat()).exits(0, &[]);
    let lines: Vec<&str> = done.stdout.lines().collect();
    let at = out.display();
    let shapes = |name: &str, rows: u32| {
        let inputs = ["input_ids", "attention_mask", "token_type_ids"].map(|input| format!("{input}:{rows}x8"));
        format!("--{name}Shapes={}", inputs.join(","))
    };
    let expected = format!(
        "tensorrt_rtx '--onnx={at}/model.onnx' {} {} {} --computeCapabilities=89 --memPoolSize=workspace:1024 \
         --builderOptimizationLevel=2 --noTF32 --sparsity=enable --maxAuxStreams=1 --tilingOptimizationLevel=1 \
         --monitorMemory --profilingVerbosity=detailed '--saveEngine={at}/model.trtexec.engine' --skipInference",
        shapes("min", 1),
        shapes("opt", 2),
        shapes("max", 4),
    );
    assert_eq!(lines, [expected.as_str(), "# the tool has no option for STRICT_NANS"]);
}
