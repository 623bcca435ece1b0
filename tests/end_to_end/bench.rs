//! `planish bench`: what is measured, and in which order it is listed.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{
    Stored, artifact, golden, names, planish, planish_compile, repository, scratch, tensors, text, write_tensors,
};

#[test]
fn artifacts_of_a_model_are_measured_together() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (name, model) in [("a", "bert"), ("b", "bert-classify"), ("a2", "bert")] {
        planish_compile(&golden(model), folder.path().join(name).as_path(), &[]).succeeds();
    }
    // The references are beside the artifacts, under their names.
    for model in ["bert", "bert-classify"] {
        fs::create_dir(folder.path().join(model)).unwrap();
        for file in ["config.json", "model.safetensors"] {
            fs::copy(golden(model).join(file), folder.path().join(model).join(file)).unwrap();
        }
    }
    let json = path("figures.json");
    let quick = [
        "--no-peaks",
        "--warmup",
        "0",
        "--time",
        "0",
        "--iterations",
        "3",
        "--threads",
        "1",
        "--seq",
        "4,8",
        "--json",
        &json,
    ];
    let done = planish([&["bench", &path("a"), &path("b"), &path("a2")], &quick[..]].concat()).exits(0, &[]);
    let (notes, measured): (Vec<&str>, Vec<&str>) = done.stderr.lines().partition(|line| line.starts_with("note: "));
    assert_eq!(measured.len(), 6, "{measured:?}");
    // Three runs are too few for an interval of the median, in each cell: one line says so.
    let few: Vec<&&str> = notes.iter().filter(|note| note.contains("too few runs for an interval")).collect();
    assert!(matches!(few[..], [note] if note.contains("note: 6 of 6 cells, such as a (ort, 1 x ")), "{notes:?}");
    assert!(done.stdout.starts_with("All rows: runtime ort; prec f32; batch 1; "), "{}", done.stdout);
    let mut rows = done.stdout.lines().filter(|line| line.starts_with('|'));
    assert!(rows.all(|row| row.chars().count() <= 100), "{}", done.stdout);
    // Of the two that are compared with one model, one is to be chosen.
    assert_eq!(done.stdout.matches("\nchoose a").count(), 1, "{}", done.stdout);
    for (line, of) in measured.iter().zip(["1 of 4", "2 of 4", "3 of 4", "4 of 4", "1 of 2", "2 of 2"]) {
        assert!(line.starts_with(&format!("{of}: ")) && line.ends_with(" ms"), "{line}");
    }
    assert_eq!(done.stdout.lines().filter(|line| line.starts_with("| ")).count(), 7, "{}", done.stdout);
    let document: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let cells = document["cells"].as_array().unwrap();
    let order: Vec<&str> = cells.iter().map(|cell| cell["model"]["id"].as_str().unwrap()).collect();
    assert_eq!(order, ["a", "a2", "a", "a2", "b", "b"]);
    assert!(cells.iter().all(|cell| cell["latency_ms"]["p50"].is_f64()), "{document}");
    assert!(cells.iter().all(|cell| cell["samples_ns"].as_array().unwrap().len() >= 3), "{document}");
    assert_eq!(names(folder.path()), ["a", "a2", "b", "bert", "bert-classify", "figures.json"]);
}

/// An artifact is named by the precision of its quantized layers.
#[test]
fn the_precision_of_quantized_artifacts_is_named() {
    let folder = scratch();
    let (out, json) = (folder.path().join("out"), folder.path().join("figures.json"));
    planish_compile(&golden("bert"), &out, &["--int8"]).succeeds();
    let quick = [
        "--no-peaks",
        "--warmup",
        "0",
        "--time",
        "0",
        "--iterations",
        "1",
        "--threads",
        "1",
        "--seq",
        "4",
        "--json",
        text(&json),
    ];
    planish([&["bench", text(&out)], &quick[..]].concat()).exits(0, &[]);
    let document: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(document["cells"][0]["precision"], "int8", "{document}");
}

/// What is wrong with the arguments is said before anything is opened.
#[test]
fn arguments_are_checked_first() {
    let folder = scratch();
    let (missing, file) = (folder.path().join("missing"), folder.path().join("no/figures.json"));
    let bench = |more: &[&str]| planish([&["bench", text(&missing)], more].concat());
    bench(&["--no-peaks", "--warmup", "0", "--time", "0", "--iterations", "0"])
        .exits(2, &["--time 0 and --iterations 0"]);
    bench(&["--time=-1"]).exits(2, &["--time"]);
    bench(&["--batch", "0"]).exits(2, &["--batch"]);
    bench(&["--batch", "2000000"]).exits(2, &["--batch", "expected a number from 1 to 1048576"]);
    bench(&["--seq", "8-4"]).exits(2, &["--seq", "a range goes up"]);
    bench(&["--seq", "1-8*1"]).exits(2, &["--seq", "a range goes up"]);
    bench(&["--interval", "200%"]).exits(2, &["--interval", "expected a share"]);
    bench(&["--json", text(&file)]).exits(1, &["cannot write", "figures.json", "No such file"]);
    bench(&["--json", text(folder.path())]).exits(1, &["cannot write", "is a directory"]);
    bench(&["--json", "/proc/figures.json"]).exits(1, &["cannot write /proc/figures.json"]);
    let kept = folder.path().join("kept.json");
    fs::write(&kept, "before").unwrap();
    bench(&["--json", text(&kept)]).exits(1, &["there is no", "missing"]);
    assert_eq!(fs::read_to_string(&kept).unwrap(), "before");
    assert_eq!(names(folder.path()), ["kept.json"]);
}

/// Part, new tokens and cached ones of each cell.
fn runs(model: &str, lengths: &str) -> Vec<(String, u64, u64)> {
    let (_folder, out) = artifact(model);
    let reference = golden(model);
    let bench = ["bench", text(&out), "--reference", text(&reference), "--batch", "2", "--seq", lengths];
    let quick = ["--no-peaks", "--warmup", "0", "--time", "0", "--iterations", "3", "--threads", "1", "--json"];
    let done = planish([&bench[..], &quick].concat()).exits(0, &[]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let run = |cell: &Value| {
        let shape = &cell["shape"];
        let (latency, tokens) = (cell["latency_ms"]["p50"].as_f64().unwrap(), shape["tokens"].as_u64().unwrap());
        let speed = cell["throughput"]["tok_s"].as_f64().unwrap();
        assert!((speed * latency / 1e3 - (2 * tokens) as f64).abs() < 1e-6, "{cell}");
        assert!(cell["accuracy"]["max_rel"].as_f64().unwrap() <= 1e-5, "{cell}");
        let part = shape["part"].as_str().unwrap_or_default();
        (part.to_owned(), tokens, shape["past"].as_u64().unwrap())
    };
    document["cells"].as_array().unwrap().iter().map(run).collect()
}

fn expected<const N: usize>(runs: [(&str, u64, u64); N]) -> Vec<(String, u64, u64)> {
    runs.map(|(part, tokens, past)| (part.to_owned(), tokens, past)).to_vec()
}

#[test]
fn decoders_are_measured_on_prompts_and_on_a_token_behind_them() {
    // The model takes 64 tokens: behind the last there is room for none.
    assert_eq!(runs("gpt2", "5,64"), expected([("prompt", 5, 0), ("step", 1, 5), ("prompt", 64, 0)]));
}

#[test]
fn encoder_decoders_are_measured_part_by_part() {
    let (encoder, decoder) = ("encoder_model", "decoder_model");
    let all = [(encoder, 6, 0), (decoder, 1, 0), ("decoder_with_past_model", 1, 6)];
    assert_eq!(runs("t5", "6"), expected(all));
    let longest = [(encoder, 40, 0), (decoder, 1, 0)];
    assert_eq!(runs("bart", "6,40"), [expected(all), expected(longest)].concat());
}

#[test]
fn encoders_are_measured_on_one_run() {
    assert_eq!(runs("bert-mlm", "7"), expected([("", 7, 0)]));
}

#[test]
fn images_have_no_sequence_length() {
    let (_folder, out) = artifact("vit");
    let reference = golden("vit");
    let bench =
        ["bench", text(&out), "--reference", text(&reference), "--batch", "1,2", "--time", "0", "--threads", "1"];
    let table = planish([&bench[..], &["--iterations", "3"]].concat())
        .exits(0, &["1 of 2: out (ort, batch of ", "2 of 2: out (ort, batch of "])
        .stdout;
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).collect();
    let row: Vec<&str> = rows[1].split('|').map(str::trim).collect();
    assert!(!table.contains("seq") && !table.contains("tok/s") && row[2] == "1", "{table}");
    let more = ["--iterations", "3", "--json", "--seq", "4,8"];
    let done = planish([&bench[..], &more].concat()).exits(0, &["warning: --seq has no effect on", "no sequences"]);
    assert_eq!(done.stdout.lines().count(), 1, "one line, where no terminal is");
    assert!(!done.stderr.contains("note: "), "the document has the warnings: {}", done.stderr);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let cells = document["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2, "{document}");
    for cell in cells {
        assert!(cell["shape"]["seq"].is_null() && cell["shape"]["tokens"].is_null(), "{cell}");
        assert!(cell["throughput"]["tok_s"].is_null() && cell["throughput"]["inf_s"].is_f64(), "{cell}");
        assert!(cell.get("samples_ns").is_none(), "samples are for files");
    }
}

#[test]
fn each_artifact_is_held_against_its_own_reference() {
    let ((_a, bert), (_b, vit)) = (artifact("bert"), artifact("vit"));
    let [first, second] = ["bert", "vit"].map(golden);
    let bench = [
        "bench",
        text(&bert),
        text(&vit),
        "--no-peaks",
        "--warmup",
        "0",
        "--time",
        "0",
        "--iterations",
        "3",
        "--reference",
        text(&second),
    ];
    let quick = [&bench[..], &["--reference", text(&first)]].concat();
    // Both folders have one name, so the table has their paths.
    let table = planish(quick).exits(0, &[]).stdout;
    let rows =
        [&bert, &vit].map(|out| table.lines().filter(|line| line.starts_with(&format!("| {} ", text(out)))).count());
    assert_eq!(rows, [1, 1], "{table}");
    // One that nothing can be compared with costs its own row.
    let done = planish(bench).exits(1, &["vit", "is not what the artifact", text(&bert), "--reference"]);
    assert!(done.stderr.contains("none that is named takes the same inputs either"), "{}", done.stderr);
    let row = |name: &Path| done.stdout.lines().find(|line| line.starts_with(&format!("| {} ", text(name)))).unwrap();
    assert!(row(&bert).contains("unavailable") && !row(&vit).contains("unavailable"), "{}", done.stdout);
    assert!(done.stderr.contains("1 of 1: "), "{}", done.stderr);
}

#[test]
fn a_part_that_is_wrong_has_no_speed() {
    let (_folder, out) = artifact("bart");
    let path = out.join("decoder_with_past_model.onnx");
    let mut bytes = fs::read(&path).unwrap();
    let weight = &tensors(&golden("bart").join("model.safetensors"))["model.decoder.layernorm_embedding.weight"];
    let at = bytes.windows(64).position(|window| *window == weight.bytes[..64]).expect("it is there as stored");
    bytes[at..at + 4].copy_from_slice(&5f32.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let reference = golden("bart");
    let bench = ["bench", text(&out), "--reference", text(&reference), "--seq", "6", "--time", "0"];
    let done = planish(bench).exits(3, &["out, decoder_with_past_model, 1 x 6: logits: max relative error"]);
    let rows = done.stdout.lines().filter(|line| line.starts_with("| out"));
    assert_eq!(rows.map(|row| row.contains(" failed |")).collect::<Vec<_>>(), [false, false, true], "{}", done.stdout);
}

/// The cells of what a benchmark prints as JSON: artifact, runtime, precision, status.
fn cells(stdout: &str) -> Vec<[String; 4]> {
    let document: Value = serde_json::from_str(stdout).unwrap();
    let cells = document["cells"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    cells.map(|c| [text(&c["model"]["id"]), text(&c["backend"]), text(&c["precision"]), text(&c["status"])]).collect()
}

const QUICK: [&str; 12] =
    ["--seq", "4", "--time", "0", "--warmup", "0", "--iterations", "2", "--threads", "1", "--no-peaks", "--json"];

#[test]
fn sizes_are_numbers_and_ranges() {
    let (_folder, out) = artifact("bert");
    let model = golden("bert");
    let bench = ["bench", text(&out), "--reference", text(&model), "--batch", "1-4*2,5-7+2", "--seq", "3-4"];
    let quick = ["--time", "0", "--warmup", "0", "--iterations", "1", "--no-peaks", "--json"];
    let done = planish([&bench[..], &quick].concat()).exits(0, &[]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let size = |cell: &Value, name: &str| cell["shape"][name].as_u64().unwrap();
    let sizes: Vec<_> =
        document["cells"].as_array().unwrap().iter().map(|c| (size(c, "batch"), size(c, "seq"))).collect();
    let expected: Vec<_> = [1, 2, 4, 5, 7].into_iter().flat_map(|batch| [(batch, 3), (batch, 4)]).collect();
    assert_eq!(sizes, expected);
}

#[test]
fn checkpoints_are_compiled_in_the_forms_that_are_named() {
    let model = golden("bert");
    let bench = ["bench", text(&model), "--precision", "unfused,f32,fp16,int8-dynamic,int4,int8-weights"];
    let done = planish([&bench[..], &QUICK].concat()).exits(0, &[]);
    let expected = [
        ["bert-onnx-unfused", "ort", "f32", "measured"],
        ["bert-ort-f32", "ort", "f32", "measured"],
        ["bert-ort-fp16", "ort", "fp16", "measured"],
        ["bert-ort-int8-dynamic", "ort", "int8", "measured"],
        ["bert-ort-int4", "ort", "int4", "measured"],
        ["bert-ort-int8-weights", "ort", "int8-weights", "measured"],
    ];
    assert_eq!(cells(&done.stdout), expected);
    planish(["bench", text(&model), "--precision", "int2"]).exits(2, &["--precision", "there are unfused, f32, fp16"]);
    planish(["bench", text(&model), "--precision", "int8"]).exits(1, &["needs data", "--calibrate"]);
    planish(["bench", text(&model), "--runtime", "trt"]).exits(1, &["planish compile first"]);
}

#[test]
fn a_comparison_has_the_usual_forms_and_their_accuracy_on_data() {
    let folder = scratch();
    let data = folder.path().join("data.safetensors");
    let (rows, tokens) = (20, 6);
    let ids = |of: i64| (0..120i64).flat_map(|at| (at % of).to_le_bytes()).collect();
    let stored = |of| Stored { dtype: safetensors::Dtype::I64, shape: vec![rows, tokens], bytes: ids(of) };
    let ones = Stored { bytes: [1i64; 120].iter().flat_map(|one| one.to_le_bytes()).collect(), ..stored(1) };
    let inputs = [("input_ids", stored(37)), ("attention_mask", ones), ("token_type_ids", stored(1))];
    write_tensors(&data, &inputs.map(|(name, of)| (name.to_owned(), of)).into());
    let model = golden("bert");
    let done = planish([&["bench", "--compare", text(&model), "--data", text(&data)], &QUICK[..]].concat());
    let done = done.exits(0, &[]);
    let expected = [
        ["bert-onnx-unfused", "ort", "f32", "measured"],
        ["bert-ort-f32", "ort", "f32", "measured"],
        ["bert-ort-fp16", "ort", "fp16", "measured"],
        ["bert-ort-int8-dynamic", "ort", "int8", "measured"],
        ["bert-ort-int8", "ort", "int8", "measured"],
        ["bert-ort-int8-weights", "ort", "int8-weights", "measured"],
        ["bert-ort-int4", "ort", "int4", "measured"],
    ];
    assert_eq!(cells(&done.stdout), expected);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let advice = &document["recommendations"][0];
    assert_eq!(advice["limits"], "cos=0.99,neighbours=90", "{advice}");
    let chosen = advice["choice"]["id"].as_str().unwrap();
    let command = advice["choice"]["command"].as_str().unwrap();
    assert!(expected.iter().any(|of| of[0] == chosen) && command.starts_with("planish compile "), "{advice}");
    for cell in document["cells"].as_array().unwrap() {
        let evaluation = &cell["evaluation"];
        // Every fifth sample is held out of those that INT8 is calibrated on.
        assert_eq!(evaluation["samples"], 4, "{evaluation}");
        assert_eq!(evaluation["split"], "held-out", "{evaluation}");
        let cosine = evaluation["embeddings"]["mean_cosine"].as_f64().unwrap();
        let least = match cell["precision"].as_str().unwrap() {
            "int4" => 0.8,
            "int8" | "int8-weights" => 0.98,
            _ => 0.999_99,
        };
        assert!(cosine > least, "{cell}");
        let [low, high] = [0, 1].map(|end| evaluation["embeddings"]["neighbours_kept_ci95"][end].as_f64().unwrap());
        let kept = evaluation["embeddings"]["neighbours_kept"].as_f64().unwrap();
        assert!(low <= kept && kept <= high && high - low > 20.0, "four samples say little: {evaluation}");
        let warnings = cell["warnings"].as_array().unwrap();
        let few = "accuracy on data is of 4 samples only, and 100 are needed";
        assert!(warnings.iter().any(|warning| warning.as_str().unwrap().contains(few)), "{cell}");
        assert!(cell["model"]["file_bytes"].as_u64().unwrap() > 1000, "{cell}");
    }
    // Without data static INT8 is left out.
    let done = planish([&["bench", "--compare", text(&model)], &QUICK[..]].concat());
    let done = done.exits(0, &["warning: bert-ort-int8 is left out", "--calibrate or --data"]);
    assert_eq!(cells(&done.stdout).len(), 6);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let advice = &document["recommendations"][0];
    let chosen = cells(&done.stdout).into_iter().find(|cell| advice["choice"]["id"] == cell[0]).unwrap();
    assert!(["f32", "fp16"].contains(&&*chosen[2]) && advice.get("limits").is_none(), "{advice}");
}

/// Contestants that were made of each other are compared with one model, and what fits no model costs its own row.
#[test]
fn what_was_not_compiled_from_the_reference_is_compared_with_it() {
    let ((folder, first), model) = (artifact("bert"), golden("bert"));
    let again = folder.path().join("again");
    planish_compile(&first.join("model.onnx"), &again, &["--int4"]).succeeds();
    let both = ["bench", text(&first), text(&again), "--reference", text(&model)];
    let done = planish([&both[..], &QUICK].concat()).exits(0, &["again was not compiled from", "--reference names it"]);
    let statuses: Vec<String> = cells(&done.stdout).into_iter().map(|cell| cell[3].clone()).collect();
    assert_eq!(statuses, ["measured", "measured"]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    // They are measured in turns, and the second is held against the model before it lost bits.
    assert_eq!(document["cells"][0]["rounds"], document["cells"][1]["rounds"], "{document}");
    assert!(document["cells"][1]["accuracy"]["max_rel"].as_f64().unwrap() > 1e-3, "{document}");
    // A file that is no model is left out, and the others are measured.
    let broken = folder.path().join("broken.onnx");
    fs::write(&broken, "no graph").unwrap();
    let named = ["bench", text(&first), text(&broken), "--reference", text(&model)];
    let done = planish([&named[..], &QUICK].concat()).exits(1, &["broken.onnx is left out", "1 of 1: "]);
    assert_eq!(cells(&done.stdout).len(), 1);
}

/// A file with quantized operators may differ from the reference interpreter by rounding, whatever it is compared with.
#[test]
fn a_quantized_file_of_another_exporter_is_compared_with_itself_and_with_a_model() {
    let ((folder, _), model) = (artifact("bert"), golden("bert"));
    let out = folder.path().join("int8");
    planish_compile(&model, &out, &["--int8"]).succeeds();
    let file = out.join("model.onnx");
    let done = planish([&["bench", text(&file)], &QUICK[..]].concat()).exits(0, &["is compared with itself"]);
    assert_eq!(cells(&done.stdout), [[text(&file), "ort", "quantized", "measured"]]);
    // Beside a comparison it is held against the model of that, without a word of the user.
    let compare = ["bench", text(&file), "--compare", text(&model)];
    let done =
        planish([&compare[..], &QUICK].concat()).exits(0, &["model.onnx is compared with", "takes the same inputs"]);
    let found = cells(&done.stdout).into_iter().find(|cell| cell[0] == text(&file)).unwrap();
    assert_eq!(found[3], "measured");
}

/// Checks the memory of a cell that was measured in a process of its own.
fn has_memory_of_its_own(cell: &Value) {
    let memory = |name: &str| cell["memory"][name].as_u64().unwrap();
    assert!(memory("peak_rss") > memory("load_rss") && memory("peak_rss") > 10_000_000, "{cell}");
    assert!(memory("repeated_rss") >= memory("peak_rss"), "{cell}");
}

#[test]
fn generation_is_measured_in_processes_of_their_own() {
    for name in ["gpt2", "bart"] {
        let model = golden(name);
        let bench = ["bench", text(&model), "--workload", "generate", "--new-tokens", "3", "--isolate", "--uncached"];
        let done = planish([&bench[..], &QUICK].concat()).exits(0, &["1 of 2", "2 of 2"]);
        let document: Value = serde_json::from_str(&done.stdout).unwrap();
        for (cell, cache) in document["cells"].as_array().unwrap().iter().zip([true, false]) {
            assert_eq!((&cell["status"], cell["generation"]["cache"].as_bool()), (&"measured".into(), Some(cache)));
            assert!(cell["load"]["ms"].as_f64().unwrap() > 0.0, "{cell}");
            has_memory_of_its_own(cell);
        }
    }
    let model = golden("bert");
    let load = ["bench", text(&model), "--workload", "load", "--isolate"];
    planish(load).exits(2, &["--workload load always has processes of its own"]);
}

#[test]
fn a_contestant_in_a_process_of_its_own_has_a_peak_of_memory() {
    let (_folder, out) = artifact("bert");
    let model = golden("bert");
    let bench = ["bench", text(&out), "--reference", text(&model), "--isolate"];
    let done = planish([&bench[..], &QUICK].concat()).exits(0, &[]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let cell = &document["cells"][0];
    assert_eq!(cell["status"], "measured", "{cell}");
    assert!(cell["accuracy"]["cos"].as_f64().unwrap() > 0.999_999, "{cell}");
    has_memory_of_its_own(cell);
    let memory = |name: &str| cell["memory"][name].as_u64().unwrap();
    // The weights of the graph, and not its file.
    let file = fs::metadata(out.join("model.onnx")).unwrap().len();
    assert!((file / 2..file).contains(&memory("weights")), "{cell}");
    assert!(cell["load"]["ms"].as_f64().unwrap() > 0.0, "{cell}");
    planish(["bench-worker"]).exits(0, &[]);
}

#[test]
fn a_decoder_that_is_wrong_is_not_measured_while_it_generates() {
    let (_folder, out) = artifact("gpt2");
    let path = out.join("model.onnx");
    let mut bytes = fs::read(&path).unwrap();
    let stored = tensors(&golden("gpt2").join("model.safetensors"));
    let weight = stored.iter().find(|(name, _)| name.ends_with("wte.weight")).unwrap().1;
    let at = bytes.windows(64).position(|window| *window == weight.bytes[..64]).expect("it is there as stored");
    bytes[at..at + 8192].copy_from_slice(&[5f32.to_le_bytes(); 2048].concat());
    fs::write(&path, bytes).unwrap();
    let model = golden("gpt2");
    let bench = ["bench", text(&out), "--reference", text(&model), "--workload", "generate"];
    let done = planish([&bench[..], &QUICK].concat()).exits(3, &["verification failed", "max relative error"]);
    assert_eq!(cells(&done.stdout).iter().map(|cell| &*cell[3]).collect::<Vec<_>>(), ["failed"]);
}

#[test]
fn operators_have_times_and_nodes_a_provider() {
    let (_folder, out) = artifact("gpt2");
    let model = golden("gpt2");
    let bench = ["bench", text(&out), "--reference", text(&model), "--operators"];
    let done = planish([&bench[..], &QUICK].concat()).exits(0, &[]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let cells = document["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2, "the prompt and a step");
    for cell in cells {
        let operators = cell["operators"].as_array().unwrap();
        let times: Vec<f64> = operators.iter().map(|operator| operator[1].as_f64().unwrap()).collect();
        assert!(operators.len() > 3 && times.is_sorted_by(|a, b| a >= b) && times[0] > 0.0, "{cell}");
        let providers = cell["providers"].as_object().unwrap();
        assert!(providers["CPUExecutionProvider"].as_u64() > Some(10) && providers.len() == 1, "{cell}");
    }
}

#[test]
fn generation_is_measured_with_and_without_the_cache() {
    let model = golden("gpt2");
    let bench = ["bench", text(&model), "--workload", "generate", "--new-tokens", "5", "--uncached"];
    let cached = planish([&bench[..6], &QUICK].concat()).exits(0, &["1 of 1"]);
    assert_eq!(cells(&cached.stdout).len(), 1, "the pass without the cache is for those who ask for it");
    planish(["bench", text(&model), "--uncached"]).exits(2, &["--uncached is for --workload generate"]);
    // One session serves all shapes: they have the time of one loading, and of its first run.
    let two = planish([&bench[..], &["--batch", "1,2"], &QUICK[2..]].concat()).exits(0, &["4 of 4"]);
    let two: Value = serde_json::from_str(&two.stdout).unwrap();
    let load = |at: usize, name: &str| two["cells"][at]["load"][name].as_f64().unwrap();
    for name in ["ms", "first_ms"] {
        assert!(load(0, name) > 0.0 && load(0, name) == load(1, name) && load(2, name) == load(3, name), "{two}");
    }
    let done = planish([&bench[..], &QUICK].concat()).exits(0, &["1 of 2", "2 of 2"]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let cells = document["cells"].as_array().unwrap();
    for (cell, cache) in cells.iter().zip([true, false]) {
        let generation = &cell["generation"];
        assert_eq!(
            (generation["new_tokens"].as_u64(), generation["cache"].as_bool()),
            (Some(5), Some(cache)),
            "{cell}"
        );
        let [first, each, rate] = ["ttft_ms", "tpot_ms", "tok_s"].map(|name| generation[name].as_f64().unwrap());
        let total = cell["latency_ms"]["p50"].as_f64().unwrap();
        assert!(first > 0.0 && first < total && each > 0.0 && (rate - 5e3 / total).abs() < 1e-6 * rate, "{cell}");
    }
    // Without the cache each token is computed anew in each step; the weights are read as often.
    let work = |at: usize, name: &str| cells[at]["work"][name].as_u64().unwrap();
    assert!(work(0, "flops") < work(1, "flops") && work(0, "bytes") > 5 * 100_000, "{document}");
    // The model takes 32 tokens.
    let long = [&bench[..4], &["--new-tokens", "4000"], &QUICK].concat();
    planish(long).exits(2, &["--seq 4 with --new-tokens 4000", "takes at most"]);
    let wrong = |more: &[&str]| planish([&bench[..4], more].concat());
    wrong(&["--new-tokens", "1"]).exits(2, &["--new-tokens is at least 2"]);
    wrong(&["--operators"]).exits(2, &["--operators is for --workload encode"]);
    let few = ["--workload", "generate", "--new-tokens", "4"];
    planish([&["bench", text(&golden("bert"))], &few[..]].concat()).exits(1, &["cannot generate"]);
}

#[test]
fn texts_of_different_lengths_are_measured_in_two_orders() {
    let folder = scratch();
    let data = folder.path().join("data.safetensors");
    let tensor = |value: i64| Stored {
        dtype: safetensors::Dtype::I64,
        shape: vec![5, 6],
        bytes: [value; 30].iter().flat_map(|value| value.to_le_bytes()).collect(),
    };
    let inputs = [("input_ids", 7), ("attention_mask", 1), ("token_type_ids", 0)];
    write_tensors(&data, &inputs.map(|(name, value)| (name.to_owned(), tensor(value))).into());
    let model = golden("bert");
    let bench = ["bench", text(&model), "--workload", "lengths", "--data", text(&data), "--batch", "2"];
    let quick = ["--no-peaks", "--warmup", "0", "--time", "0", "--iterations", "1", "--json"];
    let done = planish([&bench[..], &quick].concat()).exits(0, &[]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    for (cell, batches) in document["cells"].as_array().unwrap().iter().zip(["arrival", "buckets"]) {
        let expected = serde_json::json!({"batches": batches, "count": 3, "real": 30, "padded": 30});
        assert_eq!(cell["padding"], expected, "{cell}");
        assert!(cell["throughput"]["inf_s"].as_f64().unwrap() > 0.0, "{cell}");
        assert!(cell["load"]["ms"].as_f64().unwrap() > 0.0 && cell["load"] == document["cells"][0]["load"], "{cell}");
    }
    // A decoder begins with an empty cache, of as many rows.
    let of_decoder = folder.path().join("decoder.safetensors");
    let inputs = [("input_ids", 7), ("attention_mask", 1)];
    write_tensors(&of_decoder, &inputs.map(|(name, value)| (name.to_owned(), tensor(value))).into());
    let decoder = golden("gpt2");
    let of = ["bench", text(&decoder), "--workload", "lengths", "--data", text(&of_decoder), "--batch", "2"];
    let done = planish([&of[..], &quick].concat()).exits(0, &[]);
    let document_of_decoder: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(document_of_decoder["cells"][0]["padding"]["real"], 30);
    // The batches are the same, and so is the work, in a process of its own.
    let apart = planish([&bench[..], &quick[..], &["--isolate"]].concat()).exits(0, &[]);
    let apart: Value = serde_json::from_str(&apart.stdout).unwrap();
    for (cell, here) in apart["cells"].as_array().unwrap().iter().zip(document["cells"].as_array().unwrap()) {
        assert_eq!((&cell["padding"], &cell["work"]), (&here["padding"], &here["work"]), "{cell}");
        assert!(cell["work"]["flops"].as_u64().unwrap() > 0, "{cell}");
        has_memory_of_its_own(cell);
    }
    planish(["bench", text(&model), "--workload", "lengths"]).exits(2, &["add --data FILE"]);
    let several = golden("t5");
    let one_part = ["bench", text(&several), "--workload", "lengths", "--data", text(&data)];
    planish(one_part).exits(1, &["models of one part"]);
}

#[test]
fn onnx_files_of_other_exporters_are_measured_as_they_are() {
    let file = repository().join("fixtures/graphs/optimum-bert/model.onnx");
    let done = planish([&["bench", text(&file)], &QUICK[..]].concat());
    let done = done.exits(0, &["compared with itself", "the meaning of inputs from their names"]);
    assert_eq!(cells(&done.stdout), [[text(&file), "ort", "f32", "measured"]]);
    // Beside an artifact of the checkpoint that it was made from.
    let ((_folder, out), model) = (artifact("bert"), golden("bert"));
    let both = ["bench", text(&file), text(&out), "--reference", text(&model)];
    let done = planish([&both[..], &QUICK].concat()).exits(0, &["1 of 2", "2 of 2"]);
    assert_eq!(cells(&done.stdout).len(), 2);
}

#[test]
fn inputs_that_cannot_be_guessed_are_given() {
    let folder = scratch();
    let file = repository().join("fixtures/onnx/residual.onnx");
    let inputs = folder.path().join("inputs.safetensors");
    let x = || Stored { dtype: safetensors::Dtype::F32, shape: vec![3, 1, 4], bytes: vec![0; 48] };
    write_tensors(&inputs, &["x", "r"].map(|name| (name.to_owned(), x())).into());
    let quick =
        ["--no-peaks", "--warmup", "0", "--time", "0", "--iterations", "2", "--json", "--inputs", text(&inputs)];
    let done = planish([&["bench", text(&file)], &quick[..]].concat());
    let done = done.exits(0, &[]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(document["cells"][0]["shape"]["batch"], 3, "{document}");
    // Wrong tensors are wrong arguments, and nothing is measured.
    let refused = |names: &[&str], shape: &[usize], parts: &[&str]| {
        let bytes = vec![0; shape.iter().product::<usize>() * 4];
        let tensor = || Stored { dtype: safetensors::Dtype::F32, shape: shape.to_vec(), bytes: bytes.clone() };
        write_tensors(&inputs, &names.iter().map(|name| ((*name).to_owned(), tensor())).collect());
        planish([&["bench", text(&file)], &quick[..]].concat()).exits(2, &[&["--inputs"], parts].concat());
    };
    refused(&["x"], &[3, 1, 4], &["the input `r` is missing"]);
    refused(&["x", "r"], &[3, 4], &["was given f32[3, 4]"]);
}

#[test]
fn a_runtime_that_is_absent_has_a_row_with_the_reason() {
    let (_folder, out) = artifact("bert");
    let model = golden("bert");
    let bench = ["bench", text(&out), "--reference", text(&model), "--runtime"];
    let done = planish([&bench[..], &["ort,trt"], &QUICK].concat());
    let done = done.exits(0, &["out is not measured", "trt"]);
    assert_eq!(
        cells(&done.stdout).iter().map(|c| [&*c[1], &*c[3]]).collect::<Vec<_>>(),
        [["ort", "measured"], ["trt", "unavailable"]]
    );
    planish([&bench[..], &["trt"], &QUICK].concat()).exits(4, &["trt"]);
}
