//! What is made of saved runs of `planish bench`: the report, CSV, comparisons.

use std::fs;
use std::path::{Path, PathBuf};

use planish::bench::Document;
use serde_json::{Value, json};

use crate::bench_example::document;
use crate::manifest::{problems, schema_in};
use crate::support::{artifact, golden, planish, repository, scratch, text};

fn save(folder: &Path, name: &str, document: &Document) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, serde_json::to_string(document).unwrap()).unwrap();
    path
}

/// The files stay in target/, where `make test-report` opens them in a browser.
#[test]
fn the_report_of_an_example_is_written() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let example = document(1);
    let json = save(target, "report-example.json", &example);
    let (html, csv) = (target.join("report-example.html"), target.join("report-example.csv"));
    planish(["bench", "report", text(&json), "--html", text(&html), "--csv", text(&csv)]).exits(0, &[]);
    let page = fs::read_to_string(&html).unwrap();
    for id in [
        "choice",
        "speedup",
        "latency",
        "accuracy",
        "memory",
        "operators",
        "roofline",
        "cells",
        "generation",
        "padding",
        "problems",
    ] {
        assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
    }
    let visible = page.split_once("</style>").unwrap().1;
    for forbidden in ["<script", "<b>", "NaN", "http", "src=", "@import", "url("] {
        assert!(!visible.contains(forbidden), "{forbidden}");
    }
    assert!(visible.contains("&lt;script&gt;alert(1)&lt;") && visible.contains("parser &lt;b&gt;were not found&lt;"));
    // Numbers of drawings are finite too.
    assert!(!visible.contains("=\"inf") && !visible.contains("=\"-inf"));
    let mut reader = csv::Reader::from_path(&csv).unwrap();
    assert_eq!(reader.records().map(Result::unwrap).count(), example.cells.len());
}

/// What was not measured is said in a sentence, with the option that measures it. These options are there.
#[test]
fn a_report_of_little_says_what_is_missing() {
    let (_artifact, out) = artifact("bert");
    let folder = scratch();
    let [html, csv, json] = ["a.html", "a.csv", "a.json"].map(|name| folder.path().join(name));
    let reference = golden("bert");
    let quick = [
        "--set",
        "time=0,iterations=3",
        "--threads",
        "1",
        "--seq",
        "4",
        "--set=peaks=false",
        "--reference",
        text(&reference),
    ];
    let files = ["--html", text(&html), "--csv", text(&csv), "--json", text(&json)];
    planish([&["bench", text(&out)][..], &quick, &files].concat()).exits(0, &[]);
    let page = fs::read_to_string(&html).unwrap();
    let missing = [
        "--compare MODEL",
        "--set operators measures",
        "--set peaks=false leaves",
        "--set isolate measures",
        "--data FILE measures",
    ];
    let help = planish(["bench", "--help"]).exits(0, &[]).stdout;
    for sentence in missing {
        assert!(page.contains(sentence), "{sentence}");
        let option = sentence.split(' ').next().unwrap();
        assert!(help.contains(&format!("{option} <")) || help.contains(&format!("{option}\n")), "{option}");
    }
    // Latency, cosine, files and memory of loading.
    assert_eq!(page.matches("<svg class=\"plot").count(), 4, "{page}");
    let mut rows = csv::Reader::from_path(&csv).unwrap();
    let row: std::collections::HashMap<String, String> = rows.deserialize().next().unwrap().unwrap();
    let value = |name: &str| row[name].as_str();
    let got = ["runtime", "workload", "batch", "seq", "part", "status", "runs", "speedup", "mfu"].map(value);
    assert_eq!(got, ["ort", "encode", "1", "4", "", "measured", "3", "1", ""]);
    let value: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(problems(&schema_in("bench.schema.json"), &value), Vec::<String>::new());
    let document = Document::read(&json).unwrap();
    let median = document.cells[0].latency_ms.as_ref().unwrap().p50;
    assert_eq!(row["median_ms"].parse::<f64>().unwrap(), median);
    // What was saved gives the same page.
    let again = folder.path().join("again.html");
    planish(["bench", "report", text(&json), "--html", text(&again)]).exits(0, &[]);
    assert_eq!(fs::read_to_string(again).unwrap(), page);
}

#[test]
fn documents_are_what_the_schema_describes() {
    let schema = schema_in("bench.schema.json");
    let mut example = serde_json::to_value(document(1)).unwrap();
    // What the example has no device for.
    let metric =
        json!({"min": 1, "max": 2, "mean": 1.5, "median": 1.5, "p90": 2, "p95": 2, "p99": 2, "variation": 0.1});
    let device = json!({"gpu_compute": metric, "enqueue": metric, "h2d": metric, "latency": metric, "throughput": 500.0,
        "transfers": true, "cuda_graph": false});
    example["cells"][0]["device"] = device;
    example["cells"][0]["without_graph_ms"] = json!(2.5);
    assert_eq!(problems(&schema, &example), Vec::<String>::new());
    let read: Document = serde_json::from_value(example.clone()).unwrap();
    assert!(read.cells[0].device.is_some());
    let changes = [
        ("/schema", json!(1)),
        ("/env/cpu/cores", json!("2")),
        ("/peaks/tflops", json!(0)),
        ("/cells/0/workload", json!("sing")),
        ("/cells/0/shape/batch", json!(0)),
        ("/cells/0/shape/seq", json!("128")),
        ("/cells/0/latency_ms/p50", Value::Null),
        ("/cells/0/latency_ms/ci95", json!([1.0])),
        ("/cells/0/device/enqueue/p99", json!("1 ms")),
        ("/cells/0/without_graph_ms", json!("2 ms")),
        ("/cells/0/operators/0", json!(["MatMul"])),
        ("/cells/0/roofline/bound", json!("cache")),
        ("/cells/0/evaluation/embeddings/pooling", json!("median")),
        ("/cells/0/energy/meter", json!("hand")),
        ("/cells/0/status", json!("done")),
        ("/cells/0/providers/CPUExecutionProvider", json!(-1)),
    ];
    for (at, value) in changes {
        let mut changed = example.clone();
        *changed.pointer_mut(at).unwrap_or_else(|| panic!("{at} is not there")) = value;
        assert!(!problems(&schema, &changed).is_empty(), "{at}");
    }
    for at in [
        "",
        "/recommendations/0/choice",
        "/env",
        "/cells/0",
        "/cells/0/memory",
        "/cells/0/latency_ms",
        "/cells/0/evaluation",
    ] {
        let mut changed = example.clone();
        changed.pointer_mut(at).unwrap()["more"] = json!(1);
        assert!(!problems(&schema, &changed).is_empty(), "{at}");
    }
}

/// docs/bench.md has each column of the CSV and each exit code.
#[test]
fn columns_are_described() {
    let page = fs::read_to_string(repository().join("docs/bench.md")).unwrap();
    let folder = scratch();
    let (json, csv) = (save(folder.path(), "a.json", &document(1)), folder.path().join("a.csv"));
    planish(["bench", "report", text(&json), "--csv", text(&csv)]).exits(0, &[]);
    let mut reader = csv::Reader::from_path(&csv).unwrap();
    for name in reader.headers().unwrap() {
        assert!(page.contains(&format!("`{name}`")), "docs/bench.md does not describe the column `{name}`");
    }
}

#[test]
fn files_of_the_report_are_checked_first() {
    let folder = scratch();
    let (missing, json) = (folder.path().join("no/report.html"), save(folder.path(), "a.json", &document(1)));
    planish(["bench", "report", text(&json)]).exits(2, &["nothing is to be written: give --html FILE"]);
    planish(["bench", "report", text(&json), "--html", text(&missing)]).exits(1, &["cannot write", "report.html"]);
    planish(["bench", "report", "--html", text(&missing)]).exits(2, &["required"]);
    let nothing = folder.path().join("no artifact");
    planish(["bench", text(&nothing), "--csv", text(&missing)]).exits(1, &["cannot write", "report.html"]);
    planish(["bench", "report", text(&nothing), "--html", text(&json)]).exits(1, &["cannot read", "no artifact"]);
    assert!(fs::read_to_string(&json).unwrap().starts_with('{'), "the file is as it was");
}

#[test]
fn saved_runs_are_compared() {
    let folder = scratch();
    let before = document(1);
    let mut after = document(2);
    // Twice as slow, broken, and gone.
    let slow = &mut after.cells[2];
    slow.samples_ns.iter_mut().for_each(|ns| *ns *= 2);
    slow.latency_ms = planish::bench::Latency::of_visits(&slow.samples_ns, &slow.visits);
    let broken = &mut after.cells[4];
    (broken.latency_ms, broken.status, broken.failure) =
        (None, planish::bench::Status::Failed, Some("y: not finite".to_owned()));
    after.cells.remove(0);
    let (a, b) = (save(folder.path(), "a.json", &before), save(folder.path(), "b.json", &after));
    let diff = |more: &[&str]| planish([&["bench", "diff", text(&a), text(&b)], more].concat());
    let slower = "minilm-ort (ort, f32), batch 1 × 128 tokens: 76";
    let failed = "minilm-ort-fp16 (ort, fp16), batch 1 × 128 tokens: it has no speed: y: not finite";
    let done = diff(&[]).exits(3, &["error: slower or failed:\n  ", slower, failed]);
    assert!(done.stdout.contains("b.json"), "{}", done.stdout);
    assert!(done.stdout.contains("a.json: minilm-unfused (ort, f32), batch 1 × 128 tokens\n"), "{}", done.stdout);
    // The times of the two are of one distribution: nothing but what was changed is reported.
    assert!(done.stdout.contains("beyond 2 % and significant: 1 slower, 0 faster; 1 failed now"), "{}", done.stdout);
    let done = diff(&["--json", "--threshold", "150%"]).exits(3, &[failed]);
    let json: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(
        (&json["cells"][1]["verdict"], &json["cells"][3]["verdict"]),
        (&"same".into(), &"broken".into()),
        "{json}"
    );
    planish(["bench", "diff", text(&a), text(&a)]).exits(0, &[]);
    diff(&["--threshold=-1%"]).exits(2, &["is not a percentage"]);
    let other = folder.path().join("planish.json");
    fs::write(&other, r#"{"schema": 4, "producer": "planish 0.1.0"}"#).unwrap();
    planish(["bench", "diff", text(&a), text(&other)]).exits(1, &["planish.json", "not a document of planish bench"]);
    fs::write(&other, r#"{"schema": 1, "tool": {"version": "0.0.9"}, "cells": []}"#).unwrap();
    planish(["bench", "diff", text(&other), text(&a)]).exits(1, &["version 1", "planish 0.0.9", "reads version 2"]);
}

/// `diff` and `report` are commands only as the first word.
#[test]
fn a_folder_may_be_called_diff() {
    planish(["bench", "./diff"]).exits(1, &["there is no ./diff"]);
    planish(["bench", "./a", "diff"]).exits(1, &["there is no ./a"]);
    planish(["bench", "diff"]).exits(2, &["A.json", "B.json"]);
}
