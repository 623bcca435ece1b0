//! Pictures that the graph processes: `--recipe preprocessing=graph`, against the image processor before the graph, which
//! tests/end_to_end/pictures.rs compares with the transformers library.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::pictures::{NAMES, copy};
use crate::predict::lines;
use crate::support::{golden, planish, planish_compile, scratch, text};

const IN_GRAPH: [&str; 2] = ["--recipe", "preprocessing=graph"];

/// A golden with settings of a processor.
fn with_settings(name: &str, settings: &Value, folder: &Path) -> PathBuf {
    let model = folder.join(format!("{name}-model"));
    fs::create_dir_all(&model).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden(name).join(file), model.join(file)).unwrap();
    }
    fs::write(model.join("preprocessor_config.json"), settings.to_string()).unwrap();
    model
}

/// The scores of each picture of a folder.
fn scores(artifact: &Path, data: &Path) -> Vec<Vec<f64>> {
    let done = planish(["predict", text(artifact), "--data", text(data)]).exits(0, &["pictures in"]);
    let of = |line: &Value| line["scores"].as_object().unwrap().values().map(|score| score.as_f64().unwrap()).collect();
    lines(&done).iter().map(of).collect()
}

fn difference(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    assert_eq!(a.len(), b.len());
    let each = a.iter().flatten().zip(b.iter().flatten());
    each.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn manifest(artifact: &Path) -> Value {
    serde_json::from_slice(&fs::read(artifact.join("planish.json")).unwrap()).unwrap()
}

#[test]
fn predictions_are_those_of_the_processor() {
    let folder = scratch();
    let data = folder.path().join("data");
    NAMES.iter().for_each(|name| copy(name, &data));
    for (at, (name, settings)) in [
        ("vit", json!({"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}})),
        (
            "vit",
            json!({"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}, "resample": 3}),
        ),
        (
            "vit",
            json!({"image_processor_type": "DeiTImageProcessor", "size": {"height": 20, "width": 18},
                       "crop_size": {"height": 16, "width": 16}}),
        ),
        (
            "vit",
            json!({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 19},
                       "crop_size": {"height": 16, "width": 16}}),
        ),
        ("convnext", json!({"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 32}})),
    ]
    .into_iter()
    .enumerate()
    {
        let of = folder.path().join(at.to_string());
        let model = with_settings(name, &settings, &of);
        let (before, within) = (of.join("before"), of.join("within"));
        planish_compile(&model, &before, &[]).exits(0, &[]);
        planish_compile(&model, &within, &[&IN_GRAPH[..], &["--verify"]].concat()).exits(0, &[]);
        let input = &manifest(&within)["parts"][0]["inputs"][0];
        assert_eq!((&input["name"], &input["role"]), (&"image".into(), &"image".into()), "{input}");
        let worst = difference(&scores(&before, &data), &scores(&within, &data));
        assert!(worst < 2e-3, "{settings}: {worst}");
    }
}

#[test]
fn commands_give_the_graph_pictures() {
    let folder = scratch();
    let data = folder.path().join("data");
    NAMES.iter().for_each(|name| copy(name, &data));
    let settings = json!({"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}});
    let model = with_settings("vit", &settings, folder.path());
    let out = folder.path().join("out");
    let int8 = [&IN_GRAPH[..], &["--int8", "--calibrate", text(&data)]].concat();
    planish_compile(&model, &out, &int8).exits(0, &[]);
    assert_eq!(manifest(&out)["recipe"]["preprocessing"], "graph");
    planish(["evaluate", text(&out), "--data", text(&data)]).exits(0, &[]);
    planish(["run", text(&out), "--inputs", text(&data.join("tall.png"))]).exits(0, &[]);
    planish(["run", text(&out), "--inputs", text(&data)]).exits(1, &["give pictures of one size, or batches of one"]);
    let half = folder.path().join("half");
    planish_compile(&model, &half, &[&IN_GRAPH[..], &["--fp16"]].concat()).exits(0, &[]);
    let whole = folder.path().join("whole");
    planish_compile(&model, &whole, &IN_GRAPH).exits(0, &[]);
    let worst = difference(&scores(&half, &data), &scores(&whole, &data));
    assert!(worst < 2e-3, "{worst}");
}

/// A tower of pictures that is cut out of the graph takes them too.
#[test]
fn a_part_of_the_graph_takes_pictures() {
    let folder = scratch();
    let settings = json!({"image_processor_type": "SiglipImageProcessor", "size": {"height": 16, "width": 16}});
    let model = with_settings("siglip", &settings, folder.path());
    let (whole, tower) = (folder.path().join("whole"), folder.path().join("tower"));
    let plain = [&IN_GRAPH[..], &["--target", "onnx", "--no-fusion", "--verify"]].concat();
    planish_compile(&model, &whole, &plain).exits(0, &[]);
    planish_compile(&whole, &tower, &["--outputs", "image_embeds"]).exits(0, &[]);
    let data = folder.path().join("data");
    NAMES.iter().for_each(|name| copy(name, &data));
    planish(["predict", text(&tower), "--data", text(&data)]).exits(0, &["5 pictures in"]);
}

#[test]
fn what_a_graph_does_not_compute_is_refused() {
    let folder = scratch();
    let out = folder.path().join("out");
    let refused = |settings: &Value, more: &[&str], words: &[&str]| {
        let model = with_settings("vit", settings, folder.path());
        planish_compile(&model, &out, &[&IN_GRAPH[..], more].concat()).exits(1, words);
    };
    let vit = json!({"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}});
    refused(&vit, &["--opset", "17"], &["needs opset 18", "give --opset 18"]);
    refused(&vit, &["--recipe", "image-size=24"], &["image-size is 24x24", "makes pictures 16x16"]);
    let detr = json!({"image_processor_type": "DetrImageProcessor"});
    refused(&detr, &[], &["preprocessing=graph: pictures are padded to the largest of a batch", "before the graph"]);
    let lanczos =
        json!({"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}, "resample": 1});
    refused(&lanczos, &[], &["pictures are resized by Lanczos, which ONNX has no operator for"]);
    let nearest =
        json!({"image_processor_type": "ViTImageProcessor", "size": {"height": 16, "width": 16}, "resample": 0});
    refused(&nearest, &[], &["pictures are resized by the nearest pixel"]);
    let large = json!({"image_processor_type": "ViTImageProcessor"});
    refused(&large, &[], &["the model takes images of 16 x 16", "makes pictures 224 x 224"]);
    planish_compile(&golden("bert"), &out, &IN_GRAPH).exits(1, &["has no preprocessor_config.json"]);
    planish_compile(&golden("vit"), &out, &["--preprocessing", "graph"]).exits(2, &["is --recipe preprocessing=graph"]);
    assert!(!out.exists());
}
