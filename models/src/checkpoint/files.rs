//! Small files of a checkpoint, read whole.

use std::path::Path;

use planish_files::Kind;

use crate::ModelError;

/// The JSON object that a file holds.
pub(crate) fn read_object(path: &Path, kind: &Kind) -> Result<serde_json::Map<String, serde_json::Value>, ModelError> {
    let bad = |message| ModelError::File { path: path.to_owned(), message };
    match serde_json::from_slice(&planish_files::read(path, kind)?) {
        Ok(serde_json::Value::Object(object)) => Ok(object),
        Ok(_) => Err(bad("this is not a JSON object".to_owned())),
        Err(e) => Err(bad(format!("this is not JSON: {e}"))),
    }
}
