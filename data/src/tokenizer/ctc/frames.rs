//! How long the frames of a model are.

use std::path::Path;

use anyhow::{Context, Result};
use planish_files::Kind;
use planish_sounds::Processor;
use serde_json::Value;

/// The samples of a second, where preprocessor_config.json does not say it: those of all encoders of speech that are published.
const RATE: f64 = 16_000.0;

/// The time from one frame to the next, in seconds, by [`frame_samples`] and `sampling_rate` of preprocessor_config.json; absent
/// where config.json does not say how many samples that is.
///
/// # Errors
/// When a file cannot be read.
pub fn frame_seconds(folder: &Path) -> Result<Option<f64>> {
    let Some(samples) = frame_samples(folder)? else { return Ok(None) };
    let rate = document(folder, "preprocessor_config.json")?.get("sampling_rate").and_then(Value::as_f64);
    let seconds = samples / rate.filter(|rate| *rate > 0.0).unwrap_or(RATE);
    Ok(Some(seconds).filter(|seconds| seconds.is_finite()))
}

/// The samples from one frame to the next, by `conv_stride` of config.json and the convolutions after the encoder, or of a model of
/// features by [`frame_places`] and the settings of these; absent where nothing says it.
///
/// # Errors
/// When a file cannot be read, or the settings of features are not supported.
pub fn frame_samples(folder: &Path) -> Result<Option<f64>> {
    let config = document(folder, "config.json")?;
    if let Some(places) = places(&config) {
        let samples = Processor::open(folder)?.and_then(|processor| processor.place_samples());
        return Ok(samples.map(|samples| (samples * places) as f64));
    }
    let Some(strides) = config.get("conv_stride").and_then(Value::as_array) else { return Ok(None) };
    let Some(samples) = strides.iter().map(Value::as_f64).product::<Option<f64>>() else { return Ok(None) };
    Ok(Some(samples * adapter(&config, 3.0)).filter(|samples| samples.is_finite() && *samples >= 1.0))
}

/// How many frames become one in the convolutions after the encoder, which are so many where the configuration does not say it.
fn adapter(config: &Value, layers: f64) -> f64 {
    let number = |key: &str, default: f64| config.get(key).and_then(Value::as_f64).unwrap_or(default);
    match config.get("add_adapter").and_then(Value::as_bool) {
        Some(true) => number("adapter_stride", 2.0).powf(number("num_adapter_layers", layers)),
        _ => 1.0,
    }
}

/// The most places of features that become a frame.
const MOST_PLACES: f64 = 65_536.0;

/// How many places of features become a frame of the model, by config.json of Parakeet or Wav2Vec2-BERT; absent of other models.
///
/// # Errors
/// When the file cannot be read.
pub fn frame_places(folder: &Path) -> Result<Option<usize>> {
    Ok(places(&document(folder, "config.json")?))
}

fn places(config: &Value) -> Option<usize> {
    let kind = config.get("model_type").and_then(Value::as_str)?;
    let places = match kind {
        "parakeet_ctc" => {
            let number = |key: &str, default: f64| config.get("encoder_config")?.get(key)?.as_f64().or(Some(default));
            let layers = number("subsampling_factor", 8.0).unwrap_or(8.0).log2().floor();
            number("subsampling_conv_stride", 2.0).unwrap_or(2.0).powf(layers)
        }
        "wav2vec2-bert" => adapter(config, 1.0),
        _ => return None,
    };
    Some(places).filter(|places| (1.0..=MOST_PLACES).contains(places)).map(|places| places as usize)
}

/// How many samples the first frame is made of, by `conv_kernel` and `conv_stride` of config.json: a model takes no fewer. Absent where
/// config.json has no such lists.
///
/// # Errors
/// When the file cannot be read.
pub fn fewest_samples(folder: &Path) -> Result<Option<usize>> {
    let config = document(folder, "config.json")?;
    let list = |key: &str| -> Option<Vec<usize>> {
        config.get(key)?.as_array()?.iter().map(|size| usize::try_from(size.as_u64()?).ok()).collect()
    };
    let (Some(kernels), Some(strides)) = (list("conv_kernel"), list("conv_stride")) else { return Ok(None) };
    // What the last convolution needs is a place; each one before needs its kernel, moved by its stride for each further place.
    let places = kernels.into_iter().zip(strides).rev().try_fold(1_usize, |places, (kernel, stride)| {
        places.saturating_sub(1).checked_mul(stride)?.checked_add(kernel)
    });
    Ok(places)
}

/// A file of JSON; null where it is not there.
fn document(folder: &Path, name: &str) -> Result<Value> {
    let path = folder.join(name);
    let Some(text) = planish_files::read_if_there(&path, &Kind::SETTINGS)? else { return Ok(Value::Null) };
    serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))
}
