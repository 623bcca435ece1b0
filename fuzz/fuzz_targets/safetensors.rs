//! Any file is weights whose tensors lie inside it, or an error.

#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use planish_models::WeightFile;

fuzz_target!(|bytes: &[u8]| {
    let Ok(folder) = tempfile::tempdir() else { return };
    let path = folder.path().join("model.safetensors");
    if fs::write(&path, bytes).is_err() {
        return;
    }
    match WeightFile::open(&path) {
        Ok(file) => file.tensors().values().for_each(|tensor| assert!(tensor.offset <= file.bytes())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
