//! generation_config.json: the default settings of a model's text generation.

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Result, bail};
use planish_data::tokenizer::document::{Document, nonempty, whole};
use planish_data::tokenizer::{end_tokens, token};
use serde_json::{Map, Value};

use super::lookup::LOOKUP;
use super::{Beams, EarlyStopping, Length, MOST_BEAMS, Processors, PromptLookup, Sampling, Search, SearchOptions};

const FILE: &str = "generation_config.json";
const MODEL: &str = "config.json";

/// What settings are called that are not in a file.
const SETTINGS: &str = "--set";

/// How many new tokens there are where nothing says it.
const MAX_NEW_TOKENS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(63);

/// How text is generated: the settings of generation_config.json, with the defaults of the
/// transformers library for all but the number of tokens.
#[derive(Clone, Debug)]
pub struct GenerationConfig {
    /// How many new tokens at most.
    pub max_new_tokens: Option<NonZeroUsize>,
    /// How long the text gets at most, what it begins with included; counts where `max_new_tokens`
    /// is absent.
    pub max_length: Option<usize>,
    /// Tokens that end a text.
    pub end_tokens: Vec<i64>,
    /// What the text of an encoder-decoder begins with.
    pub decoder_start_token: Option<i64>,
    /// Whether tokens are drawn.
    pub do_sample: bool,
    /// The temperature of draws.
    pub temperature: f64,
    /// From how many of the likeliest tokens one is drawn; all where absent.
    pub top_k: Option<NonZeroUsize>,
    /// The probability that the tokens to draw from reach together.
    pub top_p: f64,
    /// The probability of the least likely token to draw from, relative to that of the likeliest.
    pub min_p: f64,
    /// Strings that stop a text, which ends before them.
    pub stop_strings: Vec<String>,
    /// How many beams; 1 is not a search.
    pub num_beams: NonZeroUsize,
    /// See [`Beams`].
    pub length_penalty: f64,
    /// See [`Beams`].
    pub early_stopping: EarlyStopping,
    /// How greedy search reads ahead; it does not where this is absent.
    pub prompt_lookup: Option<PromptLookup>,
    /// What changes scores before a token is chosen.
    pub processors: Processors,
    /// Keys of the file that nothing is known of.
    pub unknown: Vec<String>,
}

impl Default for GenerationConfig {
    fn default() -> Self {
        Self {
            max_new_tokens: None,
            max_length: None,
            end_tokens: Vec::new(),
            decoder_start_token: None,
            do_sample: false,
            temperature: 1.0,
            top_k: NonZeroUsize::new(50),
            top_p: 1.0,
            min_p: 0.0,
            stop_strings: Vec::new(),
            num_beams: NonZeroUsize::MIN,
            length_penalty: 1.0,
            early_stopping: EarlyStopping::Heuristic,
            prompt_lookup: None,
            processors: Processors::default(),
            unknown: Vec::new(),
        }
    }
}

/// Settings, in which a length of all tokens is not without one of the new tokens, which may be null.
fn with_lengths(mut settings: Map<String, Value>) -> Map<String, Value> {
    for (all, new) in [("max_length", "max_new_tokens"), ("min_length", "min_new_tokens")] {
        if settings.contains_key(all) {
            settings.entry(new).or_insert(Value::Null);
        }
    }
    settings
}

impl GenerationConfig {
    /// Reads generation_config.json of an artifact or, where there is none, the same keys of its
    /// config.json. What ends a text and what that of an encoder-decoder begins with is looked for
    /// in config.json too.
    ///
    /// # Errors
    /// When a file cannot be read, or a setting is not what it should be or cannot be honoured.
    pub fn read(artifact: &Path) -> Result<Self> {
        Self::read_with(artifact, Map::new())
    }

    /// The same with settings that override those of the file, by the same keys. A length overrides that of the file which would
    /// count in its place: `max_length` overrides `max_new_tokens` too, and `min_length` overrides `min_new_tokens`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_with(artifact: &Path, overriding: Map<String, Value>) -> Result<Self> {
        let tokens = Self::read_tokens(artifact)?;
        let overriding = with_lengths(overriding);
        if let Some(document) = Document::open(&artifact.join(FILE))? {
            return tokens.with(document.overridden(overriding));
        }
        match Document::open(&artifact.join(MODEL))? {
            // Other keys are the model's.
            Some(document) => Ok(Self { unknown: Vec::new(), ..tokens.with(document.overridden(overriding))? }),
            None => tokens.overridden(overriding),
        }
    }

    /// These with settings that are not in a file.
    ///
    /// # Errors
    /// When one of the settings is not what it should be.
    pub fn overridden(self, settings: Map<String, Value>) -> Result<Self> {
        self.with(Document::of(SETTINGS, settings))
    }

    /// Reads only the tokens that begin and end a text.
    ///
    /// # Errors
    /// When a file cannot be read, or one of these is not what it should be.
    pub fn read_tokens(artifact: &Path) -> Result<Self> {
        let end_tokens = end_tokens(artifact)?;
        let decoder_start_token = token(artifact, "decoder_start_token_id")?;
        Ok(Self { end_tokens, decoder_start_token, ..Self::default() })
    }

    /// The other settings are those of a document.
    fn with(self, mut document: Document) -> Result<Self> {
        let d = &mut document;
        let mut config = self;
        let above_0 = |value: &Value| NonZeroUsize::new(whole(value)?);
        config.max_new_tokens = d.take("max_new_tokens", "a number above 0", above_0)?;
        config.max_length = d.count("max_length")?;
        config.do_sample = d.flag("do_sample")?.unwrap_or(config.do_sample);
        config.temperature = d.number("temperature")?.unwrap_or(config.temperature);
        config.top_k = d.count("top_k")?.map_or(config.top_k, NonZeroUsize::new);
        config.top_p = d.number("top_p")?.unwrap_or(config.top_p);
        config.min_p = d.number("min_p")?.unwrap_or(config.min_p);
        let strings = |value: &Value| match value {
            Value::Array(strings) => strings.iter().map(nonempty).collect(),
            string => Some(vec![nonempty(string)?]),
        };
        let strings = d.take("stop_strings", "a string or a list of strings, none of them empty", strings)?;
        config.stop_strings = strings.unwrap_or_default();
        config.num_beams = d.take("num_beams", "a number above 0", above_0)?.unwrap_or(config.num_beams);
        config.length_penalty = d.number("length_penalty")?.unwrap_or(config.length_penalty);
        let stopping = |value: &Value| match (value.as_bool(), value.as_str()) {
            (Some(true), _) => Some(EarlyStopping::WhenFull),
            (Some(false), _) => Some(EarlyStopping::Heuristic),
            (None, Some("never")) => Some(EarlyStopping::Never),
            _ => None,
        };
        let stopping = d.take("early_stopping", "true, false or \"never\"", stopping)?;
        config.early_stopping = stopping.unwrap_or(config.early_stopping);
        let penalty =
            |value: &Value| Some(value.as_f64()? as f32).filter(|penalty| penalty.is_finite() && *penalty > 0.0);
        let penalty = d.take("repetition_penalty", "a number above 0 that float32 has", penalty)?;
        let min_new_tokens = d.count("min_new_tokens")?;
        let min_length = d.count("min_length")?;
        config.processors = Processors {
            repetition_penalty: penalty.unwrap_or(1.0),
            no_repeat_ngram_size: d.count("no_repeat_ngram_size")?.and_then(NonZeroUsize::new),
            bad_words: d.sequences("bad_words_ids")?.unwrap_or_default(),
            // The number of new tokens counts where there are both.
            min_length: min_length.filter(|_| min_new_tokens.is_none()).unwrap_or(0),
            min_new_tokens: min_new_tokens.unwrap_or(0),
            forced_bos: d.take("forced_bos_token_id", "an id", Value::as_i64)?,
            forced_eos: d.ids("forced_eos_token_id")?.unwrap_or_default(),
            suppress: d.ids("suppress_tokens")?.unwrap_or_default(),
            begin_suppress: d.ids("begin_suppress_tokens")?.unwrap_or_default(),
            renormalize: d.flag("renormalize_logits")?.unwrap_or(false),
        };
        config.unknown = document.finish()?;
        Ok(config)
    }

    /// Changes the settings so that no end token is chosen, and each text gets as long as it may.
    pub fn ignore_end_tokens(&mut self) {
        self.processors.min_new_tokens = usize::MAX;
        self.processors.forced_eos.clear();
    }

    /// What this comes to; draws begin with the seed.
    ///
    /// # Errors
    /// When settings contradict each other or are out of their range.
    pub fn options(&self, seed: u64) -> Result<SearchOptions> {
        let search = match (self.draws(), self.num_beams.get()) {
            (_, beams) if beams > MOST_BEAMS => {
                bail!("`num_beams` is {beams}, more than {MOST_BEAMS}; choose with --beams N or --greedy")
            }
            (do_sample, beams) if self.prompt_lookup.is_some() && (do_sample || beams > 1) => bail!(
                "--set {LOOKUP} is for greedy search, and generation_config.json asks for {}; add --greedy",
                if do_sample { "sampled tokens" } else { "beams" }
            ),
            (false, 1) => self.prompt_lookup.map_or(Search::Greedy, Search::Lookup),
            (false, _) if !self.stop_strings.is_empty() => bail!(
                "strings stop greedy search and sampling, and {} beams are asked for; leave out --stop, or add --greedy",
                self.num_beams
            ),
            (false, _) => Search::Beams(Beams {
                width: self.num_beams,
                length_penalty: self.length_penalty,
                early_stopping: self.early_stopping,
            }),
            (true, 1) => Search::Sample(self.sampling(seed)?),
            (true, beams) => bail!(
                "`do_sample` is true and `num_beams` is {beams}: beams of drawn tokens are not supported; choose with \
                 --greedy, --beams N or --temperature"
            ),
        };
        let length = match (self.max_new_tokens, self.max_length) {
            (Some(tokens), _) => Length::New(tokens),
            (None, Some(length)) => Length::Total(length),
            (None, None) => Length::New(MAX_NEW_TOKENS),
        };
        Ok(SearchOptions { length, end_tokens: self.end_tokens.clone(), search, processors: self.processors.clone() })
    }

    /// Whether tokens are drawn; a temperature of 0 leaves the likeliest only.
    #[must_use]
    pub fn draws(&self) -> bool {
        self.do_sample && self.temperature != 0.0
    }

    fn sampling(&self, seed: u64) -> Result<Sampling> {
        if !(self.temperature > 0.0 && self.temperature.is_finite()) {
            bail!("`temperature` is {}, which is not a number from 0 on; --greedy does not sample", self.temperature);
        }
        for (key, probability) in [("top_p", self.top_p), ("min_p", self.min_p)] {
            if !(0.0..=1.0).contains(&probability) {
                bail!("`{key}` is {probability}, which is not a number from 0 to 1");
            }
        }
        let Self { temperature, top_k, top_p, min_p, .. } = *self;
        Ok(Sampling { temperature, top_k, top_p, min_p, seed })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;
    use tempfile::TempDir;

    use super::*;

    fn artifact(files: &[(&str, &str)]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(folder.path().join(name), text).unwrap());
        folder
    }

    fn read(text: &str) -> Result<GenerationConfig> {
        GenerationConfig::read(artifact(&[(FILE, text)]).path())
    }

    #[test]
    fn the_generation_config_comes_first_and_tokens_may_be_in_the_other() {
        let model = (MODEL, r#"{"eos_token_id": 7, "num_beams": 4, "decoder_start_token_id": 3, "hidden_size": 8}"#);
        let both = |text: &str| artifact(&[(FILE, text), model]);
        let tokens = |folder: &TempDir| {
            let config = GenerationConfig::read(folder.path()).unwrap();
            assert_eq!(config.unknown, [""; 0]);
            (config.end_tokens, config.decoder_start_token, config.num_beams.get())
        };
        assert_eq!(tokens(&artifact(&[])), (vec![], None, 1));
        assert_eq!(tokens(&artifact(&[model])), (vec![7], Some(3), 4));
        assert_eq!(tokens(&both(r#"{"eos_token_id": null}"#)), (vec![7], Some(3), 1));
        let own = both(r#"{"eos_token_id": [1, 2], "decoder_start_token_id": 0, "num_beams": 2, "max_time": 5}"#);
        assert!(GenerationConfig::read(own.path()).is_err());
        let config = GenerationConfig::read_tokens(own.path()).unwrap();
        assert_eq!((config.end_tokens, config.decoder_start_token, config.num_beams.get()), (vec![1, 2], Some(0), 1));
    }

    #[test]
    fn settings_of_drawing_are_those_of_the_file() {
        let config = read(r#"{"do_sample": true, "temperature": 0.6, "top_p": 0.9, "max_length": 4096}"#).unwrap();
        let options = config.options(3).unwrap();
        let (top_k, min_p) = (NonZeroUsize::new(50), 0.0);
        let sampling = Sampling { temperature: 0.6, top_k, top_p: 0.9, min_p, seed: 3 };
        assert_eq!((options.search, options.length), (Search::Sample(sampling), Length::Total(4096)));
        assert_eq!(read(r#"{"top_k": 0}"#).unwrap().top_k, None);
        assert_eq!(read(r#"{"top_k": 20.0}"#).unwrap().top_k, NonZeroUsize::new(20));
        assert!(read(r#"{"top_k": 20.5}"#).is_err() && read(r#"{"top_k": -1.0}"#).is_err());
        // Without draws none of it matters.
        assert_eq!(read(r#"{"temperature": 0.0}"#).unwrap().options(0).unwrap().search, Search::Greedy);
        let error = |text: &str| read(text).unwrap().options(0).unwrap_err().to_string();
        assert!(error(r#"{"do_sample": true, "temperature": -1}"#).contains("`temperature` is -1"));
        let cold = read(r#"{"do_sample": true, "temperature": 0.0}"#).unwrap();
        assert_eq!(cold.options(0).unwrap().search, Search::Greedy);
        assert!(error(r#"{"do_sample": true, "min_p": 2}"#).contains("`min_p` is 2"));
        assert!(error(r#"{"do_sample": true, "num_beams": 2}"#).contains("`num_beams` is 2"));
        assert!(error(r#"{"num_beams": 4294967296}"#).contains("`num_beams` is 4294967296, more than 1024"));
    }

    #[test]
    fn settings_of_beams_and_processors_are_those_of_the_file() {
        let text = r#"{"num_beams": 4, "length_penalty": 2, "early_stopping": true, "max_new_tokens": 9,
            "max_length": 5, "bad_words_ids": [[8], [1, 2]], "forced_eos_token_id": 0, "renormalize_logits": true,
            "no_repeat_ngram_size": 3, "min_length": 4, "repetition_penalty": 1.5, "suppress_tokens": [6],
            "begin_suppress_tokens": [5, 6], "forced_bos_token_id": 2, "min_new_tokens": 1}"#;
        let options = read(text).unwrap().options(0).unwrap();
        let width = NonZeroUsize::new(4).unwrap();
        let beams = Beams { width, length_penalty: 2.0, early_stopping: EarlyStopping::WhenFull };
        assert_eq!((options.search, options.length), (Search::Beams(beams), Length::New(9.try_into().unwrap())));
        let processors = Processors {
            repetition_penalty: 1.5,
            no_repeat_ngram_size: NonZeroUsize::new(3),
            bad_words: vec![vec![8], vec![1, 2]],
            min_length: 0,
            min_new_tokens: 1,
            forced_bos: Some(2),
            forced_eos: vec![0],
            suppress: vec![6],
            begin_suppress: vec![5, 6],
            renormalize: true,
        };
        assert_eq!(options.processors, processors);
        let shortest = |text: &str| {
            let processors = read(text).unwrap().processors;
            (processors.min_length, processors.min_new_tokens)
        };
        assert_eq!(shortest(r#"{"min_length": 4}"#), (4, 0));
        assert_eq!(shortest(r#"{"min_length": 4, "min_new_tokens": null}"#), (4, 0));
        assert_eq!(shortest(r#"{"min_length": 4, "min_new_tokens": 0}"#), (0, 0));
    }

    #[test]
    fn a_length_overrides_the_one_of_the_file_that_would_count() {
        let folder = artifact(&[(FILE, r#"{"max_new_tokens": 9, "min_new_tokens": 2}"#)]);
        let read = |settings: Value| {
            let config = GenerationConfig::read_with(folder.path(), settings.as_object().unwrap().clone()).unwrap();
            let Processors { min_length, min_new_tokens, .. } = config.processors;
            (config.options(0).unwrap().length, min_length, min_new_tokens)
        };
        let new = |tokens: usize| Length::New(tokens.try_into().unwrap());
        assert_eq!(read(json!({"min_p": 0})), (new(9), 0, 2));
        assert_eq!(read(json!({"max_length": 5})), (Length::Total(5), 0, 2));
        assert_eq!(read(json!({"min_length": 5})), (new(9), 5, 0));
        assert_eq!(read(json!({"min_length": 5, "min_new_tokens": 3})), (new(9), 0, 3));
    }

    #[test]
    fn strings_that_stop_are_one_or_several_and_none_of_beams() {
        assert_eq!(read(r#"{"stop_strings": "x"}"#).unwrap().stop_strings, ["x"]);
        assert_eq!(read(r#"{"stop_strings": ["x", "y\n"]}"#).unwrap().stop_strings, ["x", "y\n"]);
        let error = read(r#"{"stop_strings": "x", "num_beams": 2}"#).unwrap().options(0).unwrap_err().to_string();
        assert!(error.contains("2 beams") && error.contains("--stop") && error.contains("--greedy"), "{error}");
    }

    #[test]
    fn what_cannot_be_honoured_is_refused_by_name() {
        let refused = |text: &str, parts: &[&str]| {
            let error = format!("{:#}", read(text).unwrap_err());
            parts.iter().chain(&[FILE]).for_each(|part| assert!(error.contains(part), "{error}"));
        };
        refused(r#"{"penalty_alpha": 0.6}"#, &["penalty_alpha", "0.6", "--set generation_config=false"]);
        refused(r#"{"num_beam_groups": 2}"#, &["num_beam_groups"]);
        refused(r#"{"diversity_penalty": 1.0}"#, &["diversity_penalty"]);
        for strings in [r#"["x", ""]"#, r#""""#, "[1]", "7"] {
            refused(&format!(r#"{{"stop_strings": {strings}}}"#), &["stop_strings", "none of them empty"]);
        }
        refused(r#"{"eos_token_id": "</s>"}"#, &["eos_token_id", "an id or a list"]);
        refused(r#"{"eos_token_id": [1.5]}"#, &["eos_token_id"]);
        refused(r#"{"num_beams": 0}"#, &["num_beams", "above 0"]);
        for penalty in ["0", "-1", "1e-300", "1e39"] {
            refused(&format!(r#"{{"repetition_penalty": {penalty}}}"#), &["repetition_penalty", "float32"]);
        }
        refused(r#"{"early_stopping": "soon"}"#, &["early_stopping", "never"]);
        refused("{", &["JSON"]);
        refused("[]", &["JSON"]);
    }

    #[test]
    fn what_changes_nothing_is_taken_and_what_is_not_known_is_named() {
        let off = r#"{"typical_p": 1.0, "guidance_scale": 1, "num_return_sequences": 1, "num_beam_groups": 1,
            "diversity_penalty": 0.0, "sequence_bias": {}, "encoder_no_repeat_ngram_size": 0, "stop_strings": null, "use_cache": true,
            "transformers_version": "5.23.0", "watermarking_config": null, "chat_format": null}"#;
        assert_eq!(read(off).unwrap().unknown, [""; 0]);
        assert_eq!(read(r#"{"chat_format": "chatml"}"#).unwrap().unknown, ["chat_format"]);
    }
}
