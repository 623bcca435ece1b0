//! The configuration of a part of a model, under a key of the whole.

use std::cell::{Cell, RefCell};
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::{Config, Part};
use crate::ModelError;

impl Config<'_> {
    /// The configuration of a part of the model under the first of some keys that is there; one without keys where none is.
    ///
    /// # Errors
    /// When it is no object.
    pub(crate) fn section(&self, keys: &[&'static str]) -> Result<Self, ModelError> {
        static NOTHING: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        let found = keys.iter().find_map(|&key| Some((key, self.get(key)?)));
        let key = found.map_or(keys.first().copied().unwrap_or_default(), |(key, _)| key);
        let values = match found {
            None => &NOTHING,
            Some((_, Value::Object(values))) => values,
            Some((_, value)) => return Err(self.unexpected(key, value, "an object")),
        };
        Ok(Self {
            path: self.path.clone(),
            part: Part::Section(key),
            values,
            older_keys: &[],
            images: self.images,
            is_resizable: Cell::default(),
            asked: RefCell::default(),
            defaults: RefCell::default(),
            warnings: RefCell::default(),
        })
    }

    /// Takes over the warnings of the configuration of a part, and whether it follows sizes of images.
    pub(crate) fn take_over(&self, section: &Self) {
        self.is_resizable.set(self.is_resizable.get() || section.is_resizable.get());
        self.warnings.borrow_mut().extend(section.take_warnings());
    }
}
