//! Names of files that could act on a terminal, and outputs that would take the place of inputs.

use std::fs;
use std::path::Path;

use safetensors::tensor::Dtype;
use serde_json::json;

use crate::support::{Done, Draft, Stored, artifact, command, golden, planish, scratch, tensors, text, write_tensors};

/// Sets the title of a terminal, erases a line, and writes a message over it.
const ACTS: &str = "\u{1b}]0;owned\u{7}\u{1b}[2K\rverified: all good\nverified: all good\u{202e}";

#[track_caller]
fn is_quiet(done: &Done) {
    let all = format!("{}{}", done.stdout, done.stderr);
    assert!(!all.contains(|c: char| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}'), "{all:?}");
    assert!(!all.lines().any(|line| line.starts_with("verified: all good")), "{all}");
}

#[test]
fn names_of_a_checkpoint_do_not_act_on_the_terminal() {
    let place = scratch();
    type Change = (&'static str, fn(&mut Draft));
    let changes: [Change; 5] = [
        ("tensor", |draft| {
            let bytes = vec![0; 12];
            drop(draft.tensors.insert(ACTS.to_owned(), Stored { dtype: Dtype::F32, shape: vec![3], bytes }));
        }),
        ("key", |draft| draft.config[ACTS] = json!(1)),
        ("value", |draft| draft.config["hidden_act"] = json!(ACTS)),
        ("architecture", |draft| draft.config["model_type"] = json!(ACTS)),
        ("long", |draft| draft.config["hidden_act"] = json!("x".repeat(1 << 20))),
    ];
    for (name, change) in changes {
        let mut draft = Draft::of("llama");
        change(&mut draft);
        let model = draft.write(place.path().join(name));
        let out = place.path().join("out");
        let done = planish(["compile", text(&model), "-o", text(&out), "--force"]);
        is_quiet(&done);
        assert!(done.stderr.len() < 4_000, "{name}: {} bytes of messages", done.stderr.len());
        assert!(!done.stderr.is_empty(), "{name}");
        is_quiet(&planish(["inspect", text(&model)]));
    }
}

#[test]
fn names_of_files_do_not_act_on_the_terminal() {
    let (folder, out) = artifact("bert");
    let odd = folder.path().join(ACTS.replace('/', ""));
    fs::rename(&out, &odd).unwrap();
    for arguments in
        [vec!["inspect", text(&odd)], vec!["verify", text(&odd)], vec!["bench", text(&odd), "--seq", "99999"]]
    {
        is_quiet(&planish(arguments));
    }
    is_quiet(&planish(["bench", "report", text(&odd.join("none.json")), "--html", text(&folder.path().join("x"))]));
}

#[test]
fn outputs_do_not_overwrite_what_is_read() {
    let (folder, out) = artifact("bert");
    let place = scratch();
    let model = Draft::of("bert").write(place.path().join("model"));
    let weights = model.join("model.safetensors");
    let kept = |path: &Path, done: Done, before: &[u8]| {
        done.exits(2, &["would overwrite", text(path), "choose another path"]);
        assert!(fs::read(path).unwrap() == before, "{} was changed", path.display());
    };
    let before = fs::read(&weights).unwrap();
    let data = folder.path().join("x.safetensors");
    fs::write(&data, "").unwrap();
    kept(&weights, planish(["calibrate", text(&model), "--data", text(&data), "-o", text(&weights)]), &before);
    let recipe = folder.path().join("recipe.json");
    fs::write(&recipe, "{}").unwrap();
    kept(&recipe, planish(["bench", text(&out), "--recipe", text(&recipe), "--json", text(&recipe)]), b"{}");
    let graph = out.join("model.onnx");
    let before = fs::read(&graph).unwrap();
    kept(&graph, planish(["inspect", text(&out), "--svg", text(&graph)]), &before);
    kept(&graph, planish(["run", text(&out), "--inputs", text(&data), "--outputs", text(&graph)]), &before);
    kept(&graph, planish(["bench", text(&out), "--csv", text(&graph)]), &before);
    kept(&graph, planish(["profile", text(&out), "--flame", text(&graph)]), &before);
    let run = folder.path().join("run.json");
    fs::write(&run, "{}").unwrap();
    kept(&run, planish(["bench", "report", text(&run), "--html", text(&run)]), b"{}");
    let both = text(&folder.path().join("both")).to_owned();
    planish(["bench", text(&out), "--html", &both, "--json", &both]).exits(2, &["--html and --json would both write"]);
}

#[test]
fn an_empty_folder_of_temporary_files_is_the_systems_own() {
    let place = scratch();
    let data = place.path().join("data.safetensors");
    let all = tensors(&golden("bert").join("io.safetensors")).into_iter();
    write_tensors(&data, &all.filter_map(|(name, t)| Some((name.strip_prefix("in.")?.to_owned(), t))).collect());
    let table = place.path().join("table.json");
    let done = command(["calibrate", text(&golden("bert")), "--data", text(&data), "-o", text(&table)])
        .env("TMPDIR", "")
        .output();
    Done::from(done.unwrap()).exits(0, &[]);
}
