//! Files of what TensorRT measured or compiled, in the user's folder of caches: a later process takes them instead of
//! measuring or compiling again.
//!
//! There is one for each kind, product, version and GPU, and of compiled kernels one for each engine. None is part of an artifact, and nothing fails without it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use planish_files::Kind;

use super::version::Version;
use crate::cache_folder;

/// What a file contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    /// What TensorRT measured of kernels when it built engines.
    Timing,
    /// The kernels that TensorRT-RTX compiled when it loaded engines.
    Kernels,
}

impl CacheKind {
    /// What names of files begin with.
    fn name(self) -> &'static str {
        match self {
            Self::Timing => "timing",
            Self::Kernels => "kernels",
        }
    }

    /// What a file begins with, before its contents and after it the digest of those.
    fn magic(self) -> &'static [u8] {
        match self {
            Self::Timing => b"planish timing cache 1\n",
            Self::Kernels => b"planish kernels cache 1\n",
        }
    }
}

/// The bytes of a digest.
const DIGEST: usize = blake3::OUT_LEN;

/// The file of a kind for a product, a version, a GPU and, for kernels, an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheFile {
    kind: CacheKind,
    path: PathBuf,
}

impl CacheFile {
    /// The file in the user's folder of caches; `None` where the user has none.
    #[must_use]
    pub fn find(kind: CacheKind, product: &str, version: Version, device: &str) -> Option<Self> {
        let folder = cache_folder::of_user()?;
        Some(Self::within(&folder, kind, product, version, device))
    }

    /// The file of one engine, by its digest.
    #[must_use]
    pub fn of_engine(self, engine: &blake3::Hash) -> Self {
        Self { path: self.path.with_extension(format!("{}.cache", &engine.to_hex()[..16])), ..self }
    }

    fn within(folder: &Path, kind: CacheKind, product: &str, version: Version, device: &str) -> Self {
        let plain = |text: &str| text.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "-");
        let name = format!("{}-{}-{version}-{}.cache", kind.name(), plain(product), plain(device));
        Self { kind, path: folder.join(name) }
    }

    /// What an earlier process wrote. `warn` is told of a file that is none, which the next [`write`](Self::write) replaces.
    pub fn read(&self, warn: &dyn Fn(&str)) -> Option<Vec<u8>> {
        // Writers rename: what is here is whole.
        let bytes = match planish_files::read(&self.path, &Kind::CACHED) {
            Ok(bytes) => bytes,
            Err(error) if error.is_not_found() => return None,
            Err(error) => {
                let error = io::Error::from(error);
                warn(&format!("{} cannot be read and is replaced: {error}", self.path.display()));
                return None;
            }
        };
        match self.contents(&bytes) {
            Ok(contents) => Some(contents.to_vec()),
            Err(reason) => {
                let name = self.kind.name();
                warn(&format!("{} is no {name} cache of planish, and is replaced: {reason}", self.path.display()));
                None
            }
        }
    }

    fn contents<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], &'static str> {
        let rest = bytes.strip_prefix(self.kind.magic()).ok_or("it does not begin as one")?;
        let (digest, contents) = rest.split_at_checked(DIGEST).ok_or("it is cut off")?;
        match blake3::hash(contents).as_bytes() == digest {
            true => Ok(contents),
            false => Err("its contents are not those that were written"),
        }
    }

    /// Replaces the contents, as a whole.
    ///
    /// # Errors
    /// When the file cannot be written; the path is in the error.
    pub fn write(&self, contents: &[u8]) -> Result<(), String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let failed = |error: io::Error| format!("cannot write {}: {error}", self.path.display());
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(failed)?;
        let bytes = [self.kind.magic(), blake3::hash(contents).as_bytes(), contents].concat();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let draft = self.path.with_extension(format!("{}-{number}", std::process::id()));
        let written = fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, &self.path));
        if written.is_err() {
            // It may not be there.
            let _ = fs::remove_file(&draft);
        }
        written.map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const VERSION: Version = Version { major: 11, minor: 4, patch: 0, build: 9 };

    fn read(file: &CacheFile) -> (Option<Vec<u8>>, Vec<String>) {
        let warnings = RefCell::new(Vec::new());
        let read = file.read(&|warning| warnings.borrow_mut().push(warning.to_owned()));
        (read, warnings.into_inner())
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file =
            CacheFile::within(&folder.path().join("new"), CacheKind::Timing, "TensorRT", VERSION, "NVIDIA H200 / 1");
        assert_eq!(file.path.file_name().unwrap(), "timing-TensorRT-11.4.0.9-NVIDIA-H200---1.cache");
        assert_eq!(read(&file), (None, Vec::new()), "there is none yet");
        for measured in [&b"one"[..], b"", b"three"] {
            file.write(measured).unwrap();
            assert_eq!(read(&file), (Some(measured.to_vec()), Vec::new()));
        }
        assert_eq!(fs::read_dir(folder.path().join("new")).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_none_is_replaced_with_a_warning() {
        let (folder, kind) = (tempfile::tempdir().unwrap(), CacheKind::Kernels);
        let file = CacheFile::within(folder.path(), kind, "TensorRT", VERSION, "H200");
        file.write(b"measured").unwrap();
        let whole = fs::read(&file.path).unwrap();
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        let broken: [(&[u8], &str); 4] = [
            (b"something else", "does not begin as one"),
            (b"", "does not begin as one"),
            (&whole[..kind.magic().len() + 5], "is cut off"),
            (&changed, "not those that were written"),
        ];
        for (bytes, reason) in broken {
            fs::write(&file.path, bytes).unwrap();
            let (measured, warnings) = read(&file);
            assert_eq!(measured, None);
            assert!(warnings.len() == 1 && warnings[0].contains(reason), "{warnings:?}");
            file.write(b"again").unwrap();
            assert_eq!(read(&file).0.as_deref(), Some(&b"again"[..]));
        }
    }

    #[test]
    fn each_kind_version_and_gpu_has_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file =
            |kind, patch, gpu| CacheFile::within(folder.path(), kind, "TensorRT", Version { patch, ..VERSION }, gpu);
        let all = [
            file(CacheKind::Timing, 0, "H200"),
            file(CacheKind::Kernels, 0, "H200"),
            file(CacheKind::Kernels, 1, "H200"),
            file(CacheKind::Kernels, 0, "A100"),
            file(CacheKind::Kernels, 0, "H200").of_engine(&blake3::hash(b"one")),
            file(CacheKind::Kernels, 0, "H200").of_engine(&blake3::hash(b"two")),
        ];
        for (number, file) in all.iter().enumerate() {
            file.write(&[number as u8]).unwrap();
        }
        for (number, file) in all.iter().enumerate() {
            assert_eq!(read(file), (Some(vec![number as u8]), Vec::new()));
        }
        // The contents of another kind.
        fs::copy(&all[0].path, &all[1].path).unwrap();
        assert_eq!(read(&all[1]).0, None);
    }

    /// Writers of several threads: a reader sees the contents of one of them.
    #[test]
    fn writers_do_not_mix() {
        let folder = tempfile::tempdir().unwrap();
        let file = CacheFile::within(folder.path(), CacheKind::Kernels, "TensorRT", VERSION, "H200");
        std::thread::scope(|scope| {
            for writer in 0..4u8 {
                let file = &file;
                scope.spawn(move || (0..50).for_each(|_| file.write(&[writer; 10_000]).unwrap()));
            }
            for _ in 0..200 {
                let (contents, warnings) = read(&file);
                assert_eq!(warnings, [""; 0]);
                assert!(contents.is_none_or(|c| c.len() == 10_000 && c.iter().all(|byte| *byte == c[0])));
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_folder_of_caches() {
        let folder =
            |caches: Option<&str>, home: Option<&str>| cache_folder::of(caches.map(Into::into), home.map(Into::into));
        assert_eq!(folder(Some("/caches"), Some("/home")), Some("/caches/planish".into()));
        assert_eq!(folder(Some("relative"), Some("/home")), Some("/home/.cache/planish".into()));
        assert_eq!(folder(None, Some("/home")), Some("/home/.cache/planish".into()));
        assert_eq!(folder(None, None), None);
    }
}
