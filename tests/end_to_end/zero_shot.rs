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
fn compiled(name: &str, folder: &Path, options: &[&str]) -> PathBuf {
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
    planish_compile(&model, &out, options).exits(0, &[]);
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
        let out = compiled(name, folder.path(), &[]);
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

/// Cosines of the vectors that the towers give say the same as the graph that compares them.
#[test]
fn towers_that_are_apart_agree_with_the_whole() {
    let (folder, apart) = (scratch(), ["--recipe", "towers=apart", "--verify"]);
    let texts = folder.path().join("texts.txt");
    fs::write(&texts, "This is a photo of a cat.\nThis is a photo of two dogs.\n").unwrap();
    let picture = repository().join("fixtures/pictures/files/rgb.png");
    let vectors = |out: &Path, data: &Path| -> Vec<Vec<f64>> {
        let done = planish(["embed", text(out), "--data", text(data)]).exits(0, &[]);
        let vector = |line: &Value| {
            let vector: Vec<f64> = line["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
            vector.into_iter().map(|x| x / length).collect()
        };
        lines(&done).iter().map(vector).collect()
    };
    let (towers, whole) = (compiled("clip", folder.path(), &apart), folder.path().join("whole"));
    for file in ["vision_model.onnx", "text_model.onnx"] {
        assert!(towers.join(file).is_file(), "{file}");
    }
    planish_compile(&folder.path().join("clip"), &whole, &[]).exits(0, &[]);
    let labels = ["--labels", "a cat,two dogs"];
    let done = planish([&["predict", text(&whole), "--data", text(&picture)], &labels[..]].concat()).exits(0, &[]);
    let scores = &lines(&done)[0]["scores"];
    let image = &vectors(&towers, &picture)[0];
    let cosines: Vec<f64> =
        vectors(&towers, &texts).iter().map(|text| text.iter().zip(image).map(|(a, b)| a * b).sum()).collect();
    // `e^logit_scale` of this checkpoint.
    let odds = (0.212_564_164 * (cosines[0] - cosines[1])).exp();
    let share = scores["a cat"].as_f64().unwrap();
    assert!((share - odds / (1.0 + odds)).abs() < 1e-6, "{cosines:?}, {scores}");
}

#[test]
fn towers_are_those_of_a_model_of_images_and_texts() {
    let folder = scratch();
    let out = folder.path().join("out");
    let refused = |name: &str, more: &[&str], words: &[&str]| {
        planish_compile(&golden(name), &out, &[&["--recipe", "towers=apart"], more].concat()).exits(1, words);
    };
    refused("bert", &[], &["`towers` is apart", "leave `towers` or the task out"]);
    refused("clip", &["--task", "zero-shot-image-classification"], &["compares the two"]);
}

#[test]
fn labels_that_do_not_fit_are_one_error() {
    let folder = scratch();
    let out = compiled("clip", folder.path(), &[]);
    let picture = repository().join("fixtures/pictures/files/rgb.png");
    let refused = |more: &[&str], code: i32, words: &[&str]| {
        planish([&["predict", text(&out), "--data", text(&picture)], more].concat()).exits(code, words);
    };
    let empty = folder.path().join("empty.txt");
    fs::write(&empty, "\n").unwrap();
    refused(&[], 2, &["say with --labels what these may be"]);
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
    planish(of_vit).exits(2, &["--labels is for models that compare pictures or recordings with texts"]);
}
