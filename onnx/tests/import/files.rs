//! Constants in files beside the model.

use planish_testing::scratch;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use planish_onnx::proto::{DataType, StringStringEntryProto, TensorProto};
use prost::Message;

use planish_testing::onnx::{f32, graph, import_in, model, node};

fn entry(key: &str, value: &str) -> StringStringEntryProto {
    StringStringEntryProto { key: key.to_owned(), value: value.to_owned() }
}

/// A model with a constant of two numbers that are elsewhere.
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
    let outer = scratch();
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
    refused(&folder, &external("link.bin", &[]), "a link leads to");
    refused(&folder, &external("link.bin", &[]), "w.bin; copy that file beside the model");
    symlink(outer.path(), folder.join("up")).unwrap();
    refused(&folder, &external("up/w.bin", &[]), "a link leads to");
}

/// As `hf download` lays files: `snapshots/REVISION` has links, `blobs` what they lead to.
#[test]
fn links_of_a_hubs_cache_lead_to_its_blobs() {
    let cache = scratch();
    let repository = cache.path().join("models--a--b");
    let (blobs, revision) = (repository.join("blobs"), repository.join("snapshots/0a1b/onnx"));
    fs::create_dir_all(&blobs).unwrap();
    fs::create_dir_all(&revision).unwrap();
    fs::write(blobs.join("11"), external("model.onnx_data", &[])).unwrap();
    fs::write(blobs.join("22"), 1f32.to_le_bytes().repeat(2)).unwrap();
    symlink("../../../blobs/11", revision.join("model.onnx")).unwrap();
    symlink("../../../blobs/22", revision.join("model.onnx_data")).unwrap();
    let graph = planish_onnx::import(&revision.join("model.onnx")).unwrap().graph;
    let (_, _, weight) = graph.weights().next().unwrap();
    assert_eq!(weight.read_numbers().unwrap(), [1.0, 1.0]);

    // A link further out is refused, also into the cache of another repository.
    let other = cache.path().join("models--a--c/blobs");
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join("33"), [0; 8]).unwrap();
    fs::remove_file(revision.join("model.onnx_data")).unwrap();
    symlink("../../../../models--a--c/blobs/33", revision.join("model.onnx_data")).unwrap();
    let error = planish_onnx::import(&revision.join("model.onnx")).err().unwrap().to_string();
    assert!(error.contains("is outside of the model's folder: a link leads to"), "{error}");

    // `blobs` beside `snapshots` is what tells a cache.
    let (plain, aside) = (cache.path().join("plain/snapshots/0a1b"), cache.path().join("plain/data"));
    fs::create_dir_all(&plain).unwrap();
    fs::create_dir_all(&aside).unwrap();
    fs::write(aside.join("w.bin"), [0; 8]).unwrap();
    symlink("../../data/w.bin", plain.join("w.bin")).unwrap();
    refused(&plain, &external("w.bin", &[]), "a link leads to");
}

/// As a repository keeps one copy of data that several models have.
#[test]
fn links_within_a_repository_of_git() {
    let outer = scratch();
    let repository = outer.path().join("repository");
    let (model, data) = (repository.join("onnx"), repository.join("data"));
    [&model, &data, &repository.join(".hidden")].into_iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
    for folder in [&data, &repository.join(".hidden"), &outer.path().to_owned()] {
        fs::write(folder.join("w.bin"), [0; 8]).unwrap();
    }
    symlink("../data/w.bin", model.join("w.bin")).unwrap();
    refused(&model, &external("w.bin", &[]), "a link leads to");
    fs::create_dir(repository.join(".git")).unwrap();
    fs::write(repository.join(".git/w.bin"), [0; 8]).unwrap();
    import_in(&model, &external("w.bin", &[])).unwrap();
    // What the file itself says stays within its folder, and links stay within what the repository shows.
    refused(&model, &external("../data/w.bin", &[]), "is outside of the model's folder");
    refused(&model, &external(&data.join("w.bin").display().to_string(), &[]), "is outside of the model's folder");
    for (number, place) in ["../../w.bin", "../.git/w.bin", "../.hidden/w.bin"].into_iter().enumerate() {
        let link = format!("link-{number}.bin");
        symlink(place, model.join(&link)).unwrap();
        refused(&model, &external(&link, &[]), "a link leads to");
    }
}

/// The data lies where the link is, or where the model is.
#[test]
fn a_model_that_is_a_link_has_two_folders() {
    let outer = scratch();
    let (here, there) = (outer.path().join("here"), outer.path().join("there"));
    fs::create_dir(&here).unwrap();
    fs::create_dir(&there).unwrap();
    fs::write(there.join("model.onnx"), external("w.bin", &[])).unwrap();
    symlink("../there/model.onnx", here.join("model.onnx")).unwrap();
    let import = || planish_onnx::import(&here.join("model.onnx")).map_err(|e| e.to_string());
    assert!(import().err().unwrap().contains("`w.bin` cannot be read"));
    fs::write(there.join("w.bin"), [0; 8]).unwrap();
    import().unwrap();
    fs::remove_file(there.join("w.bin")).unwrap();
    fs::write(here.join("w.bin"), [0; 8]).unwrap();
    import().unwrap();
    // From one of them a link may lead into the other.
    fs::rename(here.join("w.bin"), there.join("v.bin")).unwrap();
    symlink("../there/v.bin", here.join("w.bin")).unwrap();
    import().unwrap();
}

#[test]
fn ranges_that_the_file_does_not_have() {
    let folder = scratch();
    let folder = folder.path();
    fs::write(folder.join("w.bin"), [0; 8]).unwrap();
    refused(folder, &external("none.bin", &[]), "cannot be read");
    refused(folder, &external("w.bin", &[("offset", "4")]), "beyond the end of the file");
    refused(folder, &external("w.bin", &[("offset", "18446744073709551615")]), "beyond the end of the file");
    refused(folder, &external("w.bin", &[("length", "800")]), "it has 800 bytes, f32[2] takes 8");
    refused(folder, &external("w.bin", &[("length", "-1")]), "has the length `-1`");
    refused(folder, &external(".", &[]), "this is not a regular file");
}

/// Elements of more than a few bytes are left in the file, and read from there.
#[test]
fn large_constants_are_ranges_of_the_model() {
    let folder = scratch();
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
