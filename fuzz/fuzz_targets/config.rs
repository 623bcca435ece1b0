//! Any `config.json` with the weights of the tiny BERT among the fixtures is a graph that passes
//! the verifier, or an error.

#![no_main]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use planish_models::{Checkpoint, LoadOptions, load};
use serde_json::{Map, Value};

/// A checkpoint folder that belongs to the repository.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/goldens/bert");

/// The golden's configuration with the keys of another one in the place of its own.
fn merged(changes: &[u8]) -> Option<String> {
    let golden = fs::read(Path::new(GOLDEN).join("config.json")).ok()?;
    let mut config: Map<String, Value> = serde_json::from_slice(&golden).ok()?;
    config.extend(serde_json::from_slice::<Map<String, Value>>(changes).ok()?);
    Some(Value::Object(config).to_string())
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(folder) = tempfile::tempdir() else { return };
    let weights = Path::new(GOLDEN).join("model.safetensors");
    // An object is merged with the golden's, so that few keys get as far as the architecture.
    let config = merged(bytes).map_or_else(|| bytes.to_vec(), String::into_bytes);
    if fs::write(folder.path().join("config.json"), config).is_err()
        || symlink(weights, folder.path().join("model.safetensors")).is_err()
    {
        return;
    }
    match Checkpoint::open(folder.path()).and_then(|checkpoint| load(&checkpoint, LoadOptions::default())) {
        Ok(model) => assert!(model.parts.iter().all(|part| planish_ir::verify(&part.graph).is_ok())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
