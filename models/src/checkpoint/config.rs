//! Reading `config.json`: typed, and with a record of which keys were asked for, so that a test holds
//! them against the keys that an architecture declares.

mod images;
mod labels;
mod lists;
mod section;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::{Checkpoint, ModelError};

/// The largest size a configuration may ask for.
pub(crate) const MAX_SIZE: usize = 1 << 24;

/// The most entries of a list of sizes.
const MAX_LIST: usize = 64;

/// A size with the config key that it comes from, or how it comes from several, which errors name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// The value.
    pub(crate) value: usize,
    /// The key.
    pub(crate) key: &'static str,
    /// Whether the file does not have it.
    pub(crate) is_default: bool,
}

impl Size {
    /// A size that comes from several; the text says how.
    pub(crate) fn derived(value: usize, from: &'static str) -> Self {
        Self { value, key: from, is_default: false }
    }

    /// The value as a dimension or id.
    pub(crate) fn signed(self) -> i64 {
        // Sizes are bounded by MAX_SIZE.
        i64::try_from(self.value).unwrap_or(i64::MAX)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}{}", self.key, self.value, if self.is_default { " by default" } else { "" })
    }
}

/// What values of the file are of.
enum Part {
    Whole,
    /// The text model of a multimodal model.
    Text,
    /// The object of a key.
    Section(&'static str),
}

/// The configuration of a model, or of a part of it.
pub(crate) struct Config<'a> {
    path: PathBuf,
    part: Part,
    values: &'a Map<String, Value>,
    /// Older names of keys, and the names that they are read under.
    older_keys: &'static [(&'static str, &'static str)],
    /// Heights and widths of images: what the caller asks for, and what pictures become.
    images: [Option<[usize; 2]>; 2],
    /// Whether the architecture takes images of other sizes than the configuration says.
    is_resizable: Cell<bool>,
    asked: RefCell<BTreeSet<&'static str>>,
    /// Sizes that the file does not give.
    defaults: RefCell<Vec<Size>>,
    warnings: RefCell<Vec<String>>,
}

impl<'a> Config<'a> {
    /// The configuration of a checkpoint, with no key asked for yet.
    pub(crate) fn new(checkpoint: &'a Checkpoint) -> Self {
        Self {
            path: checkpoint.config_path(),
            part: checkpoint.whole().map_or(Part::Whole, |_| Part::Text),
            values: checkpoint.config(),
            older_keys: &[],
            images: [None; 2],
            is_resizable: Cell::default(),
            asked: RefCell::default(),
            defaults: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    /// The same of a multimodal model as a whole.
    pub(crate) fn of_whole(checkpoint: &'a Checkpoint) -> Self {
        let values = checkpoint.whole().map_or(checkpoint.config(), |whole| &whole.config);
        Self { part: Part::Whole, values, ..Self::new(checkpoint) }
    }

    /// Reads keys under older names too.
    ///
    /// # Errors
    /// When the file has a key under two names, with values that differ.
    pub(crate) fn read_older_keys(
        &mut self,
        older_keys: &'static [(&'static str, &'static str)],
    ) -> Result<(), ModelError> {
        self.older_keys = older_keys;
        for &(older, key) in older_keys {
            let [Some(first), Some(second)] = [older, key].map(|key| self.given(key)) else { continue };
            // 1000 and 1000.0 are one number.
            let same_number = first.as_f64().is_some() && first.as_f64() == second.as_f64();
            if first != second && !same_number {
                return Err(self.error(format!(
                    "`{older}` is {}, but `{key}` is {}: both name the same setting",
                    brief(first),
                    brief(second)
                )));
            }
        }
        Ok(())
    }

    /// The name that the file has for a key.
    fn spelled<'k>(&self, key: &'k str) -> &'k str {
        let older = self.older_keys.iter().find(|(older, newer)| *newer == key && self.given(older).is_some());
        older.filter(|_| self.given(key).is_none()).map_or(key, |(older, _)| older)
    }

    /// The value that the file has for this very key; null counts as absent.
    fn given(&self, key: &str) -> Option<&'a Value> {
        self.values.get(key).filter(|value| !value.is_null())
    }

    /// The value of a key under any of its names, null too.
    fn value(&self, key: &str) -> Option<&'a Value> {
        self.values.get(self.spelled(key))
    }

    /// Records a warning about the file.
    pub(crate) fn warn(&self, message: impl fmt::Display) {
        self.warnings.borrow_mut().push(self.note(message));
    }

    /// A note about the file.
    pub(crate) fn note(&self, message: impl fmt::Display) -> String {
        match &self.part {
            Part::Section(key) => format!("{}: of `{key}`: {message}", self.path.display()),
            Part::Whole | Part::Text => format!("{}: {message}", self.path.display()),
        }
    }

    /// Every warning, the one about missing sizes last.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        let missing: Vec<String> = self.defaults.take().iter().map(Size::to_string).collect();
        if !missing.is_empty() {
            self.warn(format!("missing keys get the defaults of transformers: {}", missing.join(", ")));
        }
        self.warnings.take()
    }

    /// An error about the file.
    pub(crate) fn error(&self, message: impl Into<String>) -> ModelError {
        let message = match &self.part {
            Part::Section(key) => format!("of `{key}`: {}", message.into()),
            Part::Text => format!("of the text model: {}", message.into()),
            Part::Whole => message.into(),
        };
        ModelError::File { path: self.path.clone(), message }
    }

    /// An error about the value of a key.
    pub(crate) fn unexpected(&self, key: &str, value: &Value, expected: &str) -> ModelError {
        self.error(format!("`{}` is {}, expected {expected}", self.spelled(key), brief(value)))
    }

    /// The value of a key; null counts as absent.
    pub(crate) fn get(&self, key: &'static str) -> Option<&'a Value> {
        self.asked.borrow_mut().insert(key);
        self.value(key).filter(|v| !v.is_null())
    }

    /// Whether the file has the key with the value null.
    pub(crate) fn is_null(&self, key: &str) -> bool {
        self.value(key).is_some_and(Value::is_null)
    }

    /// Major and minor version of the transformers library that wrote the file, if the file says it.
    pub(crate) fn transformers_version(&self) -> Result<Option<(u32, u32)>, ModelError> {
        const KEY: &str = "transformers_version";
        let Some(value) = self.get(KEY) else { return Ok(None) };
        let mut numbers = value.as_str().unwrap_or_default().split('.').map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => Ok(Some((major, minor))),
            _ => Err(self.unexpected(KEY, value, "a version such as \"4.57.6\"")),
        }
    }

    /// A positive size of at most [`MAX_SIZE`]; the default, with a warning, where it is missing.
    pub(crate) fn size(&self, key: &'static str, default: usize) -> Result<Size, ModelError> {
        self.size_alias(&[key], default)
    }

    /// A size that goes by several names. Names that are given must agree.
    pub(crate) fn size_alias(&self, keys: &[&'static str], default: usize) -> Result<Size, ModelError> {
        if let Some(size) = self.given_size(keys)? {
            return Ok(size);
        }
        let size = Size { value: default, key: keys.first().copied().unwrap_or_default(), is_default: true };
        self.defaults.borrow_mut().push(size);
        Ok(size)
    }

    /// A size under one or several names, if the file gives it.
    pub(crate) fn given_size(&self, keys: &[&'static str]) -> Result<Option<Size>, ModelError> {
        let mut found: Option<Size> = None;
        for &key in keys {
            self.get(key);
            let Some(value) = self.value(key) else { continue };
            let key = self.spelled(key);
            let number = value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=MAX_SIZE).contains(n));
            let number =
                number.ok_or_else(|| self.unexpected(key, value, &format!("an integer from 1 to {MAX_SIZE}")))?;
            match found {
                Some(first) if first.value != number => {
                    return Err(self.error(format!("`{key}` is {number}, but {first}: both name the same size")));
                }
                _ => found = found.or(Some(Size { value: number, key, is_default: false })),
            }
        }
        Ok(found)
    }

    /// A size, or `None` where the key is null, the default where it is missing.
    pub(crate) fn optional_size(&self, key: &'static str, default: Option<usize>) -> Result<Option<usize>, ModelError> {
        match self.get(key) {
            Some(_) => Ok(self.given_size(&[key])?.map(|size| size.value)),
            None if self.value(key).is_some() => Ok(None),
            None => Ok(default),
        }
    }

    /// An integer from 0 to [`MAX_SIZE`]; the default where the key is absent.
    pub(crate) fn whole(&self, key: &'static str, default: usize) -> Result<usize, ModelError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let number =
            value.as_u64().and_then(|number| usize::try_from(number).ok()).filter(|number| *number <= MAX_SIZE);
        number.ok_or_else(|| self.unexpected(key, value, &format!("an integer from 0 to {MAX_SIZE}")))
    }

    /// A size, or another one where the key is absent.
    pub(crate) fn size_or(&self, key: &'static str, default: Size) -> Result<Size, ModelError> {
        match self.get(key) {
            Some(_) => Ok(self.given_size(&[key])?.unwrap_or(default)),
            None => Ok(default),
        }
    }

    /// A list of sizes, of 1 to [`MAX_LIST`] entries; the default where it is missing.
    pub(crate) fn sizes(&self, key: &'static str, default: &[usize]) -> Result<Vec<Size>, ModelError> {
        let of = |value: usize, is_default| Size { value, key, is_default };
        let Some(value) = self.get(key) else { return Ok(default.iter().map(|size| of(*size, true)).collect()) };
        let size = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| (1..=MAX_SIZE).contains(n));
        let entries = value.as_array().filter(|list| (1..=MAX_LIST).contains(&list.len()));
        let sizes = entries.and_then(|list| list.iter().map(|v| size(v).map(|n| of(n, false))).collect());
        sizes.ok_or_else(|| self.unexpected(key, value, &format!("a list of integers from 1 to {MAX_SIZE}")))
    }

    /// The same with as many entries as another list.
    pub(crate) fn as_many_sizes(
        &self,
        key: &'static str,
        default: &[usize],
        others: &[Size],
    ) -> Result<Vec<Size>, ModelError> {
        let sizes = self.sizes(key, default)?;
        match others.first() {
            Some(other) if sizes.len() != others.len() => Err(self.error(format!(
                "`{key}` has {} entries, but `{}` has {}: each has one for each stage",
                sizes.len(),
                other.key,
                others.len()
            ))),
            _ => Ok(sizes),
        }
    }

    /// A number that is positive and finite in float32.
    pub(crate) fn positive(&self, key: &'static str, default: f64) -> Result<f64, ModelError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        positive(value).ok_or_else(|| self.unexpected(key, value, POSITIVE))
    }

    /// A number from 0 on that is finite in float32.
    pub(crate) fn not_negative(&self, key: &'static str, default: f64) -> Result<f64, ModelError> {
        match self.get(key) {
            Some(value) if value.as_f64() == Some(0.0) => Ok(0.0),
            _ => self.positive(key, default),
        }
    }

    /// A positive number, or `None` where the key is null, the default where it is missing.
    pub(crate) fn optional_positive(&self, key: &'static str, default: Option<f64>) -> Result<Option<f64>, ModelError> {
        match self.get(key) {
            Some(_) => self.positive(key, 1.0).map(Some),
            None if self.value(key).is_some() => Ok(None),
            None => Ok(default),
        }
    }

    /// A number.
    pub(crate) fn number(&self, key: &'static str, default: f64) -> Result<f64, ModelError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_f64().ok_or_else(|| self.unexpected(key, value, "a number"))
    }

    /// A truth value.
    pub(crate) fn boolean(&self, key: &'static str, default: bool) -> Result<bool, ModelError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.unexpected(key, value, "true or false"))
    }

    /// The numbers of layers that a list has, where there is one.
    pub(crate) fn layer_numbers(&self, key: &'static str) -> Result<Option<Vec<usize>>, ModelError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let number = |one: &Value| usize::try_from(one.as_u64()?).ok();
        let numbers = value.as_array().and_then(|list| list.iter().map(number).collect());
        numbers.map(Some).ok_or_else(|| self.unexpected(key, value, "a list of the numbers of layers"))
    }

    /// A text.
    pub(crate) fn text(&self, key: &'static str, default: &'static str) -> Result<&'a str, ModelError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        value.as_str().ok_or_else(|| self.unexpected(key, value, "a text"))
    }

    /// A token id of a vocabulary: absent where the key is null or -1, the default where it is missing.
    pub(crate) fn token(&self, key: &'static str, default: i64, vocabulary: Size) -> Result<Option<i64>, ModelError> {
        let in_vocabulary = |id: &i64| (0..vocabulary.signed()).contains(id);
        match self.get(key) {
            None if self.value(key).is_some() => Ok(None),
            None => Ok(Some(default).filter(in_vocabulary)),
            Some(value) => match value.as_i64().filter(in_vocabulary) {
                None if value.as_i64() == Some(-1) => Ok(None),
                None => Err(self.unexpected(key, value, &format!("a token id below {vocabulary}"))),
                id => Ok(id),
            },
        }
    }

    /// A token id of a vocabulary, where the key is one.
    pub(crate) fn any_token(&self, key: &'static str, vocabulary: Size) -> Option<i64> {
        self.get(key)?.as_i64().filter(|id| (0..vocabulary.signed()).contains(id))
    }

    /// The keys of the file that ask for something: their values are not null, false or empty.
    pub(crate) fn set_keys(&self) -> impl Iterator<Item = &'a str> {
        self.values.iter().filter(|(_, value)| !is_off(value)).map(|(key, _)| key.as_str())
    }

    /// The keys that were asked for so far.
    pub(crate) fn asked(&self) -> BTreeSet<&'static str> {
        self.asked.borrow().clone()
    }
}

/// What [`positive`] takes.
pub(crate) const POSITIVE: &str = "a positive number that float32 has";

/// A number that is positive and finite in float32, which graphs compute in.
pub(crate) fn positive(value: &Value) -> Option<f64> {
    let rounded = |number: &f64| *number as f32;
    value.as_f64().filter(|number| rounded(number).is_finite() && rounded(number) > 0.0)
}

/// Whether a value says nothing: null, false or empty.
pub(crate) fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

/// The most characters of a value that a message shows.
const BRIEF: usize = 60;

/// A value as text, cut where it is long.
pub(crate) fn brief(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(BRIEF) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}
