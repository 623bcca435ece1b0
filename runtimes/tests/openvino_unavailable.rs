//! OpenVINO is unavailable, with a reason, where its library is missing or is none. No test here loads a good library: a
//! process keeps the first one it gets.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may panic")]

use std::path::Path;
use std::process::Command;

use planish_runtimes::openvino::OpenVino;
use planish_runtimes::{Runtime, Unavailable};
use planish_testing::scratch;

fn unavailable(library: &Path) -> Unavailable {
    OpenVino::new(Some(library.to_owned())).check().unwrap_err()
}

/// What is said of a library that is built of this source.
fn of_source(source: &str) -> String {
    let folder = scratch();
    let (c, library) = (folder.path().join("library.c"), folder.path().join("libopenvino_c.so.1"));
    std::fs::write(&c, source).unwrap();
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &c]).status().unwrap();
    assert!(status.success());
    unavailable(folder.path()).to_string()
}

#[test]
fn a_missing_library_says_where_it_was_looked_for_and_what_to_do() {
    let shown = unavailable(Path::new("/nonexistent/libopenvino_c.so")).to_string();
    for part in ["`openvino` is unavailable", "(--runtime-option openvino-lib): No such file", "PLANISH_OPENVINO_LIB"] {
        assert!(shown.contains(part), "{shown}");
    }
}

#[test]
fn another_library_and_an_old_one_are_unavailable() {
    let other = of_source("int something(void) { return 1; }");
    assert!(other.contains("it does not export ov_get_openvino_version, so it is no OpenVINO"), "{other}");
    let old = of_source(
        "struct version { const char *build, *description; };
         int ov_get_openvino_version(struct version *v) { v->build = \"2024.6.0-1-x\"; v->description = 0; return 0; }
         void ov_version_free(struct version *v) { (void)v; }",
    );
    assert!(old.contains("it is version 2024.6.0-1-x; 2025.1 or newer is needed"), "{old}");
}
