//! `pad-vocab` of recipes: aligned inside, the same outside; and `logits=padded`, where the padding shows.

use std::fs;
use std::path::Path;

use onnx_protobuf::{Message, ModelProto, TensorProto};
use planish::artifact::manifest::{Manifest, PaddedVocabulary};
use planish::compile::{Compiled, lower};
use planish::request::Silent;
use planish::source::SourceModel;
use planish_eval::Tensor;
use planish_models::Task;
use planish_passes::{Logits, ORT, Padding, Target};
use planish_runtimes::{Model, Runtime};
use serde_json::Value;

use crate::goldens::worst_error;
use crate::support::{
    CPU_TARGETS, Draft, IMAGES, ONE_THREAD, SOUNDS, compiled, golden, numbered, onnx_runtime, options, planish,
    planish_compile, repository, scratch, text,
};

const MULTIPLE: usize = 64;

fn padding(logits: Logits) -> Padding {
    Padding { vocabulary: Some(MULTIPLE), logits, ..Padding::default() }
}

/// GPT-2 compiled with padding, or without.
fn gpt2(folder: &Path, target: &'static Target, padding: Padding) -> Compiled {
    let mut options = options(target);
    options.passes.padding = padding;
    compiled(&golden("gpt2"), folder, &options)
}

/// The weights in a model's file.
fn initializers(compiled: &Compiled) -> Vec<TensorProto> {
    let bytes = fs::read(compiled.draft.folder().join("model.onnx")).unwrap();
    ModelProto::parse_from_bytes(&bytes).unwrap().graph.initializer.clone()
}

/// `logits` of a batch of prompts on ONNX Runtime.
fn logits(compiled: &Compiled) -> Tensor {
    let file = compiled.draft.folder().join("model.onnx");
    let mut session = onnx_runtime().load(Model::onnx(&file), ONE_THREAD).unwrap();
    let mut inputs = numbered(&golden("gpt2").join("io.safetensors"), "in.");
    inputs.retain(|(name, _)| session.inputs().iter().any(|port| port.name == *name));
    let batch = inputs[0].1.shape()[0];
    for port in session.inputs().iter().filter(|port| port.name.starts_with("past_key_values.")) {
        inputs.push((port.name.clone(), Tensor::new(vec![batch, 4, 0, 12], Vec::<f32>::new()).unwrap()));
    }
    let inputs: Vec<(&str, Tensor)> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    session.run(&inputs).unwrap().into_iter().find(|(name, _)| name == "logits").unwrap().1
}

#[test]
fn a_tied_vocabulary_is_larger_inside_and_the_same_outside() {
    let folder = scratch();
    for target in CPU_TARGETS {
        let plain = gpt2(&folder.path().join("plain"), target, Padding::default());
        let sliced = gpt2(&folder.path().join("sliced"), target, padding(Logits::Sliced));
        let whole = gpt2(&folder.path().join("whole"), target, padding(Logits::Padded));
        let count = |compiled: &Compiled, dims: [i64; 2]| {
            initializers(compiled).iter().filter(|tensor| tensor.dims == dims).count()
        };
        // Layers have weights of these dimensions too.
        let others = count(&plain, [192, 48]);
        for padded in [&sliced, &whole] {
            let found = (count(padded, [192, 48]), count(padded, [137, 48]));
            assert_eq!(found, (others + 1, 0), "{target}: tied, and none left as it was");
        }
        let (plain, sliced, whole) = (logits(&plain), logits(&sliced), logits(&whole));
        assert_eq!(sliced.shape().last(), Some(&137));
        assert!(worst_error("logits", &plain, &sliced, None) < 1e-6, "{target}");

        assert_eq!(whole.shape().last(), Some(&192));
        let (rows, wide) = (plain.to_f64(), whole.to_f64());
        let tokens: Vec<f64> = wide.chunks(192).flat_map(|row| &row[..137]).copied().collect();
        let largest = rows.iter().fold(1.0, |largest: f64, v| largest.max(v.abs()));
        assert!(rows.iter().zip(&tokens).all(|(a, b)| (a - b).abs() < 1e-6 * largest), "{target}");
        assert!(wide.chunks(192).flat_map(|row| &row[137..]).all(|v| *v == f64::from(f32::MIN)), "{target}");
    }
}

/// Every golden that has token ids, on every target.
#[test]
fn all_models_verify_with_a_padded_vocabulary() {
    let folder = scratch();
    let (mut without_ids, mut scored) = (0, 0);
    for entry in fs::read_dir(repository().join("fixtures/goldens")).unwrap() {
        let model = entry.unwrap().path();
        let name = model.file_name().unwrap().to_string_lossy().into_owned();
        if !model.is_dir() {
            assert_eq!(name, "README.md");
            continue;
        }
        if IMAGES.contains(&name.as_str()) || SOUNDS.contains(&name.as_str()) {
            without_ids += 1;
            continue;
        }
        for target in CPU_TARGETS {
            let out = folder.path().join(format!("{name}-{target}"));
            let more = ["--target", target.name, "--recipe", "pad-vocab=64", "--verify", "--debug=verify"];
            planish_compile(&model, &out, &more).exits(0, &[]);
            let manifest = Manifest::read(&out).unwrap();
            for part in &manifest.parts {
                let reads_tokens = part.inputs.iter().any(|input| input.role.is_token_ids());
                let Some(PaddedVocabulary { size, padded, logits }) = &part.vocabulary else {
                    assert!(!reads_tokens, "{name}: {}", part.name);
                    continue;
                };
                assert!(padded > size && padded.is_multiple_of(MULTIPLE), "{name}: {size} and {padded}");
                assert!(logits.is_none() || *logits == Some(Logits::Sliced), "{name}");
            }
            let scores =
                manifest.parts.iter().any(|part| part.vocabulary.as_ref().is_some_and(|of| of.logits.is_some()));
            let language = [
                Task::TextGeneration,
                Task::Text2TextGeneration,
                Task::AutomaticSpeechRecognition,
                Task::ImageToText,
                Task::FillMask,
            ];
            assert_eq!(scores, language.contains(&manifest.task.unwrap()), "{name}");
            if scores {
                scored += 1;
                let more = [&more[..], &["--recipe", "logits=padded", "--force"]].concat();
                planish_compile(&model, &out, &more).exits(0, &[]);
            }
        }
    }
    assert_eq!((without_ids, scored), (IMAGES.len() + SOUNDS.len(), CPU_TARGETS.len() * 82));
}

#[test]
fn padded_logits_are_declared_and_never_generated() {
    let folder = scratch();
    for name in ["gpt2", "gemma2", "t5", "bart"] {
        let (plain, padded) = (folder.path().join(name), folder.path().join(format!("{name}-padded")));
        planish_compile(&golden(name), &plain, &[]).exits(0, &[]);
        planish_compile(&golden(name), &padded, &["--recipe", "pad-vocab=64", "--recipe", "logits=padded"])
            .exits(0, &[]);
        let part = Manifest::read(&padded).unwrap().parts.pop().unwrap();
        let logits = &part.outputs.iter().find(|port| port.value.name == "logits").unwrap().value;
        let vocabulary = part.vocabulary.unwrap();
        assert_eq!(logits.dims()[2], i64::try_from(vocabulary.padded).unwrap().into());
        planish(["verify", text(&padded), "--reference", text(&golden(name))]).exits(0, &[]);

        let generate = |artifact: &Path, more: &[&str]| {
            let arguments = [&["generate", text(artifact), "--ids", "5,9,2", "--max-new-tokens", "20", "--json"], more];
            let document: Value = serde_json::from_str(&planish(arguments.concat()).exits(0, &[]).stdout).unwrap();
            document["ids"].clone()
        };
        for more in
            [&["--greedy"][..], &["--set", "num_beams=4"], &["--seed", "3", "--temperature", "9", "--top-k", "0"]]
        {
            assert_eq!(generate(&plain, more), generate(&padded, more), "{name} {more:?}");
        }
    }
}

#[test]
fn the_vocabulary_of_gpt2_becomes_a_multiple_of_64() {
    let folder = scratch();
    let mut draft = Draft::of("gpt2");
    let (size, hidden) = (50257, 48);
    draft.config["vocab_size"] = size.into();
    let table = draft.tensors.get_mut("transformer.wte.weight").unwrap();
    (table.shape, table.bytes) = (vec![size, hidden], vec![0; size * hidden * 4]);
    let model = SourceModel::open(&draft.write(folder.path().join("model"))).unwrap();
    let mut options = options(&ORT);
    options.passes.padding = padding(Logits::Sliced);
    let part = lower(&model, &options, None, &Silent).unwrap().parts.pop().unwrap();
    let sizes = PaddedVocabulary { size, padded: 50304, logits: Some(Logits::Sliced) };
    assert_eq!(part.vocabulary, Some(sizes));
    let table = part.graph.weights().find(|(_, _, weight)| weight.elements() > size * hidden).unwrap().2;
    assert_eq!(table.shape(), [50304, hidden]);
}

#[test]
fn what_cannot_be_padded_is_said() {
    let folder = scratch();
    let out = folder.path().join("out");
    let compile = |name: &str, more: &[&str]| planish_compile(&golden(name), &out, &[more, &["--force"]].concat());
    compile("gpt2", &["--recipe", "logits=padded"])
        .exits(2, &["--recipe logits=padded needs a padded vocabulary", "--recipe pad-vocab=64"]);
    let off = ["--recipe", "logits=padded", "--recipe", "pad-vocab=off"];
    compile("gpt2", &off).exits(2, &["--recipe logits=padded needs a padded vocabulary"]);
    compile("gpt2", &["--recipe", "pad-vocab=many"]).exits(2, &["expected a number of rows, or off"]);
    compile("gpt2", &["--recipe", "logits=cut"]).exits(2, &["`logits` of the recipe", "all, last, sliced, padded"]);
    let classifier = ["--recipe", "logits=padded", "--recipe", "pad-vocab=64"];
    compile("bert-classify", &classifier)
        .exits(1, &["has no logits that could be padded", "leave out --recipe logits"]);
    compile("vit", &["--recipe", "pad-vocab=64"]).exits(0, &["nothing was padded"]);
    let model = Draft::of("gpt2").write(folder.path().join("model"));
    let linked = planish_compile(&model, &out, &["--recipe", "pad-vocab=64", "--weights", "link", "--force"]);
    linked.exits(0, &["transposed, joined or padded for the graph: copied, not linked"]);
    let manifest = |more: &[&str]| {
        compile("gpt2", more).succeeds();
        Manifest::read(&out).unwrap().parts.pop().unwrap().vocabulary
    };
    assert_eq!((manifest(&[]), manifest(&["--recipe", "pad-vocab=0"])), (None, None));
}

#[test]
fn onnxruntime_genai_is_told_how_wide_logits_are() {
    let folder = scratch();
    let out = folder.path().join("out");
    let size = |more: &[&str]| {
        let more = [&["--package", "genai", "--recipe", "pad-vocab=64", "--force"], more].concat();
        planish_compile(&golden("gpt2"), &out, &more).exits(0, &[]);
        let config: Value = serde_json::from_slice(&fs::read(out.join("genai_config.json")).unwrap()).unwrap();
        config["model"]["vocab_size"].clone()
    };
    assert_eq!((size(&[]), size(&["--recipe", "logits=padded"])), (137.into(), 192.into()));
}
