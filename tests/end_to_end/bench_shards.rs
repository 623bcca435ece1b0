//! `planish bench` in shards: the documents of all shards make one with the rows of one run.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::manifest::{problems, schema_in};
use crate::support::{Done, golden, planish, planish_compile, scratch, text};

/// Two artifacts of a model, at four shapes.
struct Grid {
    folder: tempfile::TempDir,
}

impl Grid {
    fn new() -> Self {
        let folder = scratch();
        for (name, more) in [("a", &[][..]), ("b", &["--int8"])] {
            planish_compile(&golden("bert"), &folder.path().join(name), more).succeeds();
        }
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn bench(&self, json: &str, more: &[&str]) -> Done {
        let (a, b, json) = (self.path("a"), self.path("b"), self.path(json));
        let reference = golden("bert");
        let fixed =
            ["bench", text(&a), text(&b), "--reference", text(&reference), "--json", text(&json), "--threads", "1"];
        let quick = ["--set", "peaks=false,warmup=0,time=0,iterations=3"];
        let shapes = if more.contains(&"--seq") { &[][..] } else { &["--batch", "1,2", "--seq", "4,8"] };
        planish(fixed.into_iter().chain(quick).chain(shapes.iter().copied()).chain(more.iter().copied()))
    }

    fn shards(&self, count: usize) -> Vec<PathBuf> {
        let one = |k: usize| {
            let name = format!("shard-{k}-of-{count}.json");
            self.bench(&name, &["--set", &format!("shard={k}/{count}")]).exits(0, &[]);
            self.path(&name)
        };
        (1..=count).map(one).collect()
    }
}

fn merged(files: &[&Path], more: &[&str]) -> Done {
    planish(["bench", "merge"].into_iter().chain(files.iter().map(|file| text(file))).chain(more.iter().copied()))
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// What each cell is, in order.
fn rows(document: &Value) -> Vec<Value> {
    let row = |cell: &Value| json!([cell["model"], cell["backend"], cell["precision"], cell["shape"], cell["rounds"]]);
    document["cells"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn shards_have_the_rows_of_one_run() {
    let grid = Grid::new();
    grid.bench("whole.json", &[]).exits(0, &[]);
    let whole = rows(&read(&grid.path("whole.json")));
    assert_eq!(whole.len(), 8);
    let schema = schema_in("bench.schema.json");
    // Four shapes: a fifth shard has none.
    for count in [1, 2, 3, 5] {
        let files = grid.shards(count);
        let documents: Vec<Value> = files.iter().map(|file| read(file)).collect();
        let order: Vec<&Path> = files.iter().rev().map(PathBuf::as_path).collect();
        let (json, html, csv) = (grid.path("merged.json"), grid.path("merged.html"), grid.path("merged.csv"));
        let done = merged(&order, &["--json", text(&json), "--html", text(&html), "--csv", text(&csv)]).exits(0, &[]);
        let document = read(&json);
        assert_eq!(rows(&document), whole, "{count} shards");
        let cells = document["cells"].as_array().unwrap();
        let of_shards: Vec<&Value> = documents.iter().flat_map(|of| of["cells"].as_array().unwrap()).collect();
        assert!(cells.iter().all(|cell| of_shards.contains(&cell)) && of_shards.len() == 8, "{count} shards");
        assert!(!done.stderr.contains("not measured alike"), "{}", done.stderr);
        assert_eq!(done.stdout.matches("\nchoose ").count(), 1, "{}", done.stdout);
        assert_eq!(document["recommendations"][0]["choice"]["shapes"], 4);
        let measured = document["measured"].as_array().unwrap();
        let numbers: Vec<usize> = measured.iter().map(|of| of["shard"].as_u64().unwrap() as usize).collect();
        assert_eq!(numbers, (1..=count).collect::<Vec<_>>());
        for value in documents.iter().chain([&document]) {
            assert_eq!(problems(&schema, value), Vec::<String>::new());
        }
        assert!(fs::read_to_string(&html).unwrap().contains("<section id=\"cells\">"));
        assert_eq!(csv::Reader::from_path(&csv).unwrap().records().count(), 8);
    }
    let last = read(&grid.path("shard-5-of-5.json"));
    assert_eq!(
        (last["cells"].as_array().unwrap().len(), &last["shard"]["shards"]),
        (0, &json!({"of": 5, "present": [5]}))
    );
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let grid = Grid::new();
    let files = grid.shards(2);
    let (a, b) = (files[0].as_path(), files[1].as_path());
    let wrong = grid.path("wrong.json");
    let refuse = |files: &[&Path], parts: &[&str]| merged(files, &[]).exits(1, parts);
    refuse(&[b], &["shards are missing: there is shard 2 of 2, and not 1"]);
    refuse(&[a, b, a], &["cannot merge", "both files have shard 1 of 2"]);
    grid.bench("wrong.json", &["--set", "shard=2/3"]).exits(0, &[]);
    refuse(&[a, &wrong], &["the files are of shards of 2 and of 3"]);
    grid.bench("wrong.json", &["--set", "shard=2/2", "--seq", "4,16", "--batch", "1,2"]).exits(0, &[]);
    refuse(&[a, &wrong], &["different grids: 1 x 4, 1 x 8, 2 x 4, 2 x 8 and 1 x 4, 1 x 16, "]);
    grid.bench("wrong.json", &["--set", "shard=2/2", "--set", "seed=7"]).exits(0, &[]);
    refuse(&[a, &wrong], &["different options: seed is 0 and 7"]);
    grid.bench("wrong.json", &["--set", "shard=2/2", "--runtime", "reference"]).exits(0, &[]);
    refuse(&[a, &wrong], &["runtime is that of each target and reference"]);
    let mut damaged = read(b);
    damaged["shard"]["shards"]["present"] = json!([7]);
    fs::write(&wrong, damaged.to_string()).unwrap();
    refuse(&[a, &wrong], &["wrong.json: its shards are not valid"]);
    grid.bench("wrong.json", &[]).exits(0, &[]);
    refuse(&[a, &wrong], &["wrong.json is not of a shard", "bench --set shard=K/N --json FILE"]);
    planish_compile(&golden("bert"), &grid.path("b"), &["--int8-weights", "--force"]).succeeds();
    grid.bench("wrong.json", &["--set", "shard=2/2"]).exits(0, &[]);
    refuse(&[a, &wrong], &["different contestants: a (BLAKE3 "]);
}

/// Other machines and versions are told, and a cell that failed in a shard fails the whole.
#[test]
fn unlike_shards_and_failures_are_told() {
    let grid = Grid::new();
    let files = grid.shards(2);
    let mut other = read(&files[1]);
    other["env"]["cpu"]["model"] = json!("Another CPU");
    other["tool"]["version"] = json!("9.8.7");
    fs::write(&files[1], other.to_string()).unwrap();
    let json = grid.path("merged.json");
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let done = merged(&files, &["--json", text(&json)]).exits(0, &[]);
    assert!(
        done.stderr.contains("the shards were not measured alike: the machines differ in the processor: shard 1 has "),
        "{}",
        done.stderr
    );
    assert!(done.stderr.contains("shard 2 has Another CPU"), "{}", done.stderr);
    let versions =
        format!("not measured alike: shard 1 by planish {}, shard 2 by planish 9.8.7\n", env!("CARGO_PKG_VERSION"));
    assert!(done.stderr.contains(&versions), "{}", done.stderr);
    assert_eq!(read(&json)["measured"][1]["env"]["cpu"]["model"], "Another CPU");
    let html = grid.path("merged.html");
    planish(["bench", "report", text(&json), "--html", text(&html)]).exits(0, &[]);
    assert!(fs::read_to_string(&html).unwrap().contains("shard 2 has Another CPU"));
    other["cells"][0]["status"] = json!("failed");
    other["cells"][0]["failure"] = json!("y: not finite");
    fs::write(files[1], other.to_string()).unwrap();
    merged(&files, &[]).exits(3, &["y: not finite"]);
}

#[test]
fn arguments_are_checked() {
    let refuse = |more: &[&str], part: &str| planish([&["bench"], more].concat()).exits(2, &[part]);
    for wrong in ["0/3", "4/3", "1/0"] {
        refuse(&["a", "--json", "a.json", "--set", &format!("shard={wrong}")], "expected K/N, such as 3/8");
    }
    refuse(&["a", "--set", "shard=1/2"], "add --json FILE");
    refuse(&["a", "--set", "shard=1/2", "--json"], "add --json FILE");
    refuse(&["merge"], "<A.json>");
    let shard = ["a", "--json", "a.json", "--set", "shard=1/2"];
    refuse(&[&shard[..], &["--workload", "generate"]].concat(), "--set shard is for --workload encode");
    refuse(&[&shard[..], &["--inputs", "a.npz"]].concat(), "leave --set shard out");
    refuse(&["--compare", "a", "--json", "a.json", "--set", "shard=1/2,tune=5s"], "leave it or shard out");
    planish(["bench", "merge", "/nowhere/a.json"]).exits(1, &["/nowhere/a.json"]);
    // The options of calibrate and evaluate are answered.
    refuse(&["a", "--shard", "1/2"], "--set shard=K/N");
    refuse(&["a", "--merge", "a.json"], "planish bench merge");
}
