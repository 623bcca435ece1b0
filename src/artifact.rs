//! The output folder of a finished compilation: what is in it, and whether it may be replaced.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

use crate::manifest::{File, Manifest, Part};

/// The name of the manifest in an artifact.
pub const MANIFEST: &str = "planish.json";

/// How many names of files an error lists.
const LISTED: usize = 5;

/// Whether something new may take the place of what is at `target`: nothing, an empty folder, or
/// an artifact in which every entry is planish's; with `force` any folder.
pub(crate) fn check_replaceable(target: &Path, force: bool) -> Result<()> {
    let identity = || fs::symlink_metadata(target).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    loop {
        let looked_at = identity();
        let verdict = judge(target, force);
        // Another process may have put another folder there meanwhile.
        if verdict.is_ok() || identity() == looked_at {
            return verdict;
        }
    }
}

fn judge(target: &Path, force: bool) -> Result<()> {
    let Ok(metadata) = fs::symlink_metadata(target) else { return Ok(()) };
    if !metadata.is_dir() {
        bail!("{} exists and is no folder; choose another output with -o", target.display());
    }
    let inside = |path: &Path| path.canonicalize().is_ok_and(|p| target.canonicalize().is_ok_and(|t| p.starts_with(t)));
    if std::env::current_dir().is_ok_and(|cwd| inside(&cwd)) {
        bail!("{} holds the current folder and is not replaced; choose another output with -o", target.display());
    }
    if force {
        return Ok(());
    }
    let context = || format!("cannot read the folder {}", target.display());
    let entries = fs::read_dir(target).with_context(context)?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>().with_context(context)?;
    if entries.is_empty() {
        return Ok(());
    }
    let Ok(manifest) = Manifest::read(target) else {
        bail!(
            "{} exists and was not written by planish (it has no {MANIFEST} that this version reads); choose another \
             output with -o, or replace it with --force",
            target.display()
        )
    };
    let own: Vec<&str> = file_names(&manifest).collect();
    entries.retain(|entry| {
        let folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        folder || !entry.file_name().to_str().is_some_and(|name| own.contains(&name))
    });
    if entries.is_empty() {
        return Ok(());
    }
    let mut others: Vec<String> = entries.iter().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    others.sort();
    let more = others.len().saturating_sub(LISTED);
    others.truncate(LISTED);
    bail!(
        "{} holds what was not written by planish: {}{}; move it elsewhere, choose another output with -o, or replace \
         the folder with --force",
        target.display(),
        others.join(", "),
        if more > 0 { format!(" and {more} more") } else { String::new() }
    )
}

/// The names of all files of an artifact.
fn file_names(manifest: &Manifest) -> impl Iterator<Item = &str> {
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
