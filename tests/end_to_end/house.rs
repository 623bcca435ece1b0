//! Rules of the code base that no compiler checks.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::repository;

/// Where such words may stand: packages that copy another tool's names, the texts of roles, and the members of a recipe.
const ALLOWED: &[&str] = &[
    "compiler/src/packages/genai.rs",
    "compiler/src/packages/speech.rs",
    "compiler/src/packages/triton.rs",
    "compiler/src/recipe.rs",
    "artifact/src/package.rs",
    "ir/src/interface/roles.rs",
];

/// Where they may not: everything but the naming tables of models/, and the inference in onnx/.
const FOLDERS: &[&str] = &[
    "src",
    "artifact/src",
    "capi/src",
    "check/src",
    "compiler/src",
    "data/src",
    "generate/src",
    "measure/src",
    "passes/src",
    "runtimes/src",
    "eval/src",
    "ir/src",
];

/// Names of inputs, outputs, parts and sizes.
const NAMES: &[&str] = &[
    "input_ids",
    "decoder_input_ids",
    "attention_mask",
    "encoder_attention_mask",
    "token_type_ids",
    "position_ids",
    "pixel_values",
    "inputs_embeds",
    "encoder_hidden_states",
    "encoder_last_hidden_state",
    "logits",
    "start_logits",
    "end_logits",
    "last_hidden_state",
    "pooler_output",
    "sentence_embedding",
    "encoder_model",
    "decoder_model",
    "decoder_with_past_model",
    "batch_size",
    "sequence_length",
    "encoder_sequence_length",
    "decoder_sequence_length",
    "past_sequence_length",
    "past_decoder_sequence_length",
];

/// What the names of caches begin with.
const BEGINNINGS: &[&str] = &["past_key_values", "present.", "present_"];

/// The Rust files of a folder, without those of tests.
fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name == "tests" || name.ends_with("_tests") {
            continue;
        }
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The literals of a line that are names of tensors or parts; comments have none.
fn names_in(line: &str) -> Vec<&str> {
    let code = if line.trim_start().starts_with("//") { "" } else { line };
    let is_name = |text: &&str| NAMES.contains(text) || BEGINNINGS.iter().any(|beginning| text.starts_with(beginning));
    // Between the first quote and the second, the third and the fourth ...
    code.split('"').skip(1).step_by(2).filter(is_name).collect()
}

#[test]
fn no_name_of_a_tensor_stands_outside_the_naming_tables() {
    let root = repository();
    let mut files = Vec::new();
    FOLDERS.iter().for_each(|folder| sources(&root.join(folder), &mut files));
    assert!(files.len() > 300, "{} files", files.len());
    let mut found = Vec::new();
    for file in files {
        let name = file.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        if ALLOWED.contains(&name.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            found.extend(names_in(line).into_iter().map(|literal| format!("{name}:{}: {literal:?}", number + 1)));
        }
    }
    assert!(found.is_empty(), "a role of planish_ir::interface stands for each of these names:\n{}", found.join("\n"));
}

#[test]
fn a_name_in_a_literal_is_found() {
    assert_eq!(
        names_in(r#"    x.name == "input_ids" && y.starts_with("present.0") || z == "ids""#),
        ["input_ids", "present.0"]
    );
    assert!(names_in(r#"    /// `"logits"`"#).is_empty());
}
