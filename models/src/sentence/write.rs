//! The files of sentence-transformers beside an artifact, where those of its source would say something else. They are written
//! with the names that all versions of the library read.

use std::path::Path;

use serde_json::{Value, json};

use super::entries::{MODULES, module_entries, module_list};
use super::{Mode, Pooling};
use crate::ModelError;
use crate::checkpoint::CONFIG;

/// The path of the classes of modules.
const CLASSES: &str = "sentence_transformers.models";

/// Files in place of those of a checkpoint, with their texts, by their names in an artifact: modules.json without the folder
/// that a model had of its own, whose files are in the artifact's root; with a pooling that was asked for, of tokens of so many
/// features, the modules that it consists of. None where the files of the checkpoint say it.
///
/// # Errors
/// When modules.json is malformed.
pub fn written_modules(root: &Path, pooling: Option<(Pooling, usize)>) -> Result<Vec<(String, String)>, ModelError> {
    let text = |value: &Value| format!("{value:#}\n");
    if let Some((pooling, features)) = pooling {
        let mut classes = vec![("Transformer", String::new()), ("Pooling", "1_Pooling".to_owned())];
        if pooling.normalize {
            classes.push(("Normalize", "2_Normalize".to_owned()));
        }
        let entry = |(at, (class, path)): (usize, &(&str, String))| json!({"idx": at, "name": at.to_string(), "path": path, "type": format!("{CLASSES}.{class}")});
        let list = classes.iter().enumerate().map(entry).collect();
        let modes = Mode::ALL.iter().map(|(mode, _, key)| ((*key).to_owned(), Value::Bool(*mode == pooling.mode)));
        let config = [("word_embedding_dimension".to_owned(), json!(features))].into_iter().chain(modes).collect();
        return Ok(vec![
            (MODULES.to_owned(), text(&list)),
            (format!("1_Pooling/{CONFIG}"), text(&Value::Object(config))),
        ]);
    }
    let entries = module_entries(root)?;
    if entries.first().is_none_or(|model| model.path.is_empty()) {
        return Ok(Vec::new());
    }
    let mut list = module_list(root)?;
    if let Some(model) = list.first_mut().and_then(Value::as_object_mut) {
        model.insert("path".to_owned(), json!(""));
    }
    Ok(vec![(MODULES.to_owned(), text(&Value::Array(list)))])
}
