//! Pictures that are compared with labels: against the pipeline of the transformers library (fixtures/pictures/zero_shot.py).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::predict::lines;
use crate::support::{golden, planish, planish_compile, repository, scratch, text};

fn expected() -> Value {
    let path = repository().join("fixtures/pictures/zero_shot.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// A golden with the settings of its processor and its tokenizer, and its artifact.
fn compiled(name: &str, folder: &Path) -> PathBuf {
    let (model, out) = (folder.join(name), folder.join(format!("{name}-out")));
    fs::create_dir(&model).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden(name).join(file), model.join(file)).unwrap();
    }
    for (file, member) in
        [("preprocessor_config.json", "settings"), ("tokenizer.json", "tokenizer"), ("tokenizer_config.json", "named")]
    {
        fs::write(model.join(file), expected()[name][member].to_string()).unwrap();
    }
    planish_compile(&model, &out, &[]).exits(0, &[]);
    out
}

#[test]
fn scores_of_labels_are_those_of_transformers() {
    let expected = expected();
    let labels: Vec<&str> =
        expected["labels"].as_array().unwrap().iter().map(|label| label.as_str().unwrap()).collect();
    let folder = scratch();
    let list = folder.path().join("labels.txt");
    fs::write(&list, labels.join("\n")).unwrap();
    for name in ["clip", "siglip"] {
        let out = compiled(name, folder.path());
        let of = &expected[name];
        let template = of["template"].as_str().map(|template| vec!["--template", template]).unwrap_or_default();
        for (picture, scores) in of["scores"].as_object().unwrap() {
            let file = repository().join("fixtures/pictures/files").join(picture);
            for given in [labels.join(","), text(&list).to_owned()] {
                let command = ["predict", text(&out), "--data", text(&file), "--labels", &given];
                let done = planish([&command[..], &template].concat()).exits(0, &["1 picture in"]);
                let line = &lines(&done)[0];
                let mut best = ("", 0.0);
                for (label, score) in labels.iter().zip(scores.as_array().unwrap()) {
                    let (own, score) = (line["scores"][label].as_f64().unwrap(), score.as_f64().unwrap());
                    assert!((own - score).abs() < 1e-5, "{name}, {picture}, {label}: {own}, transformers {score}");
                    best = if score > best.1 { (label, score) } else { best };
                }
                assert_eq!(line["label"], best.0, "{name}, {picture}");
            }
        }
    }
}

#[test]
fn labels_that_do_not_fit_are_one_error() {
    let folder = scratch();
    let out = compiled("clip", folder.path());
    let picture = repository().join("fixtures/pictures/files/rgb.png");
    let refused = |more: &[&str], code: i32, words: &[&str]| {
        planish([&["predict", text(&out), "--data", text(&picture)], more].concat()).exits(code, words);
    };
    let empty = folder.path().join("empty.txt");
    fs::write(&empty, "\n").unwrap();
    refused(&[], 2, &["say with --labels what they may show"]);
    refused(&["--labels", "a,b,a"], 2, &["\"a\" twice"]);
    refused(&["--labels", "a,,b"], 2, &["blank label"]);
    refused(&["--labels", "a,b", "--template", "a photo"], 2, &["has no {}"]);
    refused(&["--template", "a photo of {}"], 2, &["--labels"]);
    refused(&["--labels", text(&empty)], 2, &["the file has no label"]);
    refused(&["--labels", "none/there.txt"], 1, &["none/there.txt"]);
    refused(&["--labels", "a,b", "--max-length", "9"], 1, &["--max-length is for texts"]);
    fs::remove_file(out.join("tokenizer.json")).unwrap();
    refused(&["--labels", "a,b"], 1, &["no tokenizer.json"]);
    let vit = folder.path().join("vit-out");
    planish_compile(&golden("vit"), &vit, &[]).exits(0, &[]);
    let of_vit = ["predict", text(&vit), "--data", text(&picture), "--labels", "a,b"];
    planish(of_vit).exits(2, &["--labels is for models that compare pictures with texts"]);
}
