//! `planish bench --workload load`.

use std::fs;

use serde_json::{Value, json};

use crate::support::{artifact, golden, planish, text};

/// Each trial is a process of its own. A first start finds no file in the system's cache, as far as the system tells.
#[test]
fn loading_is_measured_in_fresh_processes() {
    let (folder, out) = artifact("bert");
    let (model, csv) = (golden("bert"), folder.path().join("load.csv"));
    let bench =
        ["bench", text(&out), "--reference", text(&model), "--workload", "load", "--set", "time=0,iterations=3"];
    let done = planish([&bench[..], &["--batch", "2", "--seq", "8", "--json", "--csv", text(&csv)]].concat());
    let document: Value = serde_json::from_str(&done.exits(0, &["3 of 3"]).stdout).unwrap();
    let cells = document["cells"].as_array().unwrap();
    let parts: Vec<&str> = cells.iter().map(|cell| cell["shape"]["part"].as_str().unwrap()).collect();
    assert_eq!(parts, ["cold start", "warm start", "first inference"]);
    for cell in cells {
        assert_eq!((&cell["workload"], &cell["status"]), (&json!("load"), &json!("measured")), "{cell}");
        assert!(cell["latency_ms"]["n"].as_u64().unwrap() >= 3 && cell["load"]["ms"].as_f64().unwrap() > 0.0, "{cell}");
    }
    let median = |cell: &Value| cell["latency_ms"]["p50"].as_f64().unwrap();
    // A start has all of loading in it, and the first run of this model takes less than that.
    assert!(median(&cells[1]) > cells[1]["load"]["ms"].as_f64().unwrap(), "{document}");
    assert!(median(&cells[2]) < median(&cells[1]), "{document}");
    assert_eq!(cells[2]["shape"]["seq"], 8);
    assert_eq!(cells[1]["load"]["read_bytes"], 0, "what was just loaded is cached: {document}");
    let csv = fs::read_to_string(csv).unwrap();
    assert!(csv.lines().next().unwrap().contains("read_bytes") && csv.lines().count() == 4, "{csv}");
}
