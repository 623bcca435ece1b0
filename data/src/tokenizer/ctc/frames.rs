//! How long the frames of a model are.

use std::path::Path;

use anyhow::{Context, Result};
use planish_files::Kind;
use serde_json::Value;

/// The samples of a second, where preprocessor_config.json does not say it: those of all encoders of speech that are published.
const RATE: f64 = 16_000.0;

/// The time from one frame to the next, in seconds, by `conv_stride` of config.json and the convolutions after the encoder, and
/// `sampling_rate` of preprocessor_config.json; absent where config.json has no such list.
///
/// # Errors
/// When a file cannot be read.
pub fn frame_seconds(folder: &Path) -> Result<Option<f64>> {
    let config = document(folder, "config.json")?;
    let Some(strides) = config.get("conv_stride").and_then(Value::as_array) else { return Ok(None) };
    let Some(samples) = strides.iter().map(Value::as_f64).product::<Option<f64>>() else { return Ok(None) };
    let number = |key: &str, default: f64| config.get(key).and_then(Value::as_f64).unwrap_or(default);
    let later = match config.get("add_adapter").and_then(Value::as_bool) {
        Some(true) => number("adapter_stride", 2.0).powf(number("num_adapter_layers", 3.0)),
        _ => 1.0,
    };
    let rate = document(folder, "preprocessor_config.json")?.get("sampling_rate").and_then(Value::as_f64);
    let seconds = samples * later / rate.filter(|rate| *rate > 0.0).unwrap_or(RATE);
    Ok(Some(seconds).filter(|seconds| seconds.is_finite()))
}

/// A file of JSON; null where it is not there.
fn document(folder: &Path, name: &str) -> Result<Value> {
    let path = folder.join(name);
    let Some(text) = planish_files::read_if_there(&path, &Kind::SETTINGS)? else { return Ok(Value::Null) };
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))
}
