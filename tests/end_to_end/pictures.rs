//! Pictures as data: against what the transformers library predicts of them (fixtures/pictures/predict.py).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::predict::lines;
use crate::support::{golden, planish, planish_compile, repository, scratch, text};

pub(crate) const NAMES: [&str; 5] = ["large.png", "own.bmp", "own.gif", "rgb.png", "tall.png"];

pub(crate) fn predicted() -> Value {
    let path = repository().join("fixtures/pictures/predicted.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn scores(of: &Value, name: &str) -> Vec<f64> {
    of["scores"][name].as_array().unwrap().iter().map(|score| score.as_f64().unwrap()).collect()
}

/// The golden with the settings of its processor, and its artifact.
fn compiled(folder: &Path) -> (PathBuf, PathBuf) {
    let (model, out) = (folder.join("model"), folder.join("out"));
    fs::create_dir(&model).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden("vit").join(file), model.join(file)).unwrap();
    }
    fs::write(model.join("preprocessor_config.json"), predicted()["settings"].to_string()).unwrap();
    planish_compile(&model, &out, &[]).exits(0, &[]);
    (model, out)
}

pub(crate) fn copy(name: &str, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::copy(repository().join("fixtures/pictures/files").join(name), to.join(name)).unwrap();
}

#[test]
fn predictions_are_those_of_transformers() {
    let folder = scratch();
    let (_, out) = compiled(folder.path());
    let data = folder.path().join("data");
    NAMES.iter().for_each(|name| copy(name, &data));
    let list = folder.path().join("list.txt");
    fs::write(&list, NAMES.map(|name| format!("data/{name}\n")).concat()).unwrap();
    let expected = predicted();
    for (path, prefix) in [(&data, ""), (&list, "data/")] {
        let done = planish(["predict", text(&out), "--data", text(path)]).exits(0, &["5 pictures in"]);
        let found = lines(&done);
        assert_eq!(found.len(), NAMES.len());
        for (line, name) in found.iter().zip(NAMES) {
            assert_eq!(line["id"], format!("{prefix}{name}"));
            for (class, score) in scores(&expected, name).into_iter().enumerate() {
                let own = line["scores"][format!("LABEL_{class}")].as_f64().unwrap();
                assert!((own - score).abs() < 1e-5, "{name}: {line}");
            }
        }
    }
}

#[test]
fn the_processor_of_an_artifact_has_the_size_of_its_images() {
    let folder = scratch();
    let (model, _) = compiled(folder.path());
    let (out, data) = (folder.path().join("large"), folder.path().join("data"));
    NAMES.iter().for_each(|name| copy(name, &data));
    let sized = |size: &str| [format!("--recipe=image-size={size}"), "--verify".to_owned()];
    let more = sized("24x20");
    planish_compile(&model, &out, &[&more[0], &more[1]]).exits(0, &[]);
    let read = |name: &str| -> Value { serde_json::from_slice(&fs::read(out.join(name)).unwrap()).unwrap() };
    assert_eq!(read("planish.json")["recipe"]["image_size"], "24x20");
    assert_eq!(read("preprocessor_config.json")["size"], json!({"height": 24, "width": 20}));
    planish(["predict", text(&out), "--data", text(&data)]).exits(0, &["5 pictures in"]);
    let wrong = sized("24x22");
    let refused = folder.path().join("refused");
    planish_compile(&model, &refused, &[&wrong[0]]).exits(1, &["images of 24 x 22", "take 24 x 20"]);
    planish_compile(&model, &refused, &["--image-size", "24"]).exits(2, &["is --recipe image-size=HEIGHTxWIDTH"]);
    // What cannot be changed stays, and the user is told.
    fs::write(model.join("preprocessor_config.json"), r#"{"image_processor_type": "DetrImageProcessor"}"#).unwrap();
    planish_compile(&model, &refused, &[&more[0]])
        .exits(0, &["preprocessor_config.json of the artifact stays as it is"]);
}

#[test]
fn folders_are_labels() {
    let folder = scratch();
    let (model, out) = compiled(folder.path());
    let data = folder.path().join("data");
    let expected = predicted();
    for (at, name) in NAMES.iter().enumerate() {
        let scores = scores(&expected, name);
        let best = (0..5).max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap();
        // The first picture is in the folder of another class.
        copy(name, &data.join(format!("LABEL_{}", if at == 0 { (best + 1) % 5 } else { best })));
    }
    let evaluate = |more: &[&str]| planish([&["evaluate", text(&out), "--data", text(&data), "--json"], more].concat());
    let report: Value = serde_json::from_str(&evaluate(&[]).exits(0, &[]).stdout).unwrap();
    let accuracy = &report["labels"][0];
    assert_eq!((accuracy["artifact"].as_f64(), accuracy["count"].as_u64()), (Some(80.0), Some(5)), "{report}");
    let bad = data.join("LABEL_0/bad.png");
    fs::create_dir_all(bad.parent().unwrap()).unwrap();
    fs::write(&bad, "no picture").unwrap();
    evaluate(&[]).exits(1, &["bad.png", "--skip-bad leaves such pictures out"]);
    let report: Value = serde_json::from_str(&evaluate(&["--skip-bad"]).exits(0, &[]).stdout).unwrap();
    assert_eq!((&report["read"]["bad"], &report["samples"]), (&1.into(), &5.into()));
    fs::remove_file(&bad).unwrap();
    let int8 = folder.path().join("int8");
    planish_compile(&model, &int8, &["--int8", "--calibrate", text(&data)]).exits(0, &[]);
    planish(["run", text(&out), "--inputs", text(&data)]).exits(0, &["rows of the batch: LABEL_"]);
}

#[test]
fn what_cannot_be_read_is_one_error() {
    let folder = scratch();
    let (_, out) = compiled(folder.path());
    let (data, empty) = (folder.path().join("data"), folder.path().join("empty"));
    copy("rgb.png", &data);
    fs::create_dir(&empty).unwrap();
    let predict = |data: &Path| planish(["predict", text(&out), "--data", text(data)]);
    predict(&empty).exits(1, &["contains no .npz or .safetensors file, no picture and no recording (.png"]);
    let settings = out.join("preprocessor_config.json");
    let other = r#"{"image_processor_type": "ViTImageProcessor", "size": {"height": 20, "width": 20}}"#;
    fs::write(&settings, other).unwrap();
    predict(&data).exits(1, &["a picture becomes [3, 20, 20] by", "set `size` or `crop_size`"]);
    fs::remove_file(&settings).unwrap();
    predict(&data).exits(1, &["has no preprocessor_config.json"]);
}
