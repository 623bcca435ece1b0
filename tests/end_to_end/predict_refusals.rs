//! What `planish predict` refuses, and what is left of a file then.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::predict::{embedder, run, write};
use crate::support::{artifact, names, planish, scratch, text};

#[test]
fn bad_data_is_named() {
    let folder = scratch();
    let artifact = embedder(folder.path(), "batch_size, sequence_length", true);
    let file = |name: &str| folder.path().join(name);
    let empty = file("empty.jsonl");
    fs::write(&empty, "\n").unwrap();
    run(&artifact, &empty, &[]).exits(1, &["empty.jsonl contains no text"]);
    let data = write(folder.path(), &[json!({"text": "w1"}), json!({"a": "w1"})]);
    // What was there stays, and nothing else is left.
    let (output, before) = (file("old.npy"), names(folder.path()).len() + 1);
    fs::write(&output, "old").unwrap();
    let done = run(&artifact, &data, &["-o", text(&output)]);
    done.exits(1, &["data.jsonl, line 2: there is no `text`, but `a`; --field names the member with the text"]);
    assert_eq!((fs::read_to_string(&output).unwrap().as_str(), names(folder.path()).len()), ("old", before));
    // An error of a later chunk leaves nothing either.
    let late: Vec<_> = (0..5000).map(|_| json!({"text": "w1"})).chain([json!({"a": "w1"})]).collect();
    let late = write(folder.path(), &late);
    run(&artifact, &late, &["-o", text(&output)]).exits(1, &["data.jsonl, line 5001: there is no `text`"]);
    assert_eq!((fs::read_to_string(&output).unwrap().as_str(), names(folder.path()).len()), ("old", before));
    let data = write(folder.path(), &[json!({"text": "w1"}), json!({"a": "w1"})]);
    run(&artifact, &data, &["--id", "name"]).exits(1, &["line 1: there is no `name`, but `text`"]);
    let tensors = file("x.npz");
    fs::write(&tensors, "").unwrap();
    run(&artifact, &tensors, &[]).exits(1, &[]);
    run(&artifact, &file("nowhere.txt"), &[]).exits(1, &["cannot read", "nowhere.txt"]);
    fs::remove_file(artifact.join("tokenizer.json")).unwrap();
    run(&artifact, &data, &["--samples", "1"]).exits(1, &["has no tokenizer.json, so texts cannot become token ids"]);
}

#[test]
fn outputs_fit_the_predictions() {
    let folder = scratch();
    let embeds = embedder(folder.path(), "batch_size, sequence_length", true);
    let data = write(folder.path(), &[json!({"text": "w1"})]);
    run(&embeds, &data, &["-o", text(&data)]).exits(2, &["which this command reads"]);
    run(&embeds, &data, &["-o", "vectors.csv"]).exits(2, &["-o vectors.csv: predictions are written as .jsonl"]);
    // Standard output is a pipe here.
    let pipe = folder.path().join("pipe.npy");
    symlink("/dev/stdout", &pipe).unwrap();
    let done = run(&embeds, &data, &["-o", text(&pipe)]);
    done.exits(1, &["pipe.npy: its first bytes are written last, and it is a pipe; write .jsonl or .parquet"]);
    run(&embeds, &data, &["--json"]).exits(2, &["name a file with -o"]);
    run(&embeds, &data, &["--top", "2"]).exits(2, &["--top is for masked tokens"]);
    run(&embeds, &data, &["-o", "/nowhere/a.npy"]).exits(1, &["cannot write /nowhere/a.npy"]);
    run(&embeds, &data, &["--runtime-option", "ort-lib=/nowhere"]).exits(4, &["the runtime `ort` is unavailable"]);
    let (_classifies, labels) = artifact("bert-classify");
    for ending in ["npy", "safetensors", "parquet"] {
        let output = folder.path().join(format!("labels.{ending}"));
        run(&labels, &data, &["-o", text(&output)])
            .exits(2, &["is a file of vectors, and the artifact predicts label"]);
        assert!(!output.exists());
    }
    run(&labels, &data, &["--prompt-name", "query"]).exits(2, &["there is no prompt `query`"]);
    run(&embeds, &data, &["--field", "query,document"]).exits(2, &["an embedding is of one text; name one of them"]);
    let words = write(folder.path(), &[json!({"text": ["w1", "w2"]})]);
    run(&embeds, &words, &[])
        .exits(1, &["data.jsonl, samples 1 to 1", "text 1: it is a list, and an embedding is of one"]);
}

#[test]
fn other_tasks_are_refused() {
    let folder = scratch();
    let data = write(folder.path(), &[json!({"text": "w1"})]);
    for (model, part) in [
        ("gpt2", "generates text: planish generate"),
        ("t5", "has several parts: `planish run` runs them, and `planish generate` generates text"),
    ] {
        let (_folder, out) = artifact(model);
        run(&out, &data, &[]).exits(2, &[part]);
    }
    planish(["embed", "--help"]).succeeds();
}
