//! The library whose file names and configuration files an artifact has.

use std::path::Path;

use anyhow::{Result, bail};
use clap::ValueEnum;
use planish_models::{Loaded, Task};
use serde::{Deserialize, Serialize};

use crate::artifact::genai;
use crate::backend::Emitted;

/// The library that an artifact is laid out for. The graphs are the same for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimePackage {
    /// The file names of Optimum, which ONNX Runtime alone loads too
    #[default]
    Optimum,
    /// The file names of onnxruntime-genai, for decoders only: genai_config.json is added, and weights above 1.5 GB
    /// are in model.onnx.data
    Genai,
}

impl RuntimePackage {
    /// The suffix of the name of an artifact's folder.
    pub(crate) fn folder_suffix(self) -> &'static str {
        match self {
            Self::Optimum => "",
            Self::Genai => "-genai",
        }
    }

    /// The suffix after `NAME.onnx` in the name of a file of weights.
    pub(crate) fn data_suffix(self) -> &'static str {
        match self {
            Self::Optimum => "_data",
            Self::Genai => ".data",
        }
    }

    /// Checks that the library can load such a model.
    ///
    /// # Errors
    /// When it cannot.
    pub(crate) fn check(self, model: &Loaded) -> Result<()> {
        match (self, model.task) {
            (Self::Optimum, _) | (Self::Genai, Some(Task::TextGeneration)) => Ok(()),
            (Self::Genai, task) => bail!(
                "onnxruntime-genai loads no {} for {}: of what planish compiles it takes decoders for {} only; \
                 leave out --runtime-package",
                model.architecture,
                task.map_or("what is not known", Task::name),
                Task::TextGeneration,
            ),
        }
    }

    /// The warnings for users of the library.
    pub(crate) fn warnings(self, model: &Loaded) -> Vec<String> {
        match self {
            Self::Optimum => Vec::new(),
            Self::Genai => genai::warnings(model),
        }
    }

    /// Writes what the library needs besides the model and what was copied from the source into a
    /// folder; returns the names of the files, and what a user must know. `scored` is how wide logits
    /// are, if not as in the source; `emitted` are the files of each part.
    ///
    /// # Errors
    /// When a configuration that was copied there cannot be honoured, or a file cannot be written.
    pub(crate) fn configure(
        self,
        model: &Loaded,
        scored: Option<usize>,
        emitted: &[Emitted],
        folder: &Path,
    ) -> Result<(Vec<String>, Option<String>)> {
        match self {
            Self::Optimum => Ok((Vec::new(), None)),
            Self::Genai => Ok((vec![genai::CONFIG.to_owned()], genai::write(model, scored, emitted, folder)?)),
        }
    }
}
