//! Artifacts as the source of others.

use std::fs;
use std::path::Path;

use planish::artifact::manifest::Manifest;

use crate::support::{golden, planish, planish_compile, scratch, text};

fn manifest(folder: &Path) -> Manifest {
    Manifest::read(folder).unwrap()
}

#[test]
fn an_artifact_is_compiled_again_with_its_history() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    planish_compile(&golden("bert"), &path("first"), &["--target", "onnx"]).succeeds();
    planish_compile(&path("first"), &path("second"), &["--int8-weights", "--verify"]).exits(0, &[]);
    let (first, second) = (manifest(&path("first")), manifest(&path("second")));
    assert_eq!((second.source.name.as_str(), second.source.path.as_deref()), ("first", Some("../first")));
    assert_eq!(second.source.files.len(), 1);
    assert_eq!(second.source.files[0].name, "model.onnx");
    assert!(second.source.files[0].blake3.is_some());
    let history = second.source.artifact.as_ref().unwrap();
    assert_eq!((&history.source, history.target.as_str()), (&first.source, "onnx"));
    assert_eq!((history.opset, history.passes["model"].len()), (first.opset, first.parts[0].passes.len()));
    // What the first one says of the model.
    assert_eq!((second.task, &second.architecture), (first.task, &first.architecture));
    assert_eq!((second.max_sequence_length, second.pad_token_id), (first.max_sequence_length, first.pad_token_id));
    assert_eq!(second.companions, first.companions);
    assert_eq!(second.parts[0].inputs.len(), first.parts[0].inputs.len());
    planish(["verify", text(&path("second"))]).exits(0, &[]);

    // A third one has the history of both.
    planish_compile(&path("second"), &path("third"), &["--verify"]).exits(0, &[]);
    let third = manifest(&path("third"));
    assert_eq!(third.source.artifact.unwrap().source.artifact.unwrap().source, first.source);
    planish(["inspect", text(&path("second"))]).exits(0, &[]);
}

#[test]
fn the_parts_of_an_encoder_decoder_are_taken() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    planish_compile(&golden("t5"), &path("first"), &[]).succeeds();
    planish_compile(&path("first"), &path("second"), &["--int8-weights", "--verify"]).exits(0, &[]);
    let names = |name: &str| manifest(&path(name)).parts.iter().map(|part| part.name.clone()).collect::<Vec<_>>();
    assert_eq!(names("second"), names("first"));
    planish(["verify", text(&path("second"))]).exits(0, &[]);
    let cut = planish_compile(&path("first"), &path("cut"), &["--outputs", "logits"]);
    cut.exits(1, &["first has 3 parts", "name its .onnx file"]);
}

#[test]
fn an_artifact_without_graphs_names_what_to_give() {
    let folder = scratch();
    let (first, out) = (folder.path().join("first"), folder.path().join("out"));
    planish_compile(&golden("bert"), &first, &["--target", "cuda"]).succeeds();
    let refused = planish_compile(&first, &out, &[]);
    refused.exits(
        1,
        &["first is an artifact for target cuda without ONNX graphs", "give what it was compiled from, `bert`"],
    );
    assert!(!out.exists());
}

/// A file that is not what was written is an error that names it.
#[test]
fn a_changed_artifact_is_refused() {
    let folder = scratch();
    let (first, out) = (folder.path().join("first"), folder.path().join("out"));
    planish_compile(&golden("bert"), &first, &[]).succeeds();
    let model = first.join("model.onnx");
    fs::write(&model, &fs::read(&model).unwrap()[..1000]).unwrap();
    planish_compile(&first, &out, &[]).exits(1, &["model.onnx"]);
    fs::remove_file(&model).unwrap();
    planish_compile(&first, &out, &[]).exits(1, &["model.onnx"]);
}
