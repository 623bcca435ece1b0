//! Forms of mixtures of experts.

use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::Dtype;
use serde_json::{Value, json};

use crate::calibrate::integers;
use crate::engine::read;
use crate::support::{Stored, golden, planish, planish_compile, scratch, text, write_tensors};

const FORMS: [&str; 3] = ["grouped", "gathered", "all"];

#[test]
fn every_form_gives_what_the_model_does_and_the_manifest_names_it() {
    let folder = scratch();
    let out = folder.path().join("out");
    for (name, target, forms) in
        [("gpt-oss", "ort", &FORMS[..]), ("mixtral", "ort", &FORMS), ("mixtral", "onnx", &FORMS)]
    {
        for form in forms {
            let recipe = format!("--recipe=experts={form}");
            planish_compile(&golden(name), &out, &["--target", target, &recipe, "--verify"]).exits(0, &[]);
            let manifest = read(&out.join("planish.json"));
            assert_eq!(
                (&manifest["experts"], &manifest["recipe"]["experts"]),
                (&json!(form), &json!(form)),
                "{name} {target}"
            );
        }
        // The form that was measured to be fastest, and the same again from what it was made with.
        planish_compile(&golden(name), &out, &["--target", target]).exits(0, &[]);
        let manifest = read(&out.join("planish.json"));
        assert_eq!(
            (&manifest["experts"], manifest["recipe"].get("experts")),
            (&json!("grouped"), None),
            "{name} {target}"
        );
    }
    planish_compile(&golden("bert"), &out, &["--force"]).exits(0, &[]);
    assert_eq!(read(&out.join("planish.json")).get("experts"), None);
}

#[test]
fn forms_that_are_not_there_are_refused() {
    let folder = scratch();
    let out = folder.path().join("out");
    for (name, target, form, says) in [
        ("mixtral", "trt", "grouped", &["experts=grouped is not for target trt; there are gathered, all"][..]),
        ("mixtral", "cuda", "all", &["target cuda, which has no mixtures of experts"]),
        ("mixtral", "ort", "some", &["experts"]),
    ] {
        let recipe = format!("--recipe=experts={form}");
        planish_compile(&golden(name), &out, &["--target", target, &recipe]).exits(2, says);
    }
    let done = planish_compile(&golden("bert"), &out, &["--recipe=experts=all"]);
    done.exits(1, &["--recipe experts=all: the model has no mixtures of experts; leave it out"]);
    assert!(!out.exists(), "{}", text(&out));
}

/// How often tokens took each expert of each layer of Mixtral, by `planish calibrate`.
fn counts(data: &Path, more: &[&str]) -> (Vec<u64>, String) {
    let (model, table) = (golden("mixtral"), data.with_extension("json"));
    let arguments = ["calibrate", text(&model), "--data", text(data), "-o", text(&table)];
    let done = planish([&arguments[..], more].concat()).exits(0, &[]);
    let table: Value = serde_json::from_slice(&fs::read(&table).unwrap()).unwrap();
    let layers = table["experts"]["model"].as_object().unwrap();
    let counts = layers.values().flat_map(|layer| layer.as_array().unwrap()).map(|count| count.as_u64().unwrap());
    (counts.collect(), done.stderr)
}

/// One row of text of padding alone but for two tokens.
fn two_tokens(folder: &Path) -> PathBuf {
    let tensor = |numbers: [i64; 6]| {
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        Stored { dtype: Dtype::I64, shape: vec![1, 6], bytes }
    };
    let path = folder.join("two.safetensors");
    let ids = ("input_ids".to_owned(), tensor([0, 0, 0, 0, 7, 7]));
    let mask = ("attention_mask".to_owned(), tensor([0, 0, 0, 0, 1, 1]));
    write_tensors(&path, &[ids, mask].into());
    path
}

#[test]
fn calibration_counts_the_tokens_of_each_expert() {
    let folder = scratch();
    let config = read(&golden("mixtral").join("config.json"));
    let [layers, taken] = ["num_hidden_layers", "num_experts_per_tok"].map(|key| config[key].as_u64().unwrap());
    let data = integers(&[("input_ids", 100)], folder.path());
    let (all, said) = counts(&data, &[]);
    assert_eq!(all.iter().sum::<u64>(), 32 * 12 * layers * taken, "{all:?}");
    assert!(!said.contains("took"), "{said}");
    assert_eq!(counts(&data, &["--runtime", "reference"]).0, all);

    // Padding counts for no expert, and two tokens do not take all of them.
    let two = two_tokens(folder.path());
    let (some, said) = counts(&two, &["--measure", "inputs"]);
    assert_eq!(some.iter().sum::<u64>(), 2 * layers * taken, "{some:?}");
    let unused = some.iter().filter(|count| **count == 0).count();
    assert!(unused > 0 && said.contains(&format!("took {unused} of {} experts", some.len())), "{said}");

    // So does a method for weights that takes data.
    let out = folder.path().join("out");
    let by_gptq = ["--int4", "--recipe", "weight-method=gptq", "--calibrate", text(&two)];
    let done = planish_compile(&golden("mixtral"), &out, &by_gptq).exits(0, &[]);
    assert!(done.stderr.contains(&format!("took {unused} of {} experts", some.len())), "{}", done.stderr);

    // A table of a mixture of other experts is none of the model.
    let table = data.with_extension("json");
    let mut other = read(&table);
    other["experts"]["model"].as_object_mut().unwrap().values_mut().next().unwrap().as_array_mut().unwrap().pop();
    fs::write(&table, other.to_string()).unwrap();
    let with_table = ["--int8", "--calibrate", text(&table), "--force"];
    planish_compile(&golden("mixtral"), &out, &with_table).exits(1, &["experts of", "which the model does not have"]);
}
