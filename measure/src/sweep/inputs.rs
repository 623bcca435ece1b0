//! The digests of what jobs read.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use planish_artifact::files::{digest, write_cached};
use planish_compiler::source::SourceModel;
use planish_files::Kind;
use planish_runtimes::cache_folder;
use serde::{Deserialize, Serialize};

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

/// Digests that were computed once: in this process, and of large files on this machine.
#[derive(Debug, Default)]
pub(super) struct Digests {
    known: Mutex<BTreeMap<PathBuf, String>>,
    /// Where those of large files are kept.
    folder: Option<PathBuf>,
}

/// The least size of a file whose digest is kept: 1 MiB.
const LARGE: u64 = 1 << 20;

/// A file that was written less long ago may be written again without another time of change.
const SETTLED: Duration = Duration::from_secs(2);

/// What changes when a file is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds since 1970 of the last write.
    written: (i64, i64),
    /// The same of the last change of the file or what the filesystem says of it.
    changed: (i64, i64),
}

impl State {
    fn of(path: &Path) -> Result<Self> {
        let of = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        let (written, changed) = ((of.mtime(), of.mtime_nsec()), (of.ctime(), of.ctime_nsec()));
        Ok(Self { inode: of.ino(), bytes: of.len(), written, changed })
    }

    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let changed = Duration::from_secs(u64::try_from(self.changed.0).unwrap_or(u64::MAX));
        now.checked_sub(changed).is_some_and(|since| since > SETTLED)
    }
}

/// A digest that is kept, and the file that it is of.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    state: State,
    blake3: String,
}

impl Digests {
    /// Those that are kept in the user's folder of caches.
    pub(super) fn of_user() -> Self {
        Self { folder: cache_folder::of_user().map(|folder| folder.join("digests")), ..Self::default() }
    }

    /// The digest of one file. That of a large file is kept until the file changes.
    fn file(&self, path: &Path) -> Result<String> {
        let Some(folder) = &self.folder else { return digest(path) };
        let state = State::of(path)?;
        if state.bytes < LARGE {
            return digest(path);
        }
        let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let place = folder.join(format!("{}.json", blake3::hash(whole.as_os_str().as_encoded_bytes()).to_hex()));
        let kept = planish_files::read_text(&place, &Kind::SWEEP).ok();
        let kept: Option<Kept> = kept.and_then(|text| serde_json::from_str(&text).ok());
        if let Some(Kept { blake3, .. }) = kept.filter(|kept| kept.state == state) {
            return Ok(blake3);
        }
        let blake3 = digest(path)?;
        if state.is_settled() && State::of(path)? == state && fs::create_dir_all(folder).is_ok() {
            // A digest that cannot be kept is computed again.
            let _ = write_cached(&place, &serde_json::to_vec(&Kept { state, blake3: blake3.clone() })?);
        }
        Ok(blake3)
    }

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
            [(name, file)] if name.is_empty() => self.file(file)?,
            _ => {
                let mut hasher = blake3::Hasher::new();
                for (name, file) in &files {
                    hasher.update(format!("{name}\n{}\n", self.file(file)?).as_bytes());
                }
                hasher.finalize().to_hex().to_string()
            }
        };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), digest.clone());
        Ok(digest)
    }

    fn known(&self, path: &Path) -> Option<String> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
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
    fn digests_of_large_files_are_kept_until_they_change() {
        let place = tempfile::tempdir().unwrap();
        let (file, folder) = (place.path().join("model"), place.path().join("digests"));
        let digests = || Digests { folder: Some(folder.clone()), ..Digests::default() };
        let kept = || fs::read_dir(&folder).map_or(0, Iterator::count);
        fs::write(&file, vec![1; 2 << 20]).unwrap();
        let first = digests().of(&file, false).unwrap();
        // It was written just now.
        assert_eq!((kept(), &first), (0, &digest(&file).unwrap()));
        std::thread::sleep(SETTLED + Duration::from_secs(1));
        assert_eq!((digests().of(&file, false).unwrap(), kept()), (first.clone(), 1));
        let only = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        let text = fs::read_to_string(&only).unwrap();
        fs::write(&only, text.replace(&first, "kept")).unwrap();
        assert_eq!(digests().of(&file, false).unwrap(), "kept");
        fs::write(&file, vec![2; 2 << 20]).unwrap();
        assert_eq!(digests().of(&file, false).unwrap(), digest(&file).unwrap());
        // A small file costs nothing.
        fs::write(&file, "1").unwrap();
        assert_eq!(digests().of(&file, false).unwrap(), digest(&file).unwrap());
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
