//! The digests of what jobs read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use planish_artifact::files::digest;
use planish_compiler::source::SourceModel;

use super::{Input, TryAgain};

/// A file is another one than when the sweep was planned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{path} has changed since the sweep was planned (its digest is {now}, and was {planned}); put the old one back, or plan again: \
     remove jobs.json in the output folder. Results of jobs whose inputs are as they were stay"
)]
pub struct InputChanged {
    path: String,
    planned: String,
    now: String,
}

/// Digests that were computed once.
#[derive(Debug, Default)]
pub(super) struct Digests(Mutex<BTreeMap<PathBuf, String>>);

impl Digests {
    /// The BLAKE3 digest of a model, of data or of a file: of a file its own; of a folder, and of a model in several files, that of
    /// the names and digests of its files.
    pub(super) fn of(&self, path: &Path, is_model: bool) -> Result<String> {
        if let Some(known) = self.known(path) {
            return Ok(known);
        }
        let files = match (path.is_dir(), is_model) {
            (true, _) => files_below(path, path)?,
            (false, true) => files_of_model(path)?,
            (false, false) => vec![(String::new(), path.to_owned())],
        };
        let digest = match files.as_slice() {
            [(name, file)] if name.is_empty() => digest(file)?,
            _ => {
                let mut hasher = blake3::Hasher::new();
                for (name, file) in &files {
                    hasher.update(format!("{name}\n{}\n", digest(file)?).as_bytes());
                }
                hasher.finalize().to_hex().to_string()
            }
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), digest.clone());
        Ok(digest)
    }

    fn known(&self, path: &Path) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    /// Checks that an input, by its name, is what it was.
    ///
    /// # Errors
    /// [`InputChanged`]; [`TryAgain`] where it cannot be read, for a filesystem may come back.
    pub(super) fn check(&self, folder: &Path, (name, input): (&str, &Input)) -> Result<()> {
        let now =
            self.of(&folder.join(&input.path), name == "model").map_err(|error| TryAgain(format!("{error:#}")))?;
        if now == input.blake3 {
            return Ok(());
        }
        Err(InputChanged { path: input.path.display().to_string(), planned: input.blake3.clone(), now }.into())
    }
}

/// The files of a folder and of those in it, by their names from the outer one on; hidden ones are left out.
fn files_below(folder: &Path, outer: &Path) -> Result<Vec<(String, PathBuf)>> {
    let context = || format!("cannot read the folder {}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(context)? {
        let entry = entry.with_context(context)?;
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            continue;
        }
        if path.is_dir() {
            files.extend(files_below(&path, outer)?);
        } else {
            files.push((path.strip_prefix(outer).unwrap_or(&path).to_string_lossy().into_owned(), path));
        }
    }
    files.sort();
    Ok(files)
}

/// The files of a model that a file is the first of: those of its external data too.
fn files_of_model(path: &Path) -> Result<Vec<(String, PathBuf)>> {
    let files = SourceModel::open(path)?.files(None)?;
    Ok(files.into_iter().map(|file| (file.name, file.path)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_the_digest_of_its_names_and_contents() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let now = || Digests::default().of(place.path(), true).unwrap();
        write("model", "1");
        write("inner/pool", "2");
        let first = now();
        write(".hidden", "3");
        assert_eq!(now(), first, "hidden files do not count");
        write("inner/pool", "4");
        let second = now();
        assert_ne!(second, first);
        fs::rename(place.path().join("inner/pool"), place.path().join("inner/pools")).unwrap();
        assert_ne!(now(), second);
    }

    #[test]
    fn an_input_that_changed_or_is_gone_is_named() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("data");
        fs::write(&path, "1").unwrap();
        let input = Input { path: "data".into(), blake3: Digests::default().of(&path, false).unwrap() };
        let check = || Digests::default().check(place.path(), ("data", &input));
        check().unwrap();
        fs::write(&path, "2").unwrap();
        let error = check().unwrap_err();
        assert!(error.is::<InputChanged>() && error.to_string().starts_with("data has changed"), "{error}");
        fs::remove_file(&path).unwrap();
        assert!(check().unwrap_err().is::<TryAgain>());
    }
}
