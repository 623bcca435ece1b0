//! Where external data of a model may be.
//!
//! A model names files by their place relative to its own folder: without `..`, and never by an absolute path, since a
//! model may come from anyone. Links are not the model's: whoever laid the files made them. They are followed to where
//! the model's own files are, and no further, so that a folder that came with links cannot bring other files of the
//! machine into an artifact: into the model's folder; where the model itself is a link, into the folder that it leads
//! to; in a cache of the Hugging Face hub, whose `snapshots/REVISION/model.onnx` and data are links into `blobs`,
//! into the folder of the repository that holds both; and in a repository of git into the rest of it, but for what is
//! hidden there: `.git`, and the settings of programs where somebody keeps a whole home in a repository.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The folders of a hub's cache: of the files of a revision, which are links, and of what they lead to.
const SNAPSHOTS: &str = "snapshots";
const BLOBS: &str = "blobs";

/// The folder, or in a worktree the file, that tells the root of a repository of git.
const GIT: &str = ".git";

/// Where the data of a model is looked for.
#[derive(Debug, Default)]
pub struct Places {
    /// The folder of the model, and where the model is a link that of what it leads to.
    folders: Vec<PathBuf>,
}

impl Places {
    /// Of the model at a path.
    #[must_use]
    pub fn of(model: &Path) -> Self {
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
    pub fn find(&self, location: &str) -> Result<PathBuf, PlaceError> {
        let inside = !location.is_empty()
            && Path::new(location).components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
        let location = location.to_owned();
        if !inside {
            return Err(PlaceError::Outside { location });
        }
        let failed = |reason: io::Error| PlaceError::Unreadable { location: location.clone(), reason };
        let mut missing = None;
        for folder in &self.folders {
            let path = folder.join(&location);
            match path.canonicalize() {
                Ok(real) if self.holds(&real).map_err(failed)? => return Ok(path),
                Ok(real) => return Err(PlaceError::Link { location, real }),
                Err(e) if e.kind() == io::ErrorKind::NotFound => missing = missing.or(Some(e)),
                Err(e) => return Err(failed(e)),
            }
        }
        Err(failed(missing.unwrap_or_else(|| io::ErrorKind::NotFound.into())))
    }

    /// Whether links may lead to a file.
    fn holds(&self, file: &Path) -> io::Result<bool> {
        let folders = self.folders.iter().map(|folder| folder.canonicalize()).collect::<io::Result<Vec<_>>>()?;
        let Some(own) = folders.first() else { return Ok(false) };
        let in_cache = repository(own).is_some_and(|root| file.starts_with(root));
        let in_git = || git_repository(own).and_then(|root| file.strip_prefix(root).ok()).is_some_and(is_shown);
        Ok(in_cache || folders.iter().any(|folder| file.starts_with(folder)) || in_git())
    }
}

/// A file of external data is not where it may be.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The location leads out of the model's folder.
    #[error(
        "its external data `{location}` is outside of the model's folder; save the model with its data in one folder"
    )]
    Outside {
        /// As the model has it.
        location: String,
    },
    /// A link leads out of the folders that links may lead to.
    #[error(
        "its external data `{location}` is outside of the model's folder: a link leads to {}; copy that file beside the model",
        .real.display()
    )]
    Link {
        /// As the model has it.
        location: String,
        /// Where the link leads.
        real: PathBuf,
    },
    /// It is not there, or cannot be read.
    #[error("its external data `{location}` cannot be read: {reason}")]
    Unreadable {
        /// As the model has it.
        location: String,
        /// Why.
        reason: io::Error,
    },
}

impl From<PlaceError> for String {
    fn from(error: PlaceError) -> Self {
        error.to_string()
    }
}

/// The root of the repository of git that a folder is in.
fn git_repository(folder: &Path) -> Option<&Path> {
    folder.ancestors().find(|ancestor| ancestor.join(GIT).exists())
}

/// Whether neither a file nor a folder on the way to it is hidden.
fn is_shown(file: &Path) -> bool {
    file.components().all(|component| !component.as_os_str().as_encoded_bytes().starts_with(b"."))
}

/// The folder of a repository in a hub's cache that a folder of one of its revisions is in.
fn repository(folder: &Path) -> Option<PathBuf> {
    let snapshots = folder.ancestors().find(|ancestor| ancestor.file_name().is_some_and(|name| name == SNAPSHOTS))?;
    let repository = snapshots.parent()?;
    repository.join(BLOBS).is_dir().then(|| repository.to_owned())
}
