//! Sweeps through the binary: jobs that are done, failed, killed, damaged, and taken by two processes at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::calibrate::stored_inputs;
use crate::manifest::{problems, schema_in};
use crate::support::{Done, command, golden, planish, planish_with, scratch, text};

/// A plan of two goldens in a folder of its own: 10 jobs.
struct Sweep {
    place: TempDir,
    plan: PathBuf,
}

impl Sweep {
    fn new(forms: &Value) -> Self {
        let place = scratch();
        for model in ["bert", "albert"] {
            fs::create_dir(place.path().join(model)).unwrap();
            for file in ["config.json", "model.safetensors"] {
                fs::copy(golden(model).join(file), place.path().join(model).join(file)).unwrap();
            }
        }
        stored_inputs("bert", &["input_ids", "attention_mask", "token_type_ids"], place.path());
        let plan = place.path().join("plan.json");
        let document = json!({
            "schema": 1,
            "models": [{"name": "bert", "path": "bert"}, {"name": "albert", "path": "albert"}],
            "forms": forms,
            "data": [{"name": "stored", "path": "bert.safetensors", "models": ["bert"]}],
            "shapes": [{"batch": 1, "seq": 4}],
            "bench": ["--set", "time=0.01,iterations=3,peaks=false"],
        });
        assert_eq!(problems(&schema_in("sweep.schema.json"), &document), Vec::<String>::new());
        fs::write(&plan, document.to_string()).unwrap();
        Self { place, plan }
    }

    fn small() -> Self {
        Self::new(&json!([{"name": "f32"}, {"name": "fp16", "options": ["--fp16"]}]))
    }

    fn out(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn run(&self, out: &Path, more: &[&str]) -> Done {
        planish(["sweep", text(&self.plan), "-o", text(out)].iter().chain(more))
    }

    fn jobs(&self, out: &Path) -> Vec<Value> {
        let listed = planish(["sweep", "list", text(out), "--json"]).succeeds();
        serde_json::from_str(&listed.stdout).unwrap()
    }
}

fn result(out: &Path, job: &Value) -> PathBuf {
    out.join("results").join(format!("{}.json", job["id"].as_str().unwrap()))
}

fn tables(out: &Path) -> [Vec<u8>; 2] {
    ["table.json", "table.csv"].map(|name| fs::read(out.join(name)).unwrap())
}

#[test]
fn the_tables_of_shards_and_of_processes_at_once_are_those_of_one() {
    let sweep = Sweep::small();
    let (one, shards, both) = (sweep.out("one"), sweep.out("shards"), sweep.out("both"));
    let done = sweep.run(&one, &[]).exits(0, &["10 jobs done now, 0 before, 0 failed"]);
    assert!(done.stdout.contains("| bert   | f32  | evaluate | stored | done"), "{}", done.stdout);
    let table: Value = serde_json::from_slice(&tables(&one)[0]).unwrap();
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 10);
    for row in rows {
        let names = ["verification.cosine", "embeddings.mean_cosine", "accuracy.cos"];
        let cosine = names.iter().find_map(|name| row["figures"][name].as_f64()).unwrap();
        assert!(cosine > 0.999, "{row}");
        assert!(!row.to_string().contains("latency"), "{row}");
    }
    let times = fs::read_to_string(one.join("times.json")).unwrap();
    assert_eq!(times.matches("latency_ms.p50").count(), 4);
    let csv = String::from_utf8(tables(&one)[1].clone()).unwrap();
    assert_eq!(csv.lines().count(), 11);

    sweep.run(&shards, &["--shard", "1/3"]).exits(0, &["4 jobs done now"]);
    planish(["sweep", "merge", text(&shards), "--tasks", "3"]).exits(75, &["6 of 10 jobs are not done", "--array=2,3"]);
    let out = [text(&sweep.plan), "-o", text(&shards)];
    let auto = ["sweep"].iter().chain(&out).chain(&["--shard", "auto"]).copied().collect::<Vec<_>>();
    planish_with(&auto, &[("RANK", "1"), ("WORLD_SIZE", "3")]).exits(0, &["3 jobs done now"]);
    planish(&auto).exits(2, &["auto found none of the variables", "PLANISH_SHARD (K/N)"]);
    sweep.run(&shards, &["--shard", "3/3"]).exits(0, &["3 jobs done now"]);
    // Whoever ends last writes the tables.
    assert_eq!(tables(&shards), tables(&one));
    planish(["sweep", "merge", text(&shards)]).exits(0, &[]);
    assert_eq!(tables(&shards), tables(&one));
    sweep.run(&shards, &[]).exits(0, &["0 jobs done now, 10 before"]);

    let start = || {
        let mut command = command(["sweep", text(&sweep.plan), "-o", text(&both), "--processes", "2"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let running = [start(), start()];
    let ended: Vec<Done> = running.map(|child| Done::from(child.wait_with_output().unwrap())).into();
    let ran: usize = ended.iter().map(|done| done.stderr.matches(" s\n").count()).sum();
    assert_eq!(ran, 10, "{}\n{}", ended[0].stderr, ended[1].stderr);
    ended.into_iter().for_each(|done| _ = done.exits(0, &[]));
    assert_eq!(tables(&both), tables(&one));
}

#[test]
fn a_sweep_goes_on_after_a_kill_a_damaged_result_and_a_failure() {
    let sweep = Sweep::new(&json!([{"name": "f32"}, {"name": "bad", "options": ["--fp16", "--keep", "nowhere"]}]));
    let out = sweep.out("out");
    // A sweep that goes on until so many jobs have results.
    let begun = |results: usize| {
        let mut sweep = command(["sweep", text(&sweep.plan), "-o", text(&out)]);
        let child = sweep.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let there = || fs::read_dir(out.join("results")).map_or(0, Iterator::count);
        let limit = Instant::now() + Duration::from_secs(60);
        while there() < results && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    };
    let mut child = begun(1);
    Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143), "jobs are left");
    let mut child = begun(2);
    child.kill().unwrap();
    child.wait().unwrap();
    // Those of bert, of which all were written whole, and the other ones.
    let done = sweep
        .run(&out, &[])
        .exits(1, &["5 jobs failed; `planish sweep PLAN -o FOLDER --failed` runs", "--keep `nowhere`"]);
    assert!(done.stdout.contains("compile albert bad failed: cannot compile "), "{}", done.stdout);
    let jobs = sweep.jobs(&out);
    let states: Vec<&str> = jobs.iter().map(|job| job["state"].as_str().unwrap()).collect();
    assert_eq!(states, [["done"; 3].as_slice(), &["failed"; 3], &["done"; 2], &["failed"; 2]].concat());
    let before = tables(&out);

    let damaged = result(&out, &jobs[0]);
    let whole = fs::read_to_string(&damaged).unwrap();
    fs::write(&damaged, &whole[..whole.len() / 2]).unwrap();
    planish(["sweep", "merge", text(&out)]).exits(75, &["1 of 10 jobs are not done", "is damaged", "--array=1"]);
    fs::write(&damaged, whole.replacen("\"parameters\": ", "\"parameters\": 1", 1)).unwrap();
    let id = jobs[0]["id"].as_str().unwrap();
    sweep.run(&out, &["--job", id]).exits(0, &["is damaged", "the job is run again", "1 jobs done now"]);
    planish(["sweep", "merge", text(&out)]).exits(1, &["5 jobs failed"]);
    assert_eq!(tables(&out), before);
    sweep.run(&out, &["--failed", "--shard", "5/10"]).exits(1, &["0 jobs done now, 0 before, 1 failed"]);
    sweep.run(&out, &["--job", "0123"]).exits(2, &["the plan has no job 0123"]);
}

/// What planish does not take is refused before a job runs.
#[test]
fn wrong_options_of_a_plan_are_refused() {
    let refused = |options: &Value, part: &str| {
        let sweep = Sweep::new(&json!([{"name": "f", "options": options}]));
        let out = sweep.out("out");
        sweep.run(&out, &[]).exits(2, &[part, "correct the options in the plan"]);
        planish(["sweep", "list", text(&sweep.plan)]).exits(2, &[part]);
        assert!(!out.exists());
    };
    refused(&json!(["--int9"]), "compile bert f: unexpected argument '--int9' found");
    refused(&json!(["--opset", "3"]), "3 is not in 17..=28");
    refused(&json!(["another"]), "unexpected argument 'another' found");
    refused(&json!(["--help"]), "compile bert f: its options ask for a help page or a version");
    let sweep = Sweep::small();
    let plan: Value = serde_json::from_str(&fs::read_to_string(&sweep.plan).unwrap()).unwrap();
    for (bench, part) in [
        (json!(["--batch", "4"]), "`--batch` is no option of `bench`"),
        (json!(["--seq=16"]), "`--seq=16` is no option of `bench`"),
        (json!(["--precision", "f32,fp16"]), "`--precision` is no option of `bench`"),
        (json!(["another"]), "bench bert f32, 1 x 4: it measures several artifacts"),
    ] {
        let mut plan = plan.clone();
        plan["bench"] = bench;
        fs::write(&sweep.plan, plan.to_string()).unwrap();
        sweep.run(&sweep.out("out"), &[]).exits(2, &[part]);
    }
}

/// All jobs of a form have one artifact, also where a verification holds data out.
#[test]
fn jobs_of_a_calibrated_form_have_the_same_artifact() {
    let sweep = Sweep::new(&json!([{"name": "i8", "options": ["--int8"], "calibrate": "bert.safetensors"}]));
    let compiled = |job: &Value| job["commands"][0].as_array().unwrap().clone();
    let listed = planish(["sweep", "list", text(&sweep.plan), "--json"]).succeeds();
    let jobs: Vec<Value> = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(jobs.len(), 5);
    assert!(jobs.iter().all(|job| compiled(job) == compiled(&jobs[0])), "{}", listed.stdout);
}

#[test]
fn a_job_whose_input_changed_is_not_run() {
    let sweep = Sweep::small();
    let out = sweep.out("out");
    sweep.run(&out, &["--shard", "1/10"]).exits(0, &["1 jobs done now"]);
    let config = sweep.place.path().join("bert/config.json");
    let old = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("{old}\n")).unwrap();
    let done = sweep.run(&out, &[]).exits(1, &["6 jobs could not run", "bert has changed since the sweep was planned"]);
    assert!(done.stderr.contains("compile albert f32"), "the others are run: {}", done.stderr);
    fs::write(&config, old).unwrap();
    sweep.run(&out, &[]).exits(0, &["5 jobs done now, 5 before"]);
    // A plan that is wrong, and an output folder that is none.
    fs::write(&sweep.plan, "{\"schema\": 1}").unwrap();
    sweep.run(&out, &[]).exits(2, &["missing field `models`"]);
    planish(["sweep", "merge", text(sweep.place.path())]).exits(1, &["there is no sweep"]);
}

#[test]
fn a_runtime_that_is_not_there_is_a_reason_to_try_again() {
    let sweep = Sweep::small();
    let out = sweep.out("out");
    let arguments = ["sweep", text(&sweep.plan), "-o", text(&out), "--shard", "1/10"];
    planish_with(arguments, &[("PLANISH_ORT_LIB", "/nowhere/libonnxruntime.so")])
        .exits(75, &["1 of 1 jobs are not done; run the same command again", "retry: "]);
    planish(["sweep", "merge", text(&out)]).exits(75, &["10 of 10 jobs are not done", "retry "]);
    planish(arguments).exits(0, &["1 jobs done now"]);
}

#[test]
fn programs_of_schedulers_are_printed() {
    let sweep = Sweep::small();
    let out = sweep.out("out");
    let tasks: &[&str] = &["--tasks", "4"];
    for (scheduler, more, part) in [
        ("ray", &[][..], "@ray.remote(num_cpus=THREADS"),
        ("slurm", tasks, "#SBATCH --array=1-4\n"),
        ("kubernetes", tasks, "completionMode: Indexed\n  completions: 4\n"),
    ] {
        let done = sweep.run(&out, &[&["--for", scheduler], more].concat()).succeeds();
        assert!(done.stdout.contains(part), "{}", done.stdout);
    }
    assert_eq!(sweep.jobs(&out).len(), 10);
    let elsewhere = scratch();
    sweep.run(&elsewhere.path().join("out"), &["--for", "kubernetes"]).exits(2, &["is not in the folder of the plan"]);
    sweep.run(&out, &["--tasks", "4"]).exits(2, &["--for"]);
    sweep.run(&out, &["--for", "ray", "--tasks", "4"]).exits(2, &["Ray has a task for each job"]);
}
