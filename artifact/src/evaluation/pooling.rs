//! How token embeddings become the embedding of a text: as the sentence-transformers library describes it beside a model.

use std::path::Path;

use anyhow::Result;
use planish_models::{pooling_config, pooling_modes};
use serde::{Deserialize, Serialize};

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
    /// When a file is there and cannot be read.
    pub fn read(folder: &Path, warn: &mut dyn FnMut(&str)) -> Result<Self> {
        let known = match pooling_modes(folder)?.as_deref() {
            None | Some(["mean"]) => Self::Mean,
            Some(["cls"]) => Self::Cls,
            Some(["max"]) => Self::Max,
            Some(others) => {
                let (path, others) = (pooling_config(folder)?, others.join(" and "));
                warn(&format!("{} names the pooling {others}; the mean over tokens takes its place", path.display()));
                Self::Mean
            }
        };
        Ok(known)
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
                fs::write(folder.path().join("1_Pooling/config.json"), text).unwrap();
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
        assert!(warning.contains("names the pooling lasttoken; the mean over tokens"), "{warning}");
        let newer = r#"{"embedding_dimension": 2, "pooling_mode": "cls", "include_prompt": true}"#;
        assert_eq!(read(Some(newer)), (Ok(Pooling::Cls), String::new()));
        assert!(read(Some(r#"{"pooling_mode": ["mean", "max"]}"#)).1.contains("names the pooling mean and max"));
        assert!(read(Some("{")).0.unwrap_err().contains("1_Pooling/config.json"));
        let modules = r#"[{"type": "sentence_transformers.models.Transformer", "path": "."},
                          {"type": "sentence_transformers.models.Pooling", "path": "./9_Pooling"}]"#;
        fs::write(folder.path().join("modules.json"), modules).unwrap();
        fs::create_dir(folder.path().join("9_Pooling")).unwrap();
        fs::write(folder.path().join("9_Pooling/config.json"), r#"{"pooling_mode": "max"}"#).unwrap();
        assert_eq!(read(None), (Ok(Pooling::Max), String::new()));
    }
}
