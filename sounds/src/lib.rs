//! Recordings as data: files of sound become the inputs that a model takes.
//!
//! [`Recording`] decodes a file piece by piece, [`Recording::samples`] gives one channel at any rate, and [`Processor`] follows the
//! preprocessor_config.json of a checkpoint.

mod decode;
mod features;
mod processor;
mod recording;
mod resample;

use std::path::PathBuf;

use planish_files::FileError;

pub use features::{Edges, LogMel, MelBank, MelOptions, MelScale, Spectra, Window};
pub use processor::{BandForm, BandSteps, FILES, InGraph, Prepared, Processor, Sounds};
pub use recording::{ENDINGS, RATES, Recording, Samples, is_recording};

/// A recording, or what says how recordings are processed, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SoundError {
    /// The file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] FileError),
    /// What it holds is malformed or not supported.
    #[error("{}: {message}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
}
