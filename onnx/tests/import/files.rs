//! Constants in files beside the model.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use planish_onnx::proto::{DataType, StringStringEntryProto, TensorProto};
use prost::Message;

use crate::build::{f32, graph, import_in, model, node};

fn entry(key: &str, value: &str) -> StringStringEntryProto {
    StringStringEntryProto { key: key.to_owned(), value: value.to_owned() }
}

/// A model with a constant of two numbers that stand elsewhere.
fn external(location: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let mut external_data = vec![entry("location", location)];
    external_data.extend(more.iter().map(|(key, value)| entry(key, value)));
    let tensor = TensorProto {
        name: "w".to_owned(),
        dims: vec![2],
        data_type: DataType::Float.into(),
        data_location: 1,
        external_data,
        ..TensorProto::default()
    };
    model(17, graph(vec![f32("x", "2")], vec![tensor], vec![node("y = Add(x, w)", vec![])], &["y"])).encode_to_vec()
}

fn refused(folder: &Path, bytes: &[u8], expected: &str) {
    let error = import_in(folder, bytes).err().unwrap_or_default();
    assert!(error.contains("`w`") && error.contains(expected), "`{expected}` is not in `{error}`");
}

#[test]
fn inside_of_the_folder_only() {
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("model");
    fs::create_dir(&folder).unwrap();
    fs::write(outer.path().join("w.bin"), [0; 8]).unwrap();
    fs::write(folder.join("w.bin"), [0; 16]).unwrap();

    import_in(&folder, &external("w.bin", &[])).unwrap();
    import_in(&folder, &external("./w.bin", &[("offset", "8"), ("length", "8")])).unwrap();
    refused(&folder, &external("../w.bin", &[]), "is outside of the model's folder");
    refused(&folder, &external("a/../../w.bin", &[]), "is outside of the model's folder");
    refused(
        &folder,
        &external(&outer.path().join("w.bin").display().to_string(), &[]),
        "is outside of the model's folder",
    );
    refused(&folder, &external("", &[]), "is outside of the model's folder");

    symlink(outer.path().join("w.bin"), folder.join("link.bin")).unwrap();
    refused(&folder, &external("link.bin", &[]), "a link leads there");
    symlink(outer.path(), folder.join("up")).unwrap();
    refused(&folder, &external("up/w.bin", &[]), "a link leads there");
}

#[test]
fn ranges_that_the_file_does_not_have() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("w.bin"), [0; 8]).unwrap();
    refused(folder, &external("none.bin", &[]), "cannot be read");
    refused(folder, &external("w.bin", &[("offset", "4")]), "beyond the end of the file");
    refused(folder, &external("w.bin", &[("offset", "18446744073709551615")]), "beyond the end of the file");
    refused(folder, &external("w.bin", &[("length", "800")]), "it has 800 bytes, f32[2] takes 8");
    refused(folder, &external("w.bin", &[("length", "-1")]), "has the length `-1`");
    refused(folder, &external(".", &[]), "this is no regular file");
}

/// Elements of more than a few bytes are left in the file, and read from there.
#[test]
fn large_constants_are_ranges_of_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let raw: Vec<u8> = (0..1024u32).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let tensor = TensorProto {
        name: "w".to_owned(),
        dims: vec![1024],
        data_type: DataType::Float.into(),
        raw_data: raw.clone().into(),
        ..TensorProto::default()
    };
    let bytes = model(17, graph(vec![f32("x", "1024")], vec![tensor], vec![node("y = Add(x, w)", vec![])], &["y"]))
        .encode_to_vec();
    let graph = import_in(folder.path(), &bytes).unwrap();
    let (_, _, weight) = graph.weights().next().unwrap();
    assert!(weight.as_stored().is_some());
    assert_eq!(weight.read().unwrap(), raw);
}
