//! Recordings that the graph processes: `--recipe preprocessing=graph`, against what the feature extractor makes before the graph, which
//! tests/end_to_end/sounds.rs and transcribe.rs compare with the transformers library.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::predict::lines;
use crate::sounds::{NAMES, compiled, copy, predicted};
use crate::support::{planish, planish_compile, repository, scratch, text};
use crate::transcribe::write_noise;

const IN_GRAPH: [&str; 2] = ["--recipe", "preprocessing=graph"];

fn manifest(artifact: &Path) -> Value {
    serde_json::from_slice(&fs::read(artifact.join("planish.json")).unwrap()).unwrap()
}

/// The roles of the inputs of the first part.
fn roles(artifact: &Path) -> Vec<String> {
    let manifest = manifest(artifact);
    let inputs = manifest["parts"][0]["inputs"].as_array().unwrap();
    inputs.iter().map(|input| input["role"].as_str().unwrap().to_owned()).collect()
}

/// A golden with its artifact, and another one whose graph processes recordings.
fn both(name: &str, folder: &Path, more: &[&str]) -> [PathBuf; 2] {
    let (model, before) = compiled(name, folder);
    let within = folder.join("within");
    planish_compile(&model, &within, &[&IN_GRAPH[..], &["--verify"], more].concat()).exits(0, &[]);
    [before, within]
}

#[test]
fn classes_are_those_of_the_feature_extractor() {
    let folder = scratch();
    let [_, within] = both("ast", folder.path(), &[]);
    assert_eq!(roles(&within), ["recording", "recording-mask"]);
    assert_eq!(manifest(&within)["recipe"]["preprocessing"], "graph");
    let data = folder.path().join("data");
    NAMES.iter().for_each(|name| copy(name, &data));
    let done = planish(["predict", text(&within), "--data", text(&data)]).exits(0, &["2 recordings in"]);
    for (line, name) in lines(&done).iter().zip(NAMES) {
        for (class, score) in predicted()["classes"][name].as_array().unwrap().iter().enumerate() {
            let own = line["scores"][format!("LABEL_{class}")].as_f64().unwrap();
            assert!((own - score.as_f64().unwrap()).abs() < 1e-5, "{name}: {line}");
        }
    }
    let run = planish(["run", text(&within), "--inputs", text(&data)]).exits(0, &[]);
    assert!(run.stdout.contains("logits: f32[2, 5]"), "{}", run.stdout);
    planish(["evaluate", text(&within), "--data", text(&data)]).exits(0, &[]);
    // Features stay in float32, where the model is in half precision or in codes of 8 bits.
    let scores = |artifact: &Path| -> Vec<f64> {
        let done = planish(["predict", text(artifact), "--data", text(&data)]).exits(0, &[]);
        let of = |line: &Value| -> Vec<f64> {
            line["scores"].as_object().unwrap().values().map(|score| score.as_f64().unwrap()).collect()
        };
        lines(&done).iter().flat_map(of).collect()
    };
    let expected = scores(&within);
    let model = folder.path().join("model");
    for (name, precision, most) in [
        ("half", &["--fp16"][..], 2e-3),
        ("portable", &["--fp16", "--target", "onnx"][..], 2e-3),
        ("codes", &["--int8", "--calibrate", text(&data)][..], 1e-2),
    ] {
        let out = folder.path().join(name);
        planish_compile(&model, &out, &[&IN_GRAPH[..], precision].concat()).exits(0, &[]);
        let worst = scores(&out).iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < most, "{name}: {worst}");
    }
}

#[test]
fn texts_are_those_of_the_feature_extractor() {
    let folder = scratch();
    let [before, within] = both("hubert", folder.path(), &[]);
    let data = folder.path().join("data");
    NAMES.iter().for_each(|name| copy(name, &data));
    let [one, other] = [&before, &within].map(|artifact| {
        let done = planish(["predict", text(artifact), "--data", text(&data)]).exits(0, &["2 recordings in"]);
        lines(&done)
    });
    assert_eq!(
        one.iter().map(|line| &line["text"]).collect::<Vec<_>>(),
        other.iter().map(|line| &line["text"]).collect::<Vec<_>>()
    );
    let recording = data.join("plain.wav");
    let [one, other] = [&before, &within].map(|artifact| {
        planish(["transcribe", text(artifact), text(&recording), "--format", "json"]).exits(0, &[]).stdout
    });
    assert_eq!(one, other);
}

/// The windows of a recording as samples: the first one of a short recording is what it is before the graph.
#[test]
fn whisper_fills_windows_up_itself() {
    let folder = scratch();
    let model = repository().join("fixtures/speech");
    let [before, within] = ["before", "within"].map(|name| folder.path().join(name));
    planish_compile(&model, &before, &[]).exits(0, &[]);
    planish_compile(&model, &within, &[&IN_GRAPH[..], &["--verify"]].concat()).exits(0, &[]);
    assert_eq!(roles(&within), ["recording"]);
    let recording = folder.path().join("noise.wav");
    for samples in [777, 9999, 16_000, 40_000] {
        write_noise(&recording, samples);
        let [one, other] = [&before, &within].map(|artifact| {
            let options = ["--temperature", "0", "--language", "haw", "--json", "--set", "logprob_threshold=none"];
            let words = [&["transcribe", text(artifact), text(&recording)], &options[..]].concat();
            let done = planish(words).exits(0, &[]);
            let found: Value = serde_json::from_str(&done.stdout).unwrap();
            found["recordings"][0].clone()
        });
        assert_eq!(one["seconds"], other["seconds"]);
        let tokens = |of: &Value| of["segments"].as_array().unwrap().first().map(|first| first["tokens"].clone());
        assert_eq!(tokens(&one), tokens(&other), "{samples} samples");
        let last = |of: &Value| of["segments"].as_array().unwrap().last().map(|last| last["end"].clone());
        assert_eq!(last(&one).is_some(), last(&other).is_some());
    }
}

#[test]
fn what_no_graph_makes_of_recordings_is_refused() {
    let folder = scratch();
    let (model, _) = compiled("hubert", folder.path());
    let out = folder.path().join("refused");
    let refused = |settings: &str, words: &[&str]| {
        fs::write(model.join("preprocessor_config.json"), settings).unwrap();
        planish_compile(&model, &out, &IN_GRAPH).exits(1, words);
    };
    let clap = r#"{"feature_extractor_type": "ClapFeatureExtractor"}"#;
    refused(clap, &["preprocessing=graph: recordings are repeated", "leave preprocessing out"]);
    refused(r#"{"feature_extractor_type": "ASTFeatureExtractor"}"#, &["the model takes samples"]);
    assert!(!out.exists());
}
