//! Arguments and what is printed where.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use planish_ir::WeightSource;
use planish_ir::text::parse;
use planish_models::Checkpoint;
use serde_json::Value;

use crate::support::{Done, command, golden, names, planish, planish_compile, scratch, text};

#[test]
fn what_does_not_exist_is_a_usage_error_that_lists_what_does() {
    let folder = scratch();
    let usage = |more: &[&str], parts: &[&str]| {
        let done = planish_compile(&golden("bert"), &folder.path().join("out"), more).exits(2, parts);
        assert_eq!(done.stdout, "");
        assert_eq!(names(folder.path()), [""; 0]);
    };
    usage(&["--target", "tpu"], &["`tpu`", "onnx, ort"]);
    usage(&["--task", "transcription"], &["`transcription`", "fill-mask", "question-answering"]);
    usage(&["--opset", "16"], &["16", "17..=28"]);
    usage(&["--opset", "29"], &["29", "17..=28"]);
    usage(&["--weights", "symlink"], &["symlink", "copy, link"]);
    usage(&["--debug", "print=polish"], &["no pass `polish`", "planish passes"]);
    usage(&["--debug", "stop=some"], &["some"]);
    usage(&["--threads", "0"], &["0", "--threads"]);
    usage(&["--faster"], &["--faster"]);
    planish(["compile"]).exits(2, &["<MODEL>"]);
    planish(["passes", "polish"]).exits(2, &["no pass `polish`"]);
    planish(["completions", "nosh"]).exits(2, &["nosh", "bash", "fish", "zsh"]);
    planish(["polish"]).exits(2, &["polish"]);
    planish([""; 0]).exits(2, &["Usage: planish"]);
}

/// The task exists, but not for this model: no matter of usage.
#[test]
fn heads_that_a_checkpoint_lacks_are_failures() {
    let folder = scratch();
    planish_compile(&golden("bert"), &folder.path().join("out"), &["--task", "question-answering"])
        .exits(1, &["qa_outputs", "is missing", "BertModel", "question-answering"]);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn json_is_the_artifact_with_its_manifest_and_nothing_else() {
    let folder = scratch();
    let out = folder.path().join("out");
    let more = ["--json", "--verify", "--target", "onnx", "--opset", "18", "--no-fusion"];
    let done = planish_compile(&golden("distilbert-qa"), &out, &more).succeeds();
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(document["artifact"], out.to_str().unwrap());
    let manifest = &document["manifest"];
    let written = std::fs::read(out.join("planish.json")).unwrap();
    assert_eq!(*manifest, serde_json::from_slice::<Value>(&written).unwrap());
    assert_eq!((&manifest["task"], &manifest["target"]), (&"question-answering".into(), &"onnx".into()));
    assert_eq!((&manifest["opset"], &manifest["fusion"]), (&18.into(), &false.into()));
    assert_eq!(manifest["files"][0]["bytes"], std::fs::metadata(out.join("model.onnx")).unwrap().len());
    assert_eq!(manifest["source"]["name"], "distilbert-qa");
    assert_eq!(manifest["companions"], serde_json::json!(["config.json", "README.md"]));
}

#[test]
fn the_output_folder_is_named_after_model_and_target() {
    let folder = scratch();
    let compile = |target: &str| {
        let mut command = command([Path::new("compile"), &golden("bert"), Path::new("--target"), Path::new(target)]);
        Done::from(command.current_dir(folder.path()).output().unwrap()).succeeds()
    };
    assert!(compile("onnx").stdout.starts_with("bert-onnx: bert for feature-extraction"));
    compile("ort");
    assert_eq!(names(folder.path()), ["bert-onnx", "bert-ort"]);
    let genai = ["compile", golden("gpt2").to_str().unwrap(), "--package", "genai"].map(str::to_owned);
    Done::from(command(genai).current_dir(folder.path()).output().unwrap()).exits(0, &[]);
    assert_eq!(names(folder.path()), ["bert-onnx", "bert-ort", "gpt2-ort-genai"]);
}

#[test]
fn what_is_replaced_is_said() {
    let folder = scratch();
    let out = folder.path().join("out");
    let compile = |more: &[&str]| planish_compile(&golden("bert"), &out, more).succeeds().stdout;
    assert!(!compile(&["--target", "onnx", "--opset", "18"]).contains("replaced"));
    let replaced = "\n  replaced an artifact of bert: bert for feature-extraction, target onnx, opset 18\n";
    assert!(compile(&[]).contains(replaced));
}

/// A sentence model, whose pooling the task feature-extraction leaves out with a note.
const WITHOUT_MODULES: [&str; 2] = ["--task", "feature-extraction"];

#[test]
fn pooling_that_is_left_out_is_noted() {
    let folder = scratch();
    let compile = |more: &[&str]| {
        let options = [&["--debug=strict", "--force"], more].concat();
        planish_compile(&golden("bert-sentence"), &folder.path().join("out"), &options).exits(0, &[])
    };
    let note = "note: the modules of modules.json are not in the graph: the task feature-extraction gives vectors of tokens, and \
                sentence-similarity that of a text\n";
    assert_eq!(compile(&WITHOUT_MODULES).stderr, note);
    let done = compile(&[]);
    assert_eq!(done.stderr, "");
    assert!(done.stdout.contains("bert for sentence-similarity"), "{}", done.stdout);
    let out = folder.path().join("out");
    for name in ["modules.json", "sentence_bert_config.json", "1_Pooling/config.json"] {
        let copied = std::fs::read(out.join(name)).unwrap();
        assert_eq!(copied, std::fs::read(golden("bert-sentence").join(name)).unwrap(), "{name}");
    }
}

#[test]
fn pooling_is_asked_for_by_a_recipe() {
    let folder = scratch();
    let out = folder.path().join("out");
    let compile = |more: &[&str]| planish_compile(&golden("bert"), &out, &[&["--force"], more].concat());
    let done = compile(&["--recipe", "pooling=mean,normalize", "--verify"]).succeeds();
    assert!(done.stdout.contains("bert for sentence-similarity"), "{}", done.stdout);
    // The manifest says how the source is loaded again.
    planish(["verify", text(&out), "--reference", text(&golden("bert"))]).succeeds();
    compile(&["--recipe", "pooling=median"]).exits(2, &["`median` is no pooling", "weightedmean", "`,normalize`"]);
    compile(&["--recipe", "pooling=mean", "--task", "fill-mask"]).exits(1, &["is for the task sentence-similarity"]);
    let again = planish_compile(&out, &folder.path().join("again"), &["--recipe", "pooling=cls"]);
    again.exits(1, &["pooling (cls) is for checkpoints", "compile the checkpoint"]);
    compile(&["--task", "sentence-similarity"]).exits(1, &["modules.json is not there", "pooling=mean"]);
}

/// As people write the names of models on the hub.
#[test]
fn what_is_neither_here_nor_a_name_of_the_hub_is_told() {
    let folder = scratch();
    let compile = |model: &str| Done::from(command(["compile", model]).current_dir(folder.path()).output().unwrap());
    compile("gpt2").exits(1, &["gpt2", "a model of the Hugging Face hub is named OWNER/NAME"]);
    compile("openai/gpt2").exits(1, &["openai/gpt2", "name of the hub", "hf download"]);
    for path in ["model.safetensors", "./gpt2", "/gpt2"] {
        let done = compile(path).exits(1, &[path, "No such file"]);
        assert!(!done.stderr.contains("hf download"), "{}", done.stderr);
    }
}

#[test]
fn graphs_are_printed_beside_the_output() {
    let folder = scratch();
    let out = folder.path().join("out");
    let done = planish_compile(&golden("bert"), &out, &["--json", "--debug", "print=dead-code"]).exits(0, &[]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let passes = document["manifest"]["parts"][0]["passes"].as_array().unwrap();
    let runs = passes.iter().filter(|pass| pass["name"] == "dead-code").count();
    assert!(runs > 0);
    assert_eq!(done.stderr.matches("// after dead-code\ngraph \"bert\" {\n").count(), runs);
    assert!(done.stderr.contains("output last_hidden_state = "), "{}", done.stderr);
    let model = golden("bert");
    let done = planish(["compile", model.to_str().unwrap(), "--debug", "print=fold", "--debug", "stop=1"]);
    assert!(!done.stdout.is_empty());
    let first = done.stdout.lines().next().unwrap().strip_prefix("// ").unwrap().to_owned();
    let note = format!(
        "note: --debug print=fold printed no graph, because pass fold did not run; these passes ran: {first}\n"
    );
    assert_eq!(done.exits(0, &[]).stderr, note);
    let done = planish_compile(&golden("bert"), &out, &["--no-fusion", "--debug", "print=halve"]);
    done.exits(0, &["note: --debug print=halve printed no graph", "these passes ran: ", "dead-code"]);
}

#[test]
fn stop_after_prints_the_graph_and_writes_nothing() {
    let (folder, checkpoint) = (scratch(), Checkpoint::open(&golden("bert")).unwrap());
    let printed = |passes: &str| {
        let stop = format!("--debug=stop={passes}");
        let arguments = [Path::new("compile"), &golden("bert"), Path::new(&stop)];
        let done = command(arguments).current_dir(folder.path()).output().unwrap();
        let text = Done::from(done).succeeds().stdout;
        let weights: Arc<dyn WeightSource> = checkpoint.weight_files()[0].clone();
        parse(&text, &|_| Ok(weights.clone())).unwrap_or_else(|e| panic!("{e}: {text}"));
        let passes = text.lines().take_while(|line| line.starts_with("// ")).count();
        assert!(text.lines().nth(passes).unwrap().starts_with("graph \"bert\" {"), "{text}");
        (passes, text)
    };
    let (none, canonical) = printed("0");
    assert!(none == 0 && canonical.contains("attention"), "{canonical}");
    let (two, after) = printed("2");
    assert!(two == 2 && after.starts_with("// identities\n// fold\n"), "{after}");
    let (all, lowered) = printed("999");
    assert!(all > two && lowered.contains("softmax") && !canonical.contains("softmax"), "{lowered}");
    assert_eq!(names(folder.path()), [""; 0]);
    for option in ["--verify", "--json", "--force", "--output=x", "--weights=link"] {
        let name = option.split('=').next().unwrap();
        let done = planish(["compile", golden("bert").to_str().unwrap(), "--debug", "stop=1", option]);
        done.exits(2, &["--debug stop=N writes nothing", name]);
    }
}

#[test]
fn passes_are_listed_and_documented() {
    let list = planish(["passes"]).succeeds().stdout;
    let listed: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(listed, planish_passes::PASSES.iter().map(|pass| pass.name).collect::<Vec<_>>());
    for name in listed {
        let text = planish(["passes", name]).succeeds().stdout;
        assert!(text.starts_with(&format!("{name}: ")), "{text}");
        assert!(
            ["\n\nnumerics: ", "\n\nbefore (target ", "\n\nafter:\n"].iter().all(|part| text.contains(part)),
            "{text}"
        );
    }
}

#[test]
fn completions_name_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = planish(["completions", shell]).succeeds().stdout;
        let commands = ["compile", "verify", "run", "bench", "runtimes", "passes", "completions"];
        assert!(commands.iter().all(|name| script.contains(name)), "{shell}: {script}");
    }
}

#[test]
fn help_names_the_exit_codes() {
    let help = planish(["--help"]).succeeds().stdout;
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("3 verification failed, or bench diff found a slowdown; 4 the requested runtime"), "{help}");
    let version = planish(["--version"]).succeeds().stdout;
    assert_eq!(version, concat!("planish ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn the_short_help_is_one_screen_and_the_long_one_is_whole() {
    let short = planish(["compile", "-h"]).succeeds().stdout;
    assert!(short.lines().count() <= 50, "{short}");
    assert!(short.contains("--int8") && !short.contains("--debug"), "{short}");
    let long = planish(["compile", "--help"]).succeeds().stdout;
    assert!(long.contains("--debug") && long.lines().count() <= 100, "{long}");
}

#[test]
fn quiet_leaves_out_notes_and_nothing_else() {
    let folder = scratch();
    let out = folder.path().join("out");
    let compile = |more: &[&str]| {
        planish_compile(&golden("bert-sentence"), &out, &[&WITHOUT_MODULES, more].concat()).exits(0, &[])
    };
    assert!(compile(&[]).stderr.starts_with("note: "));
    let quiet = compile(&["--quiet"]);
    assert_eq!(quiet.stderr, "");
    assert!(quiet.stdout.contains("bert for feature-extraction"), "{}", quiet.stdout);
    let warned = compile(&["-q", "--int8", "--keep", "."]);
    assert!(warned.stderr.starts_with("warning: --int8 quantized nothing"), "{}", warned.stderr);
    let asked = compile(&["-q", "--explain=fusion"]);
    assert!(!asked.stderr.is_empty(), "what was asked for is printed");
    planish(["-q", "compile", "/nonexistent"]).exits(1, &["error: "]);
}

/// As with `| head`: what is printed is longer than a pipe holds, or the reader is gone at once.
#[test]
fn a_reader_that_closes_the_pipe_is_no_failure() {
    let mut child = command(["completions", "zsh"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let done = Done::from(child.wait_with_output().unwrap()).succeeds();
    assert_eq!(done.stdout, "");

    let mut child = command(["passes", "fold"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("fold: "), "{line}");
    Done::from(child.wait_with_output().unwrap()).succeeds();
}

/// Every write to `/dev/full` fails for want of space.
#[test]
fn output_that_cannot_be_written_is_a_failure_and_no_panic() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let done = command(["passes"]).stdout(full()).output().unwrap();
    Done::from(done).exits(1, &["cannot write to standard output", "No space left"]);
    let folder = scratch();
    let out = folder.path().join("out");
    let arguments = ["compile", golden("bert").to_str().unwrap(), "-o", out.to_str().unwrap()].map(str::to_owned);
    let printing = arguments.iter().map(String::as_str).chain(["--debug", "print=fold"]);
    assert_eq!(command(printing).stderr(full()).status().unwrap().code(), Some(0), "only the graph was not shown");
    let failing = arguments.iter().map(String::as_str).chain(["--task", "question-answering"]);
    assert_eq!(command(failing).stderr(full()).status().unwrap().code(), Some(1), "the exit code still tells");
}
