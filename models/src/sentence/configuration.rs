//! The configuration of a module, with a record of the keys that were read.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use planish_files::Kind as FileKind;
use serde_json::{Map, Value};

use super::{Feature, Mode};
use crate::ModelError;
use crate::checkpoint::CONFIG;
use crate::checkpoint::config::{MAX_SIZE, Size, brief, is_off};
use crate::checkpoint::files::read_object;
use crate::layers::activation::Activation;

/// The configuration of a module, and which keys of it were read.
pub(super) struct Configuration {
    pub(super) path: PathBuf,
    object: Map<String, Value>,
    read: RefCell<Vec<String>>,
}

impl Configuration {
    /// That of a module in a folder, the root's where it is empty, which is none of a module's own.
    pub(super) fn read(root: &Path, folder: &str) -> Result<Self, ModelError> {
        let path = root.join(folder).join(CONFIG);
        let is_own = !folder.is_empty() && path.is_file();
        let object = if is_own { read_object(&path, &FileKind::SETTINGS)? } else { Map::new() };
        Ok(Self { path, object, read: RefCell::default() })
    }

    pub(super) fn used(&self, keys: &[&str]) {
        self.read.borrow_mut().extend(keys.iter().map(|key| (*key).to_owned()));
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.used(&[key]);
        self.object.get(key).filter(|value| !value.is_null())
    }

    fn error(&self, message: String) -> ModelError {
        ModelError::File { path: self.path.clone(), message }
    }

    /// A line about keys that nothing reads and that ask for something.
    pub(super) fn unknown(&self) -> Option<String> {
        let read = self.read.borrow();
        let left = self.object.iter().filter(|(key, value)| !read.contains(key) && !is_off(value));
        let left: Vec<&str> = left.map(|(key, _)| key.as_str()).collect();
        (!left.is_empty()).then(|| format!("{}: ignored keys: {}", self.path.display(), left.join(", ")))
    }

    /// A number of features, under the first of some keys that is there.
    pub(super) fn size(&self, keys: &[&'static str]) -> Result<Option<Size>, ModelError> {
        self.used(keys);
        let Some((key, value)) = keys.iter().find_map(|key| Some((*key, self.get(key)?))) else { return Ok(None) };
        let size =
            value.as_u64().and_then(|size| usize::try_from(size).ok()).filter(|size| (1..=MAX_SIZE).contains(size));
        let size =
            size.ok_or_else(|| self.error(format!("`{key}` is {}, expected a number of features", brief(value))))?;
        Ok(Some(Size::derived(size, key)))
    }

    pub(super) fn needed(&self, keys: &[&'static str]) -> Result<Size, ModelError> {
        let missing = || self.error(format!("`{}` is missing", keys.join("` or `")));
        self.size(keys)?.ok_or_else(missing)
    }

    pub(super) fn boolean(&self, key: &str, default: bool) -> Result<bool, ModelError> {
        match self.get(key) {
            None => Ok(default),
            Some(Value::Bool(value)) => Ok(*value),
            Some(value) => Err(self.error(format!("`{key}` is {}, expected true or false", brief(value)))),
        }
    }

    pub(super) fn one_of(
        &self,
        key: &str,
        default: &'static str,
        known: &[&'static str],
    ) -> Result<&'static str, ModelError> {
        let Some(value) = self.get(key) else { return Ok(default) };
        let found = known.iter().find(|known| value.as_str() == Some(known)).copied();
        found.ok_or_else(|| self.error(format!("`{key}` is {}, expected one of {}", brief(value), known.join(", "))))
    }

    /// What the module reads and writes.
    pub(super) fn features(&self, usual: Feature) -> Result<[Feature; 2], ModelError> {
        let feature =
            |key: &str, usual: Feature| match self.get(key) {
                None => Ok(usual),
                Some(value) => match value.as_str() {
                    Some("token_embeddings") => Ok(Feature::Tokens),
                    Some("sentence_embedding") => Ok(Feature::Sentence),
                    _ => Err(self
                        .error(format!("`{key}` is {value}, expected \"token_embeddings\" or \"sentence_embedding\""))),
                },
            };
        let from = feature("module_input_name", usual)?;
        Ok([from, feature("module_output_name", from)?])
    }

    /// The activation that a path of a class of torch names, such as `torch.nn.modules.activation.Tanh`.
    pub(super) fn activation(&self) -> Result<Activation, ModelError> {
        const KEY: &str = "activation_function";
        let Some(value) = self.get(KEY) else { return Ok(Activation::TANH) };
        let known = value.as_str().filter(|path| path.starts_with("torch.")).and_then(Activation::of_torch);
        known.ok_or_else(|| {
            self.error(format!("`{KEY}` is {value}, which is no activation of torch.nn that is known here"))
        })
    }

    /// How token vectors are pooled: by `pooling_mode`, or by a key for each mode; by the mean where neither says it.
    pub(super) fn modes(&self, warnings: &mut Vec<String>) -> Result<Vec<Mode>, ModelError> {
        const KEY: &str = "pooling_mode";
        if !self.boolean("include_prompt", true)? {
            warnings.push(format!(
                "{}: `include_prompt` is false: the graph pools the tokens of a prompt too, which sentence-transformers leaves \
                 out",
                self.path.display()
            ));
        }
        let mut older = Vec::new();
        for (mode, _, key) in Mode::ALL {
            if self.boolean(key, false)? {
                older.push(*mode);
            }
        }
        let named = |name: &Value| {
            let unknown = || self.error(format!("`{KEY}` is {name}, which is not known: known are {}", Mode::names()));
            name.as_str().and_then(Mode::named).ok_or_else(unknown)
        };
        match self.get(KEY) {
            Some(Value::Array(names)) if !names.is_empty() => names.iter().map(named).collect(),
            Some(name) => Ok(vec![named(name)?]),
            None if older.is_empty() => Ok(vec![Mode::Mean]),
            None => Ok(older),
        }
    }
}
