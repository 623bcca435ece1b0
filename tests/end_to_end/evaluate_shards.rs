//! Evaluation in shards: the files of all shards make the report of one run, byte for byte.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::evaluate::{LINES, run};
use crate::labels::scoring;
use crate::support::{Done, Draft, planish, planish_compile, scratch, text, write_tokenizer};

/// A golden with a tokenizer whose tokens are words, compiled in bfloat16, so that its figures are of all kinds of numbers.
fn prepared(draft: &Draft, tokens: i64, folder: &Path) -> PathBuf {
    let model = draft.write(folder.join("source"));
    write_tokenizer(&model, tokens);
    let out = folder.join("out");
    planish_compile(&model, &out, &["--target", "onnx", "--bf16"]).exits(0, &[]);
    out
}

fn shard(out: &Path, data: &Path, more: &[&str], k: usize, count: usize, to: &Path) -> Done {
    run(out, data, &[more, &["--shard", &format!("{k}/{count}"), "-o", text(to)]].concat())
}

/// Writes the shards of so many, and returns their files.
fn shards(out: &Path, data: &Path, more: &[&str], count: usize, folder: &Path) -> Vec<PathBuf> {
    let one = |k: usize| {
        let file = folder.join(format!("shard-{k}-of-{count}.json"));
        let done = shard(out, data, more, k, count, &file).exits(0, &[]);
        assert!(done.stdout.contains(&format!("shard {k} of {count}")), "{}", done.stdout);
        file
    };
    (1..=count).map(one).collect()
}

fn merged<'a>(files: impl IntoIterator<Item = &'a PathBuf>, more: &[&str]) -> Done {
    let files = files.into_iter().map(|file| text(file));
    planish(["evaluate"].into_iter().chain(more.iter().copied()).chain(["--merge"]).chain(files))
}

/// Checks that shards of 1 to 5 make the report of one run, in any order of the files.
#[track_caller]
fn check(draft: &Draft, tokens: i64, (name, data): (&str, &str), more: &[&str]) -> Value {
    let folder = scratch();
    let out = prepared(draft, tokens, folder.path());
    let path = folder.path().join(name);
    fs::write(&path, data).unwrap();
    let table = run(&out, &path, more).exits(0, &[]).stdout;
    let document = run(&out, &path, &[more, &["--json"]].concat()).exits(0, &[]).stdout;
    for count in 1..=5 {
        let files = shards(&out, &path, more, count, folder.path());
        assert_eq!(merged(&files, &[]).exits(0, &[]).stdout, table, "{count} shards");
        assert_eq!(merged(files.iter().rev(), &["--json"]).exits(0, &[]).stdout, document, "{count} shards");
    }
    serde_json::from_str(&document).unwrap()
}

/// Lines of words, of many lengths.
fn lines(count: usize) -> String {
    let line = |i: usize| (0..i % 7 + 1).map(|j| format!("w{}", (i * 13 + j * 7) % 120 + 2)).collect::<Vec<_>>();
    (0..count).map(|i| line(i).join(" ") + "\n").collect()
}

#[test]
fn embeddings_in_shards() {
    let document = check(&Draft::of("bert"), 131, ("lines.txt", &lines(29)), &["--batch", "3"]);
    assert_eq!(document["embeddings"]["count"], 29);
    assert!(document["embeddings"]["neighbours_kept"].is_number(), "{document}");
}

/// Batches of 3 texts cut the pairs, and the two texts of a pair are in two shards.
#[test]
fn pairs_of_texts_in_shards() {
    let words = lines(26);
    let words: Vec<&str> = words.lines().collect();
    let pair = |(at, pair): (usize, &[&str])| format!("{}\n", json!({"a": pair[0], "b": pair[1], "s": at * 7 % 13}));
    let data: String = words.chunks(2).enumerate().map(pair).collect();
    let more = ["--field", "a,b", "--label", "s", "--batch", "3"];
    let document = check(&Draft::of("bert"), 131, ("pairs.jsonl", &data), &more);
    assert_eq!((&document["labels"][0]["metric"], &document["labels"][0]["count"]), (&json!("spearman"), &json!(13)));
}

#[test]
fn perplexity_in_shards() {
    // The last text that runs is cut by the number of tokens, which is of all shards together.
    let more = ["--lines", "--window", "6", "--stride", "4", "--batch", "2", "--tokens", "70"];
    let document = check(&Draft::of("gpt2"), 137, ("lines.txt", &lines(29)), &more);
    assert_eq!(document["tokens"], 70);
    assert!(document["perplexity"]["ratio_ci95"].is_array(), "{document}");
    // One document is one batch, and the other shards have none.
    check(&Draft::of("gpt2"), 137, ("document.txt", &LINES.repeat(5)), &[]);
}

#[test]
fn an_encoder_decoder_in_shards() {
    let document = check(&Draft::of("t5"), 127, ("lines.txt", &lines(13)), &["--batch", "2"]);
    assert!(document["outputs"].as_array().unwrap().len() > 3, "{document}");
}

#[test]
fn labels_in_shards() {
    let words = lines(21);
    let record = |(at, line): (usize, &str)| format!("{}\n", json!({"text": line, "label": at % 3}));
    let data: String = words.lines().enumerate().map(record).collect();
    let more = ["--label", "label", "--batch", "2"];
    let document = check(&Draft::of("bert-classify"), 131, ("labels.jsonl", &data), &more);
    let metrics: Vec<&Value> = document["labels"].as_array().unwrap().iter().map(|of| &of["metric"]).collect();
    assert_eq!(metrics, ["accuracy", "macro-f1"]);
}

/// The documents of a query are in several shards.
#[test]
fn rankings_in_shards() {
    let words = lines(24);
    let record = |(at, line): (usize, &str)| {
        format!("{}\n", json!({"q": format!("w{}", at % 4 + 2), "d": line, "r": at * 5 % 3}))
    };
    let data: String = words.lines().enumerate().map(record).collect();
    let more = ["--field", "q,d", "--label", "r", "--batch", "3"];
    let document = check(&scoring(), 131, ("rankings.jsonl", &data), &more);
    assert_eq!((&document["labels"][0]["metric"], &document["labels"][0]["count"]), (&json!("ndcg10"), &json!(4)));
    assert_eq!(document["scores"]["count"], 24);
}

/// Tags of words, whose entities need the names of the classes.
#[test]
fn words_in_shards() {
    let mut draft = Draft::of("bert-classify");
    draft.config["architectures"] = json!(["BertForTokenClassification"]);
    draft.config["id2label"] = json!({"0": "O", "1": "B-X", "2": "I-X"});
    draft.config["label2id"] = json!({"O": 0, "B-X": 1, "I-X": 2});
    draft.tensors.retain(|name, _| !name.contains("pooler"));
    let words = lines(17);
    let record = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let tags: Vec<&str> = (0..words.len()).map(|at| ["B-X", "I-X", "O"][at % 3]).collect();
        format!("{}\n", json!({"tokens": words, "tags": tags}))
    };
    let data: String = words.lines().map(record).collect();
    let more = ["--field", "tokens", "--label", "tags", "--batch", "2"];
    let document = check(&draft, 131, ("words.jsonl", &data), &more);
    assert_eq!(document["labels"][1]["metric"], "entity-f1");
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let folder = scratch();
    let out = prepared(&Draft::of("bert"), 131, folder.path());
    let path = |name: &str| folder.path().join(name);
    let (data, other) = (path("lines.txt"), path("other.txt"));
    fs::write(&data, lines(12)).unwrap();
    fs::write(&other, lines(13)).unwrap();
    let batch = ["--batch", "2"];
    let files = shards(&out, &data, &batch, 3, folder.path());
    let refuse = |files: &[&PathBuf], parts: &[&str]| merged(files.iter().copied(), &[]).exits(1, parts);
    let [a, b, c] = [&files[0], &files[1], &files[2]];
    refuse(&[a, c], &["shards are missing: there is shard 1, 3 of 3, and not 2", "--shard K/3"]);
    refuse(&[a, b, a], &["cannot merge", "both files have shard 1 of 3"]);
    let wrong = path("wrong.json");
    shard(&out, &data, &batch, 2, 4, &wrong).exits(0, &[]);
    refuse(&[a, &wrong], &["the files are of shards of 3 and of 4"]);
    shard(&out, &other, &batch, 2, 3, &wrong).exits(0, &[]);
    refuse(&[a, &wrong], &["different data: lines.txt (BLAKE3 ", "other.txt (BLAKE3 "]);
    shard(&out, &data, &["--batch", "3"], 2, 3, &wrong).exits(0, &[]);
    refuse(&[a, &wrong], &["different options: batch is 2 and 3"]);
    let changed = scratch();
    let exact = changed.path().join("out");
    planish_compile(&path("source"), &exact, &["--target", "onnx"]).exits(0, &[]);
    shard(&exact, &data, &batch, 2, 3, &wrong).exits(0, &[]);
    refuse(&[a, &wrong], &["different artifacts: model.onnx (BLAKE3 "]);

    // Files that are none, of another version, or damaged.
    let mut read: Value = serde_json::from_slice(&fs::read(b).unwrap()).unwrap();
    let mut damaged = |change: &dyn Fn(&mut Value), parts: &[&str]| {
        let before = read.clone();
        change(&mut read);
        read["blake3"] = "".into();
        let digest = blake3::hash(read.to_string().as_bytes()).to_hex();
        read["blake3"] = digest.as_str().into();
        fs::write(&wrong, read.to_string()).unwrap();
        merged([a, &wrong, c], &[]).exits(1, parts);
        read = before;
    };
    damaged(
        &|of| of["schema"] = 9.into(),
        &["wrong.json is not a shard of an evaluation", "schema 9", "reads schema 1"],
    );
    damaged(&|of| of["producer"] = "planish 0.0.1".into(), &["different versions of planish", "0.0.1"]);
    damaged(&|of| of["basis"]["product"] = "onnxruntime 0.1".into(), &["different runtimes: ", "(onnxruntime 0.1)"]);
    damaged(&|of| of["basis"]["samples"] = 3.into(), &["different readings of the data: samples is 12 and 3"]);
    damaged(&|of| of["batches"][0]["number"] = 2.into(), &["a batch is of another shard"]);
    damaged(&|of| of["batches"][0]["seen"]["embeddings"] = json!([[], []]), &["embeddings of"]);
    damaged(&|of| of["shards"]["present"] = json!([4]), &["its shards are not valid"]);
    damaged(
        &|of| drop(of["batches"].as_array_mut().unwrap().remove(0)),
        &["the shards have no batch 2: shard 2 is damaged"],
    );
    // One digit of a figure.
    let text = fs::read_to_string(b).unwrap();
    let digit =
        text.find("\"cosines\":").unwrap() + text[text.find("\"cosines\":").unwrap()..].find(char::is_numeric).unwrap();
    let other = if text.as_bytes()[digit] == b'1' { "2" } else { "1" };
    fs::write(&wrong, [&text[..digit], other, &text[digit + 1..]].concat()).unwrap();
    refuse(&[a, &wrong], &["wrong.json is damaged: its digest is not that of its contents"]);
    fs::write(&wrong, "no").unwrap();
    refuse(&[&wrong], &["wrong.json is not a shard of an evaluation", "evaluate --shard K/N"]);
    refuse(&[&path("none.json")], &["none.json"]);
}

#[test]
fn limits_are_of_all_shards() {
    let folder = scratch();
    let out = prepared(&Draft::of("bert"), 131, folder.path());
    let data = folder.path().join("lines.txt");
    fs::write(&data, lines(9)).unwrap();
    let files = shards(&out, &data, &[], 2, folder.path());
    let reached = run(&out, &data, &["--require", "cos=0.5"]).exits(0, &[]).stdout;
    assert_eq!(merged(&files, &["--require", "cos=0.5"]).exits(0, &[]).stdout, reached);
    merged(&files, &["--require", "cos=1"]).exits(3, &["cos is 0.99", "at least 1 required"]);
    merged(&files, &["--require", "perplexity=2"]).exits(2, &["no `perplexity`"]);
}

#[test]
fn arguments_are_checked() {
    for wrong in ["0/3", "4/3", "1", "1/0", "a/b"] {
        planish(["evaluate", "out", "--data", "x.txt", "--shard", wrong]).exits(2, &["expected K/N, such as 3/8"]);
    }
    let refuse = |more: &[&str], part: &str| planish([&["evaluate"], more].concat()).exits(2, &[part]);
    refuse(&[], "--data");
    refuse(&["out", "--merge", "a.json"], "cannot be used with");
    refuse(&["--merge", "a.json", "--samples", "3"], "cannot be used with");
    refuse(&["--merge", "a.json", "--runtime", "ort"], "cannot be used with");
    refuse(&["out", "--data", "x.txt", "--shard", "1/2", "--require", "cos=0.9"], "cannot be used with");
    refuse(&["out", "--data", "x.txt", "-o", "a.json"], "--shard");
}
