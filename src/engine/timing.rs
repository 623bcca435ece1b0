//! The file of what TensorRT measured of kernels: a later build of a like model takes it instead of measuring again.
//!
//! There is one for each product, version and GPU, in the user's folder of caches. It is not part of an artifact, and
//! nothing fails without it.
#![cfg_attr(not(any(feature = "tensorrt-rtx", feature = "tensorrt")), allow(dead_code))]

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_runtimes::tensorrt::Version;

/// What a file begins with, before what TensorRT measured and behind it the digest of that.
const MAGIC: &[u8] = b"planish timing cache 1\n";

/// The bytes of a digest.
const DIGEST: usize = blake3::OUT_LEN;

/// The file for a product, a version and a GPU.
pub(super) struct TimingFile(PathBuf);

impl TimingFile {
    /// The file in the user's folder of caches; `None` where the user has none.
    pub(super) fn find(product: &str, version: Version, device: &str) -> Option<Self> {
        let folder = cache_folder(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))?;
        Some(Self::within(&folder, product, version, device))
    }

    fn within(folder: &Path, product: &str, version: Version, device: &str) -> Self {
        let plain = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
        Self(folder.join(format!("timing-{}-{version}-{}.cache", plain(product), plain(device))))
    }

    /// What an earlier build measured. `warn` is told of a file that is none, which the next build replaces.
    pub(super) fn read(&self, warn: &dyn Fn(&str)) -> Option<Vec<u8>> {
        let read = || -> Result<Vec<u8>> {
            // Writers rename: what is here is whole.
            let bytes = fs::read(&self.0)?;
            let Some(rest) = bytes.strip_prefix(MAGIC) else { bail!("it does not begin as one") };
            let Some((digest, measured)) = rest.split_at_checked(DIGEST) else { bail!("it is cut off") };
            if blake3::hash(measured).as_bytes() != digest {
                bail!("its contents are not those that were written");
            }
            Ok(measured.to_vec())
        };
        match read() {
            Ok(measured) => Some(measured),
            Err(error) if error.downcast_ref().is_some_and(|e: &io::Error| e.kind() == io::ErrorKind::NotFound) => None,
            Err(error) => {
                warn(&format!("{} is no timing cache of planish, and is replaced: {error:#}", self.0.display()));
                None
            }
        }
    }

    /// Replaces what was measured, as a whole.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn write(&self, measured: &[u8]) -> Result<()> {
        let folder = self.0.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let bytes = [MAGIC, blake3::hash(measured).as_bytes(), measured].concat();
        // Not by `files::write`: this file is none of the command's outputs, which a signal would wait for.
        let draft = self.0.with_extension(format!("{:016x}", fastrand::u64(..)));
        let written = fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, &self.0));
        if written.is_err() {
            // It may not be there.
            let _ = fs::remove_file(&draft);
        }
        written.with_context(|| format!("cannot write {}", self.0.display()))
    }
}

/// The folder of caches of planish, by two variables of the environment.
fn cache_folder(caches: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let caches = caches.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".cache")));
    Some(caches?.join("planish"))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const VERSION: Version = Version { major: 11, minor: 4, patch: 0, build: 9 };

    fn read(file: &TimingFile) -> (Option<Vec<u8>>, Vec<String>) {
        let warnings = RefCell::new(Vec::new());
        let read = file.read(&|warning| warnings.borrow_mut().push(warning.to_owned()));
        (read, warnings.into_inner())
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = TimingFile::within(&folder.path().join("new"), "TensorRT", VERSION, "NVIDIA H200 / 1");
        assert_eq!(file.0.file_name().unwrap(), "timing-TensorRT-11.4.0.9-NVIDIA-H200---1.cache");
        assert_eq!(read(&file), (None, Vec::new()), "there is none yet");
        for measured in [&b"one"[..], b"", b"three"] {
            file.write(measured).unwrap();
            assert_eq!(read(&file), (Some(measured.to_vec()), Vec::new()));
        }
        assert_eq!(fs::read_dir(folder.path().join("new")).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_none_is_replaced_with_a_warning() {
        let folder = tempfile::tempdir().unwrap();
        let file = TimingFile::within(folder.path(), "TensorRT", VERSION, "H200");
        file.write(b"measured").unwrap();
        let whole = fs::read(&file.0).unwrap();
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        let broken: [(&[u8], &str); 4] = [
            (b"something else", "does not begin as one"),
            (b"", "does not begin as one"),
            (&whole[..MAGIC.len() + 5], "is cut off"),
            (&changed, "not those that were written"),
        ];
        for (bytes, reason) in broken {
            fs::write(&file.0, bytes).unwrap();
            let (measured, warnings) = read(&file);
            assert_eq!(measured, None);
            assert!(warnings.len() == 1 && warnings[0].contains(reason), "{warnings:?}");
            file.write(b"again").unwrap();
            assert_eq!(read(&file).0.as_deref(), Some(&b"again"[..]));
        }
    }

    #[test]
    fn the_folder_of_caches() {
        let folder =
            |caches: Option<&str>, home: Option<&str>| cache_folder(caches.map(Into::into), home.map(Into::into));
        assert_eq!(folder(Some("/caches"), Some("/home")), Some("/caches/planish".into()));
        assert_eq!(folder(Some("relative"), Some("/home")), Some("/home/.cache/planish".into()));
        assert_eq!(folder(None, Some("/home")), Some("/home/.cache/planish".into()));
        assert_eq!(folder(None, None), None);
    }
}
