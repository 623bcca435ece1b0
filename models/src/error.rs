//! The errors of loading a checkpoint.

use std::io;
use std::path::PathBuf;

use planish_files::FileError;
use planish_ir::{BuildError, VerifyError};

use crate::Task;

/// A checkpoint cannot be loaded: what is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The system refuses to open or read a file; the source says why.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file or folder is not what it should be.
    #[error("{}: {message}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The problem of the file.
        message: String,
    },
    /// A tensor that the model needs is in no weight file.
    #[error("tensor `{name}` is missing from {}{hint}", path.display())]
    MissingTensor {
        /// The name under which it was looked for.
        name: String,
        /// The weight file, or the folder of several.
        path: PathBuf,
        /// Names that come close, and what else may help.
        hint: String,
    },
    /// A stored tensor does not fit the model.
    #[error("tensor `{name}` of {}: {message}", path.display())]
    Tensor {
        /// The tensor's name as stored.
        name: String,
        /// The weight file.
        path: PathBuf,
        /// The expected and the actual properties.
        message: String,
    },
    /// The architecture has no such head.
    #[error("`{model_type}` has no task `{task}`; it has {}", Task::list(tasks))]
    Task {
        /// The architecture.
        model_type: &'static str,
        /// The task that was asked for.
        task: Task,
        /// The tasks that it has.
        tasks: &'static [Task],
    },
    /// Warnings, where the caller wants none.
    #[error("strict loading allows no warnings:\n  {}", .0.join("\n  "))]
    Strict(Vec<String>),
    /// The parts of the model do not fit together.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The graph breaks an invariant.
    #[error(transparent)]
    Verify(#[from] VerifyError),
}

impl From<FileError> for ModelError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Read { path, source } => Self::Read { path, source },
            FileError::Refused { path, message } => Self::File { path, message },
        }
    }
}
