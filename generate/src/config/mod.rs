//! generation_config.json: the default settings of a model's text generation.

#[cfg(test)]
mod tests;

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

/// The most continuations of a prompt that are sampled: each has a row of scores and a cache of its own.
const MOST_CONTINUATIONS: usize = 1024;

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
    /// How many continuations a prompt gets.
    pub num_return_sequences: NonZeroUsize,
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
            num_return_sequences: NonZeroUsize::MIN,
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
        let continuations = d.take("num_return_sequences", "a number above 0", above_0)?;
        config.num_return_sequences = continuations.unwrap_or(config.num_return_sequences);
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
        let mut penalty_of = |key: &str| {
            Ok::<f32, anyhow::Error>(d.take(key, "a number above 0 that float32 has", penalty)?.unwrap_or(1.0))
        };
        let (repetition_penalty, encoder_repetition_penalty) =
            (penalty_of("repetition_penalty")?, penalty_of("encoder_repetition_penalty")?);
        let of_counts = |value: &Value| value.as_f64().filter(|penalty| (-2.0..=2.0).contains(penalty));
        let mut subtracted = |key: &str| {
            Ok::<f32, anyhow::Error>(d.take(key, "a number from -2 to 2", of_counts)?.unwrap_or(0.0) as f32)
        };
        let (frequency_penalty, presence_penalty) = (subtracted("frequency_penalty")?, subtracted("presence_penalty")?);
        let min_new_tokens = d.count("min_new_tokens")?;
        let min_length = d.count("min_length")?;
        config.processors = Processors {
            encoder_repetition_penalty,
            repetition_penalty,
            frequency_penalty,
            presence_penalty,
            no_repeat_ngram_size: d.count("no_repeat_ngram_size")?.and_then(NonZeroUsize::new),
            encoder_no_repeat_ngram_size: d.count("encoder_no_repeat_ngram_size")?.and_then(NonZeroUsize::new),
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
            (true, 1) => Search::Sample(self.sampling()?),
            (do_sample, _) => Search::Beams(Beams {
                width: self.num_beams,
                length_penalty: self.length_penalty,
                early_stopping: self.early_stopping,
                sampling: do_sample.then(|| self.sampling()).transpose()?,
            }),
        };
        let continuations = self.num_return_sequences;
        match &search {
            Search::Greedy | Search::Lookup(_) if continuations != NonZeroUsize::MIN => bail!(
                "`num_return_sequences` is {continuations}, and greedy search has one continuation; sample with --temperature, \
                 search with --beams {continuations}, or take one with --set num_return_sequences=1"
            ),
            Search::Sample(_) if continuations.get() > MOST_CONTINUATIONS => bail!(
                "`num_return_sequences` is {continuations}, more than {MOST_CONTINUATIONS}: each has a cache of its own; run the \
                 command several times with other seeds"
            ),
            Search::Beams(beams) if continuations > beams.width => bail!(
                "`num_return_sequences` is {continuations} and there are {} beams, each of which gives one; search with --beams \
                 {continuations}",
                beams.width
            ),
            _ => {}
        }
        Ok(SearchOptions {
            length: self.length(),
            end_tokens: self.end_tokens.clone(),
            search,
            processors: self.processors.clone(),
            continuations,
            seed,
        })
    }

    /// How long a text may get.
    fn length(&self) -> Length {
        match (self.max_new_tokens, self.max_length) {
            (Some(tokens), _) => Length::New(tokens),
            (None, Some(length)) => Length::Total(length),
            (None, None) => Length::New(MAX_NEW_TOKENS),
        }
    }

    /// Whether tokens are drawn; a temperature of 0 leaves the likeliest only.
    #[must_use]
    pub fn draws(&self) -> bool {
        self.do_sample && self.temperature != 0.0
    }

    fn sampling(&self) -> Result<Sampling> {
        if !(self.temperature > 0.0 && self.temperature.is_finite()) {
            bail!("`temperature` is {}, which is not a number from 0 on; --greedy does not sample", self.temperature);
        }
        for (key, probability) in [("top_p", self.top_p), ("min_p", self.min_p)] {
            if !(0.0..=1.0).contains(&probability) {
                bail!("`{key}` is {probability}, which is not a number from 0 to 1");
            }
        }
        let Self { temperature, top_k, top_p, min_p, .. } = *self;
        Ok(Sampling { temperature, top_k, top_p, min_p })
    }
}
