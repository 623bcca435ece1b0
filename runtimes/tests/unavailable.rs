//! ONNX Runtime is unavailable, with a reason, where its library is missing, broken or too old.
//! No test here loads a good library: a process keeps the first one it gets.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, may panic")]

use planish_testing::scratch;
use std::path::Path;
use std::process::Command;

use planish_runtimes::ort::OnnxRuntime;
use planish_runtimes::{Model, Runtime, RuntimeError, SessionOptions, Unavailable};

fn unavailable(library: &Path) -> Unavailable {
    let runtime = OnnxRuntime::new(Some(library.to_owned()));
    let error = runtime.load(Model::onnx(Path::new("model.onnx")), SessionOptions::default()).err().unwrap();
    let checked = runtime.check().unwrap_err();
    assert!(matches!(error, RuntimeError::Unavailable(same) if same == checked));
    checked
}

/// A library whose `OrtGetApiBase` answers with this version and knows no interface.
fn build(folder: &Path, source: &str) -> std::path::PathBuf {
    let (c, library) = (folder.join("library.c"), folder.join("libonnxruntime.so.1"));
    std::fs::write(&c, source).unwrap();
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &c]).status().unwrap();
    assert!(status.success());
    library
}

#[test]
fn a_missing_library_says_where_it_was_looked_for_and_what_to_do() {
    let missing = unavailable(Path::new("/nonexistent/libonnxruntime.so"));
    assert_eq!(missing.looked.len(), 1);
    let shown = missing.to_string();
    assert!(
        shown.contains("looked at /nonexistent/libonnxruntime.so (--runtime-option ort-lib): No such file"),
        "{shown}"
    );
    assert!(shown.contains("PLANISH_ORT_LIB"), "{shown}");
}

#[test]
fn a_file_that_is_no_library_is_unavailable() {
    let folder = scratch();
    let path = folder.path().join("libonnxruntime.so.1.31.1");
    std::fs::write(&path, "not a library").unwrap();
    let broken = unavailable(&path);
    assert!(broken.looked[0].contains("file too short") || broken.looked[0].contains("invalid ELF"), "{broken}");
    // A folder is searched for files of the library's name.
    assert!(unavailable(folder.path()).looked[0].contains("libonnxruntime.so.1.31.1 (--runtime-option ort-lib)"));
}

#[test]
fn another_library_is_unavailable() {
    let folder = scratch();
    let other = unavailable(&build(folder.path(), "int something(void) { return 1; }"));
    assert!(other.looked[0].ends_with("it does not export OrtGetApiBase, so it is not ONNX Runtime"), "{other}");
}

#[test]
fn a_version_that_is_too_old_is_unavailable() {
    let folder = scratch();
    let source = r#"
        static const void *api(unsigned version) { return 0; }
        static const char *version(void) { return "1.10.0"; }
        static const struct { const void *(*api)(unsigned); const char *(*version)(void); } base = {api, version};
        const void *OrtGetApiBase(void) { return &base; }"#;
    let old = unavailable(&build(folder.path(), source));
    assert!(old.looked[0].contains("it is version 1.10.0; 1.24 or newer is needed"), "{old}");
}

#[cfg(not(feature = "trtx"))]
#[test]
fn a_build_without_tensorrt_says_what_to_type() {
    use planish_runtimes::NoBuilder;
    use planish_runtimes::tensorrt::{TensorRt, builder};

    let NoBuilder(unavailable) = builder(None).unwrap_err();
    let expected = "the runtime `trt` is unavailable: this planish was built without TensorRT\n  build one with it in a clone of planish: \
                    make deps && cargo install --path . --features tensorrt-rtx";
    assert_eq!(unavailable.to_string(), expected);
    assert_eq!(TensorRt::new(None).check().unwrap_err(), unavailable);
}
