//! `planish bench` of forms of a checkpoint, and of what was not compiled from the reference.

use std::fs;

use serde_json::Value;

use crate::bench::{QUICK, cells};
use crate::support::{Stored, artifact, golden, planish, planish_compile, scratch, text, write_tensors};

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
    planish(["bench", text(&model), "--precision", "int8"]).exits(1, &["needs data", "--set calibrate=FILE"]);
    let (folder, data) = (scratch(), ["data.csv", "data.jsonl"]);
    let data = data.map(|name| folder.path().join(name));
    fs::write(&data[0], "body\na b\n").unwrap();
    fs::write(&data[1], "{\"body\": \"a b\"}\n").unwrap();
    for (file, part) in data.iter().zip(["column", "member"]) {
        let remedy = format!("; --set field=NAME names the {part} with the text\n");
        let done = planish(["bench", text(&model), "--data", text(file)]).exits(1, &["`text`, but `body`"]);
        let error = &done.stderr;
        assert!(
            error.contains(remedy.trim_end()) && !error.contains("--field") && !error.contains("--skip"),
            "{error}"
        );
    }
    planish(["bench", text(&model), "--runtime", "trt"]).exits(1, &["planish compile first"]);
}

/// A recipe says how forms are compiled that it is of use for: a table of tokens that stays a float makes a larger file.
#[test]
fn forms_follow_a_recipe() {
    let model = golden("bert");
    let bytes = |recipe: &[&str]| {
        let bench = ["bench", text(&model), "--precision", "int8-dynamic"];
        let done = planish([&bench[..], recipe, &QUICK].concat()).exits(0, &[]);
        let document: Value = serde_json::from_str(&done.stdout).unwrap();
        document["cells"][0]["model"]["file_bytes"].as_u64().unwrap()
    };
    assert!(bytes(&["--recipe", "keep=@table=float"]) > bytes(&[]));
    let refused = |more: &[&str], code: i32, why: &[&str]| {
        planish([&["bench", text(&model)], more].concat()).exits(code, why);
    };
    refused(&["--recipe", "precision=int4"], 2, &["--recipe precision: a benchmark takes --precision for it"]);
    refused(&["--recipe", "block-size=64"], 2, &["--recipe block-size is for --precision int4, int8-weights"]);
    let (_folder, out) = artifact("bert");
    planish(["bench", text(&out), "--recipe", "keep=a"]).exits(2, &["--recipe is for checkpoints, and none is named"]);
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
        ["bert-openvino-f32", "openvino", "f32", "measured"],
        ["bert-openvino-int8", "openvino", "int8", "measured"],
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
    let done = done.exits(0, &["warning: bert-ort-int8 is left out", "--set calibrate=FILE or --data"]);
    assert_eq!(cells(&done.stdout).len(), 7);
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
