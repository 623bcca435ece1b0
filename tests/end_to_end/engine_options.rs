//! Options of the builder of engines from the command line: those that cannot be, those that need a GPU, and what becomes of
//! an artifact whose engines are not built.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Done, golden, names, planish, planish_compile, scratch, text};

/// A golden compiled for TensorRT.
fn compiled(name: &str, out: &Path, more: &[&str]) -> Done {
    planish_compile(&golden(name), out, &[&["--target", "trt"], more].concat())
}

/// Changes a JSON file.
fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut document: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut document);
    fs::write(path, document.to_string()).unwrap();
}

const NOWHERE: [&str; 2] = ["--runtime-option", "trt-lib=/nonexistent"];

#[test]
fn shapes_in_a_wrong_form_are_errors_of_usage() {
    let folder = scratch();
    let out = folder.path().join("out");
    compiled("bert", &out, &["--shapes", "batch_size:1:8:32"])
        .exits(2, &["NAME=SIZExSIZE for the shape of an input", "SYMBOL=MIN:OPT:MAX for the sizes of an engine"]);
    compiled("bert", &out, &["--shapes", "input_ids=1x16"])
        .exits(2, &["--shapes input_ids", "is for ONNX graphs", "batch_size=1,sequence_length=128"]);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn the_command_that_builds_the_engines_has_their_options() {
    let folder = scratch();
    let out = folder.path().join("an artifact");
    let more = [
        "--recipe=engine.workspace=1G",
        "--recipe=engine.tf32=true",
        "--recipe=engine.tiling=fast",
        "--recipe=engine.trt-flags=STRICT_NANS,DEBUG",
        "--recipe=engine.keep-onnx=true",
    ];
    let done = compiled("bert", &out, &[&NOWHERE[..], &more].concat()).exits(4, &[]);
    let command = format!(
        "`planish build-engine '{}' --workspace 1024MiB --tf32 --tiling fast --trt-flags STRICT_NANS,DEBUG --keep-onnx`",
        out.display()
    );
    assert!(done.stderr.contains(&command), "{}", done.stderr);
    let lines: Vec<&str> = done.stderr.lines().collect();
    assert!(lines[0].starts_with("warning: ") && lines[0].ends_with("and no engine"), "{lines:?}");
    let error = lines.iter().position(|line| line.starts_with("error: the builder of engines is unavailable")).unwrap();
    assert!(lines.last().unwrap().contains(&command) && error + 1 < lines.len(), "the cause comes first: {lines:?}");
}

#[test]
fn profiles_that_were_edited_have_to_fit_the_model() {
    let folder = scratch();
    let out = folder.path().join("out");
    compiled("bert", &out, &NOWHERE).exits(4, &[]);
    let path = out.join("profiles.json");
    let written = fs::read(&path).unwrap();
    let build = || planish(["build-engine", text(&out), "--runtime-option", "trt-lib=/nonexistent"]);
    let cases: [(&str, Value, &str); 5] = [
        ("/parts/0/name", "other".into(), "it has profiles of `other`"),
        ("/parts/0/profiles", Value::Array(Vec::new()), "it has no profile of `model`"),
        ("/parts/0/profiles/0/symbols/batch_size/max", 0.into(), "do not rise from MIN over OPT to MAX"),
        (
            "/parts/0/profiles/0/symbols/batch_size/max",
            16.into(),
            "the shapes of `input_ids` that follow from the symbols",
        ),
        ("/parts/0/profiles/0/inputs/1/name", "nothing".into(), "the shapes of `attention_mask`"),
    ];
    for (pointer, value, reason) in cases {
        edit(&path, |document| *document.pointer_mut(pointer).unwrap() = value);
        build().exits(1, &["profiles.json does not fit the model", reason, "--shapes"]);
        fs::write(&path, &written).unwrap();
    }
    build().exits(4, &[]);
    fs::remove_file(&path).unwrap();
    build().exits(1, &["give the sizes with --shapes", "cannot read", "profiles.json"]);
}

#[cfg(all(feature = "tensorrt-rtx", not(feature = "tensorrt")))]
mod built {
    use planish_runtimes::tensorrt::devices;

    use super::*;
    use crate::support::skipped;

    #[test]
    fn options_that_cannot_be_are_refused_first() {
        let folder = scratch();
        let out = folder.path().join("out");
        let cases: [(&[&str], &str); 4] = [
            (&["--recipe=engine.gpu=sm75"], "no products of float32 for --gpu sm75; it has them for sm80, sm86"),
            (&["--recipe=engine.gpu=sm89,sm75", "--bf16"], "no products of bfloat16 for --gpu sm75"),
            (
                &["--recipe=engine.gpu=sm80", "--fp8", "--calibrate", "fixtures/data/sentences.txt"],
                "no products of FP8 for --gpu sm80",
            ),
            (&["--recipe=engine.version-compatible=true"], "which has no lean runtime"),
        ];
        for (options, reason) in cases {
            compiled("bert", &out, options).exits(2, &[reason]);
        }
        assert_eq!(names(folder.path()), [""; 0]);
        let done = compiled("bert", &out, &[&NOWHERE[..], &["--bf16"]].concat()).exits(4, &[]);
        assert!(!done.stderr.contains("cannot load the artifact"), "{}", done.stderr);
        planish(["build-engine", text(&out), "--gpu", "sm75"]).exits(2, &["no products of bfloat16"]);
        compiled("bert", &out, &["--recipe=engine.gpu=sm75", "--fp16"]).exits(0, &[]);
    }

    #[test]
    fn what_the_builder_refuses_leaves_the_graph() {
        let folder = scratch();
        let out = folder.path().join("out");
        let options = ["--recipe=engine.gpu=sm89", "--fp16", "--recipe=engine.workspace=1M"];
        let reason = "--workspace 1MiB is too small for this model";
        compiled("bert", &out, &options).exits(1, &[reason, "no engine", "--gpu sm89 --workspace 1MiB` builds it"]);
        let kept = names(&out);
        assert!(kept.iter().any(|name| name == "model.onnx"), "{kept:?}");
        assert!(!kept.iter().any(|name| name.contains("engine") || name.contains("layers")), "{kept:?}");
        planish(["build-engine", text(&out), "--gpu", "sm89"]).exits(0, &[]);
        // An artifact with engines stays.
        compiled("bert", &out, &options).exits(1, &[reason]);
        assert!(out.join("model.engine").exists());
    }

    #[test]
    fn engines_are_not_replaced_by_nothing() {
        let folder = scratch();
        let out = folder.path().join("out");
        compiled("bert", &out, &["--recipe=engine.gpu=sm89", "--fp16"]).exits(0, &[]);
        let before = names(&out);
        let refused = compiled("bert", &out, &NOWHERE).exits(4, &["no TensorRT-RTX", "has engines", "--force"]);
        assert!(!refused.stderr.contains("warning"), "{}", refused.stderr);
        assert_eq!(names(&out), before);
        compiled("bert", &out, &[&NOWHERE[..], &["--force"]].concat()).exits(4, &["no engine"]);
        assert!(!out.join("model.engine").exists());
    }

    #[test]
    fn weights_that_can_be_replaced_need_a_gpu() {
        if devices().is_ok() {
            return skipped("a GPU is there");
        }
        let folder = scratch();
        for (option, name) in [("--refit", "refit"), ("--strip-weights", "strip")] {
            let out = folder.path().join(name);
            let build = format!("build-engine {} --gpu sm89 {option}`", text(&out));
            compiled("bert", &out, &["--recipe=engine.gpu=sm89", &format!("--recipe=engine.{}=true", &option[2..])])
                .exits(
                    4,
                    &[
                        &format!("the builder needs a GPU for {option}, and there is no CUDA driver"),
                        &format!("leave out {option}, or build on a machine with an NVIDIA GPU"),
                        &build,
                    ],
                );
        }
    }

    #[test]
    fn an_engine_without_weights_does_not_run() {
        let folder = scratch();
        let out = folder.path().join("out");
        compiled("bert", &out, &["--recipe=engine.gpu=sm89", "--fp16", "--recipe=engine.keep-onnx=true"]).exits(0, &[]);
        edit(&out.join("planish.json"), |manifest| manifest["parts"][0]["engine"]["stripped"] = true.into());
        let inputs = folder.path().join("inputs.safetensors");
        fs::write(&inputs, b"\x02\0\0\0\0\0\0\0{}").unwrap();
        planish(["run", text(&out), "--inputs", text(&inputs)])
            .exits(1, &["engine of model without its weights", "planish refit-engine"]);
        planish(["verify", text(&out), "--runtime", "ort"]).exits(0, &[]);
    }

    /// The commands are all of the output, with the same paths however the folder is named.
    #[test]
    fn commands_of_nvidias_tool_are_alone() {
        let folder = scratch();
        let out = folder.path().join("out");
        compiled("bert", &out, &["--recipe=engine.gpu=sm89", "--fp16", "--recipe=engine.keep-onnx=true"]).exits(0, &[]);
        let first = planish(["build-engine", text(&out), "--gpu", "sm89", "--keep-onnx", "--print-trtexec"]);
        let first = first.exits(0, &[]).stdout;
        assert_eq!(first.lines().count(), 1, "{first}");
        let again = std::process::Command::new(env!("CARGO_BIN_EXE_planish"))
            .current_dir(folder.path())
            .args(["build-engine", "out", "--gpu", "sm89", "--keep-onnx", "--print-trtexec"])
            .output()
            .unwrap();
        assert_eq!(Done::from(again).exits(0, &[]).stdout, first);
    }

    #[test]
    fn layers_of_several_profiles_name_theirs() {
        let folder = scratch();
        let out = folder.path().join("out");
        let done = compiled("gpt2", &out, &["--recipe=engine.gpu=sm89", "--fp16"]).exits(0, &[]);
        assert_eq!(done.stdout.matches("peak memory of the process").count(), 1, "{}", done.stdout);
        let shown = planish(["inspect", text(&out)]).succeeds().stdout;
        let rows: Vec<&str> = shown.lines().filter(|line| line.starts_with("| ")).collect();
        assert!(rows[0].starts_with("| profile | layer"), "{}", rows[0]);
        for profile in ["| 0 ", "| 1 "] {
            assert!(rows.iter().filter(|row| row.starts_with(profile)).count() > 10, "{shown}");
        }
        assert!(rows[1..].iter().all(|row| !row.contains("|  -> ")), "{shown}");
    }

    #[test]
    fn the_builder_is_listed_with_the_runtimes() {
        let listed = planish(["runtimes"]).succeeds().stdout;
        assert!(listed.contains("builder: TensorRT-RTX 1."), "{listed}");
        let listed: Value = serde_json::from_str(&planish(["runtimes", "--json"]).succeeds().stdout).unwrap();
        let trt = listed.as_array().unwrap().iter().find(|entry| entry["name"] == "trt").unwrap();
        assert_eq!(trt["builder"]["product"], "TensorRT-RTX");
        let without = planish(["runtimes", "--runtime-option", "trt-lib=/nonexistent"]).succeeds().stdout;
        assert!(!without.contains("builder: "), "{without}");
    }
}
