//! The artifacts in the current folder.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use planish_artifact::{Artifact, MANIFEST};

/// Whether a path is the folder of an artifact.
pub(super) fn is_artifact(path: &Path) -> bool {
    path.join(MANIFEST).is_file()
}

/// The artifact in the current folder, or those below it by the names of their models.
///
/// # Errors
/// When one cannot be opened, and when there is none.
pub(super) fn artifacts_here() -> Result<Vec<Artifact>> {
    let mut folders = Vec::new();
    below(Path::new("."), DEPTH, &mut folders);
    if folders.is_empty() {
        bail!(
            "there is no artifact in the current folder or below it; make one with `planish compile`, or name an artifact, \
             an .onnx file or a checkpoint"
        );
    }
    let mut artifacts = folders.iter().map(|folder| Artifact::open(folder)).collect::<Result<Vec<_>>>()?;
    let task = |artifact: &Artifact| artifact.manifest.task.map(|task| task.to_string());
    artifacts.sort_by_key(|a| (a.manifest.source.name.clone(), task(a), a.folder.clone()));
    Ok(artifacts)
}

/// How deep artifacts are looked for.
const DEPTH: usize = 3;

fn below(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    if is_artifact(folder) {
        found.push(folder.to_owned());
        return;
    }
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|e| depth > 0 && e.file_type().is_ok_and(|t| t.is_dir())) {
        if !entry.file_name().to_string_lossy().starts_with('.') {
            below(&entry.path(), depth - 1, found);
        }
    }
}
