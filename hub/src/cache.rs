//! The cache on disk, in the layout of Python's huggingface_hub, which reads and fills it too:
//!
//! ```text
//! models--OWNER--NAME/refs/REVISION                a commit
//! models--OWNER--NAME/snapshots/COMMIT/FILE        a link to ../../blobs/ETAG
//! models--OWNER--NAME/blobs/ETAG                   the bytes of a file, and while they are downloaded ETAG.incomplete
//! .locks/models--OWNER--NAME/ETAG.lock             who downloads them
//! ```

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use planish_files::Kind;

use crate::HubError;
use crate::name::is_commit;

const REFERENCE: Kind = Kind { what: "a reference of the cache", limit: 4096, advice: "remove the file" };

/// The cache of one model.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// The folder of all caches.
    pub(crate) root: PathBuf,
    /// The folder of this model.
    folder: PathBuf,
    /// Its name.
    name: String,
}

/// A lock that goes when this is dropped, or with the process.
pub(crate) struct Lock {
    _file: File,
    /// Whether nobody else has it: not where the file system has no locks.
    is_held: bool,
}

impl Cache {
    pub(crate) fn new(root: &Path, repository: &str) -> Self {
        let name = format!("models--{}", repository.replace('/', "--"));
        Self { root: root.to_owned(), folder: root.join(&name), name }
    }

    /// The commit of a revision when it was asked for last.
    pub(crate) fn commit(&self, revision: &str) -> Option<String> {
        if is_commit(revision) {
            return Some(revision.to_owned());
        }
        let text = planish_files::read_if_there(&self.folder.join("refs").join(revision), &REFERENCE).ok()??;
        Some(text.trim().to_owned()).filter(|commit| is_commit(commit))
    }

    /// Notes the commit of a revision.
    pub(crate) fn note_commit(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        if is_commit(revision) || self.commit(revision).as_deref() == Some(commit) {
            return Ok(());
        }
        let path = self.folder.join("refs").join(revision);
        make_parent(&path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let draft = path.with_file_name(format!("{name}.{}.tmp", std::process::id()));
        fs::write(&draft, commit).map_err(failed("write", &draft))?;
        fs::rename(&draft, &path).map_err(failed("write", &path))
    }

    /// The folder of the files of a commit.
    pub(crate) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// The paths of the files of a commit that are there, sorted.
    pub(crate) fn files(&self, commit: &str) -> Vec<String> {
        let root = self.snapshot(commit);
        let (mut folders, mut files) = (vec![root.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
                // A link to a folder may lead around in a circle.
                match path.symlink_metadata() {
                    Ok(metadata) if metadata.is_dir() => folders.push(path),
                    Ok(_) if path.is_file() => {
                        let name = path.strip_prefix(&root).ok().and_then(Path::to_str);
                        files.extend(name.map(str::to_owned));
                    }
                    _ => {}
                }
            }
        }
        files.sort();
        files
    }

    /// Where the bytes of a file are.
    pub(crate) fn blob(&self, etag: &str) -> PathBuf {
        self.folder.join("blobs").join(etag)
    }

    /// Where the first bytes of a file are, while it is downloaded: a file of all processes, one of which has the lock, or where there are no
    /// locks one of this process.
    pub(crate) fn incomplete(&self, etag: &str, lock: &Lock) -> PathBuf {
        let name = match lock.is_held {
            true => format!("{etag}.incomplete"),
            false => format!("{etag}.{}.incomplete", std::process::id()),
        };
        self.folder.join("blobs").join(name)
    }

    /// Waits until nobody else downloads the same bytes; `waits` is called where somebody does.
    pub(crate) fn lock(&self, etag: &str, waits: &dyn Fn()) -> Result<Lock, HubError> {
        let path = self.root.join(".locks").join(&self.name).join(format!("{etag}.lock"));
        make_parent(&path)?;
        loop {
            let mut options = OpenOptions::new();
            #[allow(clippy::disallowed_methods, reason = "a lock is no file that is read")]
            let file = options.append(true).create(true).mode(0o664).open(&path).map_err(failed("open", &path))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => {
                    waits();
                    file.lock().map_err(failed("lock", &path))?;
                }
                Err(fs::TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                    return Ok(Lock { _file: file, is_held: false });
                }
                Err(fs::TryLockError::Error(error)) => return Err(failed("lock", &path)(error)),
            }
            // Who had it may have removed the file: then others lock another one.
            let is_same = |now: &fs::Metadata, own: &fs::Metadata| (now.dev(), now.ino()) == (own.dev(), own.ino());
            match (fs::metadata(&path), file.metadata()) {
                (Ok(now), Ok(own)) if is_same(&now, &own) => return Ok(Lock { _file: file, is_held: true }),
                _ => {}
            }
        }
    }

    /// Forgets a file of a commit whose bytes have another name than one, and those bytes.
    pub(crate) fn forget_others(&self, commit: &str, file: &str, etag: Option<&str>) -> Result<(), HubError> {
        let path = self.snapshot(commit).join(file);
        let Ok(target) = fs::read_link(&path) else { return Ok(()) };
        let Some(name) = target.file_name().filter(|name| name.to_str() != etag) else { return Ok(()) };
        // Another process may have done the same.
        let remove = |path: &Path| match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
            _ => Ok(()),
        };
        remove(&path)?;
        remove(&self.folder.join("blobs").join(name))
    }

    /// Enters bytes that are there as a file of a commit.
    pub(crate) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<(), HubError> {
        let path = self.snapshot(commit).join(file);
        if path.exists() {
            return Ok(());
        }
        make_parent(&path)?;
        let up = "../".repeat(2 + file.matches('/').count());
        let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let draft = path.with_file_name(format!(".{}.{}.{number}.tmp", etag, std::process::id()));
        symlink(format!("{up}blobs/{etag}"), &draft).map_err(failed("link", &draft))?;
        // In place of a link whose bytes somebody removed.
        fs::rename(&draft, &path).map_err(failed("link", &path))
    }
}

/// How many links this process drafted: their names differ, also of two threads.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

/// The error of something that was tried with a path.
pub(crate) fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> HubError {
    let path = path.to_owned();
    move |source| HubError::Cache { what, path, source }
}

/// Makes the folder that a file is in.
pub(crate) fn make_parent(path: &Path) -> Result<(), HubError> {
    match path.parent() {
        Some(folder) => fs::create_dir_all(folder).map_err(failed("make", folder)),
        None => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "this is a test")]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn files_are_links_to_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path(), "a/b");
        make_parent(&cache.blob("e1")).unwrap();
        fs::write(cache.blob("e1"), "bytes").unwrap();
        for file in ["config.json", "1_Pooling/config.json"] {
            cache.link(COMMIT, file, "e1").unwrap();
            assert_eq!(fs::read_to_string(cache.snapshot(COMMIT).join(file)).unwrap(), "bytes");
        }
        let target = fs::read_link(cache.snapshot(COMMIT).join("1_Pooling/config.json")).unwrap();
        assert_eq!(target, PathBuf::from("../../../blobs/e1"));
        assert_eq!(cache.files(COMMIT), ["1_Pooling/config.json", "config.json"]);
        fs::remove_file(cache.blob("e1")).unwrap();
        assert_eq!(cache.files(COMMIT), Vec::<String>::new());
        fs::write(cache.blob("e2"), "other").unwrap();
        cache.link(COMMIT, "config.json", "e2").unwrap();
        assert_eq!(cache.files(COMMIT), ["config.json"]);
    }

    #[test]
    fn revisions_have_a_commit() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path(), "a/b");
        assert_eq!(cache.commit("main"), None);
        assert_eq!(cache.commit(COMMIT).as_deref(), Some(COMMIT));
        cache.note_commit("refs/pr/1", COMMIT).unwrap();
        assert_eq!(cache.commit("refs/pr/1").as_deref(), Some(COMMIT));
        let path = folder.path().join("models--a--b/refs/refs/pr/1");
        assert_eq!(fs::read_to_string(&path).unwrap(), COMMIT);
        fs::write(path, "../../elsewhere").unwrap();
        assert_eq!(cache.commit("refs/pr/1"), None);
    }

    #[test]
    fn one_has_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path(), "a/b");
        let first = cache.lock("e", &|| panic!("nobody has it")).unwrap();
        let waited = std::sync::Mutex::new(Some(first));
        let _second = cache.lock("e", &|| drop(waited.lock().unwrap().take())).unwrap();
        assert!(waited.lock().unwrap().is_none());
    }
}
