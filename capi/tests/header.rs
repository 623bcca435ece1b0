//! The header of C is what the source says, and compilers of C and C++ take it.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::panic, reason = "this is a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use planish_testing::skipped;

/// The folder of this crate.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What `make header` installs.
fn cbindgen() -> Option<PathBuf> {
    let path = folder().join("../.deps/cbindgen/bin/cbindgen");
    path.is_file().then_some(path)
}

#[test]
fn the_header_is_the_one_that_cbindgen_makes() {
    let Some(cbindgen) = cbindgen() else {
        skipped("cbindgen is not in .deps: run `make header`");
        return;
    };
    let done = Command::new(cbindgen)
        .args(["--quiet", "--config", "cbindgen.toml", "."])
        .current_dir(folder())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let kept = fs::read_to_string(folder().join("include/planish.h")).unwrap();
    let made = String::from_utf8(done.stdout).unwrap();
    assert!(kept == made, "capi/include/planish.h is not what the source says; write it by `make header`:\n{made}");
}

/// Without cbindgen too: the functions that C can call are those that the header declares.
#[test]
fn the_header_has_each_function_and_its_documentation() {
    let header = fs::read_to_string(folder().join("include/planish.h")).unwrap();
    let calls = fs::read_to_string(folder().join("src/calls.rs")).unwrap();
    let names: Vec<&str> =
        calls.split("extern \"C\" fn ").skip(1).map(|rest| rest.split('(').next().unwrap()).collect();
    assert!(names.len() > 10, "{names:?}");
    let lines: Vec<&str> = header.lines().collect();
    let is_declaration = |line: &str| line.contains("planish_") && line.contains('(') && !line.starts_with(" *");
    let declared: Vec<usize> = (0..lines.len()).filter(|at| is_declaration(lines[*at])).collect();
    for (name, at) in names.iter().zip(&declared) {
        assert!(lines[*at].contains(&format!("{name}(")), "{} stands where {name} should", lines[*at]);
        assert_eq!(lines[at - 1], " */", "{name} has no documentation");
    }
    assert_eq!(declared.len(), names.len());
}

/// Warnings of the strictest compilers would be the user's.
#[test]
fn the_header_is_c_and_cpp() {
    for (compiler, language) in [("gcc", "c"), ("g++", "c++")] {
        let strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-x", language, "-"];
        let mut command = Command::new(compiler);
        command.args(strict).arg("-I").arg(folder().join("include"));
        command.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(
            &mut child.stdin.take().unwrap(),
            b"#include <planish.h>\nint main(void) { return 0; }\n",
        )
        .unwrap();
        let done = child.wait_with_output().unwrap();
        assert!(done.status.success(), "{compiler}: {}", String::from_utf8_lossy(&done.stderr));
    }
}
