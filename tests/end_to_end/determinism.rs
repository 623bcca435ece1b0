//! The same input gives the same bytes: on any number of threads, wherever source and output are.

use std::path::Path;

use safetensors::tensor::Dtype;

use crate::support::{Draft, Stored, contents, golden, names, planish_compile, scratch};

/// Compiles into several places with 1, 2 and 8 threads and compares all files.
fn same_bytes(model: &Path, more: &[&str]) {
    let folder = scratch();
    let compile = |place: &str, threads: &str| {
        let to = folder.path().join(place);
        planish_compile(model, &to, &[&["--threads", threads], more].concat()).succeeds();
        contents(&to)
    };
    let one = compile("one", "1");
    assert!(one.len() >= 3 && one["model.onnx"].len() > 1000, "{:?}", one.keys());
    for (place, threads) in [("two", "2"), ("many", "8"), ("deeper/below", "2"), ("one", "1")] {
        let other = compile(place, threads);
        assert!(other == one, "{place} on {threads} threads differs from one on 1");
    }
    assert_eq!(names(folder.path()), ["deeper", "many", "one", "two"]);
}

#[test]
fn goldens() {
    same_bytes(&golden("bert"), &["--target", "onnx"]);
    same_bytes(&golden("bert-mlm"), &["--no-fusion"]);
    // Linked weights need one filesystem.
    let folder = scratch();
    same_bytes(&Draft::of("roberta-mlm").write(folder.path().join("model")), &["--weights", "link"]);
}

/// Weights that are converted and written piece by piece, by several threads.
#[test]
fn large_converted_weights() {
    let mut draft = Draft::of("bert");
    let mut state = 1_u32;
    let mut half = || {
        // Halves from 0.5 to 1, pseudo-random.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (0x3800 | u16::try_from(state >> 22).unwrap()).to_le_bytes()
    };
    let (vocabulary, hidden) = (60_000, 48);
    let bytes = (0..vocabulary * hidden).flat_map(|_| half()).collect();
    let embeddings = Stored { dtype: Dtype::F16, shape: vec![vocabulary, hidden], bytes };
    draft.tensors.insert("embeddings.word_embeddings.weight".to_owned(), embeddings);
    draft.config["vocab_size"] = vocabulary.into();
    let folder = scratch();
    same_bytes(&draft.write(folder.path().join("model")), &["--no-fusion"]);
}

#[test]
fn the_place_of_the_source_does_not_matter() {
    let folder = scratch();
    let copies = ["a", "b"].map(|parent| {
        let place = folder.path().join(parent);
        std::fs::create_dir(&place).unwrap();
        let model = Draft::of("bert-classify").write(place.join("model"));
        let out = folder.path().join(format!("{parent}-out"));
        planish_compile(&model, &out, &[]).succeeds();
        contents(&out)
    });
    assert!(copies[0] == copies[1]);
}
