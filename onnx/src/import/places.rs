//! Where external data of a model may be.
//!
//! A model names files by their place relative to its own folder: without `..`, and never by an absolute path, since a
//! model may come from anyone. Links are not the model's: whoever laid the files made them. They are followed to where
//! the model's own files are, and no further, so that a folder that came with links cannot bring other files of the
//! machine into an artifact: into the model's folder; where the model itself is a link, into the folder that it leads
//! to; and in a cache of the Hugging Face hub, whose `snapshots/REVISION/model.onnx` and data are links into `blobs`,
//! into the folder of the repository that holds both.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The folders of a hub's cache: of the files of a revision, which are links, and of what they lead to.
const SNAPSHOTS: &str = "snapshots";
const BLOBS: &str = "blobs";

/// Where the data of a model is looked for.
#[derive(Default)]
pub(super) struct Places {
    /// The folder of the model, and where the model is a link that of what it leads to.
    folders: Vec<PathBuf>,
}

impl Places {
    /// Of the model at a path.
    pub(super) fn of(model: &Path) -> Self {
        let parent = |path: &Path| match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let mut folders = vec![parent(model)];
        if fs::symlink_metadata(model).is_ok_and(|metadata| metadata.is_symlink())
            && let Ok(real) = model.canonicalize()
        {
            folders.push(parent(&real));
        }
        Self { folders }
    }

    /// The file that a model calls by a location.
    ///
    /// # Errors
    /// When the location leads elsewhere, or there is no such file.
    pub(super) fn find(&self, location: &str) -> Result<PathBuf, String> {
        let inside = !location.is_empty()
            && Path::new(location).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        let outside = || format!("its external data `{location}` is outside of the model's folder");
        if !inside {
            return Err(format!("{}; save the model with its data in one folder", outside()));
        }
        let failed = |e: io::Error| format!("its external data `{location}` cannot be read: {e}");
        let mut missing = None;
        for folder in &self.folders {
            let path = folder.join(location);
            match path.canonicalize() {
                Ok(real) if self.roots().map_err(failed)?.iter().any(|root| real.starts_with(root)) => return Ok(path),
                Ok(real) => {
                    let real = real.display();
                    return Err(format!("{}: a link leads to {real}; copy that file beside the model", outside()));
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => missing = missing.or(Some(e)),
                Err(e) => return Err(failed(e)),
            }
        }
        Err(failed(missing.unwrap_or_else(|| io::ErrorKind::NotFound.into())))
    }

    /// The folders that links may lead into.
    fn roots(&self) -> io::Result<Vec<PathBuf>> {
        let mut roots = self.folders.iter().map(|folder| folder.canonicalize()).collect::<io::Result<Vec<_>>>()?;
        let repository = roots.first().and_then(|folder| repository(folder));
        roots.extend(repository);
        Ok(roots)
    }
}

/// The folder of a repository in a hub's cache that a folder of one of its revisions is in.
fn repository(folder: &Path) -> Option<PathBuf> {
    let snapshots = folder.ancestors().find(|ancestor| ancestor.file_name().is_some_and(|name| name == SNAPSHOTS))?;
    let repository = snapshots.parent()?;
    repository.join(BLOBS).is_dir().then(|| repository.to_owned())
}
