//! The settings of quantized weights in `config.json`. Each key is used, known to change no weight, refused unless it is off, or
//! named in a warning.

use serde_json::{Map, Value};

use crate::ModelError;
use crate::checkpoint::config::{Config, brief, is_off};

/// An object of settings in `config.json`.
pub(super) struct Settings<'a, 'c> {
    pub(super) config: &'a Config<'c>,
    pub(super) key: &'static str,
    pub(super) values: &'a Map<String, Value>,
}

/// The keys that a method's settings have.
pub(super) struct Keys {
    /// Keys that are read.
    pub(super) used: &'static [&'static str],
    /// Keys that change no weight: how they were chosen, and how other programs compute with them.
    pub(super) irrelevant: &'static [&'static str],
    /// Keys that change the computation in a way that is not followed, unless they are null, false or empty.
    pub(super) off: &'static [&'static str],
}

/// Whether a value asks for nothing, nor does anything in it.
fn is_empty(value: &Value) -> bool {
    is_off(value) || value.as_object().is_some_and(|values| values.values().all(is_empty))
}

impl<'a> Settings<'a, '_> {
    /// Judges the keys of the settings.
    ///
    /// # Errors
    /// When one of them asks for what is not followed.
    pub(super) fn check(&self, keys: &Keys) -> Result<(), ModelError> {
        self.check_object("", self.values, keys)
    }

    /// Judges the keys of an object in the settings; `place` is what is in front of them, such as `config_groups.group_0.`.
    pub(super) fn check_object(&self, place: &str, values: &Map<String, Value>, keys: &Keys) -> Result<(), ModelError> {
        let given = |key: &&&str| values.get(**key).is_some_and(|value| !is_empty(value));
        if let Some(key) = keys.off.iter().find(given) {
            return Err(self.config.error(format!(
                "`{}.{place}{key}` is {}: that is not supported; take the checkpoint that the weights were made from",
                self.key,
                brief(&values[*key])
            )));
        }
        let known = |key: &str| [keys.used, keys.irrelevant, keys.off].iter().any(|keys| keys.contains(&key));
        let unknown: Vec<String> = values
            .iter()
            .filter(|(key, value)| !known(key) && !is_off(value))
            .map(|(key, _)| format!("{}.{place}{key}", self.key))
            .collect();
        if !unknown.is_empty() {
            self.config.warn(format!("ignored keys: {}", unknown.join(", ")));
        }
        Ok(())
    }

    /// Warns that a setting quantizes activations.
    pub(super) fn warn_of_activations(&self, of: &str) {
        self.config
            .warn(format!("`{}.{of}` quantizes activations too, which is not followed: they stay floats", self.key));
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn unexpected(&self, key: &str, value: &Value, expected: &str) -> ModelError {
        self.config.unexpected(&format!("{}.{key}", self.key), value, expected)
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.unexpected(key, value, "a text"))
    }

    pub(super) fn boolean(&self, key: &str, default: bool) -> Result<bool, ModelError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.unexpected(key, value, "true or false"))
    }

    /// The bits of a code, one of some numbers.
    pub(super) fn bits(&self, key: &str, known: &[usize]) -> Result<usize, ModelError> {
        let value = self.get(key).unwrap_or(&Value::Null);
        let bits = value.as_u64().and_then(|bits| usize::try_from(bits).ok()).filter(|bits| known.contains(bits));
        let names: Vec<String> = known.iter().map(usize::to_string).collect();
        bits.ok_or_else(|| self.unexpected(key, value, &names.join(" or ")))
    }

    /// The elements along a row that share a scale: `None` for all, which files write as -1.
    pub(super) fn group_size(&self, key: &str) -> Result<Option<usize>, ModelError> {
        let value = self.get(key).unwrap_or(&Value::Null);
        if value.as_i64() == Some(-1) {
            return Ok(None);
        }
        let size = value.as_u64().and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
        size.map(Some).ok_or_else(|| self.unexpected(key, value, "a positive number, or -1 for whole rows"))
    }

    /// Refuses another value of a setting than those that are followed.
    pub(super) fn only(&self, key: &str, known: &[&str]) -> Result<(), ModelError> {
        self.only_of(key, self.get(key), known)
    }

    /// The same of a value in the settings; `place` is its key.
    pub(super) fn only_of(&self, place: &str, value: Option<&Value>, known: &[&str]) -> Result<(), ModelError> {
        match value {
            Some(value) if !value.as_str().is_some_and(|text| known.iter().any(|k| k.eq_ignore_ascii_case(text))) => {
                let named = known.join("\", \"");
                Err(self.config.error(format!(
                    "`{}.{place}` is {}, which is not supported: known are \"{named}\"",
                    self.key,
                    brief(value)
                )))
            }
            _ => Ok(()),
        }
    }
}
