//! Recordings as data: against what the transformers library predicts of them (fixtures/sounds/predict.py).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::predict::lines;
use crate::support::{golden, planish, planish_compile, repository, scratch, text};

pub(crate) const NAMES: [&str; 2] = ["plain.wav", "short.wav"];

pub(crate) fn predicted() -> Value {
    let path = repository().join("fixtures/sounds/predicted.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// A golden with the settings of its processor and a vocabulary, and its artifact.
pub(crate) fn compiled(name: &str, folder: &Path) -> (PathBuf, PathBuf) {
    let (model, out) = (folder.join("model"), folder.join("out"));
    fs::create_dir(&model).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden(name).join(file), model.join(file)).unwrap();
    }
    fs::copy(repository().join("fixtures/sounds/vocab.json"), model.join("vocab.json")).unwrap();
    fs::write(model.join("preprocessor_config.json"), predicted()["settings"][name].to_string()).unwrap();
    planish_compile(&model, &out, &[]).exits(0, &[]);
    (model, out)
}

pub(crate) fn copy(name: &str, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::copy(repository().join("fixtures/sounds/files").join(name), to.join(name)).unwrap();
}

#[test]
fn classes_of_recordings_are_those_of_transformers() {
    let folder = scratch();
    let (model, out) = compiled("ast", folder.path());
    let data = folder.path().join("data");
    NAMES.iter().for_each(|name| copy(name, &data));
    let list = folder.path().join("list.jsonl");
    fs::write(&list, NAMES.map(|name| json!({"text": format!("data/{name}")}).to_string() + "\n").concat()).unwrap();
    for path in [&data, &list] {
        let done = planish(["predict", text(&out), "--data", text(path)]).exits(0, &["2 recordings in"]);
        for (line, name) in lines(&done).iter().zip(NAMES) {
            assert!(line["id"].as_str().unwrap().ends_with(name), "{line}");
            for (class, score) in predicted()["classes"][name].as_array().unwrap().iter().enumerate() {
                let own = line["scores"][format!("LABEL_{class}")].as_f64().unwrap();
                assert!((own - score.as_f64().unwrap()).abs() < 1e-5, "{name}: {line}");
            }
        }
    }
    let run =
        planish(["run", text(&out), "--inputs", text(&data)]).exits(0, &["rows of the batch: plain.wav, short.wav"]);
    assert!(run.stdout.contains("logits: f32[2, 5]"), "{}", run.stdout);
    planish(["calibrate", text(&model), "--data", text(&data), "-o", text(&folder.path().join("table.json"))])
        .exits(0, &[]);
    let by_label = folder.path().join("by-label");
    copy("plain.wav", &by_label.join("LABEL_1"));
    copy("short.wav", &by_label.join("LABEL_2"));
    let done = planish(["evaluate", text(&out), "--data", text(&by_label), "--json"]).exits(0, &[]);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(report["labels"][0]["metric"], "accuracy", "{report}");
    assert_eq!(report["labels"][0]["artifact"], 50.0, "{report}");
    assert_eq!(report["read"]["unit"], "recordings", "{report}");
}

#[test]
fn word_errors_are_counted() {
    let folder = scratch();
    let (_, out) = compiled("hubert", folder.path());
    let expected = predicted()["transcripts"].clone();
    let record = |(at, name): (usize, &&str)| {
        copy(name, folder.path());
        json!({"text": name, "said": expected["said"][at]}).to_string() + "\n"
    };
    let list = folder.path().join("list.jsonl");
    fs::write(&list, NAMES.iter().enumerate().map(record).collect::<String>()).unwrap();
    let evaluate = ["evaluate", text(&out), "--data", text(&list), "--label", "said", "--json"];
    let done = planish(evaluate).exits(0, &[]);
    let report: Value = serde_json::from_str(&done.stdout).unwrap();
    let figure = &report["labels"][0];
    assert_eq!(figure["metric"], "word-error-rate", "{report}");
    for side in ["artifact", "reference"] {
        let rate = figure[side].as_f64().unwrap();
        assert!((rate - expected["rate"].as_f64().unwrap()).abs() < 1e-9, "{figure}");
    }
    let figure = &report["labels"][1];
    assert_eq!(figure["metric"], "character-error-rate", "{report}");
    assert!(figure["artifact"].as_f64().unwrap() > 0.0, "{figure}");
    planish([&evaluate[..], &["--require", "wer=53,cer=100"]].concat()).exits(0, &[]);
    planish([&evaluate[..], &["--require", "wer=52"]].concat()).exits(3, &["wer is 52.459016, at most 52 required"]);
}

#[test]
fn what_is_no_recording_is_an_error() {
    let folder = scratch();
    let (_, out) = compiled("ast", folder.path());
    let (data, pictures) = (folder.path().join("data"), folder.path().join("pictures"));
    copy("plain.wav", &data);
    fs::write(data.join("bad.wav"), "no sound").unwrap();
    let predict = |path: &Path| planish(["predict", text(&out), "--data", text(path)]);
    predict(&data).exits(1, &["bad.wav: this is no recording in WAV, FLAC, MP3, Ogg or MPEG-4"]);
    let evaluate = ["evaluate", text(&out), "--data", text(&data)];
    planish(evaluate).exits(1, &["bad.wav", "--skip-bad leaves such recordings out"]);
    let report = planish([&evaluate[..], &["--skip-bad", "--json"]].concat()).exits(0, &[]).stdout;
    assert_eq!(serde_json::from_str::<Value>(&report).unwrap()["read"]["bad"], 1, "{report}");
    fs::create_dir(&pictures).unwrap();
    fs::write(pictures.join("note.txt"), "").unwrap();
    predict(&pictures).exits(1, &["no picture and no recording (.png", ".wav, .flac"]);
    fs::write(pictures.join("a.png"), "").unwrap();
    predict(&pictures).exits(1, &["the model takes recordings, and no pictures"]);
    fs::write(pictures.join("a.wav"), "").unwrap();
    predict(&pictures).exits(1, &["has pictures and recordings (a.png and a.wav)"]);
    fs::write(out.join("preprocessor_config.json"), r#"{"feature_extractor_type": "Wav2Vec2FeatureExtractor"}"#)
        .unwrap();
    predict(&data).exits(1, &["makes samples of recordings"]);
    fs::remove_file(out.join("preprocessor_config.json")).unwrap();
    predict(&data).exits(1, &["has no preprocessor_config.json"]);
}
