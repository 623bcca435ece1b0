//! Any GGUF file is a model whose graph passes the verifier and whose tensors lie inside the file, or an error.

#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use planish_models::{Checkpoint, LoadOptions, WeightFile, load};

fuzz_target!(|bytes: &[u8]| {
    let Ok(folder) = tempfile::tempdir() else { return };
    let path = folder.path().join("model.gguf");
    if fs::write(&path, bytes).is_err() {
        return;
    }
    if let Ok(file) = WeightFile::open_gguf(&path) {
        assert!(file.tensors().values().all(|tensor| tensor.offset + tensor.bytes <= file.bytes()));
    }
    let opened = Checkpoint::open(&path);
    // Configuration and tokenizer are texts, whatever the metadata is.
    opened.iter().for_each(|checkpoint| drop(checkpoint.written_companions()));
    match opened.and_then(|checkpoint| load(&checkpoint, LoadOptions::default())) {
        Ok(model) => assert!(model.parts.iter().all(|part| planish_ir::verify(&part.graph).is_ok())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
