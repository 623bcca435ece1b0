//! The programs of examples/, which use planish as a library.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Done, golden, scratch, text, write_tokenizer};

/// Runs an example, which Cargo builds beside the tests.
fn example(name: &str, arguments: &[&Path]) -> Done {
    let binaries = PathBuf::from(env!("CARGO_BIN_EXE_planish"));
    let program = binaries.parent().unwrap().join("examples").join(name);
    Command::new(program).args(arguments).output().unwrap().into()
}

#[test]
fn examples_compile_verify_and_embed() {
    let folder = scratch();
    let (artifact, texts) = (folder.path().join("artifact"), folder.path().join("texts.txt"));
    let checkpoint = golden("bert-sentence");
    let made = example("compile", &[&checkpoint, &artifact]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert!(made.stdout.starts_with(&format!("{}: bert in ", text(&artifact))), "{}", made.stdout);

    let verified = example("verify", &[&artifact]);
    assert_eq!(verified.code, Some(0), "{}", verified.stderr);
    assert!(verified.stdout.ends_with(&format!(" cases next to {}\n", text(&checkpoint))), "{}", verified.stdout);

    write_tokenizer(&artifact, 131);
    fs::write(&texts, "one two\nthree\n").unwrap();
    let embedded = example("embed", &[&artifact, &texts]);
    assert_eq!(embedded.code, Some(0), "{}", embedded.stderr);
    let lines: Vec<&str> = embedded.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{}", embedded.stdout);
    assert!(lines.iter().all(|line| line.contains("\"embedding\":[")), "{}", embedded.stdout);

    let missing = example("verify", &[&folder.path().join("nowhere")]);
    assert_eq!(missing.code, Some(1), "{}", missing.stdout);
}
