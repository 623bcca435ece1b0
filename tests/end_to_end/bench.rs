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
    let quick =
        ["--set", "peaks=false,warmup=0,time=0,iterations=3", "--threads", "1", "--seq", "4,8", "--json", &json];
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
    let quick =
        ["--set", "peaks=false,warmup=0,time=0,iterations=1", "--threads", "1", "--seq", "4", "--json", text(&json)];
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
    bench(&["--set", "peaks=false,warmup=0,time=0,iterations=0"]).exits(2, &["--set time=0,iterations=0"]);
    bench(&["--set=time=-1"]).exits(2, &["--set time=-1"]);
    bench(&["--batch", "0"]).exits(2, &["--batch"]);
    bench(&["--batch", "2000000"]).exits(2, &["--batch", "expected a number from 1 to 1048576"]);
    bench(&["--seq", "8-4"]).exits(2, &["--seq", "a range goes up"]);
    bench(&["--seq", "1-8*1"]).exits(2, &["--seq", "a range goes up"]);
    bench(&["--set", "interval=200%"]).exits(2, &["--set interval=200%", "expected a share"]);
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
    let quick = ["--set", "peaks=false,warmup=0,time=0,iterations=3", "--threads", "1", "--json"];
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
fn decoders_are_measured_on_prompts_and_on_a_token_after_them() {
    // The model takes 64 tokens: after the last there is room for none.
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
        ["bench", text(&out), "--reference", text(&reference), "--batch", "1,2", "--set", "time=0", "--threads", "1"];
    let table = planish([&bench[..], &["--set", "iterations=3"]].concat())
        .exits(0, &["1 of 2: out (ort, batch of ", "2 of 2: out (ort, batch of "])
        .stdout;
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| ")).collect();
    let row: Vec<&str> = rows[1].split('|').map(str::trim).collect();
    assert!(!table.contains("seq") && !table.contains("tok/s") && row[2] == "1", "{table}");
    let more = ["--set", "iterations=3", "--json", "--seq", "4,8"];
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
        "--set",
        "peaks=false,warmup=0,time=0,iterations=3",
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
    let bench = ["bench", text(&out), "--reference", text(&reference), "--seq", "6", "--set", "time=0"];
    let done = planish(bench).exits(3, &["out, decoder_with_past_model, 1 x 6: logits: max relative error"]);
    let rows = done.stdout.lines().filter(|line| line.starts_with("| out"));
    assert_eq!(rows.map(|row| row.contains(" failed |")).collect::<Vec<_>>(), [false, false, true], "{}", done.stdout);
}

/// The cells of what a benchmark prints as JSON: artifact, runtime, precision, status.
pub(crate) fn cells(stdout: &str) -> Vec<[String; 4]> {
    let document: Value = serde_json::from_str(stdout).unwrap();
    let cells = document["cells"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    cells.map(|c| [text(&c["model"]["id"]), text(&c["backend"]), text(&c["precision"]), text(&c["status"])]).collect()
}

pub(crate) const QUICK: [&str; 7] =
    ["--seq", "4", "--set", "time=0,warmup=0,iterations=2,peaks=false", "--threads", "1", "--json"];

#[test]
fn sizes_are_numbers_and_ranges() {
    let (_folder, out) = artifact("bert");
    let model = golden("bert");
    let bench = ["bench", text(&out), "--reference", text(&model), "--batch", "1-4*2,5-7+2", "--seq", "3-4"];
    let quick = ["--set", "time=0,warmup=0,iterations=1,peaks=false", "--json"];
    let done = planish([&bench[..], &quick].concat()).exits(0, &[]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let size = |cell: &Value, name: &str| cell["shape"][name].as_u64().unwrap();
    let sizes: Vec<_> =
        document["cells"].as_array().unwrap().iter().map(|c| (size(c, "batch"), size(c, "seq"))).collect();
    let expected: Vec<_> = [1, 2, 4, 5, 7].into_iter().flat_map(|batch| [(batch, 3), (batch, 4)]).collect();
    assert_eq!(sizes, expected);
}

#[test]
fn operators_have_times_and_nodes_a_provider() {
    let (_folder, out) = artifact("gpt2");
    let model = golden("gpt2");
    let timed = ["bench", text(&out), "--runtime-option", "spin=5"];
    planish(timed).exits(2, &["--runtime-option spin=5: expected true or false"]);
    let bench = ["bench", text(&out), "--reference", text(&model), "--set=operators", "--runtime-option", "spin=true"];
    let done = planish([&bench[..], &QUICK].concat()).exits(0, &[]);
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let cells = document["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2, "the prompt and a step");
    assert!(cells.iter().all(|cell| cell["options"]["spin"] == true), "{document}");
    for cell in cells {
        let operators = cell["operators"].as_array().unwrap();
        let times: Vec<f64> = operators.iter().map(|operator| operator[1].as_f64().unwrap()).collect();
        assert!(operators.len() > 3 && times.is_sorted_by(|a, b| a >= b) && times[0] > 0.0, "{cell}");
        let providers = cell["providers"].as_object().unwrap();
        assert!(providers["CPUExecutionProvider"].as_u64() > Some(10) && providers.len() == 1, "{cell}");
    }
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
    let quick = ["--set", "peaks=false,warmup=0,time=0,iterations=2", "--json", "--inputs", text(&inputs)];
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
