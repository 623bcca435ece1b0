//! The one place that opens files for reading.
//!
//! Files come from unknown authors, and a name may lead to a device, a pipe or a file of any size. So only regular files are
//! opened, and a file that is read whole has a [`Kind`], which limits how much of it is in memory. clippy.toml forbids the
//! other ways to open a file.

mod caught;
mod kind;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use caught::caught;
pub use kind::Kind;

/// A file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refuses to open or read it; the source says why.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It is no file that is read, or too large.
    #[error("{}: {message}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        message: String,
    },
}

impl FileError {
    /// Whether there is no such file.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// The error alone, for callers that know the file.
impl From<FileError> for io::Error {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Read { source, .. } => source,
            FileError::Refused { message, .. } => Self::new(io::ErrorKind::InvalidInput, message),
        }
    }
}

/// Opens a regular file; returns its size in bytes too.
///
/// # Errors
/// When it cannot be opened, or is a folder, a pipe, a device, or something else.
pub fn open(path: &Path) -> Result<(File, u64), FileError> {
    let failed = |source| FileError::Read { path: path.to_owned(), source };
    let refused = |kind| FileError::Refused { path: path.to_owned(), message: not_regular(kind) };
    // Asked before opening: a named pipe would block.
    let kind = fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_file() {
        return Err(refused(kind));
    }
    #[allow(clippy::disallowed_methods, reason = "this is the place that opens files")]
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    // Another may be at the path by now.
    if !metadata.is_file() {
        return Err(refused(metadata.file_type()));
    }
    Ok((file, metadata.len()))
}

/// Opens a folder, which a lock needs.
///
/// # Errors
/// When it cannot be opened, or is something else.
pub fn open_folder(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    #[allow(clippy::disallowed_methods, reason = "this is the place that opens files")]
    File::open(path)
}

fn not_regular(kind: fs::FileType) -> String {
    use std::os::unix::fs::FileTypeExt;
    let what = match kind {
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_char_device() || kind.is_block_device() => "a device",
        kind if kind.is_socket() => "a socket",
        _ => "something else",
    };
    format!("this is not a regular file but {what}; give a file")
}

/// The bytes of a regular file.
///
/// # Errors
/// When it cannot be read, or is larger than files of its kind may be.
pub fn read(path: &Path, kind: &Kind) -> Result<Vec<u8>, FileError> {
    let (file, bytes) = open(path)?;
    let too_large = |size: String| FileError::Refused { path: path.to_owned(), message: kind.too_large(&size) };
    if bytes > kind.limit {
        return Err(too_large(format!("{bytes} bytes are")));
    }
    let mut content = Vec::new();
    // A file that grows, and one of the system whose size is said to be 0.
    let failed = |source| FileError::Read { path: path.to_owned(), source };
    file.take(kind.limit.saturating_add(1)).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > kind.limit {
        return Err(too_large("its bytes are".to_owned()));
    }
    Ok(content)
}

/// The text of a regular file in UTF-8.
///
/// # Errors
/// As [`read`], and when it is not UTF-8.
pub fn read_text(path: &Path, kind: &Kind) -> Result<String, FileError> {
    String::from_utf8(read(path, kind)?).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        FileError::Refused { path: path.to_owned(), message: format!("this is not UTF-8 text: see byte {at}") }
    })
}

/// The text of a regular file; `None` where there is none.
///
/// # Errors
/// As [`read_text`].
pub fn read_if_there(path: &Path, kind: &Kind) -> Result<Option<String>, FileError> {
    match read_text(path, kind) {
        Err(error) if error.is_not_found() => Ok(None),
        read => read.map(Some),
    }
}

/// The text of a file in which the system tells something, such as `/proc/self/status`; `None` where it does not.
#[must_use]
pub fn read_system(path: impl AsRef<Path>) -> Option<String> {
    read_text(path.as_ref(), &Kind::SYSTEM).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const SMALL: Kind = Kind { what: "a small file", limit: 4, advice: "give a smaller one" };

    #[test]
    fn files_up_to_the_limit_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "four").unwrap();
        assert_eq!(read(&path, &SMALL).unwrap(), b"four");
        assert_eq!(read_if_there(&path, &SMALL).unwrap(), Some("four".to_owned()));
        assert_eq!(open(&path).unwrap().1, 4);
        fs::write(&path, "five!").unwrap();
        let error = read(&path, &SMALL).unwrap_err().to_string();
        let expected = "5 bytes are more than 4, the most that planish reads of a small file; give a smaller one";
        assert_eq!(error, format!("{}: {expected}", path.display()));
        assert_eq!(read_if_there(&folder.path().join("none"), &SMALL).unwrap(), None);
        fs::write(&path, b"a\xff").unwrap();
        assert!(read_text(&path, &SMALL).unwrap_err().to_string().ends_with("this is not UTF-8 text: see byte 1"));
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("endless");
        symlink("/dev/zero", &link).unwrap();
        for (path, what) in [(link.as_path(), "a device"), (folder.path(), "a folder")] {
            let error = read(path, &SMALL).unwrap_err();
            let expected = format!("{}: this is not a regular file but {what}; give a file", path.display());
            assert_eq!(error.to_string(), expected);
            assert!(!error.is_not_found());
        }
    }

    #[test]
    fn files_whose_size_the_system_does_not_say_are_bounded_too() {
        assert!(read_system("/proc/self/status").unwrap().contains("VmRSS"));
        let error = read(Path::new("/proc/self/status"), &SMALL).unwrap_err().to_string();
        assert!(error.contains("its bytes are more than 4"), "{error}");
        assert_eq!(read_system("/proc/none"), None);
    }
}
