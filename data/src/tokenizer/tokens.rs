//! Which tokens begin and end a text.

use std::path::Path;

use anyhow::{Context, Result};
use planish_files::Kind;
use serde_json::Value;

use super::TextTokenizer;
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

/// The id under a key, such as `pad_token_id`, of an artifact's generation_config.json, or else of
/// its config.json, or else of `decoder` in that; the first where it is a list.
///
/// # Errors
/// When a file cannot be read or has neither an id nor a list of ids under the key.
pub fn token(artifact: &Path, key: &str) -> Result<Option<i64>> {
    Ok(ids(artifact, key)?.first().copied())
}

/// The files that may name special tokens.
const SPECIAL: [&str; 2] = ["tokenizer_config.json", "special_tokens_map.json"];

/// The usual tokens that stand for a masked one.
const MASKS: [&str; 2] = ["[MASK]", "<mask>"];

/// The id of the token that stands for a masked one: `mask_token` of an artifact's tokenizer_config.json or
/// special_tokens_map.json, or else `[MASK]` or `<mask>`.
///
/// # Errors
/// When a file cannot be read, or the tokenizer has no such token.
pub fn mask_token(tokenizer: &TextTokenizer, artifact: &Path) -> Result<i64> {
    let named = named(artifact, "mask_token")?;
    let tokens = named.iter().map(String::as_str).chain(MASKS);
    tokens.filter_map(|token| tokenizer.id(token)).next().with_context(|| {
        format!(
            "the tokenizer of {} has no token for a masked one; name it as `mask_token` in tokenizer_config.json",
            artifact.display()
        )
    })
}

/// The id of the token that models of a class of a text begin it with: `cls_token` of an artifact's tokenizer_config.json or
/// special_tokens_map.json; none where neither names it.
///
/// # Errors
/// When a file cannot be read.
pub fn class_token(tokenizer: &TextTokenizer, artifact: &Path) -> Result<Option<i64>> {
    Ok(named(artifact, "cls_token")?.iter().find_map(|token| tokenizer.id(token)))
}

/// The id of the token that fills texts up: `pad_token` of an artifact's tokenizer_config.json or special_tokens_map.json; none
/// where neither names it.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn padding_token(tokenizer: &TextTokenizer, artifact: &Path) -> Result<Option<i64>> {
    Ok(named(artifact, "pad_token")?.iter().find_map(|token| tokenizer.id(token)))
}

/// The tokens under a key of the files that name special ones.
fn named(artifact: &Path, key: &str) -> Result<Vec<String>> {
    let mut named = Vec::new();
    for file in SPECIAL {
        let path = artifact.join(file);
        let Some(text) = planish_files::read_if_there(&path, &Kind::SETTINGS)? else { continue };
        let settings: Value = serde_json::from_str(&text).with_context(|| format!("{} is not JSON", path.display()))?;
        let token = settings.get(key);
        let token = token.and_then(|token| token.as_str().or_else(|| token.get("content")?.as_str()));
        named.extend(token.map(str::to_owned));
    }
    Ok(named)
}

/// What the class of BLIP of the transformers library begins and ends texts with, whatever `generation_config.json` says: the keys that
/// others have for it, those of `text_config`, and the ids where these are missing.
const OF_BLIP: [(&str, &str, i64); 2] =
    [("decoder_start_token_id", "bos_token_id", 30522), ("eos_token_id", "sep_token_id", 102)];

fn of_blip(artifact: &Path, key: &str) -> Result<Option<i64>> {
    let Some((_, own, default)) = OF_BLIP.iter().find(|(other, ..)| *other == key) else { return Ok(None) };
    let Some(mut document) = Document::open(&artifact.join(FILES[1]))? else { return Ok(None) };
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if document.take("model_type", "a text", text)?.as_deref() != Some("blip") {
        return Ok(None);
    }
    let section = |value: &Value| value.as_object().cloned();
    let Some(section) = document.take("text_config", "an object", section)? else { return Ok(Some(*default)) };
    let ids = Document::of("text_config", section).ids(own)?;
    Ok(Some(ids.and_then(|ids| ids.first().copied()).unwrap_or(*default)))
}

fn ids(artifact: &Path, key: &str) -> Result<Vec<i64>> {
    if let Some(id) = of_blip(artifact, key)? {
        return Ok(vec![id]);
    }
    for file in FILES {
        let document = Document::open(&artifact.join(file))?;
        if let Some(ids) = document.map(|mut document| document.ids(key)).transpose()?.flatten() {
            return Ok(ids);
        }
    }
    of_decoder(artifact, key)
}

/// The ids under a key of the configuration of the decoder in config.json, for a model of two models.
fn of_decoder(artifact: &Path, key: &str) -> Result<Vec<i64>> {
    let Some(mut document) = Document::open(&artifact.join(FILES[1]))? else { return Ok(Vec::new()) };
    let section = document.take("decoder", "an object", |value: &Value| value.as_object().cloned())?;
    let ids = section.map(|section| Document::of("decoder", section).ids(key)).transpose()?;
    Ok(ids.flatten().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn blip_has_tokens_of_its_text_model() {
        let folder = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(folder.path().join(file), text).unwrap();
        write("generation_config.json", r#"{"eos_token_id": 2, "decoder_start_token_id": 3}"#);
        write("config.json", r#"{"model_type": "blip", "text_config": {"bos_token_id": 7, "sep_token_id": 9}}"#);
        assert_eq!(end_tokens(folder.path()).unwrap(), [9]);
        assert_eq!(token(folder.path(), "decoder_start_token_id").unwrap(), Some(7));
        write("config.json", r#"{"model_type": "blip"}"#);
        assert_eq!(end_tokens(folder.path()).unwrap(), [102]);
        assert_eq!(token(folder.path(), "decoder_start_token_id").unwrap(), Some(30522));
    }

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
