//! The same input gives the same bytes: on any number of threads, wherever source and output are, but for the way
//! from the one to the other that planish.json records.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::tensor::Dtype;

use crate::support::{Draft, Stored, contents, golden, names, planish_compile, scratch};

/// The files of an artifact with the line left out that says where its source is.
fn without_way(mut files: BTreeMap<String, Vec<u8>>) -> BTreeMap<String, Vec<u8>> {
    let manifest = String::from_utf8(files.remove("planish.json").unwrap()).unwrap();
    let lines: Vec<&str> = manifest.lines().collect();
    let kept: Vec<&str> = lines.iter().copied().filter(|line| !line.starts_with("    \"path\": ")).collect();
    assert_eq!(kept.len() + 1, lines.len());
    files.insert("planish.json".to_owned(), kept.join("\n").into_bytes());
    files
}

/// Compiles into several places with 1, 2 and 8 threads and compares all files.
pub(crate) fn same_bytes(model: &Path, more: &[&str]) {
    let folder = scratch();
    let compile = |place: &str, threads: &str| {
        let to = folder.path().join(place);
        planish_compile(model, &to, &[&["--quiet", "--threads", threads], more].concat()).succeeds();
        without_way(contents(&to))
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
        let way = format!("\"path\": \"../{parent}/model\"");
        assert!(std::fs::read_to_string(out.join("planish.json")).unwrap().contains(&way));
        without_way(contents(&out))
    });
    assert!(copies[0] == copies[1]);
}
