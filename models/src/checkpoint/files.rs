//! Opening files that are given by a user: regular ones only, small ones read whole.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use crate::ModelError;

/// Opens a regular file; returns its size too.
pub(crate) fn open(path: &Path) -> Result<(File, u64), ModelError> {
    let failed = |source| ModelError::Read { path: path.to_owned(), source };
    // Asked before opening: a named pipe would block.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(ModelError::File { path: path.to_owned(), message: "this is not a regular file".to_owned() });
    }
    let file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    Ok((file, bytes))
}

/// The JSON object that a file of at most `limit` bytes holds.
pub(crate) fn read_object(path: &Path, limit: u64) -> Result<serde_json::Map<String, serde_json::Value>, ModelError> {
    let bad = |message| ModelError::File { path: path.to_owned(), message };
    let (file, bytes) = open(path)?;
    if bytes > limit {
        return Err(bad(format!("{bytes} bytes are too many for such a file; the limit is {limit}")));
    }
    let mut text = Vec::new();
    file.take(limit).read_to_end(&mut text).map_err(|source| ModelError::Read { path: path.to_owned(), source })?;
    match serde_json::from_slice(&text) {
        Ok(serde_json::Value::Object(object)) => Ok(object),
        Ok(_) => Err(bad("this is not a JSON object".to_owned())),
        Err(e) => Err(bad(format!("this is not JSON: {e}"))),
    }
}
