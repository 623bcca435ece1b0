//! How token embeddings become the embedding of a text: as the sentence-transformers library describes it beside a model.

use std::path::Path;

use anyhow::{Context, Result};
use planish_files::Kind;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The file of that library, in the model's folder.
const CONFIG: &str = "1_Pooling/config.json";

/// How token embeddings become one embedding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// The mean over the real tokens.
    #[default]
    Mean,
    /// The first real token.
    Cls,
    /// The largest of each feature over the real tokens.
    Max,
    /// The model has an output with one embedding for each text.
    Model,
}

impl Pooling {
    /// What the model's folder says; the mean where it says nothing, or, with the reason, where it names another way.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn read(folder: &Path, warn: &mut dyn FnMut(&str)) -> Result<Self> {
        let path = folder.join(CONFIG);
        if !path.is_file() {
            return Ok(Self::Mean);
        }
        let text = planish_files::read_text(&path, &Kind::SETTINGS)?;
        let config: Value = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
        let modes = [
            ("pooling_mode_mean_tokens", Self::Mean),
            ("pooling_mode_cls_token", Self::Cls),
            ("pooling_mode_max_tokens", Self::Max),
        ];
        let members = config.as_object().into_iter().flatten();
        let on: Vec<&str> = members.filter(|(_, value)| **value == true).map(|(name, _)| name.as_str()).collect();
        let on: Vec<&str> = on.into_iter().filter(|name| name.starts_with("pooling_mode_")).collect();
        let known = modes.iter().find(|(name, _)| on == [*name]).map(|(_, mode)| *mode);
        if known.is_none() {
            let on = if on.is_empty() { "no mode".to_owned() } else { on.join(" and ") };
            warn(&format!("{} names {on}; the mean over tokens takes its place", path.display()));
        }
        Ok(known.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_mode_is_what_the_library_s_file_says() {
        let folder = tempfile::tempdir().unwrap();
        let read = |text: Option<&str>| {
            if let Some(text) = text {
                fs::create_dir_all(folder.path().join("1_Pooling")).unwrap();
                fs::write(folder.path().join(CONFIG), text).unwrap();
            }
            let mut warnings = Vec::new();
            let pooling = Pooling::read(folder.path(), &mut |text| warnings.push(text.to_owned()));
            (pooling.map_err(|error| error.to_string()), warnings.join(""))
        };
        assert_eq!(read(None), (Ok(Pooling::Mean), String::new()));
        let cls =
            r#"{"word_embedding_dimension": 2, "pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#;
        assert_eq!(read(Some(cls)), (Ok(Pooling::Cls), String::new()));
        assert_eq!(read(Some(r#"{"pooling_mode_max_tokens": true}"#)).0, Ok(Pooling::Max));
        let (pooling, warning) = read(Some(r#"{"pooling_mode_lasttoken": true, "include_prompt": true}"#));
        assert_eq!(pooling, Ok(Pooling::Mean));
        assert!(warning.contains("names pooling_mode_lasttoken; the mean over tokens"), "{warning}");
        assert!(read(Some("{")).0.unwrap_err().ends_with("is not JSON"));
    }
}
