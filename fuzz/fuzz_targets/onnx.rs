//! Any file is a graph that passes the verifier, or an error.

#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(folder) = tempfile::tempdir() else { return };
    let path = folder.path().join("model.onnx");
    if fs::write(&path, bytes).is_err() {
        return;
    }
    match planish_onnx::import(&path) {
        Ok(imported) => assert!(planish_ir::verify(&imported.graph).is_ok()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
