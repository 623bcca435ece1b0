//! Any file is a graph that passes the verifier and whose weights can be read, or an error.

#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;

/// Weights of more bytes are not read: an input may say that they are padded to any size.
const MOST_BYTES: u64 = 1 << 16;

fuzz_target!(|source: &str| {
    // Filetests are the corpus: their headers go, and their two graphs are inputs of their own.
    for part in source.split("; ---\n") {
        let lines: Vec<&str> = part.lines().filter(|line| !line.starts_with(';')).collect();
        check(&lines.join("\n"));
    }
});

fn check(source: &str) {
    let Ok(folder) = tempfile::tempdir() else { return };
    let path = folder.path().join("model.graph");
    let written = fs::write(&path, source).and_then(|()| fs::write(folder.path().join("model.weights"), [7; 512]));
    if written.is_err() {
        return;
    }
    match planish_runtimes::graph_file::load(&path) {
        Ok(graph) => {
            assert!(planish_ir::verify(&graph).is_ok());
            for (_, _, weight) in graph.weights().filter(|(_, _, weight)| weight.bytes() <= MOST_BYTES) {
                let mut small = true;
                weight.visit_leaves(&mut |leaf| small &= leaf.bytes() <= MOST_BYTES);
                assert!(!small || weight.read().is_ok());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
