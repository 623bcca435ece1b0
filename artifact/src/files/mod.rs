//! Reading and writing whole files.

pub mod unfinished;

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use crate::files::unfinished::{PROCESS, Unfinished};

/// How much is read at once: bounded, so that the file does not count as the process's memory.
const BUFFER_BYTES: usize = 1 << 20;

/// The BLAKE3 digest of a file, in hexadecimal.
///
/// # Errors
/// When the file cannot be read.
pub fn digest(path: &Path) -> Result<String> {
    let context = || format!("cannot read {}", path.display());
    let (mut file, _) = planish_files::open(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match file.read(&mut buffer).with_context(context)? {
            0 => return Ok(hasher.finalize().to_hex().to_string()),
            n => hasher.update(&buffer[..n]),
        };
    }
}

/// Writes a file whole or not at all: into another beside it that is renamed. What is not a file,
/// such as a pipe, is written to.
///
/// # Errors
/// When that is impossible; what was there is unchanged then.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    match destination(path) {
        None => fs::write(path, bytes).with_context(context),
        Some(target) => {
            let (draft, mut file) = make_beside(&target).with_context(context)?;
            file.write_all(bytes).and_then(|()| file.sync_all()).with_context(context)?;
            draft.place(|| fs::rename(draft.path(), &target)).with_context(context)
        }
    }
}

/// A file that is written piece by piece: it takes its place as a whole, or not at all. What is not a file, such as a pipe, is
/// written to.
#[derive(Debug)]
pub struct Streamed {
    file: File,
    /// The file beside the one of the path, where there is one.
    draft: Option<(Unfinished, PathBuf)>,
}

impl Streamed {
    /// Begins to write what is to be at a path.
    ///
    /// # Errors
    /// When that is impossible.
    pub fn create(path: &Path) -> Result<Self> {
        let context = || format!("cannot write {}", path.display());
        match destination(path) {
            None => {
                let file = File::create(path).with_context(context)?;
                Ok(Self { file, draft: None })
            }
            Some(target) => {
                let (draft, file) = make_beside(&target).with_context(context)?;
                Ok(Self { file, draft: Some((draft, target)) })
            }
        }
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// When that is impossible; what was there is unchanged then.
    pub fn place(self) -> Result<()> {
        let Some((draft, target)) = self.draft else { return Ok(()) };
        // What has its final name is whole after a power cut too.
        let place = self.file.sync_all().and_then(|()| draft.place(|| fs::rename(draft.path(), &target)));
        place.with_context(|| format!("cannot write {}", target.display()))
    }
}

impl Write for Streamed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Streamed {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// Writes a file of a cache: another process that reads it finds the old file, all of the new one, or nothing. A signal
/// leaves no part of it.
pub fn write_cached(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let make = || {
        let draft = path.with_extension(format!("{:016x}", fastrand::u64(..)));
        File::create_new(&draft).map(|file| (draft, file))
    };
    let (draft, mut file) = unfinished::PROCESS.make(make)?;
    file.write_all(bytes)?;
    // What is at the path of the draft is gone then.
    fs::rename(draft.path(), path)
}

/// Writes a file of a folder in the making, in place of a link to another file. A signal removes the folder, so this file
/// does not count as finished.
///
/// # Errors
/// When that is impossible.
pub fn write_within(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || create_within(path)?.write_all(bytes);
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Makes such a file.
///
/// # Errors
/// When that is impossible.
pub fn create_within(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::create_new(path),
    }
}

/// Makes the folders of a relative path in a folder in the making; returns the last. The folder itself has to be there: once
/// a signal has removed it, it does not come back.
///
/// # Errors
/// When that is impossible.
pub fn create_folders_within(folder: &Path, path: &Path) -> Result<PathBuf> {
    let mut made = folder.to_owned();
    for name in path {
        made.push(name);
        match fs::create_dir(&made) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            result => result.with_context(|| format!("cannot make the folder {}", made.display()))?,
        }
    }
    Ok(made)
}

/// Checks that [`write()`] can write a file, before work that would be in vain.
///
/// # Errors
/// When it cannot.
pub fn check_writable(path: &Path) -> Result<()> {
    let checked = match destination(path) {
        // What is not a file is not opened: a pipe waits for its reader.
        None if path.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        None => Ok(()),
        Some(target) => make_beside(&target).map(drop),
    };
    checked.with_context(|| format!("cannot write {}", path.display()))
}

/// The file that a path names, a symbolic link being followed, if there is a file or nothing.
fn destination(path: &Path) -> Option<PathBuf> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    (path.file_name().is_some() && (path.is_file() || !path.exists())).then_some(path)
}

/// Makes the file that takes the place of another.
fn make_beside(target: &Path) -> io::Result<(Unfinished, File)> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let path = target.with_file_name(format!(".{name}.planish-{:016x}", fastrand::u64(..)));
    PROCESS.make(|| File::create_new(&path).map(|file| (path.clone(), file)))
}

/// The path of a file or folder relative to a folder, which need not be there yet: `..` and names, links resolved. `None`
/// where one of the two cannot be resolved, or text cannot say the path.
pub fn relative_path(from: &Path, to: &Path) -> Option<String> {
    let (from, to) = (resolved(from)?, resolved(to)?);
    let shared = from.components().zip(to.components()).take_while(|(a, b)| a == b).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    let path: PathBuf = up.chain(to.components().skip(shared)).collect();
    path.into_os_string().into_string().ok().filter(|path| !path.is_empty())
}

/// The absolute path without links, but for the last name: that of a link is what the file is called.
pub fn resolved(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Some(parent.canonicalize().ok()?.join(name)),
        // `..` and the root have none.
        _ => path.canonicalize().ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_replaced_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        write(&file, b"one").unwrap();
        symlink("file", &link).unwrap();
        write(&link, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert!(link.is_symlink());
        write(Path::new("/dev/null"), b"three").unwrap();
        assert!(!Path::new("/dev/null").is_file());
        let error = write(folder.path(), b"four").unwrap_err();
        assert!(format!("{error:#}").contains("Is a directory"), "{error:#}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_streamed_file_takes_its_place_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(&path, b"old").unwrap();
        let mut streamed = Streamed::create(&path).unwrap();
        streamed.write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        streamed.place().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        drop(Streamed::create(&path).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left of an unfinished file");
        let null = Path::new("/dev/null");
        Streamed::create(null).unwrap().place().unwrap();
        assert!(!null.is_file());
    }

    #[test]
    fn a_file_of_a_cache_is_replaced_and_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.json");
        for text in ["one", "two"] {
            write_cached(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read(&path).unwrap(), text.as_bytes());
        }
        // A folder that is not empty cannot be replaced.
        let taken = folder.path().join("taken");
        fs::create_dir_all(taken.join("inner")).unwrap();
        assert!(write_cached(&taken, b"three").is_err());
        let mut names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["kept.json", "taken"]);
    }

    #[test]
    fn a_file_within_a_folder_takes_the_place_of_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new] = ["old", "new"].map(|name| folder.path().join(name));
        fs::write(&old, b"one").unwrap();
        fs::hard_link(&old, &new).unwrap();
        write_within(&new, b"two").unwrap();
        assert_eq!((fs::read(&old).unwrap(), fs::read(&new).unwrap()), (b"one".to_vec(), b"two".to_vec()));
        let error = write_within(&folder.path().join("nowhere/file"), b"").unwrap_err();
        assert!(format!("{error:#}").contains("nowhere/file: No such file"), "{error:#}");
    }

    #[test]
    fn folders_within_a_removed_folder_do_not_bring_it_back() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("draft");
        fs::create_dir(&folder).unwrap();
        let both = create_folders_within(&folder, Path::new("model/1")).unwrap();
        assert_eq!(both, create_folders_within(&folder, Path::new("model/1")).unwrap());
        assert!(both.ends_with("draft/model/1") && both.is_dir());
        assert_eq!(create_folders_within(&folder, Path::new("")).unwrap(), folder);
        fs::remove_dir_all(&folder).unwrap();
        let error = create_folders_within(&folder, Path::new("model/1")).unwrap_err();
        assert!(format!("{error:#}").contains("draft/model: No such file"), "{error:#}");
        assert!(!folder.exists());
    }

    #[test]
    fn paths_lead_from_a_folder_to_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::create_dir_all(place("models/bert")).unwrap();
        fs::write(place("blob"), b"").unwrap();
        symlink("../../blob", place("models/bert/model.onnx")).unwrap();
        let path = |from: &str, to: &str| relative_path(&place(from), &place(to));
        assert_eq!(path("out", "models/bert").unwrap(), "../models/bert");
        assert_eq!(path("models/out", "models/bert/model.onnx").unwrap(), "../bert/model.onnx", "by its own name");
        assert_eq!(path("models/bert", "models"), Some("..".to_owned()));
        assert_eq!(path("out", "nowhere/model"), None);
        symlink("models/bert", place("link")).unwrap();
        assert_eq!(path("link/out", "blob").unwrap(), "../../../blob");
    }
}
