//! How many labels a classifier has.

use serde_json::Value;

use super::{Config, Size, brief};
use crate::ModelError;

impl Config<'_> {
    /// The number of labels of a classifier: that of the entries of `id2label`, which counts for the
    /// transformers library, or `num_labels`, or what files of 2019 call `_num_labels`, or 2.
    pub(crate) fn labels(&self) -> Result<Size, ModelError> {
        self.labels_or(2)
    }

    /// The same with another number where the file has none of these.
    pub(crate) fn labels_or(&self, default: usize) -> Result<Size, ModelError> {
        const KEY: &str = "num_labels";
        let named = match self.get("id2label") {
            None => None,
            Some(Value::Object(labels)) if !labels.is_empty() => {
                Some(Size { value: labels.len(), key: "id2label", is_default: false })
            }
            Some(value) => return Err(self.unexpected("id2label", value, "an object of at least one label")),
        };
        match (named, self.get(KEY)) {
            (Some(named), Some(counted)) if counted.as_u64() != Some(named.value as u64) => {
                self.warn(format!(
                    "`{KEY}` is {}, but `id2label`, which counts, names {}",
                    brief(counted),
                    named.value
                ));
                Ok(named)
            }
            (Some(named), _) => Ok(named),
            (None, _) => {
                let key = [KEY, "_num_labels"].into_iter().find(|key| self.get(key).is_some());
                let given = key.map(|key| self.given_size(&[key])).transpose()?.flatten();
                Ok(given.unwrap_or(Size { value: default, key: KEY, is_default: true }))
            }
        }
    }
}
