//! Weights outside the model file: linked from the checkpoint, or in a file of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use onnx_protobuf::TensorProto;
use onnx_protobuf::tensor_proto::DataLocation;
use planish_eval::evaluate;
use planish_onnx::{ExportOptions, Placement, export};
use planish_passes::{ONNX, Pipeline};
use planish_runtimes::ort::OnnxRuntime;
use planish_runtimes::{Model, Runtime, SessionOptions};
use safetensors::tensor::Dtype;
use serde_json::{Map, Value, json};

use crate::export::parse;
use crate::support::{
    Draft, Stored, compiled, golden, names, numbered, options, planish_compile, repository, scratch, tensors,
    write_tensors,
};

/// Where an initializer's bytes are: file, offset and length. Absent for one in the model file.
fn location(tensor: &TensorProto) -> Option<(String, usize, usize)> {
    if tensor.data_location.enum_value() != Ok(DataLocation::EXTERNAL) {
        return None;
    }
    assert!(tensor.raw_data.is_empty(), "{} is in two places", tensor.name);
    let entries: BTreeMap<&str, &str> =
        tensor.external_data.iter().map(|e| (e.key.as_str(), e.value.as_str())).collect();
    assert_eq!(entries.keys().copied().collect::<Vec<_>>(), ["length", "location", "offset"]);
    let number = |key: &str| entries[key].parse().unwrap();
    Some((entries["location"].to_owned(), number("offset"), number("length")))
}

/// The external initializers of a model and their bytes.
fn external(folder: &Path) -> BTreeMap<String, (String, Vec<u8>)> {
    let model = parse(&folder.join("model.onnx"));
    let read = |tensor: &TensorProto| {
        let (file, offset, length) = location(tensor)?;
        let bytes = fs::read(folder.join(&file)).unwrap()[offset..][..length].to_vec();
        Some((tensor.name.clone(), (file, bytes)))
    };
    model.graph.initializer.iter().filter_map(read).collect()
}

#[test]
fn linked_weights_are_the_checkpoint_itself() {
    let folder = scratch();
    let (model, out) = (folder.path().join("model"), folder.path().join("out"));
    fs::create_dir(&model).unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(golden("bert").join(name), model.join(name)).unwrap();
    }
    planish_compile(&model, &out, &["--weights", "link", "--target", "onnx", "--verify"]).succeeds();
    assert_eq!(names(&out), ["README.md", "config.json", "model.onnx", "model.safetensors", "planish.json"]);
    let inode = |folder: &Path| fs::metadata(folder.join("model.safetensors")).unwrap().ino();
    assert_eq!(inode(&out), inode(&model), "not a copy");

    let stored = tensors(&model.join("model.safetensors"));
    let external = external(&out);
    let large = stored.iter().filter(|(_, t)| t.bytes.len() >= 1024).map(|(name, _)| name);
    assert!(external.keys().eq(large), "{:?}", external.keys());
    for (name, (file, bytes)) in external {
        assert_eq!(file, "model.safetensors");
        assert!(bytes == stored[&name].bytes, "{name} points elsewhere");
    }
}

/// Weights inside of an .onnx file are linked too, by another name than that of what is written.
#[test]
fn a_source_of_the_same_name_is_linked_under_another() {
    let folder = scratch();
    let (model, out) = (folder.path().join("model.onnx"), folder.path().join("out"));
    fs::copy(repository().join("fixtures/graphs/torch-bert/model.onnx"), &model).unwrap();
    planish_compile(&model, &out, &["--weights", "link", "--target", "onnx", "--verify"]).exits(0, &[]);
    assert_eq!(names(&out), ["README.md", "model.onnx", "planish.json", "source-model.onnx"]);
    assert_eq!(fs::metadata(&model).unwrap().ino(), fs::metadata(out.join("source-model.onnx")).unwrap().ino());
}

/// As in the cache of Hugging Face, where a model's files are symbolic links.
#[test]
fn links_are_made_to_files_and_not_to_symbolic_links() {
    let folder = scratch();
    let model = folder.path().join("model");
    fs::create_dir(&model).unwrap();
    fs::copy(golden("bert").join("config.json"), model.join("config.json")).unwrap();
    fs::copy(golden("bert").join("model.safetensors"), folder.path().join("blob")).unwrap();
    symlink("../blob", model.join("model.safetensors")).unwrap();
    // At another depth, where the relative link would lead nowhere.
    let out = folder.path().join("deep/er/out");
    planish_compile(&model, &out, &["--weights", "link", "--verify"]).succeeds();
    assert!(fs::symlink_metadata(out.join("model.safetensors")).unwrap().is_file());
}

#[test]
fn every_shard_is_linked() {
    let folder = scratch();
    let mut draft = Draft::of("bert");
    let second = draft.tensors.split_off("encoder.layer.1");
    let map: Map<String, Value> = draft
        .tensors
        .keys()
        .map(|name| (name.clone(), "model-00001-of-00002.safetensors".into()))
        .chain(second.keys().map(|name| (name.clone(), "model-00002-of-00002.safetensors".into())))
        .collect();
    let model = draft.write(folder.path().join("model"));
    fs::rename(model.join("model.safetensors"), model.join("model-00001-of-00002.safetensors")).unwrap();
    write_tensors(&model.join("model-00002-of-00002.safetensors"), &second);
    fs::write(model.join("model.safetensors.index.json"), json!({"weight_map": map}).to_string()).unwrap();

    let out = folder.path().join("out");
    let done = planish_compile(&model, &out, &["--weights", "link", "--verify", "--json"]).succeeds();
    let document: Value = serde_json::from_str(&done.stdout).unwrap();
    let linked = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    assert_eq!(document["manifest"]["linked"], json!(linked));
    assert_eq!(names(&out), ["README.md", "config.json", linked[0], linked[1], "model.onnx", "planish.json"]);
    let used: BTreeSet<String> = external(&out).into_values().map(|(file, _)| file).collect();
    assert!(used.iter().eq(&linked), "{used:?}");
}

/// What is stored as f16 is converted: the model cannot point at it.
#[test]
fn weights_that_cannot_be_linked_are_warned_of() {
    let (folder, mut draft) = (scratch(), Draft::of("bert"));
    let (vocabulary, hidden) = (8_000, 48);
    let embeddings =
        Stored { dtype: Dtype::F16, shape: vec![vocabulary, hidden], bytes: vec![0; 2 * vocabulary * hidden] };
    draft.tensors.insert("embeddings.word_embeddings.weight".to_owned(), embeddings);
    draft.config["vocab_size"] = vocabulary.into();
    let model = draft.write(folder.path().join("model"));
    let warning = "of the weights are float16: converted and copied, not linked";
    let done = planish_compile(&model, &folder.path().join("out"), &["--weights", "link"]).exits(0, &[warning]);
    assert!(done.stderr.starts_with("warning: ") && done.stderr.lines().count() == 1, "{}", done.stderr);
    let strict = ["--weights", "link", "--debug=strict"];
    planish_compile(&model, &folder.path().join("strict"), &strict).exits(1, &[warning, "leave out --weights link"]);
    planish_compile(&model, &folder.path().join("copied"), &["--debug=strict"]).succeeds();
    assert_eq!(names(folder.path()), ["copied", "model", "out"]);
    // However few they are.
    planish_compile(
        &golden("bert"),
        &folder.path().join("bert"),
        &["--weights", "link", "--debug=strict", "--target", "onnx"],
    )
    .succeeds();
}

#[test]
fn linked_weights_need_one_filesystem() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let out = folder.path().join("out");
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    assert_ne!(device(folder.path()), device(&golden("bert")), "the test needs two filesystems");
    planish_compile(&golden("bert"), &out, &["--weights", "link"]).exits(1, &["cannot link", "--weights copy"]);
    assert_eq!(names(folder.path()), [""; 0]);
}

#[test]
fn many_weights_go_to_a_file_of_their_own() {
    let folder = scratch();
    let mut options = options(&ONNX);
    options.verify_passes = false;
    let source = compiled(&golden("bert"), &folder.path().join("out"), &options).source.parts.remove(0).graph;
    let mut graph = source.clone();
    Pipeline::new(options.passes.clone()).run(&mut graph, &mut |_, _| ()).unwrap();
    let total: u64 = graph.weights().map(|(_, _, w)| w.bytes()).sum();
    let files = |external_above: u64| {
        let folder = folder.path().join(external_above.to_string());
        fs::create_dir(&folder).unwrap();
        let options = ExportOptions {
            opset: options.passes.opset,
            placement: Placement::Copy,
            external_above,
            data_suffix: "_data",
            metadata: &[],
            progress: &|_| (),
        };
        (export(&graph, "model", &folder, &options).unwrap().files, folder)
    };
    let (inside, inside_folder) = files(total);
    assert_eq!(inside.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["model.onnx"]);
    assert!(external(&inside_folder).is_empty());

    let (outside, folder) = files(total - 1);
    assert_eq!(names(&folder), ["model.onnx", "model.onnx_data"]);
    for (name, bytes) in outside {
        assert_eq!(fs::metadata(folder.join(name)).unwrap().len(), bytes);
    }
    // Offsets that a runtime can map, and the same bytes as inside.
    let model = parse(&folder.join("model.onnx"));
    let mut locations: Vec<_> = model.graph.initializer.iter().filter_map(location).collect();
    assert!(locations.iter().all(|(file, offset, _)| file == "model.onnx_data" && offset % 4096 == 0));
    locations.sort();
    assert!(locations.is_sorted_by(|(_, a, length), (_, b, _)| a + length <= *b), "they overlap");
    let external = external(&folder);
    let within = parse(&inside_folder.join("model.onnx"));
    for tensor in within.graph.initializer.iter().filter(|t| t.raw_data.len() >= 1024) {
        assert!(external[&tensor.name].1 == tensor.raw_data, "{}", tensor.name);
    }

    let inputs = numbered(&golden("bert").join("io.safetensors"), "in.");
    let inputs: Vec<_> = inputs.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let mut session =
        OnnxRuntime::new(None).load(Model::onnx(&folder.join("model.onnx")), SessionOptions::default()).unwrap();
    let (actual, expected) = (session.run(&inputs).unwrap(), evaluate(&source, &inputs).unwrap());
    let error = actual[1].1.to_f64().iter().zip(expected[1].1.to_f64()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(error <= 1e-5, "{error:.1e}");
}
