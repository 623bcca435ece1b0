//! The output folder of a finished compilation: what is in it.

pub(crate) mod genai;
pub mod manifest;
pub mod package;
pub mod precision;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

use crate::artifact::manifest::{File, Manifest, Part};

/// The name of the manifest in an artifact.
pub const MANIFEST: &str = "planish.json";

/// The names of all files of an artifact.
pub(crate) fn file_names(manifest: &Manifest) -> impl Iterator<Item = &str> {
    let model = manifest.files.iter().map(|file| file.name.as_str());
    let taken_over = manifest.linked.iter().chain(&manifest.companions).map(String::as_str);
    model.chain(taken_over).chain([MANIFEST])
}

/// The graph of an artifact that is one model, and where its file is.
///
/// # Errors
/// When the folder is no artifact, or one of several models.
pub fn model<'a>(folder: &Path, manifest: &'a Manifest) -> Result<(PathBuf, &'a Part)> {
    match manifest.parts.as_slice() {
        [part] => Ok((part_path(folder, manifest, part)?, part)),
        parts => {
            let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
            bail!(
                "{} is made of {} ({}), and only artifacts of one model can be taken here; `planish verify` takes it",
                folder.display(),
                names.join(", "),
                manifest.task.as_deref().unwrap_or("no task that its graph tells")
            )
        }
    }
}

/// Where the file of a part is.
///
/// # Errors
/// When it or weights that it points into are missing, or not as long as they were.
pub fn part_path(folder: &Path, manifest: &Manifest, part: &Part) -> Result<PathBuf> {
    let name = format!("{}.onnx", part.name);
    let file = manifest.files.iter().find(|file| file.name == name);
    let file = file
        .ok_or_else(|| anyhow!("{} names no file {name}; compile the model again", folder.join(MANIFEST).display()))?;
    for linked in &manifest.linked {
        if let Some(source) = manifest.source.files.iter().find(|source| source.name == *linked) {
            whole(folder, source)?;
        }
    }
    whole(folder, file)
}

/// A file of an artifact, if it is as long as it was.
fn whole(folder: &Path, file: &File) -> Result<PathBuf> {
    let path = folder.join(&file.name);
    match fs::metadata(&path) {
        Ok(metadata) if metadata.len() == file.bytes => Ok(path),
        Ok(metadata) => bail!(
            "{} has {} bytes, {MANIFEST} says {}: it was changed or cut off; compile it again",
            path.display(),
            metadata.len(),
            file.bytes
        ),
        Err(error) => Err(error).with_context(|| format!("cannot open {}; compile the model again", path.display())),
    }
}
