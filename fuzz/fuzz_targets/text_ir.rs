//! Any text is a graph that prints back to itself, or an error with a line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use planish_ir::{text, verify};

fuzz_target!(|source: &str| {
    // Filetests are the corpus: their headers go, and their two graphs are inputs of their own.
    for part in source.split("; ---\n") {
        let lines: Vec<&str> = part.lines().filter(|line| !line.starts_with(';')).collect();
        check(&lines.join("\n"));
    }
});

fn check(source: &str) {
    let Ok(graph) = text::parse(source, &text::no_files) else { return };
    let _ = verify(&graph);
    let printed = graph.to_string();
    match text::parse(&printed, &text::no_files) {
        Ok(again) => assert_eq!(again.to_string(), printed),
        Err(error) => panic!("{error}\n{printed}"),
    }
}
