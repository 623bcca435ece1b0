//! What has to hold of the files of a sentence model.

use std::path::Path;

use planish_files::Kind as FileKind;

use super::read::WEIGHTS;
use crate::ModelError;
use crate::checkpoint::companions::TRANSFORMER_SETTINGS;
use crate::checkpoint::config::{brief, is_off};
use crate::checkpoint::files::read_object;

/// Refuses a model of which modules read another output than those of tokens, or scores of words with `is_sparse`; returns what
/// of its settings counts for nothing here.
pub(super) fn check_model(folder: &Path, is_sparse: bool) -> Result<Option<String>, ModelError> {
    let mut paths = TRANSFORMER_SETTINGS.iter().map(|name| folder.join(name));
    let Some(path) = paths.find(|path| path.is_file()) else { return Ok(None) };
    let config = read_object(&path, &FileKind::SETTINGS)?;
    let texts = config.get("modality_config").and_then(|config| config.get("text"));
    let output = if is_sparse { "logits" } else { "last_hidden_state" };
    for (key, usual) in [("method", "forward"), ("method_output_name", output)] {
        match texts.and_then(|texts| texts.get(key)) {
            Some(value) if value != usual => {
                let message = format!("`{key}` of texts is {}: modules here read \"{usual}\" only", brief(value));
                return Err(ModelError::File { path, message });
            }
            _ => {}
        }
    }
    let other = ["config_args", "config_kwargs", "model_args", "model_kwargs"];
    let other: Vec<&str> =
        other.into_iter().filter(|key| config.get(*key).is_some_and(|value| !is_off(value))).collect();
    Ok((!other.is_empty()).then(|| format!("{}: ignored keys: {}", path.display(), other.join(", "))))
}

/// Refuses a module whose weights are not there in the form that is read.
pub(super) fn check_weights(path: &Path, class: &str) -> Result<(), ModelError> {
    if path.is_file() {
        return Ok(());
    }
    let message = format!(
        "this file of the module `{class}` is missing; where there is a pytorch_model.bin in its place, write it once where torch is \
         installed: safetensors.torch.save_file(torch.load(\"pytorch_model.bin\", weights_only=True), \"{WEIGHTS}\")"
    );
    Err(ModelError::File { path: path.to_owned(), message })
}
