//! Temporary folders of a test, and the contents of folders.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use tempfile::TempDir;

/// A folder of a test's own, which is removed when the value is dropped.
#[must_use]
pub fn scratch() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// The names in a folder, sorted.
#[must_use]
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).and_then(|entries| entries.collect::<io::Result<Vec<_>>>()).unwrap();
    let mut names: Vec<String> = entries.iter().map(|e| e.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The files of a folder by name, and their bytes.
#[must_use]
pub fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    names(folder).into_iter().map(|name| (name.clone(), fs::read(folder.join(name)).unwrap())).collect()
}
