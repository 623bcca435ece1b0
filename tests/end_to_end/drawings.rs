//! Objects, segments and depths of pictures: against what the transformers library makes of the same goldens (fixtures/pictures/predict.py),
//! and drawn.

use std::fs;
use std::path::{Path, PathBuf};

use planish_pictures::Picture;
use serde_json::Value;

use crate::pictures::{NAMES, copy, predicted};
use crate::predict::lines;
use crate::support::{golden, planish, planish_compile, scratch, text};

/// The artifact of a golden with the settings of its processor, and a folder of pictures.
fn prepared(name: &str, folder: &Path) -> (PathBuf, PathBuf) {
    let [model, out, data] = ["model", "out", "data"].map(|name| folder.join(name));
    fs::create_dir(&model).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden(name).join(file), model.join(file)).unwrap();
    }
    fs::write(model.join("preprocessor_config.json"), predicted()[name]["settings"].to_string()).unwrap();
    planish_compile(&model, &out, &[]).exits(0, &[]);
    NAMES.iter().for_each(|name| copy(name, &data));
    (out, data)
}

fn numbers(of: &Value) -> Vec<f64> {
    of.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

#[test]
fn objects_are_those_of_transformers() {
    let folder = scratch();
    let (out, data) = prepared("detr", folder.path());
    let expected = &predicted()["detr"];
    let drawn = folder.path().join("drawn");
    let threshold = expected["threshold"].to_string();
    let more = ["--threshold", threshold.as_str(), "--draw", text(&drawn)];
    let command = ["predict", text(&out), "--data", text(&data)];
    let done = planish([&command[..], &more].concat()).exits(0, &["5 pictures in"]);
    let mut count = 0;
    for (line, name) in lines(&done).iter().zip(NAMES) {
        let (objects, expected) = (line["objects"].as_array().unwrap(), &expected["objects"][name]);
        let scores = numbers(&expected["scores"]);
        assert_eq!(objects.len(), scores.len(), "{name}");
        count += scores.len();
        for (at, object) in objects.iter().enumerate() {
            assert!((object["score"].as_f64().unwrap() - scores[at]).abs() < 1e-5, "{name}: {object}");
            assert_eq!(object["label"], format!("LABEL_{}", expected["labels"][at]), "{name}");
            let sides = ["xmin", "ymin", "xmax", "ymax"].map(|side| object["box"][side].as_f64().unwrap());
            let differs =
                sides.iter().zip(numbers(&expected["boxes"][at])).any(|(own, other)| (own - other).abs() > 1e-3);
            assert!(!differs, "{name}: {object}");
        }
        // A box is drawn where there is one, and nothing else.
        let pictures = [data.join(name), drawn.join(format!("{name}.png"))].map(|path| Picture::open(&path).unwrap());
        assert_eq!(pictures[0] == pictures[1], scores.is_empty(), "{name}");
    }
    assert!(count > 0, "the threshold leaves out all objects");
    // The usual threshold is above all scores.
    let done = planish(command).exits(0, &[]);
    assert!(lines(&done).iter().all(|line| line["objects"].as_array().unwrap().is_empty()));
}

#[test]
fn segments_are_those_of_transformers() {
    let folder = scratch();
    let (out, data) = prepared("segformer", folder.path());
    let expected = &predicted()["segformer"]["pixels"];
    let drawn = folder.path().join("drawn");
    let done =
        planish(["predict", text(&out), "--data", text(&data), "--draw", text(&drawn)]).exits(0, &["5 pictures in"]);
    for (line, name) in lines(&done).iter().zip(NAMES) {
        let expected = numbers(&expected[name]);
        let mut found = vec![0.0; expected.len()];
        for segment in line["segments"].as_array().unwrap() {
            let class = usize::try_from(segment["class"].as_u64().unwrap()).unwrap();
            assert_eq!(segment["label"], format!("LABEL_{class}"));
            found[class] = segment["pixels"].as_f64().unwrap();
        }
        // Logits are as good as equal where two classes meet.
        let moved: f64 = found.iter().zip(&expected).map(|(own, other)| (own - other).abs()).sum();
        let all: f64 = expected.iter().sum();
        assert!(moved <= 2.0 + all / 500.0, "{name}: {found:?}, {expected:?}");
        let classes = Picture::open(&drawn.join(format!("{name}.classes.png"))).unwrap();
        let mut counted = vec![0.0; expected.len()];
        classes.pixels().chunks(3).for_each(|pixel| counted[usize::from(pixel[0])] += 1.0);
        assert_eq!(counted, found, "{name}");
        assert_ne!(
            Picture::open(&data.join(name)).unwrap(),
            Picture::open(&drawn.join(format!("{name}.png"))).unwrap()
        );
    }
}

#[test]
fn depths_are_those_of_transformers() {
    let folder = scratch();
    let (out, data) = prepared("depth-anything", folder.path());
    let expected = &predicted()["depth-anything"];
    let step = usize::try_from(expected["step"].as_u64().unwrap()).unwrap();
    let drawn = folder.path().join("drawn");
    let done =
        planish(["predict", text(&out), "--data", text(&data), "--draw", text(&drawn)]).exits(0, &["5 pictures in"]);
    for (line, name) in lines(&done).iter().zip(NAMES) {
        let expected = &expected["depths"][name];
        let [low, high] = ["minimum", "maximum"].map(|key| expected[key].as_f64().unwrap());
        let range = high - low;
        assert!(range > 0.0, "{name}");
        for key in ["minimum", "maximum"] {
            let differs = (line[key].as_f64().unwrap() - expected[key].as_f64().unwrap()).abs();
            assert!(differs < 1e-3 * range, "{name}: {key} of {line}");
        }
        let levels = Picture::open(&drawn.join(format!("{name}.png"))).unwrap();
        let size = Picture::open(&data.join(name)).unwrap();
        assert_eq!([levels.height(), levels.width()], [size.height(), size.width()], "{name}");
        let found = levels.pixels().chunks(3).step_by(step).map(|pixel| f64::from(pixel[0]));
        for (found, depth) in found.zip(numbers(&expected["some"])) {
            // Levels are cut to whole numbers.
            let level = (depth - low) / range * 255.0;
            assert!((found - level).abs() < 1.3, "{name}: {found}, {level}");
        }
        assert!(drawn.join(format!("{name}.depth.png")).is_file());
    }
}

#[test]
fn options_of_pictures_are_refused_elsewhere() {
    let folder = scratch();
    let (out, data) = prepared("segformer", folder.path());
    let command = ["predict", text(&out), "--data", text(&data)];
    let run = |more: &[&str]| planish([&command[..], more].concat());
    run(&["--threshold", "0.3"]).exits(2, &["--threshold is for objects in pictures"]);
    run(&["--threshold", "nan"]).exits(2, &["which is a number from 0 to 1"]);
    run(&["--draw", text(&data.join("drawn"))]).exits(1, &["is in the folder of the pictures"]);
    assert!(!data.join("drawn").exists());
    // Nor does the drawing of one picture come among others.
    let one = data.join(NAMES[0]);
    let among = planish(["predict", text(&out), "--data", text(&one), "--draw", text(&data)]);
    among.exits(1, &["is in the folder of the pictures"]);
}
