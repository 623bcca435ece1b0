//! What is made of saved runs of `planish bench`: the report, CSV, comparisons.

use std::fs;
use std::path::{Path, PathBuf};

use planish::bench::Document;

use crate::bench_example::document;
use crate::support::{planish, repository, text};

fn save(folder: &Path, name: &str, document: &Document) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, serde_json::to_string(document).unwrap()).unwrap();
    path
}

/// The files stay in target/, where `make test-report` opens them in a browser.
#[test]
fn the_report_of_an_example_is_written() {
    let target = repository().join("target");
    fs::create_dir_all(&target).unwrap();
    let example = document(1);
    let json = save(&target, "report-example.json", &example);
    let (html, csv) = (target.join("report-example.html"), target.join("report-example.csv"));
    planish(["bench", "report", text(&json), "--html", text(&html), "--csv", text(&csv)]).exits(0, &[]);
    let page = fs::read_to_string(&html).unwrap();
    for id in [
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
