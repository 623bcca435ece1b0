//! Vocabularies of characters, as `Wav2Vec2CTCTokenizer` of the transformers library reads them.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_files::Kind;
use serde_json::{Map, Value};

use super::{Decoded, Timed, runs};

const VOCABULARY: &str = "vocab.json";
const SETTINGS: &str = "tokenizer_config.json";

/// The key of added tokens by their ids.
const ADDED: &str = "added_tokens_decoder";

/// The keys of special tokens and what they are where no file says it, in the order in which those that are missing in the
/// vocabulary get ids after all others.
const SPECIAL: [(&str, &str); 4] =
    [("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")];

/// What texts lose where `clean_up_tokenization_spaces` is set.
const SPACES: [(&str, &str); 10] = [
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

/// A vocabulary of characters.
#[derive(Debug)]
pub(super) struct Vocabulary {
    tokens: HashMap<i64, String>,
    unknown: String,
    blank: String,
    delimiter: String,
    /// What stands between words in texts.
    space: String,
    is_lower: bool,
    cleans_spaces: bool,
}

impl Vocabulary {
    /// Reads the files of a folder; `None` where it has no vocab.json.
    ///
    /// # Errors
    /// When a file cannot be read, says something else than expected, or has no such language.
    pub(super) fn open(folder: &Path, language: Option<&str>) -> Result<Option<Self>> {
        let path = folder.join(VOCABULARY);
        let Some(text) = planish_files::read_if_there(&path, &Kind::TOKENIZER)? else { return Ok(None) };
        let vocabulary = object(&path, &text)?;
        let settings = settings(folder, SETTINGS)?;
        // It counts where there is no list of added tokens, and then more.
        let older = match settings.contains_key(ADDED) {
            true => Map::new(),
            false => self::settings(folder, "special_tokens_map.json")?,
        };
        refuse_phonemes(folder, &settings)?;
        let text = |key: &str, default: &str| -> Result<String> {
            let value = [&older, &settings].into_iter().find_map(|of| of.get(key).filter(|value| !value.is_null()));
            let Some(value) = value else { return Ok(default.to_owned()) };
            let content = value.as_str().or_else(|| value.get("content")?.as_str());
            content
                .map(str::to_owned)
                .with_context(|| format!("`{key}` of {} is {value}, expected a text", folder.display()))
        };
        let flag = |key: &str| settings.get(key).and_then(Value::as_bool).unwrap_or(false);

        let language = language.map(str::to_owned).or(Some(text("target_lang", "")?).filter(|name| !name.is_empty()));
        let own = of_language(&path, vocabulary, language.as_deref())?;
        let mut ids: BTreeMap<String, i64> = BTreeMap::new();
        for (token, id) in &own {
            let id = id.as_i64().with_context(|| format!("{}: the id of `{token}` is {id}", path.display()))?;
            ids.insert(token.clone(), id);
        }
        let mut tokens: HashMap<i64, String> = ids.iter().map(|(token, id)| (*id, token.clone())).collect();
        for (token, id) in added(folder, &settings)? {
            tokens.entry(id).or_insert_with(|| token.clone());
            ids.entry(token).or_insert(id);
        }
        for (key, default) in SPECIAL {
            let token = text(key, default)?;
            if !ids.contains_key(&token) {
                let id = i64::try_from(ids.len()).unwrap_or(i64::MAX);
                tokens.entry(id).or_insert_with(|| token.clone());
                ids.insert(token, id);
            }
        }
        Ok(Some(Self {
            tokens,
            unknown: text("unk_token", "<unk>")?,
            blank: text("pad_token", "<pad>")?,
            delimiter: text("word_delimiter_token", "|")?,
            space: text("replace_word_delimiter_char", " ")?,
            is_lower: flag("do_lower_case"),
            cleans_spaces: flag("clean_up_tokenization_spaces"),
        }))
    }

    /// The text of the tokens of frames.
    pub(super) fn decode(&self, ids: &[i64]) -> Decoded {
        let tokens: Vec<&str> =
            ids.iter().map(|id| self.tokens.get(id).map_or(self.unknown.as_str(), String::as_str)).collect();
        let kept = runs(&tokens).filter(|(token, _)| *token != self.blank);
        let shown = |token: &str| if token == self.delimiter { self.space.clone() } else { token.to_owned() };
        let characters: Vec<Timed> = kept.map(|(token, frames)| Timed { text: shown(token), frames }).collect();
        let all: String = characters.iter().map(|character| character.text.as_str()).collect();
        let mut text = all.trim().to_owned();
        if self.is_lower {
            text = text.to_lowercase();
        }
        if self.cleans_spaces {
            text = SPACES.iter().fold(text, |text, (from, to)| text.replace(from, to));
        }
        let words = characters
            .chunk_by(|a, b| (a.text == self.space) == (b.text == self.space))
            .filter(|run| run[0].text != self.space)
            .map(|run| Timed {
                text: run.iter().map(|character| character.text.as_str()).collect(),
                frames: run[0].frames.start..run[run.len() - 1].frames.end,
            })
            .collect();
        Decoded { text, characters, words }
    }
}

/// The vocabulary of a language, where there are several.
fn of_language(path: &Path, vocabulary: Map<String, Value>, language: Option<&str>) -> Result<Map<String, Value>> {
    let is_nested = !vocabulary.is_empty() && vocabulary.values().all(Value::is_object);
    match (language, is_nested) {
        (None, false) => Ok(vocabulary),
        (Some(language), true) => match vocabulary.get(language).and_then(Value::as_object) {
            Some(own) => Ok(own.clone()),
            None => {
                let known: Vec<&str> = vocabulary.keys().map(String::as_str).collect();
                bail!("{} has no language {language}: there are {}", path.display(), known.join(", "))
            }
        },
        (Some(language), false) => {
            bail!("{} is not of several languages, so there is no language {language} to choose", path.display())
        }
        (None, true) => {
            let known: Vec<&str> = vocabulary.keys().map(String::as_str).collect();
            bail!(
                "{} is of several languages, and `target_lang` of {SETTINGS} names none of them: {}",
                path.display(),
                known.join(", ")
            )
        }
    }
}

/// Tokens that were added to a vocabulary, with their ids.
fn added(folder: &Path, settings: &Map<String, Value>) -> Result<Vec<(String, i64)>> {
    let mut added = Vec::new();
    if let Some(tokens) = settings.get(ADDED).and_then(Value::as_object) {
        for (id, token) in tokens {
            let content = token.as_str().or_else(|| token.get("content")?.as_str());
            let both = id.parse().ok().zip(content);
            let (id, content) =
                both.with_context(|| format!("`{ADDED}` of {SETTINGS} in {} has {id}: {token}", folder.display()))?;
            added.push((content.to_owned(), id));
        }
        added.sort_by_key(|(_, id)| *id);
        return Ok(added);
    }
    for (token, id) in self::settings(folder, "added_tokens.json")? {
        let id = id.as_i64();
        let id = id
            .with_context(|| format!("added_tokens.json of {}: the id of `{token}` is no integer", folder.display()))?;
        added.push((token, id));
    }
    added.sort_by_key(|(_, id)| *id);
    Ok(added)
}

/// Phonemes are put together in another way.
fn refuse_phonemes(folder: &Path, settings: &Map<String, Value>) -> Result<()> {
    const CLASS: &str = "tokenizer_class";
    match settings.get(CLASS).and_then(Value::as_str) {
        Some(class) if class.contains("Phoneme") => bail!(
            "`{CLASS}` of {SETTINGS} in {} is {class}: texts of phonemes are not supported; `planish run` gives the scores",
            folder.display()
        ),
        _ => Ok(()),
    }
}

/// The settings of a file; none where it is not there.
fn settings(folder: &Path, name: &str) -> Result<Map<String, Value>> {
    let path = folder.join(name);
    match planish_files::read_if_there(&path, &Kind::SETTINGS)? {
        Some(text) => object(&path, &text),
        None => Ok(Map::new()),
    }
}

fn object(path: &Path, text: &str) -> Result<Map<String, Value>> {
    serde_json::from_str(text).with_context(|| format!("{} is no JSON object", path.display()))
}
