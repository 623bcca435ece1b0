//! Settings of generation as a JSON document has them.

use std::path::Path;

use anyhow::{Context, Result, bail};
use planish_files::Kind;
use serde_json::{Map, Value, json};

/// Keys that change nothing of what is generated here, or that tokens.rs looks up: versions, ids for batches in Python, caches
/// and what is reported, and settings of an assistant model or of a lookup in the prompt, which change no greedy text.
const IRRELEVANT: &[&str] = &[
    "_from_model_config",
    "transformers_version",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
    "pad_token_id",
    "use_cache",
    "cache_implementation",
    "cache_config",
    "max_cache_len",
    "prefill_chunk_size",
    "low_memory",
    "compile_config",
    "disable_compile",
    "continuous_batching_config",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_logits",
    "return_dict_in_generate",
    // Scores that are not numbers are an error here.
    "remove_invalid_values",
    "is_assistant",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
    "assistant_lookbehind",
    "target_lookbehind",
    "max_matching_ngram_size",
    "prompt_lookup_num_tokens",
];

/// Keys that change what is generated in a way that is not implemented. False, 0 and what is
/// empty turn each of them off.
const UNSUPPORTED: &[&str] = &[
    "max_time",
    "use_mtp",
    "top_h",
    "typical_p",
    "epsilon_cutoff",
    "eta_cutoff",
    "exponential_decay_length_penalty",
    "sequence_bias",
    "token_healing",
    "guidance_scale",
    "watermarking_config",
    "assistant_early_exit",
    "assistant_ensemble_weight",
    "speculation_type",
    "penalty_alpha",
    "dola_layers",
    "diversity_penalty",
    "num_beam_groups",
    "constraints",
    "force_words_ids",
];

/// Those of them that 1 turns off.
const OFF_AT_ONE: &[&str] = &["typical_p", "guidance_scale", "num_beam_groups"];

/// A JSON document whose keys are taken out one after the other.
pub struct Document {
    file: String,
    keys: Map<String, Value>,
}

impl Document {
    /// Reads a file, if there is one.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let file = path.display().to_string();
        let Some(text) = planish_files::read_if_there(path, &Kind::SETTINGS)? else { return Ok(None) };
        let keys = serde_json::from_str(&text).with_context(|| format!("{file} is not a JSON document of settings"))?;
        Ok(Some(Self { file, keys }))
    }

    /// Keys that are called after where they are from.
    #[must_use]
    pub fn of(name: &str, keys: Map<String, Value>) -> Self {
        Self { file: name.to_owned(), keys }
    }

    /// The same with these keys in place of its own ones.
    #[must_use]
    pub fn overridden(mut self, keys: Map<String, Value>) -> Self {
        self.keys.extend(keys);
        self
    }

    /// Takes a setting out; null is none.
    pub fn take<T>(&mut self, key: &str, what: &str, parse: impl Fn(&Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.keys.remove(key).filter(|value| !value.is_null()) else { return Ok(None) };
        match parse(&value) {
            Some(setting) => Ok(Some(setting)),
            None => bail!("`{key}` of {} is {value}, which is not {what}", self.file),
        }
    }

    /// A setting that is on or off.
    pub fn flag(&mut self, key: &str) -> Result<Option<bool>> {
        self.take(key, "true or false", Value::as_bool)
    }

    /// A number from 0 on.
    pub fn count(&mut self, key: &str) -> Result<Option<usize>> {
        self.take(key, "a whole number from 0 on", whole)
    }

    /// A real number.
    pub fn number(&mut self, key: &str) -> Result<Option<f64>> {
        self.take(key, "a number", Value::as_f64)
    }

    /// An id, or several.
    pub fn ids(&mut self, key: &str) -> Result<Option<Vec<i64>>> {
        self.take(key, "an id or a list of ids", |value| match value {
            Value::Array(ids) => ids.iter().map(Value::as_i64).collect(),
            id => Some(vec![id.as_i64()?]),
        })
    }

    /// Lists of ids.
    pub fn sequences(&mut self, key: &str) -> Result<Option<Vec<Vec<i64>>>> {
        let sequence = |ids: &Value| ids.as_array()?.iter().map(Value::as_i64).collect();
        self.take(key, "a list of lists of ids", |value| value.as_array()?.iter().map(sequence).collect())
    }

    /// Refuses what is left and not implemented. Returns the keys that are not known at all and say
    /// something.
    pub fn finish(mut self) -> Result<Vec<String>> {
        IRRELEVANT.iter().for_each(|key| drop(self.keys.remove(*key)));
        for key in UNSUPPORTED {
            let Some(value) = self.keys.remove(*key) else { continue };
            let one = OFF_AT_ONE.contains(key) && value.as_f64() == Some(1.0);
            if says(&value) && !one {
                bail!(
                    "`{key}` of {} is {value}, which generation here cannot do; --set generation_config=false leaves out \
                     all of that file but the tokens that begin and end a text",
                    self.file
                );
            }
        }
        Ok(self.keys.into_iter().filter(|(_, value)| says(value)).map(|(key, _)| key).collect())
    }
}

/// Whether a value asks for anything.
fn says(value: &Value) -> bool {
    !(value.is_null()
        || *value == json!(false)
        || value.as_f64() == Some(0.0)
        || *value == json!([])
        || *value == json!({}))
}

/// A text that is not empty.
pub fn nonempty(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// A whole number from 0 on; 50.0 is one.
pub fn whole(value: &Value) -> Option<usize> {
    let real = || value.as_f64().filter(|n| (0.0..9e15).contains(n) && n.fract() == 0.0).map(|n| n as u64);
    usize::try_from(value.as_u64().or_else(real)?).ok()
}
