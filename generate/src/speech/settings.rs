//! What generation_config.json says of transcription by Whisper.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_artifact::Artifact;
use planish_data::tokenizer::document::{Document, whole};
use serde_json::{Map, Value};

use super::languages;
use crate::{GenerationConfig, prompt_vocabulary};

/// The files that may have settings; the first one counts.
const FILES: [&str; 2] = ["generation_config.json", "config.json"];

/// What a recording is written down in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpeechTask {
    /// The language that is spoken.
    #[default]
    Transcribe,
    /// English.
    Translate,
}

impl SpeechTask {
    /// The name in `task_to_id`.
    fn name(self) -> &'static str {
        match self {
            Self::Transcribe => "transcribe",
            Self::Translate => "translate",
        }
    }
}

/// When a window is decoded again, and when it is taken for silence. An absent threshold is not looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// A text whose ids compress better than that by zlib is decoded again: its length over that of what it compresses to.
    pub compression_ratio: Option<f64>,
    /// A text whose tokens have a smaller mean log probability is decoded again.
    pub logprob: Option<f64>,
    /// A window with a larger probability of no speech, whose text is below `logprob`, is taken for silence.
    pub no_speech: Option<f64>,
}

impl Default for Thresholds {
    /// Those that the transformers library's manual has for long recordings.
    fn default() -> Self {
        Self { compression_ratio: Some(1.35), logprob: Some(-1.0), no_speech: Some(0.6) }
    }
}

/// The settings of the model.
pub(super) struct Settings {
    /// Those of any generation: tokens that are suppressed, and lengths.
    pub(super) base: GenerationConfig,
    pub(super) start: i64,
    pub(super) end: i64,
    /// What fills up rows in the transformers library.
    pub(super) pad: Option<i64>,
    /// The token that asks for no timestamps; the timestamps are those after it.
    pub(super) no_timestamps: Option<i64>,
    /// The last timestamp that a window may begin with, counted from the first.
    pub(super) max_initial_timestamp: Option<i64>,
    /// The token before what was said before a window.
    previous: Option<i64>,
    /// The tokens of languages by what the tokenizer writes for them, such as `<|en|>`.
    languages: BTreeMap<String, i64>,
    tasks: BTreeMap<String, i64>,
    is_multilingual: Option<bool>,
    /// Tokens by their places after the first one; an absent one is that of the language.
    forced: Vec<(usize, Option<i64>)>,
    /// Whether windows are read after what was said before.
    pub(super) conditions: bool,
    /// Whether recordings are cut where it is quiet, into pieces of at most a window.
    pub(super) cuts: bool,
    pub(super) thresholds: Thresholds,
    /// Keys of the file that nothing is known of.
    pub(super) unknown: Vec<String>,
    file: String,
}

/// Keys of the file that say how Python callers get results, or of times of words, which are not computed.
const IRRELEVANT: &[&str] = &["alignment_heads", "language", "median_filter_width", "return_timestamps", "task"];

/// The setting of planish that cuts recordings.
pub(super) const CUTS: &str = "cut_at_silence";

/// Keys that are read here.
const KEYS: &[&str] = &[
    "compression_ratio_threshold",
    "condition_on_prev_tokens",
    "forced_decoder_ids",
    "is_multilingual",
    "lang_to_id",
    "logprob_threshold",
    "max_initial_timestamp_index",
    "no_speech_threshold",
    "no_timestamps_token_id",
    "prev_sot_token_id",
    "task_to_id",
];

fn numbers(value: &Value) -> Option<BTreeMap<String, i64>> {
    value.as_object()?.iter().map(|(name, id)| Some((name.clone(), id.as_i64()?))).collect()
}

fn places(value: &Value) -> Option<Vec<(usize, Option<i64>)>> {
    let place = |pair: &Value| match pair.as_array()?.as_slice() {
        [place, id] => Some((whole(place)?, if id.is_null() { None } else { Some(id.as_i64()?) })),
        _ => None,
    };
    value.as_array()?.iter().map(place).collect()
}

impl Settings {
    /// Reads them; `overriding` are settings in the place of those of the file.
    ///
    /// # Errors
    /// When a file cannot be read, or a setting is not what it should be, cannot be honoured, or has an id that the model does not have.
    pub(super) fn read(artifact: &Artifact, overriding: &Map<String, Value>) -> Result<Self> {
        Self::read_for(&artifact.folder, prompt_vocabulary(artifact)?, overriding)
    }

    /// The same of a model with ids from 0 to below `vocabulary`.
    fn read_for(folder: &Path, vocabulary: i64, overriding: &Map<String, Value>) -> Result<Self> {
        let mut overriding = overriding.clone();
        let cuts = overriding.remove(CUTS).is_some_and(|value| value == Value::Bool(true));
        let overriding = &overriding;
        let base = GenerationConfig::read_with(folder, overriding.clone())?;
        if base.num_beams.get() > 1 {
            bail!(
                "`num_beams` is {}, and recordings are transcribed without beams; take --set num_beams=1",
                base.num_beams
            );
        }
        let name = FILES.into_iter().find(|name| folder.join(name).exists()).unwrap_or(FILES[0]);
        let file = folder.join(name).display().to_string();
        let document = Document::open(&folder.join(name))?.unwrap_or_else(|| Document::of(&file, Map::new()));
        let mut d = document.overridden(overriding.clone());
        let mut id = |key: &str| d.take(key, "an id", Value::as_i64);
        let (no_timestamps, previous) = (id("no_timestamps_token_id")?, id("prev_sot_token_id")?);
        let max_initial_timestamp = d.count("max_initial_timestamp_index")?;
        let languages = d.take("lang_to_id", "ids by languages", numbers)?.unwrap_or_default();
        let tasks = d.take("task_to_id", "ids by tasks", numbers)?.unwrap_or_default();
        let forced = d.take("forced_decoder_ids", "a list of places and ids", places)?;
        let usual = Thresholds::default();
        let mut threshold = |key: &str, usual: Option<f64>| -> Result<Option<f64>> {
            let is_off = overriding.get(key).is_some_and(Value::is_null);
            Ok(if is_off { None } else { d.number(key)?.or(usual) })
        };
        let thresholds = Thresholds {
            compression_ratio: threshold("compression_ratio_threshold", usual.compression_ratio)?,
            logprob: threshold("logprob_threshold", usual.logprob)?,
            no_speech: threshold("no_speech_threshold", usual.no_speech)?,
        };
        let known = |key: &String| [IRRELEVANT, KEYS].concat().contains(&key.as_str());
        let unknown = base.unknown.iter().filter(|key| !known(key)).cloned().collect();
        let pad = planish_data::tokenizer::token(folder, "pad_token_id")?;
        let start = base.decoder_start_token.with_context(|| {
            format!("{file} has no `decoder_start_token_id`, which the text of a recording begins with; add it")
        })?;
        let Some(&end) = base.end_tokens.first() else {
            bail!("{file} has no `eos_token_id`, which ends the text of a window; add it");
        };
        let settings = Self {
            start,
            end,
            pad,
            no_timestamps,
            max_initial_timestamp: max_initial_timestamp.and_then(|index| i64::try_from(index).ok()),
            // As the library has it for older files.
            previous: previous.or_else(|| base.processors.suppress.iter().rev().nth(1).copied()),
            languages,
            tasks,
            is_multilingual: d.flag("is_multilingual")?,
            forced: forced.unwrap_or_default(),
            conditions: d.flag("condition_on_prev_tokens")?.unwrap_or(false),
            cuts,
            thresholds,
            unknown,
            base,
            file,
        };
        settings.check_ids(vocabulary)?;
        if settings.cuts && settings.conditions {
            bail!(
                "condition_on_prev_tokens reads each window after the one before it, and with {CUTS} windows run side by side; take one of \
                 both (--set condition_on_prev_tokens=false where {file} sets it)",
                file = settings.file
            );
        }
        Ok(settings)
    }

    /// Checks that the model has the tokens of all settings.
    fn check_ids(&self, vocabulary: i64) -> Result<()> {
        let Self { base, file, .. } = self;
        let one = |id: Option<i64>| id.into_iter().collect::<Vec<_>>();
        let all = [
            ("decoder_start_token_id", vec![self.start]),
            ("eos_token_id", base.end_tokens.clone()),
            ("no_timestamps_token_id", one(self.no_timestamps)),
            ("forced_decoder_ids", self.forced.iter().filter_map(|(_, id)| *id).collect()),
            ("lang_to_id", self.languages.values().copied().collect()),
            ("task_to_id", self.tasks.values().copied().collect()),
            ("suppress_tokens", base.processors.suppress.clone()),
            ("begin_suppress_tokens", base.processors.begin_suppress.clone()),
            ("prev_sot_token_id", one(self.previous)),
        ];
        for (key, ids) in all {
            if let Some(id) = ids.into_iter().find(|id| !(0..vocabulary).contains(id)) {
                bail!(
                    "`{key}` of {file} has the id {id}, and the model has ids from 0 to {}; correct it",
                    vocabulary - 1
                );
            }
        }
        Ok(())
    }

    /// The first timestamp.
    pub(super) fn first_timestamp(&self) -> Option<i64> {
        self.no_timestamps.map(|id| id + 1)
    }

    /// The tokens that a window's text begins with, for a language and a task that are asked for. An absent one of them is that of
    /// the language, which [`Self::languages`] are candidates for.
    ///
    /// # Errors
    /// When the model has no such language or task.
    pub(super) fn beginning(&self, language: Option<&str>, task: Option<SpeechTask>) -> Result<Vec<Option<i64>>> {
        let file = &self.file;
        if self.is_multilingual == Some(false) && (language.is_some() || task.is_some()) {
            bail!("{file} says that the model knows one language only; leave out --language and --task");
        }
        let mut tokens = vec![Some(self.start)];
        if language.is_none() && task.is_none() {
            let forced =
                self.forced.iter().enumerate().map_while(|(at, (place, id))| (*place == at + 1).then_some(*id));
            tokens.extend(forced);
            if tokens.len() <= self.forced.len() && self.forced.first().is_some_and(|(place, _)| *place == 1) {
                let at = tokens.len();
                bail!(
                    "`forced_decoder_ids` of {file} has no token for place {at}; correct it, or choose with --language"
                );
            }
        }
        let language = language.map(|language| self.language(language)).transpose()?;
        let is_open = tokens.get(1).copied().flatten().is_none();
        if language.is_some() || is_open && !self.languages.is_empty() {
            match tokens.get_mut(1) {
                Some(token) => *token = language,
                None => tokens.push(language),
            }
        } else if is_open && tokens.len() > 1 {
            tokens.remove(1);
        }
        // The library leaves the task to the model where neither language nor task are asked for, and no model is trained for that.
        let has_task = tokens.iter().flatten().any(|token| self.tasks.values().any(|id| id == token));
        let task = task.or_else(|| (!has_task && !self.tasks.is_empty()).then_some(SpeechTask::Transcribe));
        if let Some(task) = task {
            let id = self.tasks.get(task.name()).copied();
            let id =
                id.with_context(|| format!("`task_to_id` of {file} has no `{}`; leave out --task", task.name()))?;
            tokens.push(Some(id));
        }
        match self.no_timestamps {
            Some(id) if tokens.last() == Some(&Some(id)) => drop(tokens.pop()),
            _ => {}
        }
        Ok(tokens)
    }

    /// The id of a language by its code, its name, or its token.
    fn language(&self, language: &str) -> Result<i64> {
        let (language, file) = (language.to_lowercase(), &self.file);
        let token = match languages::code(&language) {
            _ if self.languages.contains_key(&language) => language.clone(),
            Some(code) => format!("<|{code}|>"),
            None => bail!("--language {language} is no language of Whisper, such as `en` or `english`"),
        };
        let id = self.languages.get(&token).copied();
        id.with_context(|| format!("`lang_to_id` of {file} has no {token}; the model knows {}", self.known()))
    }

    fn known(&self) -> String {
        let codes: Vec<&str> = self.languages.keys().map(|token| bare(token)).collect();
        if codes.is_empty() { "no languages".to_owned() } else { codes.join(", ") }
    }

    /// The ids of languages.
    pub(super) fn languages(&self) -> impl Iterator<Item = i64> {
        self.languages.values().copied()
    }

    /// The code of the language of a token.
    pub(super) fn code(&self, id: i64) -> Option<&str> {
        self.languages.iter().find(|(_, other)| **other == id).map(|(token, _)| bare(token))
    }

    /// What a window's text has before its beginning: the last tokens that were said before it.
    pub(super) fn previous(&self, said: &[i64], longest: usize) -> Vec<i64> {
        let most = (longest / 2).saturating_sub(1);
        let last = &said[said.len().saturating_sub(most)..];
        self.previous.iter().chain(last).copied().collect()
    }
}

/// A language without the marks of a token.
fn bare(token: &str) -> &str {
    token.trim_start_matches("<|").trim_end_matches("|>")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What reading the settings says for a model of ids from 0 to 9, with one in the place of its own.
    fn with(key: &str, value: Value) -> String {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = json!({"decoder_start_token_id": 1, "eos_token_id": 2, "no_timestamps_token_id": 9});
        settings[key] = value;
        std::fs::write(folder.path().join(FILES[0]), settings.to_string()).unwrap();
        let read = Settings::read_for(folder.path(), 10, &Map::new());
        read.err().map(|error| format!("{error:#}")).unwrap_or_default()
    }

    #[test]
    fn ids_are_of_the_vocabulary() {
        assert_eq!(with("suppress_tokens", json!([0, 9])), "");
        for (key, value, id) in [
            ("decoder_start_token_id", json!(10), 10),
            ("eos_token_id", json!([2, 11]), 11),
            ("no_timestamps_token_id", json!(i64::MAX), i64::MAX),
            ("no_timestamps_token_id", json!(i64::MIN), i64::MIN),
            ("no_timestamps_token_id", json!(10), 10),
            ("prev_sot_token_id", json!(-1), -1),
            ("forced_decoder_ids", json!([[1, null], [2, 12]]), 12),
            ("lang_to_id", json!({"<|en|>": 3, "<|de|>": 13}), 13),
            ("task_to_id", json!({"transcribe": 14}), 14),
            ("suppress_tokens", json!([3, 15]), 15),
            ("begin_suppress_tokens", json!([-1]), -1),
        ] {
            let said = with(key, value);
            assert!(said.starts_with(&format!("`{key}` of ")) && said.contains(&format!("the id {id},")), "{said}");
        }
    }
}
