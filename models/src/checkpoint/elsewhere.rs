//! Weight files on other machines, read by ranges.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A file that is not here.
pub trait RemoteFile: fmt::Debug + Send + Sync {
    /// Its size in bytes.
    fn bytes(&self) -> u64;

    /// Fills a buffer with the bytes from an offset on.
    ///
    /// # Errors
    /// When they do not come, or the file ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// Weight files that are not here, by the paths that stand for them: a file of the same size is at each, whose bytes mean nothing.
pub type RemoteFiles = BTreeMap<PathBuf, Arc<dyn RemoteFile>>;

/// Where the bytes of a weight file are.
#[derive(Debug)]
pub(crate) enum Bytes {
    Here(File),
    Elsewhere(Arc<dyn RemoteFile>),
}

impl Bytes {
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Here(file) => file.read_exact_at(buffer, offset),
            Self::Elsewhere(file) => file.read_at(offset, buffer),
        }
    }
}
