//! Artifacts that are larger than their source though they were to be smaller: the warning says which weights and why.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::{Draft, planish_compile, scratch};

/// A golden with so many tokens, whose rows repeat in the table.
fn with_tokens(name: &str, table: &str, tokens: usize, folder: &Path) -> PathBuf {
    let mut draft = Draft::of(name);
    draft.config["vocab_size"] = json!(tokens);
    let stored = draft.tensors.get_mut(table).unwrap();
    let row = stored.bytes.len() / stored.shape[0];
    stored.bytes = stored.bytes.iter().copied().cycle().take(tokens * row).collect();
    stored.shape[0] = tokens;
    draft.write(folder.join("model"))
}

/// Encoder and decoders have a file each, with the table of tokens in it: three halves are more than one whole.
#[test]
fn weights_that_several_parts_use_are_named() {
    let folder = scratch();
    let (model, out) = (with_tokens("t5", "shared.weight", 20_000, folder.path()), folder.path().join("out"));
    let done = planish_compile(&model, &out, &["--fp16"]).exits(0, &[]);
    let warning = "weights that several parts use are in the file of each: `shared.weight` (3 times 1.9 MB) and ";
    assert!(done.stderr.contains(warning), "{}", done.stderr);
    // The codes of three parts are fewer bytes than the floats of the source.
    let done = planish_compile(&model, &out, &["--int8", "--force"]).exits(0, &[]);
    assert!(!done.stderr.contains("the artifact has"), "{}", done.stderr);
}

/// The table stays a float and the head that it is too takes codes.
#[test]
fn weights_that_one_part_stores_twice_are_named() {
    let folder = scratch();
    let model = with_tokens("gpt2", "transformer.wte.weight", 40_000, folder.path());
    let out = folder.path().join("out");
    let done = planish_compile(&model, &out, &["--int8", "--keep", "@table=float"]).exits(0, &[]);
    let warning = "weights are stored more than once: `wte.weight` (7.7 MB and 1.9 MB), 1.9 MB more";
    assert!(done.stderr.contains(warning), "{}", done.stderr);
}
