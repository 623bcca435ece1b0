//! A data set as documents name it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use planish_artifact::files::digest;
use planish_artifact::manifest::File;

use super::media::PictureFiles;
use super::tensors;

/// The name, the size and the digest of a data set: of a folder those of its files of tensors or pictures together, whose names and digests
/// are digested.
///
/// # Errors
/// When it cannot be read.
pub fn described(path: &Path) -> Result<File> {
    let size = |file: &Path| Ok::<u64, anyhow::Error>(fs::metadata(file).with_context(|| unreadable(file))?.len());
    let name = name_of(path);
    if !path.is_dir() {
        return Ok(File { name, bytes: size(path)?, blake3: Some(digest(path)?) });
    }
    let (mut bytes, mut hasher) = (0, blake3::Hasher::new());
    let files: Vec<(String, PathBuf)> = match PictureFiles::find(path, usize::MAX)? {
        Some(pictures) => pictures.files.into_iter().map(|file| (file.name, file.path)).collect(),
        None => tensors::files(path)?.into_iter().map(|file| (name_of(&file), file)).collect(),
    };
    for (name, file) in files {
        bytes += size(&file)?;
        hasher.update(format!("{name}\n{}\n", digest(&file)?).as_bytes());
    }
    Ok(File { name, bytes, blake3: Some(hasher.finalize().to_hex().to_string()) })
}

fn name_of(path: &Path) -> String {
    // A folder may be named by `.`.
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    path.file_name().or(whole.file_name()).unwrap_or_default().to_string_lossy().into_owned()
}

fn unreadable(path: &Path) -> String {
    format!("cannot read {}", path.display())
}
