//! `compile --tune`: the search, its record, and what takes the record.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::calibrate::with_tokenizer;
use crate::engine::read;
use crate::manifest::{problems, schema_in};
use crate::support::{Done, golden, planish, planish_with, repository, scratch, text};

/// `compile` of a golden with a folder of caches of its own.
fn tuned(name: &str, out: &Path, caches: &Path, more: &[&str]) -> Done {
    let model = golden(name);
    let arguments = [&["compile", text(&model), "-o", text(out)], more].concat();
    planish_with(arguments, &[("XDG_CACHE_HOME", text(caches))])
}

#[test]
fn a_search_is_recorded_repeated_and_taken_again() {
    let folder = scratch();
    let (out, caches) = (folder.path().join("out"), folder.path().join("caches"));
    let search = ["--tune=1x4,2x4", "--tune-time=8s", "--json", "--verify"];
    let done = tuned("bert", &out, &caches, &search).exits(0, &["| choice", "tuned: "]);
    let printed: Value = serde_json::from_str(&done.stdout).unwrap();
    let tried = printed["tried"].as_array().unwrap();
    for choice in ["attention", "token_order", "projections", "biases", "cache", "accuracy_level"] {
        let of = tried.iter().find(|tried| tried["choice"] == choice).unwrap_or_else(|| panic!("{choice}"));
        assert!(of["why"].as_str().is_some_and(|why| !why.is_empty()), "{of}");
    }
    let of_target = tried.iter().find(|tried| tried["choice"] == "target").unwrap();
    assert_eq!((&of_target["kept"], of_target["why"].is_string()), (&json!(false), true), "{of_target}");
    let left_out = |choice: &str| tried.iter().find(|tried| tried["choice"] == choice).unwrap()["why"].clone();
    assert_eq!(left_out("cache"), "left out: there is no cache");
    let manifest = read(&out.join("planish.json"));
    assert_eq!(problems(&schema_in("manifest.schema.json"), &manifest), Vec::<String>::new());
    let tuning = &manifest["tuning"];
    assert_eq!((&tuning["shapes"], &tuning["seconds"]), (&json!(["1x4", "2x4"]), &json!(8)));
    assert_eq!(tuning["runtime"], "onnxruntime");
    // The recipe has the choices that are members of one.
    for (name, value) in tuning["choices"].as_object().unwrap() {
        if name != "threads" && name != "spin" {
            assert_eq!(&manifest["recipe"][name], value);
        }
    }
    let inspected = planish(["inspect", text(&out)]).exits(0, &[]);
    assert!(inspected.stdout.contains("\n  tuned: "), "{}", inspected.stdout);
    // The same is taken from the folder of caches, and a longer search is not.
    let again = folder.path().join("again");
    let done = tuned("bert", &again, &caches, &["--tune=1x4,2x4", "--tune-time=2s"]);
    done.exits(0, &["tuned before, and taken from the folder of caches"]);
    assert_eq!(read(&again.join("planish.json"))["tuning"], *tuning);
    assert_eq!(fs::read(again.join("model.onnx")).unwrap(), fs::read(out.join("model.onnx")).unwrap());
    // So is a choice that is not the default one, as members of the recipe.
    let [cached] = &fs::read_dir(caches.join("planish/tuning")).unwrap().collect::<Result<Vec<_>, _>>().unwrap()[..]
    else {
        panic!("one search is kept")
    };
    let mut choice = tuning.clone();
    choice["choices"] = json!({"projections": "joined", "biases": "kept", "threads": "1"});
    choice["run"] = json!({"threads": 1});
    fs::write(cached.path(), choice.to_string()).unwrap();
    let other = folder.path().join("other");
    tuned("bert", &other, &caches, &["--tune=1x4,2x4", "--tune-time=2s", "--verify"]).exits(0, &["projections=joined"]);
    let manifest = read(&other.join("planish.json"));
    assert_eq!(manifest["tuning"], choice);
    let recipe = &manifest["recipe"];
    assert_eq!((&recipe["projections"], &recipe["biases"]), (&json!("joined"), &json!("kept")));
    let by_recipe = folder.path().join("by-recipe");
    let members = ["--recipe", "projections=joined", "--recipe", "biases=kept"];
    planish([&["compile", text(&golden("bert")), "-o", text(&by_recipe)], &members[..]].concat()).exits(0, &[]);
    let graph = |folder: &Path| fs::read(folder.join("model.onnx")).unwrap();
    assert!(graph(&other) == graph(&by_recipe) && graph(&other) != graph(&again));
    // `bench` takes its threads too, unless it is told others.
    let threads = |more: &[&str]| {
        let bench = ["bench", text(&other), "--seq", "4", "--set", "time=0.1", "--json"];
        let done = planish([&bench, more].concat()).exits(0, &[]);
        let is_said = done.stderr.contains("other runs with threads=1, as it was tuned");
        (serde_json::from_str::<Value>(&done.stdout).unwrap()["cells"][0]["options"]["threads"].clone(), is_said)
    };
    assert_eq!((threads(&[]), threads(&["--threads", "2"])), ((json!(1), true), (json!(2), false)));
    let done = tuned("bert", &again, &caches, &["--tune=1x4,2x4", "--tune-time=9s"]).exits(0, &["| choice"]);
    assert!(!done.stderr.contains("tuned before"), "{}", done.stderr);
}

#[test]
fn threads_that_the_command_says_are_no_choice() {
    let folder = scratch();
    let (out, caches) = (folder.path().join("out"), folder.path().join("caches"));
    let done = tuned("bert", &out, &caches, &["--tune=1x4", "--tune-time=1s", "--threads=1", "--json"]).exits(0, &[]);
    let printed: Value = serde_json::from_str(&done.stdout).unwrap();
    let threads = printed["tried"].as_array().unwrap().iter().find(|tried| tried["choice"] == "threads").unwrap();
    assert_eq!(threads["why"], "left out: the command says it");
}

/// A small BERT with texts to calibrate it on.
struct Calibrated {
    folder: TempDir,
    model: PathBuf,
    data: PathBuf,
}

impl Calibrated {
    fn new() -> Self {
        let folder = scratch();
        let data = folder.path().join("data.jsonl");
        let lines = (0..20usize)
            .map(|at| format!("{{\"text\": \"w{} w{} w{} w{}\"}}\n", at + 2, 3 * at + 5, 120 - at, 7 * (at % 5) + 9));
        fs::write(&data, lines.collect::<String>()).unwrap();
        Self { model: with_tokenizer("bert", 131, folder.path()), data, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `compile --int8` of it.
    fn compile(&self, out: &str, more: &[&str]) -> Done {
        let (out, caches) = (self.path(out), self.path("caches"));
        let compile = ["compile", text(&self.model), "-o", text(&out), "--int8", "--calibrate", text(&self.data)];
        planish_with([&compile, more].concat(), &[("XDG_CACHE_HOME", text(&caches))])
    }

    /// What that prints as JSON.
    fn int8(&self, more: &[&str]) -> Value {
        let done = self.compile("out", &[&["--json", "--force"], more].concat());
        serde_json::from_str(&done.exits(0, &[]).stdout).unwrap()
    }
}

/// What was tried of a choice.
fn tried<'a>(printed: &'a Value, choice: &str) -> Vec<&'a Value> {
    let all = printed["tried"].as_array().unwrap();
    let own: Vec<&Value> = all.iter().filter(|tried| tried["choice"] == choice).collect();
    assert!(!own.is_empty(), "{choice}");
    own
}

/// Forms that round other numbers are tried where data is held out, and are left out by name where none is.
#[test]
fn data_judges_forms_of_int8() {
    let bert = Calibrated::new();
    let printed = bert.int8(&["--tune=1x4", "--tune-time=4s"]);
    for choice in ["dynamic", "split_columns", "max_layer_loss", "keep"] {
        let why = tried(&printed, choice)[0]["why"].as_str().unwrap().to_owned();
        assert!(why.contains("add --evaluate FILE, or --verify"), "{choice}: {why}");
    }
    let printed = bert.int8(&["--tune=1x4", "--tune-time=20s", "--verify"]);
    for (choice, value) in [("dynamic", "true"), ("split_columns", "0"), ("max_layer_loss", "0.01")] {
        let of = tried(&printed, choice)[0];
        assert_eq!(of["value"], value);
        assert!(!of["why"].as_str().unwrap().contains("cannot"), "{of}");
    }
    // All roles of layers: queries with keys and values, the result of attention, both layers behind it, and the pooler.
    let roles: BTreeSet<&str> = tried(&printed, "keep").iter().map(|of| of["value"].as_str().unwrap()).collect();
    let role = |path: &str| format!(r"^encoder\.layer\.[0-9]+\.{path}$=float");
    let paths = [r"attention\.self\.query", r"attention\.output\.dense", r"intermediate\.dense", r"output\.dense"];
    let expected: BTreeSet<String> = paths.into_iter().map(role).chain([r"^pooler\.dense$=float".to_owned()]).collect();
    assert_eq!(roles, expected.iter().map(String::as_str).collect());
    for of in tried(&printed, "keep") {
        assert!(!of["why"].as_str().unwrap().contains("cannot"), "{of}");
    }
    let manifest = read(&bert.path("out/planish.json"));
    assert_eq!(problems(&schema_in("manifest.schema.json"), &manifest), Vec::<String>::new());
}

/// Where the default form misses `--max-loss`, all forms keep the same inputs in float, and the one that is written meets the limit.
#[test]
fn forms_within_a_limit_keep_the_same_inputs() {
    let bert = Calibrated::new();
    let cosine = |printed: &Value| printed["manifest"]["evaluation"]["embeddings"]["mean_cosine"].as_f64().unwrap();
    let default = cosine(&bert.int8(&["--verify"]));
    let limit = f64::midpoint(1.0, default);
    let max_loss = format!("--max-loss=cos={limit}");
    let kept = bert.int8(&["--verify", &max_loss]);
    let printed = bert.int8(&["--verify", &max_loss, "--tune=1x4", "--tune-time=8s"]);
    assert!(cosine(&printed) >= limit, "{printed}");
    for choice in ["dynamic", "split_columns", "max_layer_loss", "keep"] {
        assert_eq!(tried(&printed, choice)[0]["why"], "left out: --max-loss chose what has more precision", "{choice}");
    }
    assert!(tried(&printed, "attention")[0]["value"].is_string(), "{printed}");
    let inputs = |of: &Value| of["manifest"]["parts"][0]["quantization"]["inputs"].clone();
    assert!(inputs(&printed).to_string().contains("chosen by --max-loss: cos "), "{printed}");
    assert_eq!(inputs(&printed), inputs(&kept));
    // A limit that no form meets ends the command before a form is measured.
    let done = bert.compile("never", &["--tune=1x4", "--tune-time=8s", "--max-loss=error=-1"]);
    done.exits(3, &["nothing was written", "meets --max-loss"]);
    assert!(!bert.path("never").exists());
}

#[test]
fn another_processor_or_version_is_warned_of() {
    let folder = scratch();
    let (out, caches) = (folder.path().join("out"), folder.path().join("caches"));
    tuned("bert", &out, &caches, &["--tune=1x4", "--tune-time=1s"]).exits(0, &[]);
    let verify = || planish(["verify", text(&out)]).exits(0, &[]);
    assert!(!verify().stderr.contains("tuned on"), "{}", verify().stderr);
    let path = out.join("planish.json");
    let changed = |key: &[&str], value: Value| {
        let mut manifest = read(&path);
        let mut member = &mut manifest["tuning"];
        for name in key {
            member = &mut member[*name];
        }
        *member = value;
        fs::write(&path, serde_json::to_vec(&manifest).unwrap()).unwrap();
    };
    changed(&["version"], json!("0.1"));
    assert!(verify().stderr.contains("it was tuned on onnxruntime 0.1, and this is "), "{}", verify().stderr);
    changed(&["processor", "model"], json!("Another"));
    assert!(verify().stderr.contains("it was tuned on Another, and this is "), "{}", verify().stderr);
    let bench = ["bench", text(&out), "--seq", "4", "--set", "time=0.1"];
    planish(bench).exits(0, &["it was tuned on Another", "compile --tune finds it"]);
}

#[test]
fn bad_shapes_times_and_targets_are_refused() {
    let folder = scratch();
    let (out, caches) = (folder.path().join("out"), folder.path().join("caches"));
    let refused = |more: &[&str], part: &str| {
        tuned("bert", &out, &caches, more).exits(2, &[part]);
        assert!(!out.exists());
    };
    refused(&["--tune=abc"], "`abc` is no shape; expected ROWSxTOKENS");
    refused(&["--tune=1x0"], "`1x0` is no shape");
    refused(&["--tune", "--tune-time", "0"], "expected a number of seconds or minutes from 1s to 1440m");
    refused(&["--tune", "--tune-time", "0s"], "expected a number of seconds or minutes from 1s to 1440m");
    refused(&["--tune-time", "60s"], "--tune");
    refused(
        &["--tune", "--target", "trt"],
        "--tune is for targets onnx, ort, openvino; target trt chooses its kernels by itself",
    );
    refused(&["--tune", "--target", "cuda"], "--tune is for targets onnx, ort, openvino");
    refused(&["--tune", "--package", "transformers-js", "--variants", "fp32,q8"], "--tune is for one form");
    let none = repository().join("none");
    let library = format!("ort-lib={}", none.display());
    let missing = ["--tune", "--runtime-option", &library];
    tuned("bert", &out, &caches, &missing).exits(4, &["ort-lib"]);
    // More tokens than the model takes.
    tuned("bert", &out, &caches, &["--tune=1x100000"]).exits(2, &["takes at most"]);
}

/// `bench` has the tuned form beside the usual ones, and the command that makes it.
#[test]
fn bench_compares_the_tuned_form() {
    let folder = scratch();
    let (model, caches) = (golden("bert"), folder.path().join("caches"));
    let compare = ["bench", "--compare", text(&model), "--seq", "4", "--set", "tune=1s,time=0.1", "--json"];
    let done = planish_with(compare, &[("XDG_CACHE_HOME", text(&caches))]).exits(0, &["tuned: "]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let tuned = |cell: &&Value| cell["model"]["id"].as_str().is_some_and(|id| id.ends_with("-ort-f32-tuned"));
    let cells = document["cells"].as_array().unwrap();
    assert_eq!(cells.iter().find(tuned).unwrap()["status"], "measured");
    let refused = |set: &str, part: &str| planish(["bench", text(&model), "--set", set]).exits(2, &[part]);
    refused("tune=1s", "--set tune is for --compare");
    refused("tune=0", "expected a number of seconds or minutes from 1s to 1440m");
}
