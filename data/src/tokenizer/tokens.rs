//! Which tokens begin and end a text.

use std::path::Path;

use anyhow::Result;

use super::document::Document;

/// The files that may say it, that which counts first.
const FILES: [&str; 2] = ["generation_config.json", "config.json"];

/// The ids of the tokens that end a text, from `eos_token_id` of an artifact's
/// generation_config.json or else of its config.json; none where neither says it.
///
/// # Errors
/// When a file cannot be read or its `eos_token_id` is neither an id nor a list of ids.
pub fn end_tokens(artifact: &Path) -> Result<Vec<i64>> {
    ids(artifact, "eos_token_id")
}

/// The id under a key, such as `pad_token_id`, of an artifact's generation_config.json or else of
/// its config.json; the first where it is a list.
///
/// # Errors
/// When a file cannot be read or has neither an id nor a list of ids under the key.
pub fn token(artifact: &Path, key: &str) -> Result<Option<i64>> {
    Ok(ids(artifact, key)?.first().copied())
}

fn ids(artifact: &Path, key: &str) -> Result<Vec<i64>> {
    for file in FILES {
        let document = Document::open(&artifact.join(file))?;
        if let Some(ids) = document.map(|mut document| document.ids(key)).transpose()?.flatten() {
            return Ok(ids);
        }
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_generation_config_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        assert_eq!(end_tokens(folder.path()).unwrap(), [0i64; 0]);
        write("config.json", r#"{"eos_token_id": 7}"#);
        assert_eq!(end_tokens(folder.path()).unwrap(), [7]);
        write("generation_config.json", r#"{"eos_token_id": null}"#);
        assert_eq!(end_tokens(folder.path()).unwrap(), [7]);
        write("generation_config.json", r#"{"eos_token_id": [1, 2]}"#);
        assert_eq!(end_tokens(folder.path()).unwrap(), [1, 2]);
        for bad in [r#"{"eos_token_id": "</s>"}"#, r#"{"eos_token_id": [1.5]}"#, "{"] {
            write("generation_config.json", bad);
            assert!(format!("{:#}", end_tokens(folder.path()).unwrap_err()).contains("generation_config.json"));
        }
    }
}
