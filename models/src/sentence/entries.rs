//! The entries of `modules.json`, and what a pooling among them says of tokens.

use std::path::{Path, PathBuf};

use planish_files::Kind as FileKind;
use serde_json::Value;

use super::configuration::Configuration;
use crate::ModelError;
use crate::checkpoint::{CONFIG, is_plain_name};

/// The file that lists the modules, in the root of a checkpoint.
pub(crate) const MODULES: &str = "modules.json";

/// The beginnings of the paths of the classes of the libraries that are followed.
const LIBRARIES: [&str; 2] = ["sentence_transformers.", PYLATE];
pub(super) const PYLATE: &str = "pylate.";

/// The classes of modules that come first, with the model of the transformers library.
const MODELS: &[&str] = &["Transformer", "MLMTransformer"];

/// The class of a first module that is a table of vectors, without a model of the transformers library.
const STATIC: &str = "StaticEmbedding";

/// The class of a pooling, and its folder where no file lists modules.
const POOLING: &str = "Pooling";
const POOLING_FOLDER: &str = "1_Pooling";

/// An entry of `modules.json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleEntry {
    /// The last part of the path of its class, e.g. `Pooling`; all of the path where it is not of a library that is followed.
    pub class: String,
    /// The path of its class, e.g. `sentence_transformers.models.Pooling`.
    pub full: String,
    /// Its folder, empty for the root.
    pub path: String,
}

impl ModuleEntry {
    /// Whether it is a model of the transformers library.
    pub fn is_model(&self) -> bool {
        MODELS.contains(&self.class.as_str())
    }

    /// Whether it is a table of vectors of tokens.
    pub fn is_static(&self) -> bool {
        self.class == STATIC
    }
}

/// The entries of `modules.json` in a folder; none where there is no such file.
///
/// # Errors
/// When the file cannot be read, is no list of modules, or names a folder that is not beside it.
pub fn module_entries(root: &Path) -> Result<Vec<ModuleEntry>, ModelError> {
    let bad = |message: String| ModelError::File { path: root.join(MODULES), message };
    let one = |(at, entry): (usize, &Value)| {
        let text = |key: &str| entry.get(key).and_then(Value::as_str);
        let (Some(full), Some(path)) = (text("type"), text("path")) else {
            return Err(bad(format!("entry {at} has no texts `type` and `path`")));
        };
        let path = path.strip_prefix("./").unwrap_or(path).trim_end_matches('/');
        let path = if path == "." { "" } else { path };
        if !path.is_empty() && !is_plain_name(path) {
            return Err(bad(format!("entry {at} has the path \"{path}\", which is not a folder beside this file")));
        }
        // Classes of a checkpoint's own code may compute something else under the same name.
        let is_of_library = LIBRARIES.iter().any(|library| full.starts_with(library));
        let class = if is_of_library { full.rsplit('.').next().unwrap_or_default() } else { full };
        let class = class.to_owned();
        Ok(ModuleEntry { class, full: full.to_owned(), path: path.to_owned() })
    };
    module_list(root)?.iter().enumerate().map(one).collect()
}

/// The list in `modules.json` in a folder; an empty one where there is no such file.
///
/// # Errors
/// When the file cannot be read or is no list.
pub(super) fn module_list(root: &Path) -> Result<Vec<Value>, ModelError> {
    let path = root.join(MODULES);
    if !path.is_file() {
        return Ok(Vec::new());
    }
    let bad = |message: String| ModelError::File { path: path.clone(), message };
    match serde_json::from_slice(&planish_files::read(&path, &FileKind::SETTINGS)?) {
        Ok(Value::Array(list)) => Ok(list),
        Ok(_) => Err(bad("this is not a list of modules".to_owned())),
        Err(e) => Err(bad(format!("this is not JSON: {e}"))),
    }
}

/// The configuration of the pooling of a folder: that of the module of `modules.json`, or else `1_Pooling/config.json`.
///
/// # Errors
/// As [`module_entries`].
pub fn pooling_config(root: &Path) -> Result<PathBuf, ModelError> {
    Ok(root.join(pooling_folder(root)?).join(CONFIG))
}

fn pooling_folder(root: &Path) -> Result<String, ModelError> {
    let pooling = module_entries(root)?.into_iter().find(|entry| entry.class == POOLING);
    Ok(pooling.map_or_else(|| POOLING_FOLDER.to_owned(), |entry| entry.path))
}

/// How [`pooling_config`] pools the vectors of tokens, as `pooling_mode` names it, such as `mean`; several are joined. The mean
/// where it says nothing; `None` where there is no such file.
///
/// # Errors
/// As [`module_entries`]; also when the file has a mode that is not known.
pub fn pooling_modes(root: &Path) -> Result<Option<Vec<&'static str>>, ModelError> {
    let folder = pooling_folder(root)?;
    if folder.is_empty() || !root.join(&folder).join(CONFIG).is_file() {
        return Ok(None);
    }
    let modes = Configuration::read(root, &folder)?.modes(&mut Vec::new())?;
    Ok(Some(modes.into_iter().map(super::Mode::name).collect()))
}
